"""What happens in a group, in sentences. Pure. Whoever shows one shows the text of the API's answer."""

from collections.abc import Sequence
from typing import NamedTuple

from rallypoint.coordinator.core.durations import duration_text
from rallypoint.protocol import admin_messages as admin

NAMED_MAX = 3
"""Members that a sentence names."""

_WAITED_FOR = {
    "members_present": " at most, until its members are there again",
    "members_replaced": " at most, until each of its members is replaced",
}
_AWAITED_FOR = {"join": "to join", "sync": "to ask for their assignment", "assignment": "to bring the assignment"}


class Now(NamedTuple):
    """What an explanation of the present is made from.

    lasted_ms: for how long the group has been in its state.
    awaited, awaited_count, awaited_for_ms: whom a rebalance waits for, and for how much longer at most.
    cause: the reason of the rebalance in progress.
    frozen_for_ms, freeze_reason, cooling_for_ms, held_count: what holds rebalances back, for how much longer, and how
        many causes.
    freeze_until, freeze_missing, freeze_missing_count: what ends the freeze before, and who of those is not there yet.
    """

    state: str
    member_count: int
    generation_id: int
    lasted_ms: int
    awaited: Sequence[admin.AwaitedListing] = ()
    awaited_count: int = 0
    awaited_for_ms: int | None = None
    cause: str | None = None
    frozen_for_ms: int | None = None
    freeze_reason: str | None = None
    cooling_for_ms: int | None = None
    held_count: int = 0
    freeze_until: str | None = None
    freeze_missing: Sequence[str] = ()
    freeze_missing_count: int = 0


def explanation(now: Now) -> str:
    """What the group does now, whom it waits for since when and until when, and what is held back and why."""
    return " ".join(part for part in (_state(now), _held(now)) if part)


def _state(now: Now) -> str:
    since = duration_text(now.lasted_ms)
    if now.state == "Empty":
        return f"The group has had no members for {since}."
    if now.state == "Stable":
        who, have = _count(now.member_count, "member"), "has" if now.member_count == 1 else "have"
        return f"The group is stable: {who} {have} worked in generation {now.generation_id} for {since}."
    what = "The group rebalances" if now.cause is None else f"The group rebalances ({now.cause})"
    if not now.awaited_count:
        return f"{what} for {since} already; everyone has joined, and it waits a moment for more members."
    left = ""
    if now.awaited_for_ms is not None:
        left = f", for {duration_text(now.awaited_for_ms)} more at most"
    return f"{what}. For {since} it has waited for {awaited_text(now.awaited, now.awaited_count)}{left}."


def awaited_text(awaited: Sequence[admin.AwaitedListing], count: int) -> str:
    """The members that are awaited, and for what."""
    names = [name_of(one.client_id, one.member_id) for one in awaited[:NAMED_MAX]]
    what = _AWAITED_FOR[awaited[0].awaited_for] if awaited else "to join"
    return f"{_listed(names, count)} {what}"


def _held(now: Now) -> str:
    causes = f"; {_count(now.held_count, 'cause')} of a rebalance wait for the end" if now.held_count else ""
    if now.frozen_for_ms is not None:
        why = f" ({now.freeze_reason})" if now.freeze_reason else ""
        before = _WAITED_FOR.get(now.freeze_until or "", "")
        if before and now.freeze_missing_count:
            before += f"; missing: {_listed(list(now.freeze_missing), now.freeze_missing_count)}"
        return f"It is frozen for {duration_text(now.frozen_for_ms)} more{before}{why}{causes}."
    if now.cooling_for_ms is not None:
        return f"Its cool-down lasts {duration_text(now.cooling_for_ms)} more{causes}."
    return ""


# --- a rebalance ------------------------------------------------------------------------------------------------------


def rebalance_sentence(row: admin.RebalanceListing, left_out: Sequence[str], left_out_count: int, now_ms: int) -> str:
    """What began it, who was awaited for how long, what moved, how it ended.

    left_out: the first of the members that were removed because they did not join in time.
    """
    parts = [f"It began because {row.reason.rstrip('.')}{_further(row.further_count)}."]
    joining = _joining(row, now_ms)
    if joining:
        parts.append(joining)
    if left_out_count:
        parts.append(f"{_listed(list(left_out), left_out_count)} did not join in time and had to go.")
    ending = _ending(row)
    if ending:
        parts.append(ending)
    return " ".join(parts)


def _joining(row: admin.RebalanceListing, now_ms: int) -> str:
    if row.outcome == "in_progress" and row.awaited_count:
        since_ms = row.awaited[0].since_ms
        who = awaited_text(row.awaited, row.awaited_count)
        return f"It has waited {duration_text(now_ms - since_ms)} for {who}."
    if row.join_phase_ms is None:
        return ""
    took = duration_text(row.join_phase_ms)
    if not row.joined:
        return f"Members joined within {took}."
    last = row.joined[-1]
    if len(row.joined) == 1:
        return f"{name_of(last.client_id, last.member_id)} joined after {duration_text(last.after_ms)}."
    return f"{took} went by until all had joined; the last was {name_of(last.client_id, last.member_id)}."


def _ending(row: admin.RebalanceListing) -> str:
    if row.outcome == "completed":
        moved = "" if row.partitions_moved is None else f" {_count(row.partitions_moved, 'partition')} moved."
        took = "" if row.sync_phase_ms is None else f" {duration_text(row.sync_phase_ms)} later"
        members = _count(row.member_count or 0, "member")
        return f"The assignment for {members} was there{took}, in generation {row.generation_id}.{moved}"
    return {
        "emptied": "No member was left.",
        "interrupted": "The next rebalance began before the assignment had arrived.",
        "lost": "The node lost the group, or stopped, before it ended.",
    }.get(row.outcome, "")


def _further(count: int) -> str:
    return f", and for {_count(count, 'more cause')}" if count else ""


def name_of(client_id: str | None, member_id: str) -> str:
    """A member for people: by the name its client gave, and the id."""
    return f"{client_id} ({member_id})" if client_id else member_id


def _listed(names: list[str], count: int) -> str:
    shown = names[:NAMED_MAX]
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
