"""Members of a cluster as a process of its own, each on a channel of its own, that do nothing but stay in their group.

`python -m bench.cluster.residents --nodes 127.0.0.1:8001,127.0.0.1:8002 --members 1000 --group-size 10 --shards 50`
forms the groups, each at its coordinator, and sends a heartbeat of each member every `--interval-ms`, spread over it.
Who loses the coordinator looks for it as `rallypoint.GroupMember` does: not at all where it is told which node has the
group now; else at once at each node, one after the other, last at those that did not answer, and after a round of
refusals again after 100 ms, doubled up to 1 s, less up to half of it at random. Who is told to come later waits as
long, and up to 2 s. Nobody joins again: whatever would make a member do so is a wrong answer, and counted.

Each line on standard output is one JSON object with `what` and `at_s`, the system's monotonic clock. `settled`: every
member has had a good heartbeat. Commands on standard input: `begin` counts from 0 from now on; `moved` says how many
members have moved and are back, `report` all that was counted; `end`, or the end of standard input, hangs up.
"""

import argparse
import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic, process_time
from typing import Any

from bench.channel import ChannelConnection
from bench.connection import Connection, Frames
from bench.crowd import Crowd, Member, is_heard
from bench.line import Answer, ConnectionBrokenError
from bench.member_program import say
from bench.residents import add_groups, begin, live, read_commands
from rallypoint.member.core.backoff import backoff_ms
from rallypoint.member.core.dispatch import FAIL_OVER_BACKOFF_MAX_MS
from rallypoint.member.options import MemberOptions
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.group_hash import shard_of_group
from rallypoint.protocol.operations import COORDINATOR, HEARTBEAT, path_of

ANSWER_TIMEOUT_S = 10.0
FORMING_AT_ONCE = 10
ERRORS_KEPT = 5
LATER = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
_UNLOADED = b'{"event":"unloaded"'

OPTIONS = MemberOptions(coordinator="http://127.0.0.1:8000", group_id="residents", topics=("bench",))
"""A member's, for its pauses."""

Address = tuple[str, int]


@dataclass(slots=True)
class Tally:
    """What has happened since `begin`. A member that has moved has its instant in `back_at_s`, its pause in `pauses_s`,
    and its shard, with the first that was back in it, in `first_back_at_s`.
    """

    heartbeats: int = 0
    looked_up: int = 0
    latencies_s: list[float] = field(default_factory=list)
    back_at_s: list[float] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)
    first_back_at_s: dict[int, float] = field(default_factory=dict)
    wrong: int = 0
    errors: list[str] = field(default_factory=list)

    def note_wrong(self, text: str) -> None:
        """One more; the first few are kept."""
        self.wrong += 1
        if len(self.errors) < ERRORS_KEPT:
            self.errors.append(text)

    def came_back(self, shard: int, lost_at_s: float) -> None:
        """A member of the shard has had a good heartbeat, having lost its coordinator at that instant."""
        now_s = monotonic()
        self.back_at_s.append(now_s)
        self.pauses_s.append(now_s - lost_at_s)
        self.first_back_at_s.setdefault(shard, now_s)


class WokenChannel(ChannelConnection):
    """A channel that wakes its member when it is gone, and when the node has let go of the group. `moved_to`: the node
    that has the group now, if it was named.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.woken = asyncio.Event()
        self.is_lost = False
        self.moved_to: Address | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side has gone, or we have."""
        super().connection_lost(exc)
        self._lose()

    def _take_push(self, payload: bytes) -> None:
        super()._take_push(payload)
        if payload.startswith(_UNLOADED):
            url = json.loads(payload).get("url")
            self.moved_to = None if url is None else _address_of(url.removeprefix("http://"))
            self._lose()

    def _lose(self) -> None:
        self.is_lost = True
        self.woken.set()


class PlacedCrowd(Crowd):
    """A group whose new lines go to its coordinator, wherever that is now."""

    def __init__(self, at: Address, group_id: str, shard: int) -> None:
        super().__init__(*at, group_id, WokenChannel)
        self.shard = shard

    def move_to(self, at: Address) -> None:
        """Go on there."""
        self._address = at


class LookUps:
    """Look-ups of one member or program: on a connection of HTTP with each node, which stays until `close`."""

    def __init__(self, nodes: Sequence[Address]) -> None:
        self._nodes = list(nodes)
        self._connections: dict[Address, Connection] = {}

    async def find(self, group_id: str) -> Address | None:
        """Where the group is coordinated, as the first node says that knows; None where none does. Who does not answer
        is asked last the next time.
        """
        for node in tuple(self._nodes):
            try:
                answer = await self._ask(node, group_id)
            except (ConnectionBrokenError, TimeoutError, OSError):
                self._connections.pop(node, None)
                self._nodes.remove(node)
                self._nodes.append(node)
                continue
            found = json.loads(answer.body)["coordinators"][0] if answer.status == 200 else None
            if found is not None and found["url"] is not None:
                return _address_of(found["url"].removeprefix("http://"))
        return None

    async def _ask(self, node: Address, group_id: str) -> Answer:
        connection = self._connections.get(node)
        if connection is None or not connection.is_open:
            connection = self._connections[node] = await Connection.open(*node)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await connection.exchange(Frames(*node).get(f"{path_of(COORDINATOR)}?group_id={group_id}"))

    def close(self) -> None:
        """Hang up everywhere."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


@dataclass(slots=True)
class _Life:
    """Of a member. lost_at_s: since when it has had no coordinator; None while it has. failures: of its heartbeats in a
    row; look_up_failures: of its look-ups.
    """

    crowd: PlacedCrowd
    member: Member
    look_ups: LookUps
    lost_at_s: float | None = None
    failures: int = 0
    look_up_failures: int = 0

    def lose(self) -> None:
        if self.lost_at_s is None:
            self.lost_at_s = monotonic()

    async def pause(self, most_ms: int = OPTIONS.retry_backoff_max_ms) -> None:
        """Before another heartbeat, longer each time."""
        self.failures += 1
        await _pause(self.failures, most_ms)

    async def pause_look_ups(self) -> None:
        """Before another look-up, longer each time."""
        self.look_up_failures += 1
        await _pause(self.look_up_failures, FAIL_OVER_BACKOFF_MAX_MS)


async def _pause(failures: int, most_ms: int) -> None:
    await asyncio.sleep(backoff_ms(failures, OPTIONS.retry_backoff_ms, most_ms, random.random()) / 1000)


class Residents:
    """All members of this process, and what they count."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.tally = Tally()
        self._nodes: list[Address] = [_address_of(text) for text in given.nodes.split(",")]
        self._interval_s = given.interval_ms / 1000
        self._size = given.group_size
        self._groups = [f"{given.group_prefix}-{number}" for number in range(given.members // given.group_size)]
        self._shards = given.shards
        self._away = given.members
        self._is_settled = asyncio.Event()
        self._gate = asyncio.Semaphore(FORMING_AT_ONCE)
        self._crowds: list[PlacedCrowd] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def form(self) -> None:
        """Form the groups. Returns when every member lives, and has said so."""
        await asyncio.gather(*map(self._form_one, self._groups))
        await self._is_settled.wait()

    async def _form_one(self, group_id: str) -> None:
        async with self._gate:
            look_ups = LookUps(self._nodes)
            while (at := await look_ups.find(group_id)) is None:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(OPTIONS.retry_backoff_max_ms / 1000)
            look_ups.close()
            crowd = PlacedCrowd(at, group_id, shard_of_group(group_id, self._shards))
            self._crowds.append(crowd)
            await crowd.grow(self._size)
            await crowd.rest()
            for member in crowd.members:
                self._tasks.append(asyncio.create_task(self._live(_Life(crowd, member, LookUps(self._nodes)))))

    async def run(self) -> None:
        """Until one of them meets something that it cannot go on from: never, it is to be cancelled."""
        try:
            await asyncio.gather(*self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def hang_up(self) -> None:
        """Close every connection."""
        for crowd in self._crowds:
            for member in crowd.members:
                member.hang_up()

    async def _live(self, life: _Life) -> None:
        """Heartbeats of one member, wherever its group is coordinated."""
        await self._find_again(life, is_first=True)
        due = monotonic() + self._interval_s * random.random()  # not all at once
        while True:
            line = life.member.line
            assert isinstance(line, WokenChannel)
            timer = asyncio.get_running_loop().call_later(max(0.0, due - monotonic()), line.woken.set)
            await line.woken.wait()
            timer.cancel()
            line.woken.clear()
            if line.is_lost or not await self._beat(life, due):
                life.lose()
                await self._find_again(life)
            due = max(due + self._interval_s, monotonic())

    async def _beat(self, life: _Life, due: float) -> bool:
        """Send a heartbeat; False where it is to be sent to another node, or at another time."""
        try:
            answer = await _heartbeat(life)
        except (ConnectionBrokenError, TimeoutError):
            return False
        if is_heard(answer):
            self.tally.heartbeats += 1
            self.tally.latencies_s.append(monotonic() - due)
            return True
        if answer.status in {421, 503}:
            return False
        self._note_wrong(answer)
        return True

    async def _find_again(self, life: _Life, *, is_first: bool = False) -> None:
        """Until the member has had a good heartbeat, at whichever node."""
        line = life.member.line
        at = line.moved_to if isinstance(line, WokenChannel) and not is_first else life.crowd._address
        while True:
            if at is None:
                self.tally.looked_up += 1
                at = await life.look_ups.find(life.crowd.group_id)
            if at is None:
                await life.pause_look_ups()
                continue
            life.look_up_failures = 0
            try:
                await self._go_to(life, at)
                answer = await _heartbeat(life)
            except (ConnectionBrokenError, TimeoutError, OSError):
                at = None
                await life.pause(FAIL_OVER_BACKOFF_MAX_MS)
                continue
            if is_heard(answer):
                break
            if answer.status not in {421, 503}:
                self._note_wrong(answer)
                break
            if answer.json()["error_code"] not in LATER:
                at = None
            await life.pause()
        life.look_ups.close()
        life.failures = 0
        if life.lost_at_s is not None:
            self.tally.came_back(life.crowd.shard, life.lost_at_s)
            life.lost_at_s = None
        if is_first:
            self._away -= 1
            if self._away == 0:
                self._is_settled.set()

    @staticmethod
    async def _go_to(life: _Life, at: Address) -> None:
        line = life.member.line
        assert line is None or isinstance(line, WokenChannel)
        if line is not None and line.is_open and (line.host, line.port) == at:
            line.is_lost = False
            line.woken.clear()
            return
        life.crowd.move_to(at)
        await life.member.reconnect()

    def _note_wrong(self, answer: Answer) -> None:
        self.tally.note_wrong(f"{answer.status} {answer.body[:300].decode(errors='replace')}")

    def report(self) -> dict[str, Any]:
        """The counts."""
        tally = self.tally
        return {
            "heartbeats": tally.heartbeats,
            "looked_up": tally.looked_up,
            "latencies_s": _sample(tally.latencies_s),
            "back_at_s": tally.back_at_s,
            "pauses_s": tally.pauses_s,
            "first_back_at_s": tally.first_back_at_s,
            "wrong": tally.wrong,
            "errors": tally.errors,
            "cpu_s": process_time(),
        }


LATENCIES_MAX = 4_000


def _sample(values: list[float]) -> list[float]:
    """The largest hundredth, and of the others as many as fit a line, at random."""
    ordered = sorted(values)
    return ordered if len(ordered) <= LATENCIES_MAX else [*random.sample(ordered, LATENCIES_MAX - 1), ordered[-1]]


async def _heartbeat(life: _Life) -> Answer:
    """Raises ConnectionBrokenError, TimeoutError."""
    line = life.member.line
    if line is None:
        raise ConnectionBrokenError("there is no channel")
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        return await line.exchange(line.frame_of(HEARTBEAT, life.crowd.group_id, life.member.heartbeat))


def _address_of(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


async def obey(commands: asyncio.StreamReader, residents: Residents) -> None:
    """Do what is asked until the end."""
    while True:
        match (await commands.readline()).decode().strip():
            case "begin":
                residents.tally = Tally()
                say("begun")
            case "moved":
                say("moved", count=len(residents.tally.back_at_s))
            case "report":
                say("report", **residents.report())
            case "end" | "":
                return


async def run(given: argparse.Namespace) -> None:
    """From the first connection to the last."""
    commands = await read_commands()
    residents = Residents(given)
    await residents.form()
    say("settled", cpu_s=process_time())
    await live(residents.run(), obey(commands, residents))
    residents.hang_up()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster.residents", allow_abbrev=False)
    parser.add_argument("--nodes", required=True, help="HOST:PORT of each, with commas between")
    parser.add_argument("--shards", type=int, required=True)
    add_groups(parser, group_size=10)
    begin(parser, run)


if __name__ == "__main__":
    main()
