"""A group as operators see it: its description, and the summary that lists and gauges show."""

from coordinator.core import holding, rounds
from coordinator.core.commands import Call, Moment
from coordinator.core.decision import Draft
from coordinator.core.effects import GroupSummary
from coordinator.core.group import Group, Member, State
from coordinator.core.offsets import committed
from coordinator.core.presence import check_exists
from protocol import messages as m
from protocol.opaque import EMPTY


def describe(group: Group, call: Call, moment: Moment, draft: Draft) -> None:
    """Members with what they said and got, if the group is Stable; committed offsets and what is held, in any state."""
    failure = check_exists(group)
    if failure is not None:
        draft.reply(call, failure)
        return
    stable = group.state is State.STABLE
    draft.reply(
        call,
        m.DescribeAnswer(
            group_id=group.group_id,
            state=group.state,
            protocol_type=group.protocol_type or "",
            protocol_name=(group.protocol_name or "") if stable else "",
            generation_id=group.generation_id,
            leader=group.leader,
            members=tuple(
                m.DescribedMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    host=member.host,
                    session_timeout_ms=member.terms.session_timeout_ms,
                    rebalance_timeout_ms=member.terms.rebalance_timeout_ms,
                    metadata=member.terms.metadata_of(group.protocol_name) if stable else EMPTY,
                    assignment=member.assignment if stable else EMPTY,
                )
                for member in group.by_seniority()
            ),
            offsets={topic: committed(group, topic) for topic in sorted(group.offsets)},
            rebalance_id=rounds.last_id(group),
            frozen_until_ms=holding.frozen_until(group),
            freeze_reason=None if group.hold is None else group.hold.freeze_reason,
            cooldown_ms=holding.cooldown_of(group, moment),
            cooling_until_ms=holding.cooling_until(group, moment),
            held=tuple(map(rounds.cause_listing, group.held)),
            held_count=group.held_count,
        ),
    )


def tell_assignment(group: Group, call: Call, draft: Draft) -> None:
    """Present members with what they subscribe to now and what the stored generation gave them, in any state.

    `generation_id` and `protocol_name` are those of that generation. Who is new in a rebalance has no assignment; what
    somebody had who is gone is nobody's. No offsets.
    """
    failure = check_exists(group)
    if failure is not None:
        draft.reply(call, failure)
        return
    header = group.header
    protocol_name = (header.protocol_name if header is not None else None) or ""
    draft.reply(
        call,
        m.DescribeAnswer(
            group_id=group.group_id,
            state=group.state,
            protocol_type=group.protocol_type or "",
            protocol_name=protocol_name,
            generation_id=0 if header is None else header.generation_id,
            leader=group.leader,
            members=tuple(_assigned(group, member, protocol_name) for member in group.by_seniority()),
            offsets={},
        ),
    )


def _assigned(group: Group, member: Member, protocol_name: str) -> m.DescribedMember:
    metadata = member.terms.metadata_of(protocol_name)
    if metadata == EMPTY and member.terms.protocols:
        metadata = member.terms.protocols[0].metadata
    return m.DescribedMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.host,
        session_timeout_ms=member.terms.session_timeout_ms,
        rebalance_timeout_ms=member.terms.rebalance_timeout_ms,
        metadata=metadata,
        # It is written by the stored record alone, and stands until the next one.
        assignment=member.assignment,
    )


def summary_of(group: Group) -> GroupSummary:
    """What lists and gauges show. Costs a look at the subscribed topics."""
    return GroupSummary(
        group_id=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type or "",
        member_count=len(group.members),
        generation_id=group.generation_id,
        topics=group.topics,
        frozen_until_ms=holding.frozen_until(group),
        held_count=group.held_count,
    )
