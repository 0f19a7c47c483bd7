"""Which carrier carries whom, by the calls that counted and the ends of carriers."""

import asyncio
from dataclasses import dataclass, field

from coordinator.core.effects import Failure, GroupUnloaded
from coordinator.runtime.carriers import TOLD_AT_ONCE_MAX, Carriers, Told, TopicsListed, is_refusal
from protocol import messages as m
from protocol.errors import ErrorCode


@dataclass(eq=False)
class Session:
    number: int
    heard: list[Told] = field(default_factory=list)

    def told(self, event: Told) -> None:
        self.heard.append(event)


def three() -> tuple[Carriers, Session, Session, Session]:
    return Carriers(), Session(1), Session(2), Session(3)


def assert_empty(carriers: Carriers) -> None:
    assert (len(carriers), carriers.group_count, carriers._newer, carriers._newer_of) == (0, 0, {}, {})


def test_the_last_call_counts_and_the_end_of_another_carrier_is_nothing() -> None:
    carriers, old, new, _ = three()
    carriers.carry("g", "a", old)
    carriers.carry("g", "a", new)
    assert carriers.carrier_of("g", "a") is new
    assert carriers.release(old) == []
    assert carriers.release(new) == [("g", "a")]
    assert_empty(carriers)


def test_what_an_old_carrier_brings_late_does_not_lose_the_member_that_is_on_a_newer_one() -> None:
    carriers, old, new, _ = three()
    carriers.carry("g", "a", old)
    carriers.carry("g", "a", new)
    carriers.carry("g", "a", old)
    carriers.event(GroupUnloaded("g"))
    assert (len(old.heard), len(new.heard)) == (1, 0)
    assert carriers.release(old) == []
    assert carriers.carrier_of("g", "a") is new
    assert carriers.release(new) == [("g", "a")]
    assert_empty(carriers)


def test_of_two_newer_ones_the_newest_carries_on() -> None:
    carriers, old, middle, newest = three()
    for carrier in (middle, newest, middle, old):
        carriers.carry("g", "a", carrier)
    assert carriers.release(old) == []
    assert carriers.carrier_of("g", "a") is newest


def test_a_newer_one_that_has_ended_carries_nobody() -> None:
    carriers, old, new, _ = three()
    carriers.carry("g", "a", new)
    carriers.carry("g", "a", old)
    assert carriers.release(new) == []
    assert carriers.release(old) == [("g", "a")]
    assert_empty(carriers)


def test_who_calls_over_http_or_has_gone_is_forgotten_by_the_newer_one_too() -> None:
    carriers, old, new, _ = three()
    carriers.carry("g", "a", new)
    carriers.carry("g", "a", old)
    carriers.drop("g", "a")
    assert carriers.release(old) == carriers.release(new) == []
    assert_empty(carriers)


def test_a_newer_carrier_that_is_called_on_again_is_simply_the_carrier() -> None:
    carriers, old, new, _ = three()
    for carrier in (new, old, new):
        carriers.carry("g", "a", carrier)
    assert carriers.release(old) == []
    assert carriers.carrier_of("g", "a") is new
    assert carriers.release(new) == [("g", "a")]
    assert_empty(carriers)


def test_who_has_left_is_forgotten_and_who_was_refused_to_leave_is_not() -> None:
    carriers, one, _, _ = three()
    carriers.carry("g", "a", one)
    carriers.carry("g", "b", one)
    left = [
        m.LeftMember(member_id=member_id, group_instance_id=None, error_code=code, error_name=code.name)
        for member_id, code in (("a", ErrorCode.NONE), ("b", ErrorCode.FENCED_INSTANCE_ID))
    ]
    carriers.forget_who_left("g", m.LeaveAnswer(members=tuple(left)))
    assert carriers.members_of("g") == {"b"}


def test_a_rebalance_in_progress_is_no_refusal_but_a_superseded_call_is() -> None:
    assert not is_refusal(m.HeartbeatAnswer())
    assert not is_refusal(Failure(ErrorCode.REBALANCE_IN_PROGRESS, "join again"))
    assert is_refusal(Failure(ErrorCode.REBALANCE_IN_PROGRESS, "called again", superseded=True))
    assert is_refusal(Failure(ErrorCode.ILLEGAL_GENERATION, "old"))


async def test_what_is_of_no_group_is_told_to_each_carrier_once_and_to_many_in_slices() -> None:
    carriers = Carriers()
    sessions = [Session(number) for number in range(TOLD_AT_ONCE_MAX + 1)]
    for session in sessions:
        carriers.carry("g", f"a{session.number}", session)
        carriers.carry("h", f"b{session.number}", session)
    idle = Session(-1)
    listed = TopicsListed(("clicks",))
    carriers.tell_all(listed)
    assert sum(len(session.heard) for session in sessions) == TOLD_AT_ONCE_MAX, "the others have their turn between"
    await asyncio.sleep(0)
    assert [session.heard for session in sessions] == [[listed]] * len(sessions)
    assert idle.heard == []
