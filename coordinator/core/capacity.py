"""How much a group may keep: members, ids handed out, committed partitions, topics of a subscription.

Each count is held against its limit in `Rules`, and a refusal names the limit and the setting. What a single request
may hold is no matter of a group: the door refuses it.
"""

from coordinator.core import notes as n
from coordinator.core.commands import GroupRequest, Rebalance, Rules, Trigger
from coordinator.core.decision import Draft
from coordinator.core.effects import Failure
from coordinator.core.group import CONSUMER, Group, State
from coordinator.core.records import MemberRecord
from coordinator.core.subscription import topics_of
from protocol import messages as m
from protocol.errors import ErrorCode

_TOPIC_CHARACTERS = 4
"""The fewest characters that a topic takes in a list: a letter, two quotes, a comma."""


def over_limit(
    setting: str,
    limit: int,
    detail: str,
    *,
    code: ErrorCode = ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    field: str | None = None,
    member_id: str | None = None,
) -> Failure:
    """The refusal of what is over a limit; setting and limit are added to the sentence."""
    detail = f"{detail}; the setting {setting} allows {limit}."
    return Failure(code, detail, field=field, member_id=member_id, limit=limit, setting=setting)


def creates_group(request: GroupRequest) -> bool:
    """Whether the request would create a group that is not there: a first join, a simple commit."""
    if isinstance(request, m.JoinRequest):
        return not request.member_id
    return isinstance(request, m.CommitRequest) and request.generation_id < 0


# --- members ---------------------------------------------------------------------------------------------------------


def seat_of(group: Group, request: m.JoinRequest) -> str:
    """The member whom the join is about: of a static member that comes without its id, the one that has its seat."""
    if request.member_id or request.group_instance_id is None:
        return request.member_id
    return group.static_members.get(request.group_instance_id, "")


def check_members(group: Group, request: m.JoinRequest, rules: Rules) -> Failure | None:
    """GROUP_MAX_SIZE_REACHED for a member too many; None where there is a place."""
    limit = rules.group_max_size
    if _fits(group, request, limit):
        return None
    return over_limit(
        "group_max_size", limit, "The group has as many members as it may have",
        code=ErrorCode.GROUP_MAX_SIZE_REACHED, field="member_id", member_id="",
    )  # fmt: skip


def _fits(group: Group, request: m.JoinRequest, limit: int) -> bool:
    member_id = seat_of(group, request)
    if member_id in group.surplus:
        return _has_free_place(group, limit)
    if member_id and not request.member_id:
        # A static member that takes over its own seat makes the group no larger.
        return True
    member = group.members.get(member_id)
    if group.state is State.PREPARING_REBALANCE:
        # Places of members who are still awaited are kept for them only after a load that found too many.
        keeps_places = member is None and bool(group.surplus)
        return (member is not None and member.joined) or (
            group.joined_count < limit and (not keeps_places or _has_free_place(group, limit))
        )
    return not group.is_active or member is not None or len(group.members) < limit


def _has_free_place(group: Group, limit: int) -> bool:
    return len(group.members) - len(group.surplus) < limit


def refuse_surplus(group: Group, rules: Rules, draft: Draft) -> None:
    """A group that was stored under a larger limit begins a round, in which there is no place for the surplus.

    Who stays: the leader, then the longest-standing. The others go on until they join again, and are refused then.
    """
    limit = rules.group_max_size
    if group.header is None or len(group.stored_members) <= limit:
        return
    leader = group.header.leader

    def rank(stored: MemberRecord) -> tuple[bool, int]:
        return stored.member_id != leader, stored.seniority

    surplus = sorted(group.stored_members.values(), key=rank)[limit:]
    draft.fact(n.Overfilled(frozenset(stored.member_id for stored in surplus)))
    reason = f"the group has {len(group.stored_members)} members and group_max_size is {limit}"
    draft.then.append(Rebalance(Trigger.OVER_CAPACITY, reason))


def check_pending(group: Group, rules: Rules) -> Failure | None:
    """Whether one more id may be handed out. Each holds a round open until it lapses, so there is an end to them."""
    if len(group.pending) < rules.group_pending_max:
        return None
    detail = "Too many ids of the group were handed out and have not joined yet"
    return over_limit("group_pending_max", rules.group_pending_max, detail, field="member_id")


# --- what members say ------------------------------------------------------------------------------------------------


def check_subscription(request: m.JoinRequest, rules: Rules) -> Failure | None:
    """Whether a consumer subscribes to too many topics; what cannot be read is opaque, and only its size counts.

    Cost: nothing but a look at lengths, unless the text is long enough to hold so many.
    """
    limit = rules.subscription_topics_max
    if request.protocol_type != CONSUMER:
        return None
    for at, offered in enumerate(request.protocols):
        if len(offered.metadata.text) < _TOPIC_CHARACTERS * limit:
            continue
        topics = topics_of(CONSUMER, offered.metadata)
        if topics is not None and len(topics) > limit:
            return over_limit(
                "subscription_topics_max", limit, f"The subscription has {len(topics)} topics",
                code=ErrorCode.INVALID_REQUEST, field=f"protocols.{at}.metadata.topics",
            )  # fmt: skip
    return None


# --- committed partitions --------------------------------------------------------------------------------------------


def offsets_room(group: Group, rules: Rules) -> int:
    """How many partitions more may be committed to; 0 or less where there is no room."""
    return rules.group_offsets_max - group.offset_count
