"""How much a group may keep: members, pending member ids, committed partitions, subscribed topics.

Each count has a limit in `Rules`, and a refusal names that limit. The API checks the limits of a single request.
"""

from rallypoint.coordinator.core import transient_facts as t
from rallypoint.coordinator.core.commands import GroupRequest, Rebalance, Rules, Trigger
from rallypoint.coordinator.core.decision import Draft
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.group import PREPARING_REBALANCE, Group, topics_bytes, words_bytes
from rallypoint.coordinator.core.network import Network
from rallypoint.coordinator.core.records import MemberRecord
from rallypoint.coordinator.core.subscription import CONSUMER, topics_of
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.limits import setting_of

KNOWN_METADATA_SHARE = 4
"""Members that are there may say more until all say so much more than the limit: one in so many parts of it. What a
member owns stands in its metadata too, and changes with every rebalance."""

_KEPT_PER_SAID = 64
"""What a text and the topics read from it take at most, by what the text takes: the shortest topic has four characters
in it, and takes up to 180 bytes in a set."""

_TOPIC_CHARACTERS = 4
"""The fewest characters that a topic takes in a list: a letter, two quotes, a comma."""


def over_limit(
    limit_name: str,
    limit: int,
    detail: str,
    *,
    code: ErrorCode = ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    field: str | None = None,
    member_id: str | None = None,
) -> Failure:
    """The refusal of what is over a limit, which is added to the sentence."""
    what = "the setting" if setting_of(limit_name) else "the fixed limit"
    detail = f"{detail}; {what} {limit_name} allows {limit}."
    return Failure(code, detail, field=field, member_id=member_id, limit=limit, limit_name=limit_name)


def append_is_late(timeout_ms: int) -> Failure:
    """The answer to a call whose append hangs: what it said may come to count, or not."""
    detail = "The store has not answered in time; what was said may come to count, and to say it again is safe"
    return over_limit("storage_append_timeout_ms", timeout_ms, detail, code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


def creates_group(request: GroupRequest) -> bool:
    """Whether the request would create a group that is not there: a first join, a simple commit."""
    if isinstance(request, m.JoinRequest):
        return not request.member_id
    return isinstance(request, m.CommitRequest) and request.generation_id < 0


# --- members ---------------------------------------------------------------------------------------------------------


def joining_member_id(group: Group, request: m.JoinRequest) -> str:
    """The member id of the join. For a static member that joins without its id, it is the id in its slot."""
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
    member_id = joining_member_id(group, request)
    if member_id in group.surplus:
        return _has_free_place(group, limit)
    if member_id and not request.member_id:
        # A static member that takes over its own slot makes the group no larger.
        return True
    member = group.members.get(member_id)
    if group.state is PREPARING_REBALANCE:
        # Places of members who are still awaited are kept for them only after a load that found too many.
        keeps_places = member is None and bool(group.surplus)
        return (member is not None and member.joined) or (
            group.joined_count < limit and (not keeps_places or _has_free_place(group, limit))
        )
    return not group.is_active or member is not None or len(group.members) < limit


def _has_free_place(group: Group, limit: int) -> bool:
    return len(group.members) - len(group.surplus) < limit


def refuse_surplus(group: Group, rules: Rules, draft: Draft) -> None:
    """A group that was stored under a larger limit begins a rebalance, in which there is no place for the surplus.

    Who stays: the leader, then the longest-standing. The others go on until they join again, and are refused then.
    """
    limit = rules.group_max_size
    staying = [stored for stored in group.stored_members.values() if not stored.removed]
    if group.header is None or len(staying) <= limit:
        return
    leader = group.header.leader

    def rank(stored: MemberRecord) -> tuple[bool, int]:
        return stored.member_id != leader, stored.seniority

    surplus = sorted(staying, key=rank)[limit:]
    draft.fact(t.Overfilled(frozenset(stored.member_id for stored in surplus)))
    reason = f"the group has {len(staying)} members and group_max_size is {limit}"
    draft.then.append(Rebalance(Trigger.OVER_CAPACITY, reason))


def refuse_metadata(group: Group, request: m.JoinRequest, used_bytes: int, limit: int) -> Failure | None:
    """Whether there is no room for what the join says, where what all members of the node say takes `used_bytes`.

    Room for a new member ends at the limit; for one that says more than it said, a share above it. One that says no
    more always goes on. Cost: a look at the lengths of the texts, and near the limit one reading of the topics.
    """
    if used_bytes + _KEPT_PER_SAID * words_bytes(request.protocols) <= limit:
        return None
    room_bytes = limit - used_bytes
    if joining_member_id(group, request) in group.members:
        room_bytes = max(0, room_bytes + limit // KNOWN_METADATA_SHARE)
    if added_metadata_bytes(group, request) <= room_bytes:
        return None
    detail = "What the members of all groups say takes as much memory as it may"
    return over_limit("node_metadata_max_bytes", limit, detail, field="protocols")


def added_metadata_bytes(group: Group, request: m.JoinRequest) -> int:
    """How much more memory what the members say takes with the join; negative for one that says less than it did.

    Cost: reads the topics.
    """
    topics = topics_of(request.protocol_type, request.protocols[0].metadata) if request.protocols else None
    added = words_bytes(request.protocols) + topics_bytes(topics)
    member = group.members.get(joining_member_id(group, request))
    if member is None:
        return added
    said = words_bytes(member.terms.protocols)
    return added - said - topics_bytes(member.topics)


def check_pending(group: Group, network: Network, rules: Rules) -> Failure | str | None:
    """Whether one more id may be handed out to a client of that network: None where there is room. Without room it is
    the oldest id of the network that has most, which makes place; or, where the client's own has about as many, a
    refusal.

    So a network alone may have all of them, for many members may call from one address; and none keeps another one out.
    Cost without room: a look at each network that has some.
    """
    if len(group.pending) < rules.group_pending_max:
        return None
    own_count = len(group.pending_of_networks.get(network, ()))
    most = max(group.pending_of_networks.values(), key=len)
    # With one more and one less the two would change places at the next call.
    if len(most) >= own_count + 2:
        return next(iter(most))
    detail = (
        f"Too many ids of the group were handed out and have not joined yet, {own_count} of them to {network or 'you'}"
    )
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


def check_group_topics(group: Group, request: m.JoinRequest, rules: Rules) -> Failure | None:
    """Whether the members of the group would name too many topics together.

    Who says what somebody says already always goes on, and so does a member that says no more topics than it said.
    Members that say the same do not change at one instant: until the last one has changed, what they said counts
    beside what they say. So one that says more goes on where its own topics make place, whoever else names them, and
    where all topics that are named fit, each once.

    Cost: nothing but a look at lengths, unless the text is long enough to hold so many as there is room for; then one
    reading of the topics, and for a member that says more a look at the topics of the group.
    """
    limit = rules.group_topics_max
    if request.protocol_type != CONSUMER or not request.protocols:
        return None
    if group.named_count + len(request.protocols[0].metadata.text) // _TOPIC_CHARACTERS <= limit:
        return None
    topics = topics_of(CONSUMER, request.protocols[0].metadata)
    if topics is None or topics in group.subscriptions:
        return None
    member = group.members.get(joining_member_id(group, request))
    if member is not None and member.topics is not None:
        freed = len(member.topics)
        if len(topics) <= freed or group.named_count - freed + len(topics) <= limit:
            return None
        if len(group.topics) + len(topics - group.topics) <= limit:
            return None
    elif group.named_count + len(topics) <= limit:
        return None
    detail = f"The members of the group name {group.named_count} topics together, and {len(topics)} are too many more"
    return over_limit("group_topics_max", limit, detail, field="protocols.0.metadata.topics")


# --- committed partitions --------------------------------------------------------------------------------------------


def offsets_room(group: Group, rules: Rules) -> int:
    """How many partitions more may be committed to; 0 or less where there is no room."""
    return rules.group_offsets_max - group.offset_count
