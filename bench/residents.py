"""Many members as a process of their own, each on a line of its own, that do nothing but stay.

`python -m bench.residents --port PORT --members 1000 --group-size 100` forms the groups, then sends a heartbeat of each
member every `--interval-ms`, spread over it, and counts. With `--speakers` only so many do, and the others rest: they
send a ping every quarter of their session, as the `member` library does. With `--line kafka` they are at a broker,
where all have to send heartbeats. With `--strangers` they join no group: they are at a floor, which knows no members.
They do what a member does that lives by its connection: where it is lost they connect again at once the first time,
then after a growing, random pause, and send a heartbeat as soon as they can. They never join again: whatever would make
them do so is a wrong answer, and counted.

Each line on standard output is one JSON object with `what` and `at_s`, the system's monotonic clock: `settled` once
every member of every group has had a good heartbeat, and `back` each time that all who had lost their connections have
had one since. Commands on standard input: `begin` counts from 0 from now on; `report` says the counts; `end`, or the
end of standard input, hangs up without a leave. `begin` and `end` are answered with `begun` and `ended`.
"""

import argparse
import asyncio
import gc
import random
import resource
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any, NoReturn

import uvloop

from bench.channel import ChannelConnection
from bench.crowd import Crowd, Member, is_heard
from bench.kafka_line import KafkaLine
from bench.line import Answer, ConnectionBrokenError, Line
from bench.member_program import say
from bench.metrics import percentile
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.operations import HEARTBEAT

ANSWER_TIMEOUT_S = 10.0
"""A heartbeat without an answer for so long is counted as unanswered, and its connection given up."""
PUT_OFF = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""What a node answers that stops, or has just begun."""
SESSION_TIMEOUT_MS = 45_000
"""The default of members."""
PING_INTERVAL_S = SESSION_TIMEOUT_MS / 4000
PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 5.0
FORMING_AT_ONCE = 10
ERRORS_KEPT = 5


@dataclass(slots=True)
class Tally:
    """What has happened since `begin`. `pings`: those that were answered. `lost`: connections that broke. `put_off`:
    heartbeats to be sent again, as a node that stops says; `wrong`: answers with no place in a quiet life.
    """

    heartbeats: int = 0
    pings: int = 0
    unanswered: int = 0
    put_off: int = 0
    wrong: int = 0
    lost: int = 0
    latencies_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def note_wrong(self, text: str) -> None:
        """One more; the first few are kept."""
        self.wrong += 1
        if len(self.errors) < ERRORS_KEPT:
            self.errors.append(text)


class WatchedLine(Line):
    """A line that says when it is gone, also while nothing is asked."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.is_gone = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side has gone, or we have."""
        super().connection_lost(exc)
        self.is_gone.set()


class WatchedChannel(WatchedLine, ChannelConnection):
    """Such a channel."""


class WatchedKafkaLine(WatchedLine, KafkaLine):
    """Such a connection to a broker."""


LINES: Mapping[str, type[WatchedLine]] = {"channel": WatchedChannel, "kafka": WatchedKafkaLine}


class Residents:
    """All members of this process, and what they count. `away`: how many wait for a good heartbeat."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.tally = Tally()
        self.away = given.members
        self._is_settled = asyncio.Event()
        self._interval_s = given.interval_ms / 1000
        self._size = given.group_size
        self._member_count = given.members
        self._are_strangers = given.strangers
        self._speakers_left = given.members if given.speakers is None else given.speakers
        self._crowds = [
            Crowd(given.host, given.port, f"{given.group_prefix}-{number}", LINES[given.line], SESSION_TIMEOUT_MS)
            for number in range(given.members // given.group_size)
        ]
        self._gate = asyncio.Semaphore(FORMING_AT_ONCE)
        self._lives: list[asyncio.Task[None]] = []

    async def form(self) -> None:
        """Form the groups. Returns when every member lives, and has said so."""
        await asyncio.gather(*(self._form_one(crowd) for crowd in self._crowds))
        await self._is_settled.wait()

    async def _form_one(self, crowd: Crowd) -> None:
        async with self._gate:
            if self._are_strangers:
                await crowd.bring_strangers(self._size)
            else:
                await crowd.grow(self._size)
                # Those that hung up here would have no longer than their grace to be back, beside all that join.
                await crowd.rest()
            self._lives += [asyncio.create_task(self._live(crowd, one, self._may_speak())) for one in crowd.members]

    def _may_speak(self) -> bool:
        self._speakers_left -= 1
        return bool(self._speakers_left >= 0)

    async def run(self) -> None:
        """Until one of them meets something that it cannot go on from: never, it is to be cancelled."""
        try:
            await asyncio.gather(*self._lives)
        finally:
            for life in self._lives:
                life.cancel()
            await asyncio.gather(*self._lives, return_exceptions=True)

    def hang_up(self) -> None:
        """Close every connection."""
        for member in self._members():
            member.hang_up()

    async def _live(self, crowd: Crowd, member: Member, speaks: bool) -> None:
        """Heartbeats of one member, whatever happens to its connections; or one, and then pings."""
        is_away = True
        due = perf_counter()
        while True:
            try:
                if not speaks and not is_away:
                    await self._rest(member)
                answer = await _beat(crowd, member, due)
            except (ConnectionBrokenError, TimeoutError) as broken:
                self.tally.lost += 1
                self.tally.unanswered += isinstance(broken, TimeoutError)
                self.away += not is_away
                is_away = True
                await _reconnect(member)
                due = perf_counter()
                continue
            if not is_heard(answer) and _is_put_off(answer):
                self.tally.put_off += 1
                due += PAUSE_FIRST_S
                continue
            self._count(answer, perf_counter() - due)
            due += self._interval_s
            if is_away:
                is_away = False
                self._came_back()
                due -= self._interval_s * random.random()  # not all at once from then on

    async def _rest(self, member: Member) -> NoReturn:
        """Say nothing until the channel is lost: ConnectionBrokenError, or TimeoutError where no pong comes."""
        line = member.line
        assert isinstance(line, WatchedChannel)
        await _sleep_until(perf_counter() + PING_INTERVAL_S * random.random(), member)
        while True:
            before = line.pong_count
            line.ping()
            await _sleep_until(perf_counter() + PING_INTERVAL_S, member)
            if line.pong_count == before:
                raise TimeoutError
            self.tally.pings += 1

    def _count(self, answer: Answer, latency_s: float) -> None:
        if is_heard(answer):
            self.tally.heartbeats += 1
            self.tally.latencies_s.append(latency_s)
        else:
            self.tally.note_wrong(f"{answer.status} {answer.body[:300].decode(errors='replace')}")

    def _came_back(self) -> None:
        self.away -= 1
        if self.away == 0 and self._is_settled.is_set():
            say("back")
        elif self.away == 0:
            self._is_settled.set()

    def _members(self) -> Iterator[Member]:
        return (member for crowd in self._crowds for member in crowd.members)

    def report(self) -> dict[str, Any]:
        """The counts. `connected`: channels that are open now."""
        tally = self.tally
        times = tally.latencies_s or [float("inf")]
        lines = (member.line for member in self._members())
        return {
            "members": self._member_count,
            "connected": sum(line is not None and line.is_open for line in lines),
            "heartbeats": tally.heartbeats,
            "pings": tally.pings,
            "unanswered": tally.unanswered,
            "put_off": tally.put_off,
            "wrong": tally.wrong,
            "lost": tally.lost,
            "errors": tally.errors,
            "p50_ms": percentile(times, 50) * 1000,
            "p99_ms": percentile(times, 99) * 1000,
            "max_ms": max(times) * 1000,
            "cpu_s": process_time(),
        }


async def _beat(crowd: Crowd, member: Member, due: float) -> Answer:
    """The answer to a heartbeat that is sent when it is due. Raises ConnectionBrokenError, TimeoutError."""
    await _sleep_until(due, member)
    assert member.line is not None
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        return await member.line.exchange(member.line.frame_of(HEARTBEAT, crowd.group_id, member.heartbeat))


def _is_put_off(answer: Answer) -> bool:
    """Whether it is to be tried again, with the membership as it is."""
    return answer.json().get("error_code") in PUT_OFF


async def _reconnect(member: Member) -> None:
    """Connect as often as it takes: at once the first time, then after a pause that grows."""
    pause_s = PAUSE_FIRST_S
    while True:
        try:
            await member.reconnect()
        except (OSError, ConnectionBrokenError):
            await asyncio.sleep(pause_s * random.uniform(0.5, 1))
            pause_s = min(pause_s * 2, PAUSE_MAX_S)
        else:
            return


async def _sleep_until(due: float, member: Member) -> None:
    """Until then, or until its channel is gone: then ConnectionBrokenError."""
    assert isinstance(member.line, WatchedLine)
    delay_s = due - perf_counter()
    if delay_s > 0:
        try:
            async with asyncio.timeout(delay_s):
                await member.line.is_gone.wait()
        except TimeoutError:
            return
    if member.line.is_gone.is_set():
        raise ConnectionBrokenError("the line is gone")


async def obey(commands: asyncio.StreamReader, residents: Residents) -> None:
    """Do what is asked until the end."""
    while True:
        match (await commands.readline()).decode().strip():
            case "begin":
                residents.tally = Tally()
                say("begun")
            case "report":
                say("report", **residents.report())
            case "end" | "":
                # Before the members are cancelled: one that waits for an answer then has no connection any more.
                say("ended", **residents.report())
                return


async def read_commands() -> asyncio.StreamReader:
    """Of standard input."""
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    return commands


async def live(lives: Coroutine[Any, Any, None], obeying: Coroutine[Any, Any, None]) -> None:
    """Both, until one of them ends; what it raised is raised. The other is cancelled."""
    tasks = [asyncio.create_task(one) for one in (lives, obeying)]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def run(given: argparse.Namespace) -> None:
    """From the first connection to the last."""
    commands = await read_commands()
    residents = Residents(given)
    await residents.form()
    say("settled")
    await live(residents.run(), obey(commands, residents))
    residents.hang_up()


def add_groups(parser: argparse.ArgumentParser, *, group_size: int) -> None:
    """The options that say who there is, and how often each is heard. `group_size`: by default."""
    parser.add_argument("--members", type=int, default=1_000, help="in all; a multiple of the group size")
    parser.add_argument("--group-size", type=int, default=group_size)
    parser.add_argument("--group-prefix", default="residents", help="the groups are PREFIX-0, PREFIX-1, …")
    parser.add_argument("--interval-ms", type=int, default=3_000)


def begin(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], Coroutine[Any, Any, None]]) -> None:
    """Read the options, allow as many connections as the system does, run."""
    given = parser.parse_args()
    if given.members % given.group_size:
        parser.error("--members: it is no multiple of --group-size")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.disable()  # a pause here would look like the service's
    uvloop.run(run(given))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.residents", allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    add_groups(parser, group_size=100)
    parser.add_argument("--speakers", type=int, help="members that send heartbeats (default: all of them)")
    parser.add_argument("--line", choices=LINES, default="channel", help="to what they speak, and how")
    parser.add_argument("--strangers", action="store_true", help="join nothing: for a server without groups")
    begin(parser, run)


if __name__ == "__main__":
    main()
