"""A group as operators see it: its description, and the summary that lists and gauges show."""

from rallypoint.coordinator.core import explanation, holding, rebalance_history, roster
from rallypoint.coordinator.core.commands import Call, DecisionContext
from rallypoint.coordinator.core.decision import Draft
from rallypoint.coordinator.core.effects import ENCODED_AT_ONCE_CHARACTERS, GroupSummary, LargeDescription
from rallypoint.coordinator.core.group import Group, Member, State, check_exists
from rallypoint.coordinator.core.offsets import as_they_stand, committed, is_many
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.opaque import EMPTY

MEMBERS_AT_ONCE_MAX = 1_000
"""Members that a description is put into words with in one go."""


def describe(group: Group, call: Call, context: DecisionContext, draft: Draft) -> None:
    """Members with what they said and got, if the group is Stable; committed offsets and what is held, in any state."""
    failure = check_exists(group)
    if failure is not None:
        draft.reply(call, failure)
        return
    stable = group.state is State.STABLE
    members = tuple(
        admin.DescribedMember.model_construct(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            host=member.host,
            session_timeout_ms=member.terms.session_timeout_ms,
            rebalance_timeout_ms=member.terms.rebalance_timeout_ms,
            metadata=member.terms.metadata_of(group.protocol_name) if stable else EMPTY,
            assignment=member.assignment if stable else EMPTY,
            joined_at_ms=member.came_at_ms,
            heard_at_ms=min(member.deadline_ms - member.terms.session_timeout_ms, context.now_ms),
            is_leader=member.member_id == group.leader,
        )
        for member in group.by_seniority()
    )
    is_large = (
        len(members) > MEMBERS_AT_ONCE_MAX
        or sum([len(one.metadata.text) + len(one.assignment.text) for one in members]) > ENCODED_AT_ONCE_CHARACTERS
        or is_many(group, group.offsets)
    )
    awaited, awaited_count = rebalance_history.awaited_listings(group)
    missing = roster.missing(group)
    answer = admin.DescribeAnswer(
        group_id=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if stable else "",
        generation_id=group.generation_id,
        leader=group.leader,
        members=members,
        offsets={} if is_large else {topic: committed(group, topic) for topic in sorted(group.offsets)},
        rebalance_id=rebalance_history.last_id(group),
        frozen_until_ms=holding.frozen_until(group),
        freeze_reason=None if group.hold is None else group.hold.freeze_reason,
        cooldown_ms=holding.cooldown_of(group, context),
        cooling_until_ms=holding.cooling_until(group, context),
        held=tuple(map(rebalance_history.cause_listing, group.held)),
        held_count=group.held_count,
        explanation=_explanation(group, awaited, awaited_count, context),
        awaited=awaited,
        awaited_count=awaited_count,
        awaited_until_ms=rebalance_history.awaited_until(group),
        freeze_until=_freeze_until(group),
        freeze_missing=holding.shown(missing),
        freeze_missing_count=missing.total(),
        join_wait_max_ms=holding.join_wait_of(group, context),
    )
    if is_large:
        answer = LargeDescription.model_construct(**{**dict(answer), "offsets": as_they_stand(group, group.offsets)})
    draft.reply(call, answer)


def _explanation(
    group: Group, awaited: tuple[admin.AwaitedListing, ...], awaited_count: int, context: DecisionContext
) -> str:
    present = None if group.rebalance_id is None else group.rebalances[group.rebalance_id]
    now_ms, missing = context.now_ms, roster.missing(group)

    def left_ms(until_ms: int | None) -> int | None:
        return None if until_ms is None else until_ms - now_ms

    return explanation.explanation(
        explanation.Now(
            state=group.state,
            member_count=len(group.members),
            generation_id=group.generation_id,
            lasted_ms=now_ms - group.state_at_ms,
            awaited=awaited,
            awaited_count=awaited_count,
            awaited_for_ms=left_ms(rebalance_history.awaited_until(group)),
            cause=None if present is None else present.cause.reason,
            frozen_for_ms=left_ms(holding.frozen_until(group)),
            freeze_reason=None if group.hold is None else group.hold.freeze_reason,
            cooling_for_ms=left_ms(holding.cooling_until(group, context)),
            held_count=group.held_count,
            freeze_until=_freeze_until(group),
            freeze_missing=holding.shown(missing),
            freeze_missing_count=missing.total(),
        )
    )


def _freeze_until(group: Group) -> str | None:
    if group.hold is None or holding.frozen_until(group) is None:
        return None
    return group.hold.freeze_until or "time"


def present_assignment(group: Group, call: Call, draft: Draft) -> None:
    """Present members with what they subscribe to now and what the stored generation gave them, in any state.

    `generation_id` and `protocol_name` are those of that generation. A member that is new in a rebalance has no
    assignment; what somebody had who is gone is nobody's. No offsets.
    """
    failure = check_exists(group)
    if failure is not None:
        draft.reply(call, failure)
        return
    header = group.header
    protocol_name = (header.protocol_name if header is not None else None) or ""
    draft.reply(
        call,
        admin.DescribeAnswer(
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


def _assigned(group: Group, member: Member, protocol_name: str) -> admin.DescribedMember:
    metadata = member.terms.metadata_of(protocol_name)
    if metadata == EMPTY and member.terms.protocols:
        metadata = member.terms.protocols[0].metadata
    return admin.DescribedMember(
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
    """What lists and gauges show. Costs a look at each of the subscriptions that differ, where one has come or gone."""
    return GroupSummary(
        group_id=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type or "",
        member_count=len(group.members),
        generation_id=group.generation_id,
        subscriptions=group.distinct_subscriptions,
        frozen_until_ms=holding.frozen_until(group),
        held_count=group.held_count,
        rebalance_id=rebalance_history.last_id(group),
        last_rebalance_at_ms=rebalance_history.last_began_at_ms(group),
        protocol_name=group.protocol_name or "",
    )
