"""A rebalance as an object: what is written of it as it begins, is made and ends, and how operators see it.

    begin      in the step that starts it, so that its number is used up before anyone hears of it
    make       the join phase has ended in a generation
    end        with what ended it: the leader's assignment, the last member's going, or the next rebalance

The store keeps the last `rebalance_history_max` of a group. Each new one takes the older ones away, a few at a time
where the setting has shrunk. What the store says is in progress, and memory knows nothing of, was cut off by the end
of a process: it is shown as lost, and nothing has to be written for that.
"""

from dataclasses import replace
from itertools import islice

from rallypoint.coordinator.core import explanation, movement
from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core import transient_facts as t
from rallypoint.coordinator.core.commands import Call, DecisionContext, Rebalance
from rallypoint.coordinator.core.decision import Draft
from rallypoint.coordinator.core.effects import PartitionsMoved
from rallypoint.coordinator.core.group import Group, JoinNotes, Member, State, check_exists
from rallypoint.coordinator.core.moves import Move
from rallypoint.coordinator.core.subscription import CONSUMER
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import limits

FORGOTTEN_AT_ONCE_MAX = 16
"""Old rebalances that one step takes away."""

LOST = "lost"
"""How a rebalance ended that the store has in progress, and the group has not."""


def cause_of(command: Rebalance, context: DecisionContext) -> r.Cause:
    """The command as it is kept."""
    return r.Cause(
        trigger=command.trigger.value,
        reason=command.reason,
        member_id=command.member_id,
        client_id=command.client_id,
        host=command.host,
        at_ms=context.now_ms,
    )


def last_id(group: Group) -> int:
    """The number of the group's last rebalance; 0 before the first."""
    return next(reversed(group.rebalances), 0)


def last_began_at_ms(group: Group) -> int | None:
    """When the group's last rebalance began; None before the first."""
    rebalance_id = last_id(group)
    return group.rebalances[rebalance_id].began_at_ms if rebalance_id else None


# --- what is written -------------------------------------------------------------------------------------------------


def begin(group: Group, cause: r.Cause, context: DecisionContext, draft: Draft) -> int:
    """Write that a rebalance begins, and that it interrupts the present one, if there is one. Its number.

    Cost: two writes, and up to `FORGOTTEN_AT_ONCE_MAX` more where older ones have to go.
    """
    rebalance_id = last_id(group) + 1
    present = _present(group)
    if present is not None:
        sync_phase_ms = context.now_ms - group.phase_began_ms
        draft.fact(_with_further(group, replace(present, sync_phase_ms=sync_phase_ms, outcome=r.Outcome.INTERRUPTED)))
    oldest = rebalance_id - context.rules.rebalance_history_max
    too_old = (known for known in group.rebalances if known <= oldest)
    for known in list(islice(too_old, FORGOTTEN_AT_ONCE_MAX)):
        draft.fact(r.RebalanceForgotten(group.group_id, known))
    draft.fact(r.RebalanceRecord(group.group_id, rebalance_id, group.generation_id, context.now_ms, cause))
    return rebalance_id


def make(group: Group, generation_id: int, member_count: int, context: DecisionContext, draft: Draft) -> None:
    """Write that the join phase has ended in a generation."""
    present = _present(group)
    assert present is not None, f"{group.group_id} makes a generation, and no rebalance has begun"
    draft.fact(
        _with_further(
            group,
            replace(
                present,
                generation_id=generation_id,
                member_count=member_count,
                join_phase_ms=context.now_ms - group.phase_began_ms,
            ),
        )
    )


def end_empty(group: Group, generation_id: int, context: DecisionContext, draft: Draft) -> None:
    """Write that the join phase has ended with nobody."""
    present = _present(group)
    assert present is not None, f"{group.group_id} becomes empty, and no rebalance has begun"
    draft.fact(
        _with_further(
            group,
            replace(
                present,
                generation_id=generation_id,
                member_count=0,
                join_phase_ms=context.now_ms - group.phase_began_ms,
                outcome=r.Outcome.EMPTIED,
            ),
        )
    )


def end(group: Group, partitions_moved: int | None, context: DecisionContext, draft: Draft) -> None:
    """Write that the leader's assignment is stored."""
    present = _present(group)
    assert present is not None, f"{group.group_id} has an assignment, and no rebalance has begun"
    sync_phase_ms = context.now_ms - group.phase_began_ms
    outcome = r.Outcome.COMPLETED
    draft.fact(
        replace(present, sync_phase_ms=sync_phase_ms, partitions_moved=partitions_moved, outcome=outcome),
    )


def notify_moved(group: Group, moves: tuple[Move, ...], draft: Draft) -> None:
    """Tell who gets which partitions from whom."""
    count = movement.count_of(moves)
    draft.notify(PartitionsMoved(group.group_id, group.generation_id, last_id(group), moves, count))


def notify_given_up(group: Group, draft: Draft) -> None:
    """Tell what the members had who go in this draft: it is nobody's until the next assignment."""
    if group.protocol_type == CONSUMER:
        moves = movement.given_up(draft.gone)
        if moves:
            notify_moved(group, moves, draft)


def forget_all(group: Group, draft: Draft) -> None:
    """Take them away with the group."""
    for rebalance_id in group.rebalances:
        draft.fact(r.RebalanceForgotten(group.group_id, rebalance_id))


def add_cause(group: Group, cause: r.Cause, draft: Draft) -> None:
    """Something would have started a rebalance that has begun already. It is stored with what is written next."""
    draft.fact(t.CauseAdded(cause))


def _present(group: Group) -> r.RebalanceRecord | None:
    return None if group.rebalance_id is None else group.rebalances[group.rebalance_id]


def _with_further(group: Group, record: r.RebalanceRecord) -> r.RebalanceRecord:
    return replace(record, further=group.further, further_count=group.further_count)


# --- what operators see ----------------------------------------------------------------------------------------------


def list_rebalances(group: Group, call: Call, context: DecisionContext, draft: Draft) -> None:
    """The group's last rebalances, the newest first; of the one in progress also who is awaited.

    Cost: a look at each member where one is in progress.
    """
    failure = check_exists(group)
    if failure is not None:
        draft.reply(call, failure)
        return
    newest = islice(reversed(group.rebalances.values()), context.rules.rebalance_history_max)
    draft.reply(
        call, admin.ListRebalancesAnswer(rebalances=tuple(_listing(group, record, context) for record in newest))
    )


def _listing(group: Group, record: r.RebalanceRecord, context: DecisionContext) -> admin.RebalanceListing:
    is_present = record.rebalance_id == group.rebalance_id
    waited_for = awaited(group) if is_present else []
    further = group.further if is_present else record.further
    cause = record.cause
    notes = _notes_of(group, record)
    phases = (record.join_phase_ms, record.sync_phase_ms)
    row = admin.RebalanceListing(
        rebalance_id=record.rebalance_id,
        previous_generation_id=record.previous_generation_id,
        generation_id=record.generation_id,
        trigger=cause.trigger,
        member_id=cause.member_id,
        client_id=cause.client_id,
        host=cause.host,
        reason=cause.reason,
        began_at_ms=record.began_at_ms,
        join_phase_ms=record.join_phase_ms,
        sync_phase_ms=record.sync_phase_ms,
        member_count=record.member_count,
        partitions_moved=record.partitions_moved,
        outcome=_outcome(group, record),
        further=tuple(map(cause_listing, further)),
        further_count=group.further_count if is_present else record.further_count,
        awaited=listings_of(group, waited_for),
        awaited_count=len(waited_for),
        joined=None if notes is None else tuple(admin.JoinListing(**note._asdict()) for note in notes.joined),
        synced_after_ms=sum(ms or 0 for ms in phases) if record.outcome is r.Outcome.COMPLETED else None,
    )
    left_out, left_out_count = ((), 0) if notes is None else (notes.left_out, notes.left_out_count)
    sentence = explanation.rebalance_sentence(row, left_out, left_out_count, context.now_ms)
    return row.model_copy(update={"sentence": sentence})


def _notes_of(group: Group, record: r.RebalanceRecord) -> JoinNotes | None:
    if record.rebalance_id == group.rebalance_id and group.state is State.PREPARING_REBALANCE:
        return JoinNotes(group.joins_so_far(), (), 0)
    return group.join_notes.get(record.rebalance_id)


def awaited_listings(group: Group) -> tuple[tuple[admin.AwaitedListing, ...], int]:
    """The first members that the rebalance in progress waits for, and how many there are; none where none is."""
    found = awaited(group) if group.rebalance_id is not None else []
    return listings_of(group, found), len(found)


def awaited_until(group: Group) -> int | None:
    """When the present phase of a rebalance ends at the latest; None where none is, and during the initial delay."""
    if group.rebalance_id is None or group.initial_window_ms is not None:
        return None
    if group.state is State.PREPARING_REBALANCE:
        return group.join_until_ms
    return group.phase_began_ms + group.rebalance_timeout_ms


def _outcome(group: Group, record: r.RebalanceRecord) -> str:
    if record.outcome is r.Outcome.IN_PROGRESS and record.rebalance_id != group.rebalance_id:
        return LOST
    return record.outcome


def cause_listing(cause: r.Cause) -> admin.CauseListing:
    """A cause as operators see it."""
    return admin.CauseListing(
        trigger=cause.trigger,
        reason=cause.reason,
        member_id=cause.member_id,
        client_id=cause.client_id,
        host=cause.host,
        at_ms=cause.at_ms,
    )


def awaited(group: Group) -> list[tuple[str, Member | str]]:
    """The members that the rebalance waits for, and for what: by seniority, then pending member ids."""
    if group.state is State.PREPARING_REBALANCE:
        absent = [("join", member) for member in group.by_seniority() if not member.joined]
        return [*absent, *(("join", member_id) for member_id in group.pending)]
    late = (member for member in group.by_seniority() if member.member_id in group.pending_sync)
    return [("assignment" if member.member_id == group.leader else "sync", member) for member in late]


def listings_of(group: Group, waited_for: list[tuple[str, Member | str]]) -> tuple[admin.AwaitedListing, ...]:
    """The first of them as operators see them."""
    return tuple(_awaited_listing(group, what, who) for what, who in waited_for[: limits.AWAITED_SHOWN_MAX])


def _awaited_listing(group: Group, what: str, who: Member | str) -> admin.AwaitedListing:
    if isinstance(who, str):
        return admin.AwaitedListing(awaited_for=what, member_id=who, since_ms=group.phase_began_ms)
    return admin.AwaitedListing(
        awaited_for=what,
        member_id=who.member_id,
        group_instance_id=who.group_instance_id,
        client_id=who.client_id,
        host=who.host,
        since_ms=group.phase_began_ms,
        heard_at_ms=who.deadline_ms - who.terms.session_timeout_ms,
    )
