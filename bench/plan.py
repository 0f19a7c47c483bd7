"""What a benchmark is, how much is measured, and the service that is: a process and a store of its own for each."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.beside import Result
from bench.process import Server, python, running

DEFAULT_DELAY_MS = 3_000
"""The service's own default of `group_initial_rebalance_delay_ms`, given as a flag so that the figure names it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. `seconds`: of a load; one at rest takes half as long again. `directory`: for the stores.
    `held`: the members of `channels-held`. `moves`: how often Spark's drivers hand over, and are killed. `etcd`: the
    addresses of one that takes the place of the SQLite files where a service is started once; None: SQLite everywhere.
    `shards`, `groups`: of a cluster; its members are those of `held`.
    """

    seconds: float
    sizes: tuple[int, ...]
    at_rest: int
    rounds: int
    directory: Path
    held: int = 10_000
    moves: int = 20
    etcd: str | None = None
    shards: int = 50
    groups: int = 1_000

    @property
    def warm_up_s(self) -> float:
        """How long a load runs before it is measured."""
        return self.seconds / 10


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`run` gives one result, or one for each size of group, way or time. `timeout_s`: besides the seconds that were
    asked for; one that hangs must not hang the run.
    """

    summary: str
    run: Callable[[Plan], Awaitable[Sequence[Result]]]
    timeout_s: float = 300.0


@asynccontextmanager
async def service(plan: Plan, *, delay_ms: int = 0) -> AsyncIterator[Server]:
    """A fresh service on an empty SQLite file or prefix of etcd, with every setting but one at its default."""
    with TemporaryDirectory(dir=plan.directory, prefix="bench-") as name:
        storage = None if plan.etcd is None else f"etcd://{plan.etcd}/{Path(name).name}"
        async with serving(Path(name), delay_ms=delay_ms, storage=storage) as server:
            yield server


@asynccontextmanager
async def serving(
    directory: Path, *, port: int = 0, delay_ms: int = 0, storage: str | None = None, settings: Sequence[str] = ()
) -> AsyncIterator[Server]:
    """A service on the SQLite file of that directory, which may be of one that ran before; or on the storage of that
    URL. Port 0 is any. `settings`: further flags.
    """
    arguments = ("--port", str(port), "--storage", storage or f"sqlite:///{directory}/store.db")
    delay = ("--group-initial-rebalance-delay-ms", str(delay_ms))
    async with running(python("rallypoint.cli.main", "serve", *arguments, *delay, *settings), directory) as server:
        yield server
