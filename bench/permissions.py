"""What a heartbeat costs with a token, and with a token and a policy of 1,000 rules, beside one with neither.

The three services run at the same time, and are loaded in turns, in short rounds: so what other programs do meanwhile
falls upon all of them. Every second rule of the policy is about the caller, and the one that allows stands last.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.channel import ChannelConnection
from bench.connection import Connection
from bench.crowd import Crowd
from bench.line import Line
from bench.load import run_closed
from bench.metrics import Cost, LoadResult, Tally, load_result, total_cost
from bench.plan import Benchmark, Plan, serving
from bench.process import Server
from bench.rebalances import group_at_rest
from bench.scenarios import CONNECTIONS, heartbeat_fault, heartbeats, lines_of
from rallypoint.coordinator.access.tokens import TokenEntry, entry_text, hash_token

RULES = 1_000
TURNS = 20
"""Rounds of each service that a load is cut into."""
TOKEN = "of-the-benchmark"  # noqa: S105 - no secret
HEADERS = f"Authorization: Bearer {TOKEN}\r\n".encode()


def policy_text() -> str:
    """Rules of other teams and of this one, for groups with other names; the last is for all groups."""
    rule = '[[allow]]\nwho = ["{who}"]\nmay = ["join", "describe"]\non = ["{on}"]\n'
    rules = [
        rule.format(who="token:bench" if number % 2 else f"token:team-{number}", on=f"group:team-{number}*")
        for number in range(RULES - 1)
    ]
    return "".join((*rules, rule.format(who="token:bench", on='group:*", "topic:*')))


@dataclass
class Measured:
    """One of the services, and what was measured of it."""

    name: str
    server: Server
    crowd: Crowd
    tally: Tally = field(default_factory=Tally)
    costs: list[Cost] = field(default_factory=list)

    async def load(self, seconds: float) -> None:
        """One round. What it costs is added to that of the rounds before."""
        frames = heartbeats(self.crowd)
        meter = self.server.meter()
        tally = await run_closed(lines_of(self.crowd), lambda index, _: frames[index], heartbeat_fault, seconds=seconds)
        self.costs.append(meter.stop())
        self.tally.latencies_s += tally.latencies_s
        self.tally.error_count += tally.error_count
        self.tally.errors += tally.errors

    def result(self) -> LoadResult:
        """Of all rounds."""
        cost = total_cost(self.costs)
        return load_result(self.name, self.tally, cost, connections=CONNECTIONS, members=CONNECTIONS)


async def measure_permissions(prefix: str, kind: type[Line], plan: Plan) -> Sequence[LoadResult]:
    """A result for each of the three."""
    with_token = type("WithToken", (kind,), {"headers": HEADERS})
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(dir=plan.directory, prefix="bench-")))
        tokens, policy = directory / "tokens", directory / "access.toml"
        tokens.write_text(entry_text(TokenEntry("bench", hash_token(TOKEN))))
        policy.write_text(policy_text())
        token = ("--token-file", str(tokens))
        for name in ("open", "token", "policy"):
            (directory / name).mkdir()
        measured = [
            await stack.enter_async_context(_resting(prefix + name, directory / name, settings, with_kind))
            for name, settings, with_kind in (
                ("open", (), kind),
                ("token", token, with_token),
                ("policy", (*token, "--access", str(policy)), with_token),
            )
        ]
        for one in measured:
            await one.load(plan.warm_up_s)
            one.costs.clear()
            one.tally = Tally()
        for turn in range(TURNS):
            # Who comes first has the processor's caches as the one before has left them: so each does, in turn.
            for one in (*measured[turn % 3 :], *measured[: turn % 3]):
                await one.load(plan.seconds / TURNS)
        return [one.result() for one in measured]


@asynccontextmanager
async def _resting(name: str, directory: Path, settings: Sequence[str], kind: type[Line]) -> AsyncIterator[Measured]:
    async with serving(directory, settings=settings) as server, group_at_rest(server, CONNECTIONS, kind) as crowd:
        yield Measured(name, server, crowd)


BENCHMARKS = {
    "permissions": Benchmark(
        "heartbeats with neither, with a token, and with a token and a policy of 1,000 rules, in turns",
        partial(measure_permissions, "heartbeat-", Connection),
    ),
    "channel-permissions": Benchmark(
        "the same on a channel for each member", partial(measure_permissions, "channel-heartbeat-", ChannelConnection)
    ),
}
