"""Which connection carries whom, by the calls that counted and the ends of connections."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from rallypoint.coordinator.core.effects import (
    Failure,
    GroupRemoved,
    GroupUnloaded,
    MemberReplaced,
    MembersWent,
    Removal,
    SessionExpired,
)
from rallypoint.coordinator.core.moves import OwnerNames
from rallypoint.coordinator.runtime.members.connection_registry import (
    NOTIFIED_AT_ONCE_MAX,
    ConnectionEvent,
    ConnectionRegistry,
    MemberDropped,
    TopicsListed,
    is_refusal,
)
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode


class PlantedFault(Exception):  # noqa: N818
    pass


@dataclass(eq=False)
class Channel:
    number: int
    groups_max: int = 10
    heard: list[ConnectionEvent] = field(default_factory=list)
    is_broken: bool = False
    is_ended: bool = False
    heard_at_ms: int | None = None

    def on_event(self, event: ConnectionEvent) -> None:
        if self.is_broken:
            raise PlantedFault
        self.heard.append(event)

    def end_by_fault(self) -> None:
        self.is_ended = True


def beat(member_id: str) -> m.HeartbeatRequest:
    return m.HeartbeatRequest(generation_id=1, member_id=member_id)


def three() -> tuple[ConnectionRegistry, Channel, Channel, Channel]:
    return ConnectionRegistry(), Channel(1), Channel(2), Channel(3)


def assert_empty(connections: ConnectionRegistry) -> None:
    assert (len(connections), connections.group_count, connections._newer, connections._newer_of) == (0, 0, {}, {})
    assert connections._counts == {}


def test_how_many_members_a_session_carries_is_known() -> None:
    connections, old, new, _ = three()
    for group_id, member_id in (("g", "a"), ("g", "b"), ("h", "a"), ("g", "a")):
        connections.carry(group_id, member_id, old)
    assert connections.count_of(old) == 3
    connections.carry("g", "a", new)
    assert (connections.count_of(old), connections.count_of(new)) == (2, 1)
    connections.drop("g", "b")
    assert connections.count_of(old) == 1
    connections.release(old)
    connections.release(new)
    assert_empty(connections)


def test_the_last_call_counts_and_the_end_of_another_connection_is_nothing() -> None:
    connections, old, new, _ = three()
    connections.carry("g", "a", old)
    connections.carry("g", "a", new)
    assert connections.connection_of("g", "a") is new
    assert connections.release(old) == []
    assert connections.release(new) == [("g", "a")]
    assert_empty(connections)


def test_what_an_old_connection_brings_late_does_not_lose_the_member_that_is_on_a_newer_one() -> None:
    connections, old, new, _ = three()
    connections.carry("g", "a", old)
    connections.carry("g", "a", new)
    connections.carry("g", "a", old)
    dropped = MemberDropped("g", "a")
    assert (old.heard, new.heard) == ([dropped], [dropped]), "each is told, so the member calls where it is"
    connections.event(GroupUnloaded("g"))
    assert (len(old.heard), len(new.heard)) == (2, 1)
    assert connections.release(old) == []
    assert connections.connection_of("g", "a") is new
    assert connections.release(new) == [("g", "a")]
    assert_empty(connections)


async def test_who_is_carried_no_longer_hears_so_on_the_channel_that_goes_on() -> None:
    """A member at rest relies on it, for whatever reason it is, but for a word of its own there."""
    connections, one, other, _ = three()
    left = m.LeaveAnswer(members=(m.LeftMember(member_id="a", error_code=0, error_name="NONE"),))
    reasons: dict[str, Callable[[], None]] = {
        "its session expired": lambda: connections.event(SessionExpired("g", "a")),
        "another process is the instance": lambda: connections.event(MemberReplaced("g", "i", "a", "b")),
        "its group is gone": lambda: connections.event(GroupRemoved("g", Removal.DELETED)),
        "it is out of the group": lambda: connections.members_went(MembersWent("g", (OwnerNames("a", None, "", ""),))),
        "an operator has it leave": lambda: connections.on_call("g", "", left, other),
        "it called over HTTP": lambda: connections.on_call("g", "a", m.HeartbeatAnswer(), None),
        "it called on another channel": lambda: connections.on_call("g", "a", m.HeartbeatAnswer(), other),
    }
    for reason, happen in reasons.items():
        one.heard.clear()
        connections.carry("g", "a", one)
        happen()
        await asyncio.sleep(0)
        assert one.heard == [MemberDropped("g", "a")], reason
        assert connections.connection_of("g", "a") is not one
        connections.release(other)
    one.heard.clear()
    connections.carry("g", "a", one)
    connections.on_call("g", "", left, one)
    connections.carry("g", "a", one)
    connections.on_call("g", "a", Failure(ErrorCode.UNKNOWN_MEMBER_ID, "gone"), one)
    assert not one.heard, "it has just been answered"
    assert_empty(connections)


async def test_who_is_out_of_the_group_hears_first_of_the_rebalance_that_begins_with_it() -> None:
    connections, one, _, _ = three()
    connections.carry("g", "a", one)
    connections.members_went(MembersWent("g", (OwnerNames("a", None, "", ""),)))
    connections.event(GroupUnloaded("g"))
    await asyncio.sleep(0)
    assert one.heard == [GroupUnloaded("g"), MemberDropped("g", "a")]


def test_of_two_newer_ones_the_newest_carries_on() -> None:
    connections, old, middle, newest = three()
    for connection in (middle, newest, middle, old):
        connections.carry("g", "a", connection)
    assert connections.release(old) == []
    assert connections.connection_of("g", "a") is newest


def test_a_newer_one_that_has_ended_carries_nobody() -> None:
    connections, old, new, _ = three()
    connections.carry("g", "a", new)
    connections.carry("g", "a", old)
    assert connections.release(new) == []
    assert connections.release(old) == [("g", "a")]
    assert_empty(connections)


def test_who_calls_over_http_or_has_gone_is_forgotten_by_the_newer_one_too() -> None:
    connections, old, new, _ = three()
    connections.carry("g", "a", new)
    connections.carry("g", "a", old)
    connections.drop("g", "a")
    assert connections.release(old) == connections.release(new) == []
    assert_empty(connections)


def test_a_newer_connection_that_is_called_on_again_is_simply_the_connection() -> None:
    connections, old, new, _ = three()
    for connection in (new, old, new):
        connections.carry("g", "a", connection)
    assert connections.release(old) == []
    assert connections.connection_of("g", "a") is new
    assert connections.release(new) == [("g", "a")]
    assert_empty(connections)


def test_who_has_left_is_forgotten_and_who_was_refused_to_leave_is_not() -> None:
    connections, one, _, _ = three()
    connections.carry("g", "a", one)
    connections.carry("g", "b", one)
    left = [
        m.LeftMember(member_id=member_id, group_instance_id=None, error_code=code, error_name=code.name)
        for member_id, code in (("a", ErrorCode.NONE), ("b", ErrorCode.FENCED_INSTANCE_ID))
    ]
    connections.on_call("g", "", m.LeaveAnswer(members=tuple(left)), None)
    assert connections.members_of("g") == {"b"}


def test_a_rebalance_in_progress_is_no_refusal_but_a_superseded_call_is() -> None:
    assert not is_refusal(m.HeartbeatAnswer())
    assert not is_refusal(Failure(ErrorCode.REBALANCE_IN_PROGRESS, "join again"))
    assert is_refusal(Failure(ErrorCode.REBALANCE_IN_PROGRESS, "called again", superseded=True))
    assert is_refusal(Failure(ErrorCode.ILLEGAL_GENERATION, "old"))


async def test_what_is_of_no_group_is_told_to_each_connection_once_and_to_many_in_slices() -> None:
    connections = ConnectionRegistry()
    channels = [Channel(number) for number in range(NOTIFIED_AT_ONCE_MAX + 1)]
    for channel in channels:
        connections.carry("g", f"a{channel.number}", channel)
        connections.carry("h", f"b{channel.number}", channel)
    idle = Channel(-1)
    listed = TopicsListed(("clicks",))
    connections.notify_all(listed)
    assert sum(len(channel.heard) for channel in channels) == NOTIFIED_AT_ONCE_MAX, "the others have their turn between"
    await asyncio.sleep(0)
    assert [channel.heard for channel in channels] == [[listed]] * len(channels)
    assert idle.heard == []


def test_a_first_join_that_is_answered_over_http_takes_its_member_off_the_session_that_asked_it_too() -> None:
    connections, one, _, _ = three()
    answer = m.WaitingAnswer(member_id="a")
    connections.on_call("g", "", answer, one)
    assert connections.connection_of("g", "a") is one
    connections.on_call("g", "", None, None)
    assert connections.connection_of("g", "a") is one
    connections.on_answer("g", "", None, answer)
    assert_empty(connections)


async def test_one_that_cannot_be_told_is_ended_and_the_others_hear_it(caplog: pytest.LogCaptureFixture) -> None:
    connections, one, broken, other = three()
    broken.is_broken = True
    for number, channel in enumerate((one, broken, other)):
        connections.carry("g", f"m{number}", channel)
    connections.event(GroupUnloaded("g"))
    assert [channel.heard for channel in (one, broken, other)] == [[GroupUnloaded("g")], [], [GroupUnloaded("g")]]
    assert [channel.is_ended for channel in (one, broken, other)] == [False, True, False]
    assert [record.exc_info is not None for record in caplog.records] == [True]
