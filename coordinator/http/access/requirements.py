"""Which right each operation needs: one table over the whole contract.

The API makes no route of an operation that is not in it. So a new operation fails at once, and not open.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from rallypoint.coordinator.access.policy import ADMIN, ALL_RIGHTS, CLUSTER, DELETE, DESCRIBE, TOPIC, TOPICS
from rallypoint.coordinator.core.commands import GroupRequest
from rallypoint.coordinator.core.subscription import topics_of
from rallypoint.coordinator.http.access.control import (
    DELETE_GROUP,
    DESCRIBE_GROUP,
    JOIN_GROUP,
    OFFSETS_GROUP,
    OPERATE_GROUP,
    Permit,
)
from rallypoint.coordinator.http.errors import Refused, refuse
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as o
from rallypoint.protocol.errors import ErrorCode

Need = tuple[str, str]
"""A right, and the kind of resource that it is on."""

DESCRIBE_CLUSTER: Need = (DESCRIBE, CLUSTER)
ADMIN_CLUSTER: Need = (ADMIN, CLUSTER)
DESCRIBE_TOPIC: Need = (DESCRIBE, TOPIC)
CHANGE_TOPIC: Need = (TOPICS, TOPIC)
DELETE_TOPIC: Need = (DELETE, TOPIC)

ID_NAMES = {"group": "group_id", "topic": "topic", "cluster": ""}
"""By kind of resource: which id of the path names it."""
CODES = {
    "group": ErrorCode.GROUP_AUTHORIZATION_FAILED,
    "topic": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "cluster": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}

ACCESS_CODES = frozenset({*CODES.values(), ErrorCode.SASL_AUTHENTICATION_FAILED})
"""Refusals of access, which the audit log has."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """What an operation needs.

    needs: one of these rights, on what the path names. None: whoever is known may ask, and gets what it may see.
    is_change: each success has a line in the audit log; those of members (joins, commits) are too many for that.
    """

    needs: tuple[Need, ...]
    is_change: bool = False

    @property
    def id_name(self) -> str:
        """Which id of the path names the resource; "" of the cluster, or where nothing is needed."""
        return ID_NAMES[self.needs[0][1]] if self.needs else ""


FILTERED = Requirement(())
_SEEN = Requirement((DESCRIBE_GROUP,))
_JOINED = Requirement((JOIN_GROUP,))
_OPERATED = Requirement((OPERATE_GROUP,), is_change=True)
_OFFSETS_SET = Requirement((OFFSETS_GROUP,), is_change=True)
_ADMINISTERED = Requirement((ADMIN_CLUSTER,), is_change=True)
_TOPIC_CHANGED = Requirement((CHANGE_TOPIC,), is_change=True)

METRICS = "metrics"

REQUIREMENTS: Mapping[str, Requirement] = {
    o.COORDINATOR.name: FILTERED,  # each entry by itself
    o.JOIN.name: _JOINED,
    o.SYNC.name: _JOINED,
    o.HEARTBEAT.name: _JOINED,
    o.HEARTBEATS.name: FILTERED,  # each entry by itself
    o.LEAVE.name: Requirement((JOIN_GROUP, OPERATE_GROUP), is_change=True),  # `needs_of` says which
    o.COMMIT.name: Requirement((JOIN_GROUP, OFFSETS_GROUP)),  # `needs_of` says which
    o.FETCH.name: Requirement((JOIN_GROUP, DESCRIBE_GROUP)),
    o.RESET_OFFSETS.name: _OFFSETS_SET,
    o.DELETE_OFFSETS.name: _OFFSETS_SET,
    o.LIST_GROUPS.name: FILTERED,
    o.DESCRIBE.name: _SEEN,
    o.DELETE_GROUP.name: Requirement((DELETE_GROUP,), is_change=True),
    o.LIST_REBALANCES.name: _SEEN,
    o.START_REBALANCE.name: _OPERATED,
    o.FREEZE.name: _OPERATED,
    o.THAW.name: _OPERATED,
    o.COOLDOWN.name: _OPERATED,
    o.JOIN_WAIT.name: _OPERATED,
    o.PROCEED.name: _OPERATED,
    o.REMOVE_MEMBERS.name: _OPERATED,
    o.OWNER.name: _SEEN,
    o.LIST_PARTITIONS.name: _SEEN,
    o.LAG_HISTORY.name: _SEEN,
    o.OWNERSHIP_HISTORY.name: _SEEN,
    o.PREVIEW.name: Requirement((OPERATE_GROUP,)),
    o.LIST_TOPICS.name: FILTERED,
    o.DESCRIBE_TOPIC.name: Requirement((DESCRIBE_TOPIC,)),
    o.PUT_TOPIC.name: _TOPIC_CHANGED,
    o.DELETE_TOPIC.name: Requirement((DELETE_TOPIC,), is_change=True),
    o.DESCRIBE_CLUSTER.name: Requirement((DESCRIBE_CLUSTER,)),
    o.DRAIN_NODE.name: _ADMINISTERED,
    o.RESUME_NODE.name: _ADMINISTERED,
    o.REMOVE_NODE.name: _ADMINISTERED,
    o.MOVE_SHARD.name: _ADMINISTERED,
    o.EVENTS.name: FILTERED,
    o.CHANNEL.name: FILTERED,  # each call by itself
    METRICS: FILTERED,
}
"""By the name of the operation. `GET /metrics` is in no contract, and stands here all the same."""


def needs_of(request: GroupRequest, operation: str) -> tuple[Need, ...]:
    """One of which rights this very request needs.

    A commit of no generation comes from outside, whatever member it names: a group without members takes it. Who
    leaves without a member id is taken out by its instance id, as an operator does it.
    """
    kind = type(request)
    if kind is m.CommitRequest:
        return _FROM_OUTSIDE if is_from_outside(request) else _MEMBERS
    if kind is m.LeaveRequest:
        return _OPERATORS if takes_out_others(request) else _MEMBERS
    return REQUIREMENTS[operation].needs


def is_from_outside(request: GroupRequest) -> bool:
    """Whether it is a commit of no member."""
    return type(request) is m.CommitRequest and request.generation_id < 0


def takes_out_others(request: GroupRequest) -> bool:
    """Whether it is a leave that names somebody by the instance id, as an operator does."""
    return type(request) is m.LeaveRequest and not all(one.member_id for one in request.members)


_MEMBERS: tuple[Need, ...] = (JOIN_GROUP,)
_FROM_OUTSIDE: tuple[Need, ...] = (OFFSETS_GROUP,)
_OPERATORS: tuple[Need, ...] = (OPERATE_GROUP,)


def refuse_right(permit: Permit, need: Need, name: str) -> Refused:
    """The refusal (403). It says nothing about what there is."""
    right, kind = need
    on = kind if kind == CLUSTER else f"{kind} {name!r}"
    detail = f"{permit.caller.name} does not have the right `{right}` on {on}."
    return refuse(CODES[kind], detail)


def check_call(permit: Permit, operation: str, group_id: str, request: GroupRequest) -> None:
    """Refuse a call to a group that its caller may not send. It is asked for every heartbeat."""
    rights = permit.rights
    if rights is ALL_RIGHTS:
        return
    needs = needs_of(request, operation)
    for need in needs:
        if rights.allows(need, group_id):
            break
    else:
        raise refuse_right(permit, needs[0], group_id)
    if type(request) in _NAMING_TOPICS:
        check_topics(permit, topics_named(request))


def check_topics(permit: Permit, topics: Iterable[str]) -> None:
    """Refuse what names a topic that the caller may not describe.

    Whoever puts a topic into a group is shown its partitions and ends by the group's figures. Kafka asks for a right on
    the topic of a commit and of a subscription, too.
    """
    rights = permit.rights
    if rights.allows_all(DESCRIBE_TOPIC):
        return
    for topic in topics:
        if not rights.allows(DESCRIBE_TOPIC, topic):
            raise refuse_right(permit, DESCRIBE_TOPIC, topic)


def topics_named(request: GroupRequest | admin.PreviewRequest) -> Iterable[str]:
    """The topics that a request would put into its group, or asks about. What cannot be read names none."""
    match request:
        case m.CommitRequest():
            return request.offsets
        case m.JoinRequest():
            offered = {one.metadata.text: one.metadata for one in request.protocols}
            read = (topics_of(request.protocol_type, metadata) for metadata in offered.values())
            return (topic for topics in read if topics is not None for topic in topics)
        case admin.ResetOffsetsRequest():
            return (*(request.topics or ()), *(request.offsets or ()))
        case admin.PreviewRequest():
            return (*request.partitions, *(topic for join in request.join for topic in join.topics or ()))
    return ()


_NAMING_TOPICS = frozenset({m.CommitRequest, m.JoinRequest, admin.ResetOffsetsRequest})


def check_route(permit: Permit, requirement: Requirement, ids: Mapping[str, str]) -> None:
    """Refuse a request that its caller may not send, whatever is in its body."""
    if requirement.needs:
        name = ids.get(requirement.id_name, "") if requirement.id_name else ""
        if not permit.may_any(requirement.needs, name):
            raise refuse_right(permit, requirement.needs[0], name)


def only_seen(
    answer: m.CoordinatorAnswer, permit: Permit, tell_refusal: Callable[[str, ErrorCode], None]
) -> m.CoordinatorAnswer:
    """The answer, with an error in place of the coordinator of each group that the caller may neither see nor join.

    tell_refusal: gets the id of each such group, for the audit log.
    """
    rights = permit.rights
    if rights is ALL_RIGHTS:
        return answer
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    unknown = {"node_id": None, "url": None, "error_code": code, "error_name": code.name}
    entries = []
    for entry in answer.coordinators:
        if rights.allows(JOIN_GROUP, entry.group_id) or rights.allows(DESCRIBE_GROUP, entry.group_id):
            entries.append(entry)
        else:
            tell_refusal(entry.group_id, code)
            entries.append(entry.model_copy(update=unknown))
    return m.CoordinatorAnswer(coordinators=tuple(entries))


def resource_text(requirement: Requirement | None, ids: Mapping[str, str]) -> str:
    """What a request is on, for the audit log."""
    if "group_id" in ids:
        return f"group:{ids['group_id']}"
    if "topic" in ids:
        return f"topic:{ids['topic']}"
    if requirement is None or not requirement.needs:
        return "" if not ids else "/".join(f"{name}:{value}" for name, value in ids.items())
    return "/".join((CLUSTER, *(f"{name}:{value}" for name, value in ids.items())))
