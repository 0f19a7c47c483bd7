"""Lives at random: any answer to any call at any time, in virtual time. What must hold after every step is in `check`.

A failure names its seed; `live(seed)` plays it again.
"""

import random

import pytest
from pydantic import JsonValue

from assignors.contract import Assignor
from assignors.cooperative_sticky import CooperativeStickyAssignor
from assignors.range import RangeAssignor
from member.core import events as ev
from member.core.actions import Assign, Send
from member.core.events import Callback
from member.core.outcomes import Answered, Outcome
from member.core.states import ENDED, State
from protocol import messages as m
from protocol import operations as ops
from protocol.errors import ErrorCode
from protocol.opaque import EMPTY, OpaqueJson
from tests.member.core.player import (
    BEATEN,
    COMMIT,
    GONE,
    LEFT,
    SUPERSEDED,
    Player,
    joined,
    located,
    refused,
    synced,
    waiting,
)

STEPS = 120
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
    """A player, chance, and what the callbacks and the generation were so far."""

    def __init__(self, seed: int, *, cooperative: bool) -> None:
        self.chance = random.Random(seed)
        offers: tuple[Assignor, ...] = (CooperativeStickyAssignor(),) if cooperative else (RangeAssignor(),)
        self.player = Player(
            group_instance_id=self.chance.choice([None, "i"]), jitter=self.chance.random(), offers=offers
        )
        self.cooperative = cooperative
        self.told = 0  # callbacks that were looked at
        self.mine: set[tuple[str, int]] = set()
        self.generation_id = 0
        self.running = 0  # callbacks that have ended
        self.ticket = 0
        self.failed = False  # on_assigned raised: what it was told of is not the member's

    def step(self) -> None:
        chance, player = self.chance, self.player
        choice = chance.random()
        if choice < 0.6 and player.open:
            self.answer(chance.choice(sorted(player.open)))
        elif choice < 0.75 and self.running < len(player.callbacks):
            self.end_callback()
        elif choice < 0.93:
            player.wait(chance.choice([1, 100, 3_000, 20_000, 50_000]))
        elif choice < 0.96:
            self.hear()
        else:
            self.wish()

    def hear(self) -> None:
        """Something of a session. The calls that were open on one have ended when it is lost."""
        chance, player = self.chance, self.player
        url = chance.choice(["http://node-1", "http://node-2"])
        joins, state, pushed = len(player.bodies("join")), player.state(), self.generation_id - chance.randrange(2)
        match chance.randrange(7):
            case 0 | 1:
                player.feed(ev.SessionOpened(url))
            case 2:
                for name in [name for name, call in player.open.items() if isinstance(call, Send) and call.url == url]:
                    if name in player.open:
                        player.answer(name, GONE)
                player.feed(ev.SessionLost(url, "reset"))
            case 3:
                player.feed(ev.SessionUnavailable(url, "HTTP 404"))
            case 4:
                player.feed(ev.GroupUnloaded(url))
            case 5:
                player.feed(ev.NodeDraining(url))
            case _:
                player.feed(ev.RebalanceBegan(pushed))
                if state not in {State.STABLE, State.SYNCING} or pushed < player.machine.generation_id:
                    assert (len(player.bodies("join")), player.state()) == (joins, state), "a stale push means nothing"

    def answer(self, name: str) -> None:
        call = self.player.open[name]
        if isinstance(call, Assign):
            made = (m.SyncAssignment(member_id="m-1", assignment=EMPTY),)
            del self.player.open[name]
            self.player.feed(
                ev.AssignmentMade(call.call_id, made)
                if self.chance.random() < 0.8
                else ev.AssignmentFailed(call.call_id, OSError("down"), retriable=self.chance.random() < 0.98)
            )
        else:
            self.player.answer(name, self.outcome(name))

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
                body = self.player.body(name)
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
            case _:
                return Answered(m.CommitAnswer(offsets={}))

    def share(self) -> OpaqueJson:
        """Some partitions at random; mostly what the join claimed."""
        claimed = self.player.bodies("join")[-1].protocols[0].metadata.value["owned_partitions"]
        if self.chance.random() < 0.4:
            return OpaqueJson.of({"partitions": claimed})
        numbers: list[JsonValue] = [number for number in range(4) if self.chance.random() < 0.5]
        return OpaqueJson.of({"partitions": {self.chance.choice(["clicks", "orders"]): numbers}})

    def end_callback(self) -> None:
        call = self.player.callbacks[self.running]
        self.running += 1
        error = OSError("disk full") if self.chance.random() < 0.02 else None
        self.failed = self.failed or (error is not None and call.callback is Callback.ASSIGNED)
        self.player.feed(ev.CallbackEnded(call.callback, call.assignment.generation_id, error))

    def wish(self) -> None:
        chance, player = self.chance, self.player
        match chance.randrange(12):
            case 0:
                player.feed(ev.LeaveRequested("enough", stay=chance.random() < 0.3))
            case 1 | 2 | 3:
                player.feed(ev.RejoinRequested("again"))
            case 4 | 5 | 6:
                player.feed(ev.SubscriptionChanged((chance.choice(["clicks", "orders"]),), None))
            case 7 | 8:
                if self.ticket in {0, *player.settled}:  # one at a time, for the player knows it by its name
                    self.ticket += 1
                    player.commit(self.ticket, chance.choice([None, player.machine.generation_id]))
            case 9 | 10 if player.state() not in ENDED and self.ticket in {0, *player.settled}:
                self.ticket += 1
                player.ask(self.ticket, ops.COMMIT, COMMIT)
            case _:
                player.feed(ev.Started())

    def check(self) -> None:
        player, machine = self.player, self.player.machine
        state = player.state()
        if state in ENDED:
            assert (player.open, player.timers) == ({}, {}), "nothing outlives the member"
            assert player.done is not None
            assert (player.done.error is not None) == (state is State.FAILED)
        elif state is not State.UNJOINED:
            wanted = self.running < len(player.callbacks)
            assert player.open or player.timers or wanted, f"{state} waits for nothing, so it is stuck for ever"
        if self.cooperative:
            self.check_cooperative()
            return
        if state in {State.STABLE, State.REVOKING}:
            assert machine.assignment is not None
            assert machine.assignment.generation_id >= 1
            assert machine.generation_id == machine.assignment.generation_id or "heartbeat" not in player.open
        else:
            assert machine.assignment is None
        for said in (*player.bodies("sync"), *player.bodies("heartbeat")):
            assert said.generation_id >= 1
            assert said.member_id
        ends: list[Callback] = [call.callback for call in player.callbacks]
        assert all(callback is Callback.ASSIGNED for callback in ends[::2]), ends
        assert all(callback is not Callback.ASSIGNED for callback in ends[1::2]), ends

    def check_cooperative(self) -> None:
        """Each partition is added, and then revoked or lost, in turn; what is said of it is said in time."""
        player, machine = self.player, self.player.machine
        for call in player.callbacks[self.told :]:
            held = call.assignment
            if call.callback is Callback.ASSIGNED:
                assert not held.partitions & self.mine, "added twice"
                self.mine |= held.partitions
            else:
                assert held.partitions <= self.mine, "given up without having it"
                self.mine -= held.partitions
            if call.callback is not Callback.LOST and not self.failed:
                assert held.kept == self.mine - held.partitions, "kept is the rest"
        self.told = len(player.callbacks)
        owned = frozenset() if machine.assignment is None else machine.assignment.partitions
        if player.state() not in ENDED | {State.LEAVING, State.REVOKING} and not self.failed:
            assert owned == self.mine, "what the callbacks said is what it owns"
        if player.state() in {State.STABLE, State.REVOKING}:
            assert machine.assignment is not None
        if "join" in player.open and owned:
            claimed = player.body("join").protocols[0].metadata.value["owned_partitions"]
            assert {(topic, number) for topic, numbers in claimed.items() for number in numbers} == owned
            assert set(claimed) <= set(player.body("join").protocols[0].metadata.value["topics"])


def live(seed: int, *, cooperative: bool) -> Life:
    life = Life(seed, cooperative=cooperative)
    life.player.feed(ev.Started())
    for _ in range(STEPS):
        life.step()
        life.check()
    return life


def settle(life: Life) -> None:
    """From now on everything goes well."""
    player = life.player
    for _ in range(200):
        if player.state() in {State.STABLE, *ENDED} and life.running == len(player.callbacks):
            return
        if life.running < len(player.callbacks):
            call = player.callbacks[life.running]
            life.running += 1
            player.feed(ev.CallbackEnded(call.callback, call.assignment.generation_id))
        elif player.open:
            name = sorted(player.open)[0]
            call_now = player.open[name]
            if isinstance(call_now, Assign):
                life.answer(name)
            else:
                player.answer(name, life.success(name))
        else:
            player.wait(5_000)
        life.check()
    raise AssertionError(f"never settled: {player.state()}, open {sorted(player.open)}, timers {player.timers}")


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
        ends.add(life.player.state())
    assert State.STABLE in ends
    assert len(ends) > 1, "chance also finds the ways out"
