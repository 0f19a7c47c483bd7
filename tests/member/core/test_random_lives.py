"""Lives at random: any answer to any call at any time, in virtual time. What must hold after every step is in `check`.

A failure names its seed; `live(seed)` plays it again.
"""

import random

import pytest
from pydantic import JsonValue

from rallypoint.assignors.contract import Assignor
from rallypoint.assignors.cooperative_sticky import CooperativeStickyAssignor
from rallypoint.assignors.range import RangeAssignor
from rallypoint.member.core import events as ev
from rallypoint.member.core.actions import Assign, Send
from rallypoint.member.core.events import Callback
from rallypoint.member.core.long_waits import LONG_WAIT
from rallypoint.member.core.outcomes import Answered, Outcome
from rallypoint.member.core.states import ENDED, State
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import EMPTY, OpaqueJson
from tests.member.core.membership_harness import (
    BEATEN,
    COMMIT,
    GONE,
    LEFT,
    SUPERSEDED,
    MembershipHarness,
    joined,
    located,
    refused,
    synced,
    waiting,
)
from tests.sizes import by_size

STEPS = 120
SEEDS = by_size(100, 150, 400)
REFUSALS = [code for code in ErrorCode if code is not ErrorCode.NONE]
MILD = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
]


class Life:
    """A harness, chance, and what the callbacks and the generation were so far."""

    def __init__(self, seed: int, *, cooperative: bool) -> None:
        self.chance = random.Random(seed)
        offers: tuple[Assignor, ...] = (CooperativeStickyAssignor(),) if cooperative else (RangeAssignor(),)
        self.harness = MembershipHarness(
            group_instance_id=self.chance.choice([None, "i"]), jitter=self.chance.random(), offers=offers
        )
        self.cooperative = cooperative
        self.checked_callbacks = 0  # callbacks that were looked at
        self.mine: set[tuple[str, int]] = set()
        self.generation_id = 0
        self.running = 0  # callbacks that have ended
        self.ticket = 0
        self.failed = False  # on_assigned raised: what it was told of is not the member's

    def step(self) -> None:
        chance, harness = self.chance, self.harness
        choice = chance.random()
        if choice < 0.6 and harness.open:
            self.answer(chance.choice(sorted(harness.open)))
        elif choice < 0.75 and self.running < len(harness.callbacks):
            self.end_callback()
        elif choice < 0.93:
            harness.wait(chance.choice([1, 100, 3_000, 20_000, 50_000]))
        elif choice < 0.96:
            self.hear()
        else:
            self.wish()

    def hear(self) -> None:
        """Something of a channel. The calls that were open on one have ended when it is lost."""
        chance, harness = self.chance, self.harness
        url = chance.choice(["http://node-1", "http://node-2"])
        joins, state, pushed = len(harness.bodies("join")), harness.state(), self.generation_id - chance.randrange(2)
        match chance.randrange(7):
            case 0 | 1:
                harness.feed(ev.ChannelOpened(url))
            case 2:
                for name in [name for name, call in harness.open.items() if isinstance(call, Send) and call.url == url]:
                    if name in harness.open:
                        harness.answer(name, GONE)
                harness.feed(ev.ChannelLost(url, "reset"))
            case 3:
                harness.feed(ev.ChannelUnavailable(url, "HTTP 404"))
            case 4:
                harness.feed(ev.GroupUnloaded(url))
            case 5:
                harness.feed(ev.NodeDraining(url))
            case _:
                harness.feed(ev.RebalanceBegan(pushed))
                if state not in {State.STABLE, State.SYNCING} or pushed < harness.machine.generation_id:
                    assert (len(harness.bodies("join")), harness.state()) == (joins, state), (
                        "a stale push means nothing"
                    )

    def answer(self, name: str) -> None:
        call = self.harness.open[name]
        if isinstance(call, Assign):
            made = (m.SyncAssignment(member_id="m-1", assignment=EMPTY),)
            del self.harness.open[name]
            self.harness.feed(
                ev.AssignmentMade(call.call_id, made)
                if self.chance.random() < 0.8
                else ev.AssignmentFailed(call.call_id, OSError("down"), retriable=self.chance.random() < 0.98)
            )
        else:
            self.harness.answer(name, self.outcome(name))

    def outcome(self, name: str) -> Outcome:
        choice = self.chance.random()
        if choice < 0.1:
            return GONE
        if choice < 0.15:
            return SUPERSEDED
        if choice < 0.3:
            codes = MILD[:3] if name == "coordinator" else MILD
            return refused(self.chance.choice(codes), url=self.chance.choice([None, "http://node-2"]))
        if choice < 0.301:
            return refused(self.chance.choice(REFUSALS), member_id=self.chance.choice([None, "m-2"]))
        return self.success(name)

    def success(self, name: str) -> Outcome:
        match name:
            case "coordinator":
                return located(self.chance.choice(["http://node-1", "http://node-2"]))
            case "join":
                body = self.harness.body(name)
                if not body.member_id and body.group_instance_id is None:
                    return refused(ErrorCode.MEMBER_ID_REQUIRED, member_id="m-1")
                if self.chance.random() < 0.3:
                    return waiting("m-1")
                self.generation_id += 1
                return joined(self.generation_id, leader=self.chance.choice(["m-1", "other"]))
            case "sync":
                shared = self.share() if self.cooperative else EMPTY
                junk = OpaqueJson.of("junk") if self.chance.random() < 0.01 else shared
                return waiting() if self.chance.random() < 0.3 else synced(junk)
            case "heartbeat":
                return BEATEN
            case "leave":
                return LEFT
            case "list_rebalances":
                return Answered(admin.ListRebalancesAnswer(rebalances=()))
            case _:
                return Answered(m.CommitAnswer(offsets={}))

    def share(self) -> OpaqueJson:
        """Some partitions at random; mostly what the join named."""
        named = self.harness.bodies("join")[-1].protocols[0].metadata.value["owned_partitions"]
        if self.chance.random() < 0.4:
            return OpaqueJson.of({"partitions": named})
        numbers: list[JsonValue] = [number for number in range(4) if self.chance.random() < 0.5]
        return OpaqueJson.of({"partitions": {self.chance.choice(["clicks", "orders"]): numbers}})

    def end_callback(self) -> None:
        call = self.harness.callbacks[self.running]
        self.running += 1
        error = OSError("disk full") if self.chance.random() < 0.02 else None
        self.failed = self.failed or (error is not None and call.callback is Callback.ASSIGNED)
        self.harness.feed(ev.CallbackEnded(call.callback, call.assignment.generation_id, error))

    def wish(self) -> None:
        chance, harness = self.chance, self.harness
        match chance.randrange(12):
            case 0:
                harness.feed(ev.LeaveRequested("enough", stay=chance.random() < 0.3))
            case 1 | 2 | 3:
                harness.feed(ev.RejoinRequested("again"))
            case 4 | 5 | 6:
                harness.feed(ev.SubscriptionChanged((chance.choice(["clicks", "orders"]),), None))
            case 7 | 8:
                if self.ticket in {0, *harness.settled}:  # one at a time, for the harness knows it by its name
                    self.ticket += 1
                    harness.commit(self.ticket, chance.choice([None, harness.machine.generation_id]))
            case 9 | 10 if harness.state() not in ENDED and self.ticket in {0, *harness.settled}:
                self.ticket += 1
                harness.ask(self.ticket, ops.COMMIT, COMMIT)
            case _:
                harness.feed(ev.Started())

    def check(self) -> None:
        harness, machine = self.harness, self.harness.machine
        state = harness.state()
        if state in ENDED:
            assert (harness.open, harness.timers) == ({}, {}), "nothing outlives the member"
            assert harness.done is not None
            assert (harness.done.error is not None) == (state is State.FAILED)
        elif state is not State.UNJOINED:
            wanted = self.running < len(harness.callbacks)
            asked = harness.open.keys() | harness.timers.keys()
            assert wanted or any(LONG_WAIT not in key and key != "list_rebalances" for key in asked), (
                f"{state} is stuck"
            )
        if self.cooperative:
            self.check_cooperative()
            return
        if state in {State.STABLE, State.REVOKING}:
            assert machine.assignment is not None
            assert machine.assignment.generation_id >= 1
            assert machine.generation_id == machine.assignment.generation_id or "heartbeat" not in harness.open
        else:
            assert machine.assignment is None
        for said in (*harness.bodies("sync"), *harness.bodies("heartbeat")):
            assert said.generation_id >= 1
            assert said.member_id
        ends: list[Callback] = [call.callback for call in harness.callbacks]
        assert all(callback is Callback.ASSIGNED for callback in ends[::2]), ends
        assert all(callback is not Callback.ASSIGNED for callback in ends[1::2]), ends

    def check_cooperative(self) -> None:
        """Each partition is added, and then revoked or lost, in turn; what is said of it is said in time."""
        harness, machine = self.harness, self.harness.machine
        for call in harness.callbacks[self.checked_callbacks :]:
            held = call.assignment
            if call.callback is Callback.ASSIGNED:
                assert not held.partitions & self.mine, "added twice"
                self.mine |= held.partitions
            else:
                assert held.partitions <= self.mine, "given up without having it"
                self.mine -= held.partitions
            if call.callback is not Callback.LOST and not self.failed:
                assert held.kept == self.mine - held.partitions, "kept is the rest"
        self.checked_callbacks = len(harness.callbacks)
        owned = frozenset() if machine.assignment is None else machine.assignment.partitions
        if harness.state() not in ENDED | {State.LEAVING, State.REVOKING} and not self.failed:
            assert owned == self.mine, "what the callbacks said is what it owns"
        if harness.state() in {State.STABLE, State.REVOKING}:
            assert machine.assignment is not None
        if "join" in harness.open and owned:
            named = harness.body("join").protocols[0].metadata.value["owned_partitions"]
            assert {(topic, number) for topic, numbers in named.items() for number in numbers} == owned
            assert set(named) <= set(harness.body("join").protocols[0].metadata.value["topics"])


def live(seed: int, *, cooperative: bool) -> Life:
    life = Life(seed, cooperative=cooperative)
    life.harness.feed(ev.Started())
    for _ in range(STEPS):
        life.step()
        life.check()
    return life


def settle(life: Life) -> None:
    """From now on everything goes well."""
    harness = life.harness
    for _ in range(200):
        if harness.state() in {State.STABLE, *ENDED} and life.running == len(harness.callbacks):
            return
        if life.running < len(harness.callbacks):
            call = harness.callbacks[life.running]
            life.running += 1
            harness.feed(ev.CallbackEnded(call.callback, call.assignment.generation_id))
        elif harness.open:
            name = sorted(harness.open)[0]
            call_now = harness.open[name]
            if isinstance(call_now, Assign):
                life.answer(name)
            else:
                harness.answer(name, life.success(name))
        else:
            harness.wait(5_000)
        life.check()
    raise AssertionError(f"never settled: {harness.state()}, open {sorted(harness.open)}, timers {harness.timers}")


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize("block", range(10))
def test_whatever_happens_the_member_stays_sound_and_settles(block: int, cooperative: bool) -> None:
    ends = set()
    for seed in range(block * 40, block * 40 + 40):
        try:
            life = live(seed, cooperative=cooperative)
            settle(life)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        ends.add(life.harness.state())
    assert State.STABLE in ends
    assert len(ends) > 1, "chance also finds the ways out"


@pytest.mark.parametrize("cooperative", [False, True])
def test_a_fault_of_this_library_ends_everything_that_was_announced_wherever_it_comes(cooperative: bool) -> None:
    lost = 0
    for seed in range(SEEDS):
        life = Life(seed, cooperative=cooperative)
        harness = life.harness
        for _ in range(life.chance.randrange(STEPS)):
            life.step()
            life.check()
        ended_before = harness.state() in ENDED
        checked_callbacks = len(harness.callbacks)
        harness.feed(ev.LibraryFailed("a fault"))
        assert ended_before or harness.state() is State.FAILED, f"seed {seed}: {harness.state()}"
        assert (harness.open, harness.timers, harness.machine.assignment) == ({}, {}, None), f"seed {seed}"
        closed = harness.moves[-1].reason == "closed"
        announced: set[tuple[str, int]] = set()
        for call in harness.callbacks:
            if call.callback is Callback.ASSIGNED:
                announced |= call.assignment.partitions
            else:
                announced -= call.assignment.partitions
        assert life.failed or closed or not announced, f"seed {seed}: {announced} have no end"
        lost += len(harness.callbacks) - checked_callbacks
    assert lost > 0


@pytest.mark.parametrize("cooperative", [False, True])
def test_a_leave_that_is_hurried_ends_in_time_whatever_went_before_and_nobody_answers(cooperative: bool) -> None:
    ends = set()
    for seed in range(SEEDS):
        life = Life(seed, cooperative=cooperative)
        life.harness.feed(ev.Started())
        for _ in range(life.chance.randrange(STEPS)):
            life.step()
        life.harness.feed(ev.LeaveRequested("enough", stay=life.chance.random() < 0.3))
        for _ in range(life.chance.randrange(5)):
            life.step()
        life.harness.feed(ev.LeaveHurried())
        life.harness.wait(5_000)  # leave_timeout_ms
        assert life.harness.state() in ENDED, f"seed {seed}"
        assert (life.harness.open, life.harness.timers) == ({}, {}), f"seed {seed}"
        ends.add(life.harness.state())
    assert State.LEFT in ends
