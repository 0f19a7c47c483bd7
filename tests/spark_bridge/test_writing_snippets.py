"""Every example of the documentation that writes, run by two drivers, of which one is killed: every record is counted.

All run side by side, in the two drivers, each as a group of its own on the same topics.
"""

import json
import secrets
import time
from pathlib import Path
from urllib.error import HTTPError

import psycopg
import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from examples.handover.books import read_progress
from rallypoint.spark_bridge.sources.files import FilesWriter, Record
from tests.end_to_end.service_process import running_service
from tests.spark_bridge.driver_process import SessionProcess
from tests.spark_bridge.ledger import value_of
from tests.spark_bridge.spark_run import WITH_SPARK, wait_until
from tests.spark_bridge.topic_fixture import PARTITIONS, TOPIC, committed, describe
from tests.spark_bridge.writing_snippets import SNIPPETS, Written, examples

pytestmark = [*WITH_SPARK, pytest.mark.programs, pytest.mark.postgresql]

PROGRAM = "tests.spark_bridge.snippet_program"
PRODUCING_SECONDS = 20.0
"""After so long come more records though some are not committed yet: of a driver that is killed, say. Otherwise they
come when all of before is committed. A batch costs half a second of CPU time in each of twelve queries, and a busy
machine would never catch up with records that come by the clock.
"""
TABLES = """
CREATE TABLE clicks (topic text, "partition" integer, "offset" bigint, word text);
CREATE TABLE words (word text PRIMARY KEY, count bigint);
"""


class Fixture:
    """Two topics, a service, a database; and two drivers with all examples."""

    def __init__(self, url: str, folder: Path, conninfo: str) -> None:
        self.url = url
        self.folder = folder
        self.conninfo = conninfo
        self.topics = folder / "topics"
        self._writers = {topic: FilesWriter(self.topics, topic, PARTITIONS) for topic in (TOPIC, "orders")}
        self.end = 0
        self._next_s = 0.0
        self.drivers = [self._open(name) for name in ("a", "b")]

    def _open(self, driver: str) -> SessionProcess:
        written = {name: text for _, name, text in examples()}
        texts, options = {}, {}
        for name, snippet in SNIPPETS.items():
            common = {
                "http://127.0.0.1:8000": self.url,
                "/data/checkpoints/one": str(self.checkpoint(driver, name)),
                "/data/": f"{self.folder / name}/",
                "TOPICS": str(self.topics),
                "CONNINFO": self.conninfo,
            }
            texts[name] = snippet.text(written[name], common)
            options[name] = {
                "coordinator": self.url,
                "group": name,
                "source": "files",
                "path": str(self.topics),
                "subscribe": TOPIC,
                "startingOffsets": "earliest",
                "sessionTimeoutMs": "6000",
            }
        given = {"texts": texts, "options": options, "sent": str(self.folder / f"{driver}.sent")}
        return SessionProcess(self.folder, driver, PROGRAM, (json.dumps(given),))

    def checkpoint(self, driver: str, name: str) -> Path:
        """Of a driver's query."""
        return self.folder / f"checkpoint-{driver}-{name}"

    def produce(self) -> None:
        """A few records into each partition."""
        for writer in self._writers.values():
            for partition in range(PARTITIONS):
                new = [Record(value=value_of(partition, self.end + place)) for place in range(5)]
                writer.append(partition, new)
        self.end += 5

    def produce_until(self, members: int, beyond: int) -> None:
        """Until each group has so many members, and has committed everything up to `beyond`."""

        def reached() -> bool:
            if time.monotonic() >= self._next_s or all(self._stands(name, members, self.end) for name in SNIPPETS):
                self.produce()
                self._next_s = time.monotonic() + PRODUCING_SECONDS
            for driver in self.drivers[:members]:
                driver.check_that_it_runs()
            return all(self._stands(name, members, beyond) for name in SNIPPETS)

        wait_until(reached, f"{members} members in each group, and all to commit {beyond}", pause_seconds=0.3)

    def _stands(self, group: str, members: int, beyond: int) -> bool:
        try:
            found = describe(self.url, group)
        except HTTPError:  # there is no such group yet
            return False
        if found["state"] != "Stable" or len(found["members"]) != members:
            return False
        offsets = committed(self.url, group)
        return len(offsets) == PARTITIONS * len(SNIPPETS[group].topics) and min(offsets) >= beyond

    def check(self, name: str) -> None:
        """Each record was written, and once, unless it may be there twice."""
        sent = [self.folder / f"{driver.name}.sent" for driver in self.drivers]
        snippet = SNIPPETS[name]
        counts = snippet.count(Written(self.folder / name, self.conninfo, sent))
        places = {(t, p, offset) for t in snippet.topics for p in range(PARTITIONS) for offset in range(self.end)}
        assert not places - counts.keys(), f"{name} has lost {len(places - counts.keys())} of {len(places)}"
        assert not counts.keys() - places, f"{name} has written what is not there"
        twice = [place for place, count in counts.items() if count > 1]
        assert snippet.twice or not twice, f"{name} has written {len(twice)} of {len(places)} twice"


def test_every_example_that_writes_loses_nothing(postgresql: str, tmp_path: Path, java_home: Path) -> None:
    schema = f"snippets_{secrets.token_hex(6)}"
    conninfo = f"{postgresql} options='-c search_path={schema}'"
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{schema}"')
        connection.execute(f'SET search_path TO "{schema}"')
        connection.execute(TABLES)
    with running_service(tmp_path, "--group-initial-rebalance-delay-ms", "0") as service:
        fixture = Fixture(service.url, tmp_path, conninfo)
        survives, dies = fixture.drivers
        try:
            fixture.produce()
            for driver in fixture.drivers:
                driver.start()
            for name in list(SNIPPETS)[:-1]:
                for driver in fixture.drivers:
                    driver.say_next(name)
            fixture.produce_until(members=2, beyond=0)
            fixture.produce_until(members=2, beyond=fixture.end + 5)
            fixture.produce()
            wait_until(
                lambda: any(read_progress(fixture.checkpoint(dies.name, name)).in_flight for name in SNIPPETS),
                f"{dies.name} to have a batch in hand",
            )
            dies.kill()
            fixture.produce_until(members=1, beyond=fixture.end)
            wait_until(
                lambda: all(min(committed(fixture.url, name)) == fixture.end for name in SNIPPETS),
                "all to be committed",
            )
            survives.check_that_it_runs()
        finally:
            for driver in fixture.drivers:
                driver.make_sure_it_is_gone()
        problems = [problem for name in SNIPPETS if (problem := find_problem(fixture, name))]
        assert not problems, "\n".join(problems)


def find_problem(fixture: Fixture, name: str) -> str:
    """What `check` says of it, so that one run tells about all."""
    try:
        fixture.check(name)
    except AssertionError as problem:
        return str(problem)
    return ""
