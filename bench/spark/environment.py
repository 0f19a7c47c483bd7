"""The environment of Spark's benchmarks: a broker, a topic, a service, and running drivers.

Everything runs on this machine, in a temporary directory that is deleted at the end.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer

from bench.kafka import JAVA_OPTIONS, MissingPartError, find_jars
from bench.plan import Plan, serving
from bench.process import ProcessError, Server
from bench.spark import FORMATS, PLAIN, RALLYPOINT, READY
from bench.spark.drivers import CORES, Driver, driver
from tests.real.kafka import create_topic, running_broker
from tests.real.maven import FetchError
from tests.real.spark_kafka import SparkPair, fetch_pair

TOPIC = "records"
PARTITIONS = 12
VALUE_BYTES = 200
KEYS = 1_000


class Environment:
    """A broker with an empty topic, and a service."""

    def __init__(self, directory: Path, bootstrap_servers: str, java_home: Path, server: Server) -> None:
        self.directory = directory
        self.java_home = java_home
        self.server = server
        self.bootstrap_servers = bootstrap_servers
        self._checkpoints = 0

    def options(self, group: str | None, **more: str) -> dict[str, str]:
        """Of a query from the first record: a member of the group, or of Spark's own source."""
        base = {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            **more,
        }
        coordinator = f"http://{self.server.host}:{self.server.port}"
        return base if group is None else {**base, "coordinator": coordinator, "group": group, "source": "kafka"}

    def query(self, group: str, of_batch: int) -> dict[str, Any]:
        """Format, options and a fresh checkpoint of a query by our source, for batches of at most so many offsets."""
        options = self.options(group, maxOffsetsPerTrigger=str(of_batch))
        return {"format": RALLYPOINT, "options": options, "checkpoint": self._checkpoint()}

    def query_of(self, way: str, records: int, of_batch: int | None) -> dict[str, Any]:
        """The same for one way to read the topic, which has so many records; all at once if no batch is limited. Ours
        has a group that nobody had before.
        """
        limit = {} if of_batch is None else {"maxOffsetsPerTrigger": str(of_batch)}
        checkpoint = self._checkpoint()
        name = FORMATS.get(way, way)
        if name == RALLYPOINT:
            options = self.options(Path(checkpoint).name, **limit)
        elif name in {READY, PLAIN}:
            options = self.options(None, records=str(records), partitions=str(PARTITIONS), tasks=str(CORES), **limit)
        else:
            options = self.options(None, **limit)
        return {"format": name, "options": options, "checkpoint": checkpoint}

    def _checkpoint(self) -> str:
        self._checkpoints += 1
        return str(self.directory / f"checkpoint-{self._checkpoints}")

    async def produce(self, records: int) -> None:
        """Fill the topic, every partition alike."""
        with Filling(self.bootstrap_servers) as filling:
            for begin in range(0, records, KEYS * 10):
                await asyncio.to_thread(filling.add, min(KEYS * 10, records - begin))

    @asynccontextmanager
    async def drivers(
        self, pair: SparkPair | None, *names: str, conf: Mapping[str, str] | None = None
    ) -> AsyncIterator[list[Driver]]:
        """Drivers that are ready, all on this Python's PySpark or on the pair's."""
        async with AsyncExitStack() as stack:
            started = [await stack.enter_async_context(self.driver(name, pair, conf)) for name in names]
            for one in started:
                await one.wait_ready()
            yield started

    @asynccontextmanager
    async def driver(
        self, name: str, pair: SparkPair | None = None, conf: Mapping[str, str] | None = None
    ) -> AsyncIterator[Driver]:
        """One that may not be ready yet."""
        async with driver(self.directory, name, self.java_home, pair, conf) as one:
            yield one


class Filling:
    """Writes records to the topic in turns of its partitions. `ends`: how many each has, once it is closed."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "linger.ms": 5, "queue.buffering.max.messages": 200_000,
             "log_level": 0}
        )  # fmt: skip
        self._value = b"v" * VALUE_BYTES
        self._keys = [b"key-%d" % number for number in range(KEYS)]
        self.count = 0

    def add(self, records: int) -> None:
        """So many more; returns when they are sent."""
        for number in range(self.count, self.count + records):
            self._producer.produce(TOPIC, self._value, self._keys[number % KEYS], partition=number % PARTITIONS)
        self.count += records
        self._flush()

    @property
    def ends(self) -> dict[int, int]:
        """By partition."""
        whole, rest = divmod(self.count, PARTITIONS)
        return {partition: whole + (partition < rest) for partition in range(PARTITIONS)}

    def _flush(self) -> None:
        if self._producer.flush(60):
            raise ProcessError("the broker did not take all records within 60 s")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # A producer that lives on goes on asking for its broker.
        del self._producer


@asynccontextmanager
async def running_environment(plan: Plan) -> AsyncIterator[Environment]:
    """Everything fresh. Raises MissingPartError, ProcessError."""
    jars, java_home = await asyncio.to_thread(find_jars)
    with TemporaryDirectory(dir=plan.directory, prefix="bench-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        starting = running_broker(directory, jars, java_home, java_options=JAVA_OPTIONS)
        try:
            broker = await asyncio.to_thread(starting.__enter__)
        except RuntimeError as error:
            raise ProcessError(str(error)) from error
        try:
            await asyncio.to_thread(create_topic, broker.bootstrap_servers, TOPIC, PARTITIONS)
            async with serving(directory) as server:
                yield Environment(directory, broker.bootstrap_servers, java_home, server)
        finally:
            await asyncio.to_thread(starting.__exit__, None, None, None)


async def spark_pair(java_home: Path) -> SparkPair:
    """Spark's own source. Raises MissingPartError."""
    maven = shutil.which("mvn")
    assert maven is not None, "find_jars was asked before"
    try:
        return await asyncio.to_thread(fetch_pair, java_home, Path(maven))
    except FetchError as error:
        raise MissingPartError(f"PySpark with its connector to Kafka could not be fetched: {error}") from error
