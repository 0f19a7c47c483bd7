"""Groups with random commands in any order: the invariants hold, and no call is forgotten.

Each example is a script of clients' words, time, hang-ups and crashes. After each the group is checked, every call is
answered or waits with a timer, and what a crash would bring back is what was stored.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rallypoint.coordinator.core import description, holding, invariants
from rallypoint.coordinator.core.commands import DecisionContext, Rules, TimerFired, TimerKey, TimerKind
from rallypoint.coordinator.core.decide import SESSION_LOOKS_MS, step
from rallypoint.coordinator.core.decision import session_timer
from rallypoint.coordinator.core.effects import Failure, GroupChanged, SetTimer
from rallypoint.coordinator.core.group import State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.group_harness import GroupHarness, consumer
from tests.sizes import by_size

RULES = Rules(
    group_min_session_timeout_ms=1,
    group_max_size=4,
    group_initial_rebalance_delay_ms=0,
    group_join_linger_ms=150,
    parked_call_max_wait_ms=4_000,
    offsets_retention_check_interval_ms=5_000,
    rebalance_history_max=3,
    rebalance_freeze_max_ms=6_000,
    rebalance_cooldown_max_ms=2_000,
)
NAMES = ("a", "b", "c", "d", "e")
Word = tuple[str, int, int]


class SteppedToo(GroupHarness):
    """A group that renews no session otherwise than its step does, and looks at each in time."""

    def _fire(self, key: TimerKey) -> None:
        stepped = deepcopy(self.group)
        command = TimerFired(key, self.heard_at_ms.get(key.subject))
        decision = step(stepped, command, DecisionContext(self.now_ms, self.rules))
        super()._fire(key)
        if key.kind is TimerKind.SESSION and self.timers.get(key, self.now_ms) > self.now_ms:
            (moved,) = decision.effects
            assert isinstance(moved, SetTimer)
            assert (moved.key, decision.records) == (key, [])
            assert stepped == self.group
            assert moved.deadline_ms == self.group.members[key.subject].deadline_ms
            looks_at_ms = self.timers[key]
            assert self.now_ms < looks_at_ms <= moved.deadline_ms < looks_at_ms + SESSION_LOOKS_MS
            assert looks_at_ms % SESSION_LOOKS_MS == 0 or moved.deadline_ms - self.now_ms < SESSION_LOOKS_MS


class Clients:
    """Five clients who remember their ids and generations, and sometimes say what is not true."""

    def __init__(self, group_harness: GroupHarness) -> None:
        self.group_harness = group_harness
        self.ids = dict.fromkeys(range(5), "")
        self.joins: dict[int, int] = {}
        self.committed: dict[str, dict[int, int]] = {}

    def join(self, who: int, how: int) -> None:
        static = f"i{who}" if who >= 3 else None
        call = self.group_harness.join(
            "" if how == 7 else self.ids[who],
            instance=static,
            protocols=(("range", consumer("t" if how < 5 else "u")),),
            rebalance_ms=5_000,
            session_ms=3_000,
            request_id=f"{who}-{how}" if how % 2 else None,
            max_wait_ms=(None, 0, 1_000)[how % 3],
            grace_ms=(None, 0, 700)[how % 3],
        )
        self.joins[who] = call

    def look(self) -> None:
        """Read the answers that came."""
        for who, call in self.joins.items():
            if self.group_harness.waits(call):
                continue
            answer = self.group_harness.answer(call)
            if isinstance(answer, m.JoinAnswer | m.WaitingAnswer) or (
                isinstance(answer, Failure) and answer.code is ErrorCode.MEMBER_ID_REQUIRED
            ):
                self.ids[who] = answer.member_id or self.ids[who]
            elif answer.code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.ids[who] = ""

    def sync(self, who: int, how: int) -> None:
        everyone = {member: {"partitions": {"t": [how]}} for member in self.group_harness.group.members}
        self.group_harness.sync(
            self.ids[who],
            self.group_harness.group.generation_id - (how == 7),
            instance=f"i{who}" if who >= 3 else None,
            assignments=everyone,
            max_wait_ms=(None, 0, 1_000)[how % 3],
        )

    def heartbeat(self, who: int, how: int) -> None:
        self.group_harness.heartbeat(
            self.ids[who], self.group_harness.group.generation_id - (how == 7), wait_ms=(0, 900)[how % 2]
        )

    def ping(self, who: int, how: int) -> None:
        """Something came on the member's channel, some time ago."""
        self.group_harness.heard_at_ms[self.ids[who]] = self.group_harness.now_ms - 450 * how

    def leave(self, who: int, how: int) -> None:
        self.group_harness.leave(self.ids[who], self.ids[how % 5])

    def commit(self, who: int, how: int) -> None:
        before = self.group_harness.fetch()
        generation = -1 if how == 6 else self.group_harness.group.generation_id - (how == 7)
        call = self.group_harness.commit("" if how == 6 else self.ids[who], generation, offset=how, partition=who)
        taken = self.group_harness.code(call) is ErrorCode.NONE
        expected = {"t": {**before.get("t", {}), who: how}} if taken else before
        assert self.group_harness.fetch() == expected
        self.committed = expected

    def delete(self, _: int, how: int) -> None:
        is_empty = self.group_harness.group.state is State.EMPTY
        code = self.group_harness.code(self.group_harness.delete_group())
        assert (code is ErrorCode.NONE) == is_empty
        if is_empty:
            assert self.group_harness.log == {}, "something of a deleted group is still stored"
            self.committed = {}

    def freeze(self, _: int, how: int) -> None:
        is_there = self.group_harness.group.state is not State.DEAD
        code = self.group_harness.code(self.group_harness.freeze(how * 1_000))
        refused = ErrorCode.INVALID_REQUEST if how == 7 else ErrorCode.NONE
        assert code is (refused if is_there else ErrorCode.GROUP_ID_NOT_FOUND)

    def thaw(self, _: int, __: int) -> None:
        self.group_harness.thaw()
        assert holding.frozen_until(self.group_harness.group) is None

    def cooldown(self, _: int, how: int) -> None:
        self.group_harness.cooldown((None, 0, 200, 500, 1_000, 2_000, 2_001, 9_000)[how])

    def rebalance(self, _: int, __: int) -> None:
        was_stable = self.group_harness.group.state is State.STABLE
        call = self.group_harness.start_rebalance()
        if was_stable:
            assert self.group_harness.answer(call).started
            assert self.group_harness.group.state is not State.STABLE

    def time(self, _: int, how: int) -> None:
        self.group_harness.advance((1, 100, 800, 1_500, 3_000, 5_000, 20_000, 10)[how])

    def hang_up(self, who: int, _: int) -> None:
        if who in self.joins:
            self.group_harness.hang_up(self.joins[who])

    def lose(self, who: int, how: int) -> None:
        if how == 7 and who in self.joins:
            self.group_harness.hang_up(self.joins[who], connection_lost=True)
        else:
            self.group_harness.lose_connection(self.ids[who])

    def topic(self, _: int, how: int) -> None:
        self.group_harness.topics(t=5 + how)

    def crash(self, _: int, how: int) -> None:
        if how:
            return
        # The waiting calls of a process that died are nobody's any more.
        self.group_harness.answers.update(dict.fromkeys(range(1, self.group_harness.calls + 1), m.HeartbeatAnswer()))
        self.joins.clear()
        self.group_harness.crash()


WORDS = (
    "join",
    "join",
    "join",
    "sync",
    "sync",
    "heartbeat",
    "ping",
    "leave",
    "commit",
    "time",
    "hang_up",
    "lose",
    "topic",
    "crash",
    "delete",
    "freeze",
    "thaw",
    "cooldown",
    "rebalance",
)


def check(clients: Clients, hung_up: set[int]) -> None:
    group_harness = clients.group_harness
    invariants.check(group_harness.group)
    waiting = {call for call in range(1, group_harness.calls + 1) if group_harness.waits(call)} - hung_up
    assert waiting == group_harness.group.parked.keys(), "a call was forgotten"
    timed = {int(key.subject) for key in group_harness.timers if key.kind is TimerKind.CALL}
    assert waiting <= timed, "a call waits without a deadline"
    sessions = {key.subject for key in group_harness.timers if key.kind is TimerKind.SESSION}
    assert sessions == group_harness.group.members.keys(), "a session has no timer, or a timer no member"
    late = [
        x
        for x in group_harness.group.members.values()
        if group_harness.timers[session_timer(x.member_id)] > x.deadline_ms
    ]
    assert not late, "a session's timer fires later than the session ends"
    shown = next((event.summary for event in reversed(group_harness.events) if isinstance(event, GroupChanged)), None)
    there = description.summary_of(group_harness.group)
    assert (shown or there) == there, "the lists show what is no more"
    assert shown or group_harness.group.state is State.DEAD, "no list shows the group"
    pendings = {key.subject for key in group_harness.timers if key.kind is TimerKind.PENDING}
    assert pendings == group_harness.group.pending.keys()
    graces = {key.subject: at for key, at in group_harness.timers.items() if key.kind is TimerKind.GRACE}
    away = {
        x.member_id: x.grace_deadline_ms
        for x in group_harness.group.members.values()
        if x.grace_deadline_ms is not None
    }
    assert graces == away, "a grace has no timer, or a timer no grace"
    phases = [key for key in group_harness.timers if key.kind is TimerKind.JOIN]
    assert [key.phase for key in phases] == (
        [group_harness.group.phase] if group_harness.group.state is State.PREPARING_REBALANCE else []
    )
    lingers = [(key.phase, at) for key, at in group_harness.timers.items() if key.kind is TimerKind.LINGER]
    until_ms = group_harness.group.lingers_until_ms
    assert lingers == ([] if until_ms is None else [(group_harness.group.phase, until_ms)])
    holds = sum(key.kind is TimerKind.HOLD for key in group_harness.timers)
    assert holds == (group_harness.group.held_count > 0 or holding.frozen_until(group_harness.group) is not None)
    looks = sum(key.kind is TimerKind.RETENTION for key in group_harness.timers)
    assert looks == (group_harness.group.state is not State.DEAD), "a group that is gone leaves no timer"
    assert group_harness.fetch().get("t", {}) == clients.committed.get("t", {})


def live(script: list[Word]) -> Clients:
    clients = Clients(SteppedToo(rules=RULES))
    hung_up: set[int] = set()
    highest = 0
    for word, who, how in script:
        say: Callable[[int, int], Any] = getattr(clients, word)
        if (
            (word == "hang_up" or (word, how) == ("lose", 7))
            and who in clients.joins
            and clients.group_harness.waits(clients.joins[who])
        ):
            hung_up.add(clients.joins[who])
        say(who, how)
        clients.look()
        check(clients, hung_up)
        if clients.group_harness.group.state is State.DEAD:
            highest = 0
        durable = clients.group_harness.group.highest_generation_id
        assert durable >= highest, "a generation went back"
        highest = durable
    return clients


SCRIPTS = st.lists(st.tuples(st.sampled_from(WORDS), st.integers(0, 4), st.integers(0, 7)), max_size=60)


@settings(max_examples=by_size(15, 100, 300))
@given(SCRIPTS)
def test_whatever_is_said_the_invariants_hold(script: list[Word]) -> None:
    live(script)


@settings(max_examples=by_size(5, 40, 100))
@given(SCRIPTS)
def test_when_everyone_behaves_the_group_becomes_stable(script: list[Word]) -> None:
    """Liveness: after any past, clients that do as they are told have a stable group soon."""
    clients = live(script)
    group_harness = clients.group_harness
    for _ in range(20):
        for who in range(3):
            if (
                clients.ids[who] not in group_harness.group.members
                or group_harness.group.state is State.PREPARING_REBALANCE
            ):
                clients.join(who, 0)
                clients.look()
        for who in range(3):
            if clients.ids[who] in group_harness.group.pending_sync:
                clients.sync(who, 0)
            clients.heartbeat(who, 0)
        group_harness.advance(1_000)
        clients.look()
    assert group_harness.group.state is State.STABLE
    quiet = group_harness.group.generation_id
    for _ in range(20):
        for who in range(3):
            clients.heartbeat(who, 0)
        group_harness.advance(1_000)
    assert (group_harness.group.state, group_harness.group.generation_id) == (State.STABLE, quiet)
