"""A group of a store that went back to a backup: nothing that was handed out since is handed out once more."""

from random import Random

import pytest

from rallypoint.coordinator.core.commands import Trigger
from rallypoint.coordinator.core.group import State
from rallypoint.coordinator.core.invariants import check
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.conformance.desk import Desk

FLOOR = 10_000
REFUSALS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_ID_NOT_FOUND}
"""Of who is no member: of a group that is there, that has no members, that is not there."""


class Members:
    """They join, sync, leave and are not heard of, by chance; what they were told is kept."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.desk = Desk()
        self.calls: list[int] = []
        self.ids: list[str] = []
        self.handed_out: list[tuple[int, str]] = []
        """Generations with the members that were told of them."""

    def act(self, times: int) -> None:
        for _ in range(times):
            self.chance.choice((self._come, self._come_again, self._sync, self._leave, self._wait))()
            check(self.desk.group)
        self.desk.advance(60_000)
        self._read()

    def _come(self) -> None:
        instance = self.chance.choice((None, None, "i1", "i2"))
        if instance is None:
            member_id, call = self.desk.join_new()
            self.ids.append(member_id)
        else:
            call = self.desk.join(instance=instance)
        self.calls.append(call)

    def _come_again(self) -> None:
        if self.ids:
            self.calls.append(self.desk.join(self.chance.choice(self.ids[-3:])))

    def _sync(self) -> None:
        leader = self.desk.group.leader
        if leader is not None:
            self.desk.sync(leader, assignments={key: {} for key in self.desk.group.members})

    def _leave(self) -> None:
        if self.ids:
            self.desk.leave(self.chance.choice(self.ids[-3:]))

    def _wait(self) -> None:
        self.desk.advance(self.chance.choice((10, 3_000, 11_000)))

    def _read(self) -> None:
        answers = [self.desk.answers[call] for call in self.calls if call in self.desk.answers]
        self.calls = [call for call in self.calls if call not in self.desk.answers]
        self.handed_out += [(x.generation_id, x.member_id) for x in answers if isinstance(x, m.JoinAnswer)]


@pytest.mark.parametrize("seed", range(60))
def test_no_generation_is_handed_out_twice(seed: int) -> None:
    members = Members(seed)
    members.act(members.chance.randrange(40))
    backup = dict(members.desk.log)
    known_to_backup = len(members.handed_out)
    members.act(members.chance.randrange(40))
    before, members.handed_out = members.handed_out, []
    of_another_time = before[known_to_backup:]
    assert all(generation_id <= FLOOR for generation_id, _ in before)

    desk = members.desk
    desk.log, desk.generation_floor = backup, FLOOR
    desk.crash()
    check(desk.group)
    assert desk.group.members == {}
    assert desk.state() in {State.EMPTY, State.DEAD}
    for generation_id, member_id in before:
        for call in (
            desk.heartbeat(member_id, generation_id),
            desk.commit(member_id, generation_id),
            desk.sync(member_id, generation_id, assignments={member_id: {}}),
        ):
            answer = desk.answer(call)
            refused = answer.offsets["t"][0].error_code if isinstance(answer, m.CommitAnswer) else desk.code(call)
            assert refused in REFUSALS

    members.ids += [member_id for _, member_id in of_another_time]
    for member_id in members.ids[-3:]:
        members.calls.append(desk.join(member_id))
    members.act(40)
    assert all(generation_id > FLOOR for generation_id, _ in members.handed_out)


def test_the_group_says_why_its_members_are_out_and_once() -> None:
    desk = Desk(generation_floor=0)
    member_id, joined = desk.join_new()
    desk.advance_until_answered(joined)
    desk.sync(member_id, assignments={member_id: {}})
    desk.commit(member_id, offset=7)
    desk.generation_floor = FLOOR
    desk.crash()
    assert (desk.state(), desk.group.generation_id) == (State.EMPTY, FLOOR + 1)
    last, *_ = desk.rebalances()
    assert (last.trigger, last.outcome) == (Trigger.STORE_RESTORED, "emptied")
    assert desk.fetch() == {"t": {0: 7}}

    member_id, joined = desk.join_new()
    desk.advance_until_answered(joined)
    desk.sync(member_id, assignments={member_id: {}})
    desk.crash()
    assert (desk.state(), set(desk.group.members)) == (State.STABLE, {member_id})
    assert desk.group.generation_id == FLOOR + 2


def test_a_group_that_the_backup_does_not_know_goes_on_above_all_of_before() -> None:
    desk = Desk(generation_floor=FLOOR)
    _, joined = desk.join_new()
    desk.advance_until_answered(joined)
    assert desk.answer(joined).generation_id == FLOOR + 1
