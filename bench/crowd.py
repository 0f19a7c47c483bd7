"""The members of a group: they join, the leader shares partitions out, they sync, and wait for the next time.

Each has a line of its own, a channel or a connection of HTTP, and learns of a rebalance by it at once. Answers that
the protocol provides for (an id handed out, 202, a rebalance) are followed; any other ends the run.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from bench.connection import Connection
from bench.line import Answer, Line
from bench.metrics import Repetition
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.operations import HEARTBEAT, JOIN, LEAVE, SYNC, Operation

PARTITIONS_PER_MEMBER = 4
TOPIC = "bench"
PROTOCOL = "bench"
SESSION_TIMEOUT_MS = 120_000
LEAVERS_AT_ONCE = 1_000
THROTTLED_S = 0.1
"""How long a member waits whose call was one too many for the group."""


_HEARD = (Answer(200, b"{}"), Answer(200, b'{"channel_keeps_session":true}'))


def is_heard(answer: Answer) -> bool:
    """Whether it is the answer to a heartbeat with which all is well: on a channel it says more than over HTTP."""
    return answer in _HEARD


class WrongAnswerError(Exception):
    """An answer that the benchmark has no use for; it ends with it."""


@dataclass(slots=True)
class _Generation:
    """What is known of a generation: what the leader gave whom, and when each member had it."""

    assignments: dict[str, Any] = field(default_factory=dict)
    synced: set[str] = field(default_factory=set)


class Crowd:
    """The members of one group, on lines of one kind to one address. As a context it hangs up for all in the end, also
    where something went wrong and nobody left.
    """

    def __init__(
        self,
        host: str,
        port: int,
        group_id: str,
        kind: type[Line] = Connection,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        self.group_id = group_id
        self.session_timeout_ms = session_timeout_ms
        self.members: list[Member] = []
        self._brought: deque[Member] = deque()
        self.generations: dict[int, _Generation] = {}
        self._address = (host, port)
        self._kind = kind
        self._watches: set[asyncio.Task[None]] = set()
        self._awaited_count = 0
        self._all_synced: asyncio.Future[float] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        watches = list(self._watches)
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        for member in (*self.members, *self._brought):
            member.hang_up()

    async def connect(self) -> Line:
        """A new line to the service."""
        return await self._kind.open(*self._address)

    # --- rebalances --------------------------------------------------------------------------------------------------

    async def bring(self, count: int) -> None:
        """So many connect, and say nothing yet: the next that come to the group are these."""
        for _ in range(count):
            member = Member(self, len(self.members) + len(self._brought))
            await member.reconnect()
            self._brought.append(member)

    async def grow(self, count: int) -> Repetition:
        """So many members come, and all watch. Ends when every member of the group has its part of one generation.

        Those that were brought come first; the others connect now.
        """
        requests_before, generation_before = self.request_count(), self.generation_id
        began = perf_counter()
        self._awaited_count = len(self.members) + count
        self._all_synced = asyncio.get_running_loop().create_future()
        for _ in range(count):
            member = self._brought.popleft() if self._brought else Member(self, len(self.members))
            self.members.append(member)
            watch = asyncio.create_task(member.watch())
            self._watches.add(watch)
            watch.add_done_callback(self._watch_ended)
        ended = await self._all_synced
        self._all_synced = None
        return Repetition(
            ended - began, self.generation_id - max(generation_before, 0), self.request_count() - requests_before
        )

    async def rejoin(self, subscription_version: int) -> Repetition:
        """All come again at once, each with a changed subscription. Nobody may be watching.

        The change makes the first join that arrives begin the rebalance, whoever's it is.
        """
        assert not self._watches, "members that watch would join twice"
        requests_before, generation_before = self.request_count(), self.generation_id
        began = perf_counter()
        outcomes = await asyncio.gather(*(member.join_and_sync(subscription_version) for member in self.members))
        seconds = perf_counter() - began
        if not all(outcomes) or {member.generation_id for member in self.members} != {self.generation_id}:
            raise WrongAnswerError("the members that came again are not all in one generation")
        return Repetition(seconds, self.generation_id - generation_before, self.request_count() - requests_before)

    @property
    def generation_id(self) -> int:
        """The newest generation that a leader was told of; -1 before the first."""
        return max(self.generations, default=-1)

    def synced(self, member: "Member") -> None:
        """The member has its assignment."""
        generation = self.generations[member.generation_id]
        generation.synced.add(member.member_id)
        waiting = self._all_synced
        complete = len(generation.synced) == len(generation.assignments) == self._awaited_count
        if waiting is not None and not waiting.done() and complete:
            waiting.set_result(perf_counter())

    def _watch_ended(self, watch: asyncio.Task[None]) -> None:
        self._watches.discard(watch)
        error = None if watch.cancelled() else watch.exception()
        if error is not None and self._all_synced is not None and not self._all_synced.done():
            self._all_synced.set_exception(error)

    def request_count(self) -> int:
        """Calls that the members have sent."""
        return sum(member.request_count for member in self.members)

    # --- between them ------------------------------------------------------------------------------------------------

    async def bring_strangers(self, count: int) -> None:
        """So many connect, join nothing, and send a heartbeat each, which only a floor answers: it knows no members."""
        for _ in range(count):
            member = Member(self, len(self.members))
            self.members.append(member)
            await member.reconnect()
            await member.beat()

    async def rest(self) -> None:
        """Stop watching, and give each member whose call was cut off by that a fresh line. The group stays as it is.

        Each says on its line that it lives: who has hung up a channel is waited for two seconds.
        """
        await self._stop_watching()
        for member in self.members:
            if member.line is None or not member.line.is_open:
                await member.reconnect()
            await member.beat()

    async def disband(self) -> None:
        """All leave, and hang up."""
        await self._stop_watching()
        line = await self.connect()
        for first in range(0, len(self.members), LEAVERS_AT_ONCE):
            leavers = [{"member_id": member.member_id} for member in self.members[first : first + LEAVERS_AT_ONCE]]
            answer = await line.exchange(line.frame_of(LEAVE, self.group_id, {"members": leavers}))
            left = answer.json()["members"] if answer.status == 200 else []
            if len(left) != len(leavers) or any(each["error_code"] for each in left):
                raise _wrong("leave", answer)
        line.close()
        for member in self.members:
            member.hang_up()

    async def _stop_watching(self) -> None:
        watches = list(self._watches)
        for watch in watches:
            watch.cancel()
        for outcome in await asyncio.gather(*watches, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome


class Member:
    """One member with its line."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self.member_id = ""
        self.generation_id = -1
        self.line: Line | None = None
        self._crowd = crowd
        self._client_id = f"bench-{number}"
        self._join_count = 0
        self._requests_before = 0

    @property
    def request_count(self) -> int:
        """Requests it has sent."""
        return self._requests_before + (0 if self.line is None else self.line.request_count)

    async def watch(self) -> None:
        """Be a member until cancelled."""
        if self.line is None:
            self.line = await self._crowd.connect()
        while True:
            if await self.join_and_sync(0):
                await self._wait_for_rebalance()

    async def join_and_sync(self, subscription_version: int) -> bool:
        """Join, and get the assignment; False where the group had begun to rebalance again before that."""
        joined = await self._join(subscription_version)
        self.generation_id = joined["generation_id"]
        generation = self._crowd.generations.setdefault(self.generation_id, _Generation())
        given = []
        if joined["leader"] == self.member_id:
            generation.assignments = assign_partitions(member["member_id"] for member in joined["members"])
            given = [
                {"member_id": member_id, "assignment": assignment}
                for member_id, assignment in generation.assignments.items()
            ]
        body = {
            "generation_id": self.generation_id, "member_id": self.member_id, "protocol_type": "consumer",
            "protocol_name": PROTOCOL, "assignments": given,
        }  # fmt: skip
        while (answer := await self._call(SYNC, body)).status == 202:
            pass
        if is_rebalancing(answer):
            return False
        if answer.status != 200 or answer.json()["assignment"] != generation.assignments[self.member_id]:
            raise _wrong("sync", answer)
        self._crowd.synced(self)
        return True

    async def reconnect(self) -> None:
        """Close the connection, and open a new one."""
        self.hang_up()
        self.line = await self._crowd.connect()

    def hang_up(self) -> None:
        """Close the line."""
        if self.line is not None:
            self._requests_before += self.line.request_count
            self.line.close()
            self.line = None

    async def _join(self, subscription_version: int) -> Any:
        self._join_count += 1
        body = {
            "member_id": self.member_id, "client_id": self._client_id, "protocol_type": "consumer",
            "protocols": [{"name": PROTOCOL, "metadata": {"topics": [TOPIC], "user_data": subscription_version}}],
            "session_timeout_ms": self._crowd.session_timeout_ms, "rebalance_timeout_ms": SESSION_TIMEOUT_MS,
            "request_id": f"{self._client_id}-{self._join_count}",
        }  # fmt: skip
        while (answer := await self._call(JOIN, body)).status != 200:
            content = answer.json()
            if answer.status != 202 and content.get("error_code") != ErrorCode.MEMBER_ID_REQUIRED:
                raise _wrong("join", answer)
            self.member_id = body["member_id"] = content.get("member_id") or self.member_id
        joined = answer.json()
        if joined["member_id"] != self.member_id:
            raise _wrong("join", answer)
        return joined

    async def _wait_for_rebalance(self) -> None:
        assert self.line is not None
        wait, group_id = self.line.wait_for_rebalance, self._crowd.group_id
        while (answer := await wait(HEARTBEAT, group_id, self.heartbeat)) is not None and not is_rebalancing(answer):
            if not is_heard(answer):
                raise _wrong("heartbeat", answer)

    @property
    def heartbeat(self) -> dict[str, Any]:
        """The body of a heartbeat that does not wait."""
        return {"generation_id": self.generation_id, "member_id": self.member_id}

    async def beat(self) -> None:
        """Say that it lives, on its line; it must be told that it does."""
        if not is_heard(answer := await self._call(HEARTBEAT, self.heartbeat)):
            raise _wrong("heartbeat", answer)

    async def _call(self, operation: Operation, body: Any) -> Answer:
        """Call, and again as long as the group has too much to do to take it."""
        assert self.line is not None
        frame = self.line.frame_of(operation, self._crowd.group_id, body)
        while True:
            answer = await self.line.exchange(frame)
            if answer.status != 429:
                return answer
            await asyncio.sleep(THROTTLED_S)


def assign_partitions(member_ids: Iterable[str]) -> dict[str, Any]:
    """So many partitions to each member, in the order given: the cost of an assignor is not what is measured."""
    return {
        member_id: {"partitions": {TOPIC: list(range(first, first + PARTITIONS_PER_MEMBER))}}
        for first, member_id in zip(range(0, 10**9, PARTITIONS_PER_MEMBER), member_ids, strict=False)
    }


def is_rebalancing(answer: Answer) -> bool:
    """Whether the group has begun to rebalance, so that the member has to join again."""
    if answer.status != 409:
        return False
    problem = answer.json()
    return bool(problem["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS and problem["retriable"])


def _wrong(what: str, answer: Answer) -> WrongAnswerError:
    return WrongAnswerError(f"{what}: {answer.status} {answer.body[:300].decode(errors='replace')}")
