"""Many members as a process of their own, each on a session of its own, that do nothing but stay.

`python -m bench.residents --port PORT --members 1000 --group-size 100` forms the groups, then sends a heartbeat of each
member every `--interval-ms`, spread evenly over it, and counts. They speak the protocol with as little work as can be
(`bench.session`), and do what a member does that lives by its connection: where it is lost they connect again at once
the first time, then after a growing, random pause, and send a heartbeat as soon as they have a connection. They join
again only where a heartbeat says so.

Each line on standard output is one JSON object with `what` and `at_s`, the system's monotonic clock: `settled` once
every group has all its members, and `back` each time that all who had lost their connections have had a good
heartbeat since. Commands on standard input: `begin` counts from 0 from now on; `report` says the counts; `end`, or the
end of standard input, hangs up without a leave. `begin` and `end` are answered with `begun` and `ended`.
"""

import argparse
import asyncio
import gc
import random
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import uvloop

from bench.connection import Answer, ConnectionBrokenError
from bench.crowd import is_rebalancing, share_out
from bench.figures import percentile
from bench.member_program import say
from bench.session import SessionConnection, call_frame
from protocol.errors import ErrorCode
from protocol.operations import HEARTBEAT, JOIN, SYNC

PROTOCOL = "bench"
ANSWER_TIMEOUT_S = 10.0
"""A heartbeat without an answer for so long is counted as unanswered, and its connection given up."""
JOIN_TIMEOUT_S = 120.0
PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 5.0
CONNECTING_AT_ONCE = 500
"""Connections that one process opens at the same time in its beginning. A lost one is made again without a limit."""
ERRORS_KEPT = 5


@dataclass(slots=True)
class Tally:
    """What has happened since `begin`. `joins` counts requests to join, `lost` connections that broke."""

    heartbeats: int = 0
    unanswered: int = 0
    wrong: int = 0
    lost: int = 0
    joins: int = 0
    rebalances: int = 0
    pushes: int = 0
    latencies_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def note_wrong(self, text: str) -> None:
        """Something came that has no place in a quiet life."""
        self.wrong += 1
        if len(self.errors) < ERRORS_KEPT:
            self.errors.append(text)


class Session(SessionConnection):
    """A session that says when it is gone, also while nothing is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.is_gone = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side has gone, or we have."""
        super().connection_lost(exc)
        self.is_gone.set()


class Residents:
    """All members of this process, and what they count. `sizes`: members by group and generation, as told its leader."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.tally = Tally()
        self.sizes: dict[tuple[str, int], int] = {}
        self.gate = asyncio.Semaphore(CONNECTING_AT_ONCE)
        self.members = [Resident(self, number) for number in range(given.members)]
        self._away = 0

    async def form(self) -> None:
        """Return when every group has all its members in one generation."""
        while not all(self._is_whole(group) for group in self._groups()):  # noqa: ASYNC110 - nothing else waits for it
            await asyncio.sleep(0.05)

    def _groups(self) -> list[list["Resident"]]:
        size = self.given.group_size
        return [self.members[first : first + size] for first in range(0, len(self.members), size)]

    def _is_whole(self, group: Sequence["Resident"]) -> bool:
        generations = {member.generation_id for member in group}
        return len(generations) == 1 and all(member.is_settled and member.seen == len(group) for member in group)

    def went_away(self) -> None:
        """One more has lost its connection."""
        self._away += 1

    def came_back(self) -> None:
        """One of them has had a good heartbeat."""
        self._away -= 1
        if self._away == 0:
            say("back")

    def report(self) -> dict[str, Any]:
        """The counts."""
        tally = self.tally
        times = tally.latencies_s or [float("inf")]
        return {
            "members": len(self.members),
            "connected": sum(member.is_connected for member in self.members),
            "generations": sorted({member.generation_id for member in self.members}),
            "heartbeats": tally.heartbeats, "unanswered": tally.unanswered, "wrong": tally.wrong, "lost": tally.lost,
            "joins": tally.joins, "rebalances": tally.rebalances, "pushes": tally.pushes, "errors": tally.errors,
            "p50_ms": percentile(times, 50) * 1000, "p99_ms": percentile(times, 99) * 1000,
            "max_ms": max(times) * 1000, "cpu_s": time.process_time(),
        }  # fmt: skip


class Resident:
    """One member, on one session after the other."""

    def __init__(self, residents: Residents, number: int) -> None:
        given = residents.given
        self.member_id = ""
        self.generation_id = -1
        self.is_settled = False
        self.is_connected = False
        self._residents = residents
        self._group_id = f"{given.group_prefix}-{number // given.group_size}"
        self._number = number
        self._is_away = False
        self._attempt = 0

    @property
    def seen(self) -> int:
        """Members of its group in its generation; 0 where it has none, or the leader has not been told."""
        return self._residents.sizes.get((self._group_id, self.generation_id), 0)

    async def live(self) -> None:
        """Until cancelled."""
        while True:
            session = await self._connect()
            if session is not None:
                try:
                    await self._stay(session)
                except (ConnectionBrokenError, TimeoutError) as broken:
                    self._lost(broken)
                finally:
                    self.is_connected = False
                    self._residents.tally.pushes += session.push_count
                    session.close()

    async def _connect(self) -> Session | None:
        """Connect; None where it failed, after a pause that grows. The first attempt comes without one."""
        if self._attempt:
            pause_s = min(PAUSE_MAX_S, PAUSE_FIRST_S * 2 ** (self._attempt - 1))
            await asyncio.sleep(pause_s * random.uniform(0.5, 1))
        self._attempt += 1
        given = self._residents.given
        try:
            async with self._residents.gate:
                session = await Session.open(given.host, given.port)
        except (OSError, ConnectionBrokenError):
            return None
        assert isinstance(session, Session)
        self._attempt = 0
        self.is_connected = True
        return session

    def _lost(self, broken: Exception) -> None:
        tally = self._residents.tally
        if isinstance(broken, TimeoutError):
            tally.unanswered += 1
        tally.lost += 1
        if not self._is_away and self.is_settled:
            self._is_away = True
            self._residents.went_away()

    async def _stay(self, session: Session) -> None:
        """Be a member on this session until it breaks."""
        interval_s = self._residents.given.interval_ms / 1000
        if not self.is_settled:
            await self._join(session)
            # Not all at once from then on.
            due = time.perf_counter() + interval_s * self._number / len(self._residents.members)
        else:
            due = time.perf_counter()
        while True:
            await _sleep_until(due, session)
            await self._beat(session, due)
            due += interval_s

    async def _beat(self, session: Session, due: float) -> None:
        body = {"generation_id": self.generation_id, "member_id": self.member_id}
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            answer = await session.exchange(call_frame(HEARTBEAT, self._group_id, body))
        tally = self._residents.tally
        if answer == (200, b"{}"):
            tally.heartbeats += 1
            tally.latencies_s.append(time.perf_counter() - due)
            if self._is_away:
                self._is_away = False
                self._residents.came_back()
        elif is_rebalancing(answer):
            tally.rebalances += 1
            self.is_settled = False
            await self._join(session)
        else:
            tally.note_wrong(f"heartbeat: {_text(answer)}")
            self.is_settled, self.member_id = False, ""
            await self._join(session)

    async def _join(self, session: Session) -> None:
        """Join and sync until there is an assignment."""
        async with asyncio.timeout(JOIN_TIMEOUT_S):
            while not await self._join_once(session):
                pass
        self.is_settled = True

    async def _join_once(self, session: Session) -> bool:
        given = self._residents.given
        body = {
            "member_id": self.member_id, "client_id": f"resident-{self._number}", "protocol_type": "consumer",
            "protocols": [{"name": PROTOCOL, "metadata": {"topics": ["bench"]}}],
            "session_timeout_ms": given.session_timeout_ms, "rebalance_timeout_ms": 60_000,
        }  # fmt: skip
        self._residents.tally.joins += 1
        answer = await session.exchange(call_frame(JOIN, self._group_id, body))
        joined = answer.json()
        if answer.status != 200:
            self.member_id = joined.get("member_id") or self.member_id
            if answer.status != 202 and joined.get("error_code") != ErrorCode.MEMBER_ID_REQUIRED:
                self._residents.tally.note_wrong(f"join: {_text(answer)}")
                self.member_id = ""
                await asyncio.sleep(PAUSE_FIRST_S)
            return False
        return await self._sync(session, joined)

    async def _sync(self, session: Session, joined: dict[str, Any]) -> bool:
        generation_id = joined["generation_id"]
        given = []
        if joined["leader"] == self.member_id:
            shares = share_out(member["member_id"] for member in joined["members"])
            given = [{"member_id": member_id, "assignment": share} for member_id, share in shares.items()]
            self._residents.sizes[self._group_id, generation_id] = len(given)
        body = {
            "generation_id": generation_id, "member_id": self.member_id, "protocol_type": "consumer",
            "protocol_name": PROTOCOL, "assignments": given,
        }  # fmt: skip
        while (answer := await session.exchange(call_frame(SYNC, self._group_id, body))).status == 202:
            pass
        if answer.status == 200 and answer.json()["assignment"]["partitions"]:
            self.generation_id = generation_id
            return True
        if not is_rebalancing(answer):
            self._residents.tally.note_wrong(f"sync: {_text(answer)}")
        return False


async def _sleep_until(due: float, session: Session) -> None:
    """Until then, or until the session is gone: then ConnectionBrokenError."""
    delay_s = due - time.perf_counter()
    if delay_s > 0:
        try:
            async with asyncio.timeout(delay_s):
                await session.is_gone.wait()
        except TimeoutError:
            return
    if session.is_gone.is_set():
        raise ConnectionBrokenError("the session is gone")


def _text(answer: Answer) -> str:
    return f"{answer.status} {answer.body[:300].decode(errors='replace')}"


async def run(given: argparse.Namespace) -> None:
    """From the first connection to the last."""
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    residents = Residents(given)
    lives = [asyncio.create_task(member.live()) for member in residents.members]
    obeying = asyncio.create_task(_obey(commands, residents))
    forming = asyncio.create_task(_form(residents))
    done, _ = await asyncio.wait({obeying, *lives}, return_when=asyncio.FIRST_COMPLETED)
    for task in (obeying, forming, *lives):
        task.cancel()
    await asyncio.gather(obeying, forming, *lives, return_exceptions=True)
    for task in done:
        task.result()
    say("ended", **residents.report())


async def _form(residents: Residents) -> None:
    await residents.form()
    say("settled", joins=residents.tally.joins)


async def _obey(commands: asyncio.StreamReader, residents: Residents) -> None:
    while True:
        match (await commands.readline()).decode().strip():
            case "begin":
                residents.tally = Tally()
                say("begun")
            case "report":
                say("report", **residents.report())
            case "end" | "":
                return


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.residents", allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--group-size", type=int, default=100)
    parser.add_argument("--group-prefix", default="residents", help="the groups are PREFIX-0, PREFIX-1, …")
    parser.add_argument("--interval-ms", type=int, default=3_000)
    parser.add_argument("--session-timeout-ms", type=int, default=45_000)
    return parser


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.disable()
    uvloop.run(run(make_parser().parse_args()))
