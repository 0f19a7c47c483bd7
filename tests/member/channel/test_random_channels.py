"""The member's end of its channels, in any order of calls, cuts, silence and refused handshakes, on a clock that jumps.

ended     every call has one outcome, by its deadline: its own answer, a refusal, or that nobody answered
told      a channel is lost only where one was open, and after the calls that it ended have their outcomes
silent    after a member has closed nothing is said for it, and it is told nothing
nothing   is left when all have closed: no task, no timer, no channel, no connection, no handle of one
recovers  when all is well again, calls go over channels again, within the longest pause before another try
"""

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rallypoint import ChannelPool, MemberOptions
from rallypoint.member.channel import channel, connections
from rallypoint.member.core import events as ev
from rallypoint.member.core.outcomes import Answered, Outcome, Refused, Unreachable
from rallypoint.member.transport import ChannelTransport
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from tests.fakes.scripted_node import Heard, Script, ScriptedHttp, answer_to
from tests.simulation.loop import Stuck, VirtualLoop
from tests.sizes import by_size

URLS = ("http://one", "http://two")
MEMBERS = 4
TRY_AGAIN_MS, TRY_AGAIN_MAX_MS = 1_000, 4_000
SLACK_MS = 5
"""Rounding: what is left of a time is never said to be nothing."""

members = st.integers(0, MEMBERS - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), members, st.sampled_from(URLS), st.sampled_from([1, 50, 500, 10_000])),
        st.tuples(st.just("call"), members, st.just(URLS[0]), st.just(10_000)),
        st.tuples(st.just("wait"), st.sampled_from([0, 1, 10, 300, 3_000, 12_000])),
        st.tuples(st.sampled_from(["cut", "silence", "push"]), st.integers(0, 9)),
        st.tuples(st.just("handshake"), st.sampled_from(["ok", "ok", "stripped", "denied", "hangs", "gone"])),
        st.tuples(st.just("http"), st.sampled_from(["ok", "ok", "lost", "gone"])),
        st.tuples(st.sampled_from(["drop", "close"]), members),
    ),
    min_size=8,
    max_size=40,
)


@dataclass
class Call:
    """One call of a member, and what came of it."""

    topic: str
    deadline_ms: float
    task: "asyncio.Task[None] | None" = None
    outcome: Outcome | None = None


@dataclass
class Caller:
    """A member without its rules: it calls, and hears."""

    name: str
    script: Script
    transport: ChannelTransport
    calls: list[Call] = field(default_factory=list)
    open_at: set[str] = field(default_factory=set)
    is_closed: bool = False
    heard_of_it: int = 0

    def said(self) -> int:
        """How many calls of it have reached a node."""
        return sum(heard.group_id == self.name for heard in self.script.heard)

    def hear(self, event: ev.Event) -> None:
        try:
            self._judge(event)
        except AssertionError as error:
            # Whoever tells may be a task that nobody asks how it ended.
            self.script.violations.append(error)

    def _judge(self, event: ev.Event) -> None:
        assert not self.is_closed, f"{self.name} has closed, and is told {event}"
        if isinstance(event, ev.ChannelOpened):
            self.open_at.add(event.url)
        elif isinstance(event, ev.ChannelLost):
            assert event.url in self.open_at, f"{self.name} had no channel with {event.url} to lose"
            self.open_at.discard(event.url)
            waiting = {call.topic for call in self.calls if call.outcome is None and not _is_dropped(call)}
            ended = {heard.topic for heard in self.script.heard if _went_down(heard)}
            assert not waiting & ended, (
                f"{waiting & ended} went down with a channel, and {self.name} is told of it first"
            )

    def call(self, url: str, timeout_ms: int) -> Call:
        loop = asyncio.get_running_loop()
        made = Call(f"{self.name}-{len(self.calls)}", loop.time() * 1000 + timeout_ms + SLACK_MS)
        self.calls.append(made)
        made.task = loop.create_task(self._call(made, url, timeout_ms))
        return made

    async def _call(self, made: Call, url: str, timeout_ms: int) -> None:
        body = m.FetchRequest(topics=(made.topic,))
        made.outcome = await self.transport.call(url, ops.FETCH, body, group_id=self.name, timeout_ms=timeout_ms)
        now_ms = asyncio.get_running_loop().time() * 1000
        assert now_ms <= made.deadline_ms, f"{made.topic} ended {now_ms - made.deadline_ms} ms after its deadline"
        match made.outcome:
            case Answered(answer):
                assert answer == answer_to(made.topic), f"{made.topic} has the answer of another call"
            case Refused() | Unreachable():
                pass
            case _:
                raise AssertionError(f"{made.topic} ended as {made.outcome}")

    async def close(self) -> None:
        # The driver cancels what is on its way before it closes.
        for call in self.calls:
            assert call.task is not None
            call.task.cancel()
        await asyncio.gather(*(call.task for call in self.calls if call.task is not None), return_exceptions=True)
        self.is_closed = True
        await self.transport.close()
        self.heard_of_it = self.said()


def _is_dropped(call: Call) -> bool:
    return call.task is not None and call.task.cancelling() > 0


def _went_down(heard: Heard) -> bool:
    return heard.socket is not None and _is_over(heard.socket) and not heard.is_turned_away


def _is_over(socket: object) -> bool:
    return not getattr(socket, "is_open", True)


class World:
    """Callers that share a pool, and the nodes."""

    def __init__(self, chance: random.Random, members_max: int) -> None:
        self.script = Script(chance)
        self.pool = ChannelPool(members_max=members_max, try_again_ms=TRY_AGAIN_MS, try_again_max_ms=TRY_AGAIN_MAX_MS)
        self.callers: list[Caller] = []
        for number in range(MEMBERS):
            options = MemberOptions(coordinator=URLS, group_id=f"g{number}", topics=("t",), session_timeout_ms=12_000)
            caller = Caller(f"g{number}", self.script, ChannelTransport(options, self.pool))
            caller.transport.attach(caller.hear)
            self.callers.append(caller)

    async def live(self, steps: list[tuple[object, ...]], *, recovers: bool) -> None:
        for step in steps:
            await self._do(*step)
            await asyncio.sleep(0)
        if recovers:
            await self._recover()
        for caller in self.callers:
            await self._close(caller)
        self._check_nothing_left()
        assert not self.script.violations, self.script.violations[0]
        assert [caller.said() for caller in self.callers] == [caller.heard_of_it for caller in self.callers]

    async def _do(self, what: object, *more: object) -> None:
        script, callers = self.script, self.callers
        match what, *more:
            case "call", int(who), str(url), int(timeout_ms) if not callers[who].is_closed:
                callers[who].call(url, timeout_ms)
            case "wait", int(for_ms):
                await asyncio.sleep(for_ms / 1000)
            case "cut" | "silence" | "push", int(number) if script.sockets:
                socket = script.sockets[-1 - number % len(script.sockets)]
                if what == "push":
                    socket.push(event="rebalance", group_id=f"g{number % MEMBERS}", generation_id=1, reason="")
                else:
                    (socket.cut if what == "cut" else socket.fall_silent)()
            case "handshake", str(how):
                script.handshake = how
            case "http", str(how):
                script.http = how
            case "drop", int(who) if callers[who].calls:
                task = callers[who].calls[-1].task
                assert task is not None
                task.cancel()
            case "close", int(who):
                await self._close(callers[who])

    async def _close(self, caller: Caller) -> None:
        """Judges the calls that have ended, and what is said afterwards for whoever has closed."""
        if caller.is_closed:
            return
        for call in caller.calls:
            assert call.task is not None
            if call.task.done() and not call.task.cancelled():
                call.task.result()
        await caller.close()

    async def _recover(self) -> None:
        """All is well again; whoever is there calls each second, longer than any pause and any call of before."""
        script = self.script
        script.handshake, script.http, script.is_prompt = "ok", "ok", True
        last: list[Call] = []
        for _ in range(2 * (12_000 + 10_000 + TRY_AGAIN_MAX_MS) // 1_000):
            last = [caller.call(URLS[0], 900) for caller in self.callers if not caller.is_closed]
            await asyncio.sleep(1)
        for call in last:
            (heard,) = (heard for heard in script.heard if heard.topic == call.topic)
            assert isinstance(call.outcome, Answered), f"{call.topic} ended as {call.outcome}"
            assert heard.socket is not None, f"{call.topic} went over HTTP still"
        for caller in self.callers:
            assert caller.is_closed or caller.open_at >= {URLS[0]}
            for call in caller.calls:
                assert call.task is None or call.task.done(), f"{call.topic} has no outcome"

    def _check_nothing_left(self) -> None:
        script, loop = self.script, asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        script.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert [timer for timer in loop._scheduled if not timer.cancelled()] == []
        assert self.pool.channel_count == 0
        assert all(client.is_closed for client in script.clients)
        assert not any(socket.is_open and not socket.is_silent for socket in script.sockets)
        assert all(handle.is_closed for handle in script.handles), "a handle of a connection is open"


def run(act: Coroutine[None, None, None]) -> None:
    """Run it on a loop of its own, whose time jumps. Whatever of a run that failed is still there ends unseen."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(act)
    finally:
        loop.fault = None
        loop.set_exception_handler(lambda loop, context: None)
        for _ in range(5):
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.call_soon(loop.stop)
            loop.run_forever()
        loop.close()


@settings(max_examples=by_size(5, 40, 100), suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=STEPS,
    chance=st.randoms(use_true_random=False),
    members_max=st.sampled_from([1, 2, 500]),
    recovers=st.booleans(),
)
def test_whatever_happens_to_its_channels(
    steps: list[tuple[object, ...]], chance: random.Random, members_max: int, recovers: bool
) -> None:
    live(steps, chance, members_max, recovers=recovers)


def live(steps: list[tuple[object, ...]], chance: random.Random, members_max: int, *, recovers: bool) -> None:
    async def act() -> None:
        world = World(chance, members_max)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(channel, "_new_client", world.script.new_client)
            patch.setattr(channel, "_shake_hands", world.script.shake_hands)
            for caller in world.callers:
                patch.setattr(caller.transport, "_http", ScriptedHttp(world.script))
            await world.live(steps, recovers=recovers)

    run(act())


def test_a_handshake_that_is_refused_beside_a_channel_does_not_keep_others_off_for_good() -> None:
    steps: list[tuple[object, ...]] = [
        ("call", 2, "http://one", 10_000),
        ("handshake", "stripped"),
        ("cut", 0),
        ("call", 1, "http://one", 10_000),
        ("call", 1, "http://one", 10_000),
        ("call", 0, "http://two", 1),
        ("call", 0, "http://two", 50),
        ("call", 0, "http://one", 1),
    ]
    for seed in range(20):
        live(steps, random.Random(seed), 2, recovers=True)


def test_what_is_set_for_a_millisecond_comes_in_it() -> None:
    """At 32.315 s, where the milliseconds were cut off, the next try was planned for that very moment over and over."""

    async def act() -> None:
        loop = asyncio.get_running_loop()
        for at_ms in range(1, 100_000, 7):
            woken = asyncio.Event()
            loop.call_at(at_ms / 1000, woken.set)
            await woken.wait()
            assert connections._now_ms() == at_ms

    run(act())


def test_turn_after_turn_at_one_moment_ends_a_run() -> None:
    async def act() -> None:
        loop = asyncio.get_running_loop()

        def again() -> None:
            loop.call_soon(again)

        again()
        await loop.create_future()

    with pytest.raises(Stuck, match=r"and it is 0\.0 s still"):
        run(act())
