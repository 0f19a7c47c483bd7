"""A group of a store that went back to a backup: nothing that was handed out since is handed out once more."""

from random import Random

import pytest

from rallypoint.coordinator.core.commands import Trigger
from rallypoint.coordinator.core.group import State
from rallypoint.coordinator.core.invariants import check
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.group_harness import GroupHarness

FLOOR = 10_000
REFUSALS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_ID_NOT_FOUND}
"""Of who is no member: of a group that is there, that has no members, that is not there."""


class Members:
    """They join, sync, leave and are not heard of, by chance; what they were told is kept."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.group_harness = GroupHarness()
        self.calls: list[int] = []
        self.ids: list[str] = []
        self.handed_out: list[tuple[int, str]] = []
        """Generations with the members that were told of them."""

    def act(self, times: int) -> None:
        for _ in range(times):
            self.chance.choice((self._come, self._come_again, self._sync, self._leave, self._wait))()
            check(self.group_harness.group)
        self.group_harness.advance(60_000)
        self._read()

    def _come(self) -> None:
        instance = self.chance.choice((None, None, "i1", "i2"))
        if instance is None:
            member_id, call = self.group_harness.join_new()
            self.ids.append(member_id)
        else:
            call = self.group_harness.join(instance=instance)
        self.calls.append(call)

    def _come_again(self) -> None:
        if self.ids:
            self.calls.append(self.group_harness.join(self.chance.choice(self.ids[-3:])))

    def _sync(self) -> None:
        leader = self.group_harness.group.leader
        if leader is not None:
            self.group_harness.sync(leader, assignments={key: {} for key in self.group_harness.group.members})

    def _leave(self) -> None:
        if self.ids:
            self.group_harness.leave(self.chance.choice(self.ids[-3:]))

    def _wait(self) -> None:
        self.group_harness.advance(self.chance.choice((10, 3_000, 11_000)))

    def _read(self) -> None:
        answers = [self.group_harness.answers[call] for call in self.calls if call in self.group_harness.answers]
        self.calls = [call for call in self.calls if call not in self.group_harness.answers]
        self.handed_out += [(x.generation_id, x.member_id) for x in answers if isinstance(x, m.JoinAnswer)]


@pytest.mark.parametrize("seed", range(60))
def test_no_generation_is_handed_out_twice(seed: int) -> None:
    members = Members(seed)
    members.act(members.chance.randrange(40))
    backup = dict(members.group_harness.log)
    known_to_backup = len(members.handed_out)
    members.act(members.chance.randrange(40))
    before, members.handed_out = members.handed_out, []
    of_another_time = before[known_to_backup:]
    assert all(generation_id <= FLOOR for generation_id, _ in before)

    group_harness = members.group_harness
    group_harness.log, group_harness.generation_floor = backup, FLOOR
    group_harness.crash()
    check(group_harness.group)
    assert group_harness.group.members == {}
    assert group_harness.state() in {State.EMPTY, State.DEAD}
    for generation_id, member_id in before:
        for call in (
            group_harness.heartbeat(member_id, generation_id),
            group_harness.commit(member_id, generation_id),
            group_harness.sync(member_id, generation_id, assignments={member_id: {}}),
        ):
            answer = group_harness.answer(call)
            refused = (
                answer.offsets["t"][0].error_code if isinstance(answer, m.CommitAnswer) else group_harness.code(call)
            )
            assert refused in REFUSALS

    members.ids += [member_id for _, member_id in of_another_time]
    for member_id in members.ids[-3:]:
        members.calls.append(group_harness.join(member_id))
    members.act(40)
    assert all(generation_id > FLOOR for generation_id, _ in members.handed_out)


def test_the_group_says_why_its_members_are_out_and_once() -> None:
    group_harness = GroupHarness(generation_floor=0)
    member_id, joined = group_harness.join_new()
    group_harness.advance_until_answered(joined)
    group_harness.sync(member_id, assignments={member_id: {}})
    group_harness.commit(member_id, offset=7)
    group_harness.generation_floor = FLOOR
    group_harness.crash()
    assert (group_harness.state(), group_harness.group.generation_id) == (State.EMPTY, FLOOR + 1)
    last, *_ = group_harness.rebalances()
    assert (last.trigger, last.outcome) == (Trigger.STORE_RESTORED, "emptied")
    assert group_harness.fetch() == {"t": {0: 7}}

    member_id, joined = group_harness.join_new()
    group_harness.advance_until_answered(joined)
    group_harness.sync(member_id, assignments={member_id: {}})
    group_harness.crash()
    assert (group_harness.state(), set(group_harness.group.members)) == (State.STABLE, {member_id})
    assert group_harness.group.generation_id == FLOOR + 2


def test_a_group_that_the_backup_does_not_know_goes_on_above_all_of_before() -> None:
    group_harness = GroupHarness(generation_floor=FLOOR)
    _, joined = group_harness.join_new()
    group_harness.advance_until_answered(joined)
    assert group_harness.answer(joined).generation_id == FLOOR + 1
