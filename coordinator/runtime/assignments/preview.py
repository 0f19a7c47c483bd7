"""A preview of the next assignment: from a group and a supposition to an answer. Pure.

It runs the assignor that members would run, with the partitions that each member owns now. So a sticky assignor keeps
here what it would keep there. A cooperative assignor runs again until no partition is left to revoke.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter

from rallypoint.assignors import measure, validity
from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, MemberSubscription, TopicPartition
from rallypoint.assignors.evenness import optimal_counts, pairwise
from rallypoint.assignors.registry import AssignorError
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.topics import Racks
from rallypoint.coordinator.runtime.assignments.consumers import (
    Unreadable,
    assigned_counts,
    assigned_to,
    by_topic,
    check_consumers,
    flat,
    subscription_of,
)
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import limits
from rallypoint.protocol.errors import ErrorCode

COOPERATIVE_REBALANCES_MAX = 3
"""A cooperative rule is through in two; the third shows that nothing moves any more."""

FindAssignor = Callable[[str], Assignor]


@dataclass(slots=True)
class _Supposed:
    """The group as it would be.

    before: the partitions that each member owns.
    said: the subscription of each member that is there.
    after: the subscriptions of the members that stay and of those that are new.
    counts_before, counts_after: the numbers of partitions of the subscribed topics.
    """

    before: dict[str, tuple[TopicPartition, ...]] = field(default_factory=dict)
    said: dict[str, MemberSubscription] = field(default_factory=dict)
    after: dict[str, MemberSubscription] = field(default_factory=dict)
    counts_before: dict[str, int] = field(default_factory=dict)
    counts_after: dict[str, int] = field(default_factory=dict)


def preview(
    group: admin.DescribeAnswer,
    request: admin.PreviewRequest,
    registered: Mapping[str, int],
    replica_racks: Mapping[str, Racks],
    find: FindAssignor,
    size_max: int,
) -> admin.PreviewAnswer | Failure:
    """The assignment that would follow, beside the present one. Changes nothing.

    group: the description of the group.
    request: the supposed changes.
    registered: the numbers of partitions of the registered topics.
    replica_racks: the racks of the topics for which they are known. They are not known for partitions that a topic is
        supposed to grow by.
    find: returns an assignor by its name, as `assignors.registry` does.
    size_max: the most members and partitions, counted together.

    Errors: INCONSISTENT_GROUP_PROTOCOL if the group is not one of readable consumers, UNKNOWN_MEMBER_ID for a member
    that is to leave and is not there, INVALID_REQUEST with its field for the rest.
    Cost: that of the assignor, and O(partitions + topics subscribed to).
    """
    try:
        supposed = _suppose(group, request, registered)
        _check_size(supposed, size_max)
        assignor = _find(group, request, find)
        racks = {topic: replica_racks[topic] for topic in supposed.counts_after if topic in replica_racks}
        spec = GroupSpec(supposed.counts_after, supposed.after, racks)
        rebalance_count, assignment = _assign(assignor, spec)
    except Unreadable as refused:
        return refused.failure
    return _answer(group, supposed, spec, assignor.name, rebalance_count, assignment)


def _refuse(detail: str, field_name: str | None, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> Unreadable:
    return Unreadable(Failure(code, detail, field=field_name))


# --- what is supposed ------------------------------------------------------------------------------------------------


def _suppose(group: admin.DescribeAnswer, request: admin.PreviewRequest, registered: Mapping[str, int]) -> _Supposed:
    check_consumers(group)
    supposed = _Supposed()
    for member in group.members:
        owned = supposed.before[member.member_id] = flat(assigned_to(member))
        supposed.said[member.member_id] = subscription_of(member, owned, group.generation_id)
    supposed.after = dict(supposed.said)
    _let_leave(group, request, supposed)
    _let_join(request, supposed)
    _count(request, registered, supposed)
    return supposed


def _let_leave(group: admin.DescribeAnswer, request: admin.PreviewRequest, supposed: _Supposed) -> None:
    slots = {x.group_instance_id: x.member_id for x in group.members if x.group_instance_id is not None}
    for place, name in enumerate(request.leave):
        member_id = name if name in supposed.said else slots.get(name)
        if member_id is None:
            raise _refuse(
                f"No member of the group has {name!r} as its member id or its instance id.",
                f"leave.{place}",
                ErrorCode.UNKNOWN_MEMBER_ID,
            )
        supposed.after.pop(member_id, None)


def _let_join(request: admin.PreviewRequest, supposed: _Supposed) -> None:
    everything = tuple(sorted({topic for said in supposed.said.values() for topic in said.topics}))
    number = 0
    for place, wanted in enumerate(request.join):
        instance_id = wanted.group_instance_id
        if instance_id is not None:
            _check_instance_id(instance_id, wanted.count, place, supposed)
        topics = everything if wanted.topics is None else wanted.topics
        if wanted.topics is None and not everything:
            raise _refuse("Nobody in the group subscribes to a topic: name some for who joins.", f"join.{place}.topics")
        said = MemberSubscription(topics, instance_id, rack_id=wanted.rack_id, user_data=wanted.user_data)
        for _ in range(wanted.count):
            number += 1
            while (member_id := f"new-{number}") in supposed.said:
                number += 1
            supposed.after[member_id] = said


def _check_instance_id(instance_id: str, count: int, place: int, supposed: _Supposed) -> None:
    """An instance id belongs to one member."""
    if count > 1:
        raise _refuse("One member alone can have an instance id.", f"join.{place}.group_instance_id")
    if any(said.group_instance_id == instance_id for said in supposed.after.values()):
        detail = f"The instance id {instance_id!r} belongs to another member."
        raise _refuse(detail, f"join.{place}.group_instance_id")


def _count(request: admin.PreviewRequest, registered: Mapping[str, int], supposed: _Supposed) -> None:
    """Partitions of each topic. Of one that nobody registered, as many are taken to exist as are assigned."""
    counts = {**assigned_counts(supposed.before.values()), **registered}
    for topic, count in request.partitions.items():
        if count < counts.get(topic, 0):
            detail = f"{topic} has {counts[topic]} partitions, and a topic only grows."
            raise _refuse(detail, f"partitions.{topic}")
    subscribed = {topic for said in (*supposed.said.values(), *supposed.after.values()) for topic in said.topics}
    supposed.counts_before = {topic: counts[topic] for topic in subscribed if topic in counts}
    supposed.counts_after = supposed.counts_before | {t: n for t, n in request.partitions.items() if t in subscribed}


def _check_size(supposed: _Supposed, size_max: int) -> None:
    size = len(supposed.said.keys() | supposed.after.keys()) + sum(supposed.counts_after.values())
    if size > size_max:
        detail = f"Members and partitions are {size} together, more than {size_max}; preview_size_max is fixed."
        raise Unreadable(Failure(ErrorCode.INVALID_REQUEST, detail, limit=size_max, limit_name="preview_size_max"))


# --- the assignor ----------------------------------------------------------------------------------------------------


def _find(group: admin.DescribeAnswer, request: admin.PreviewRequest, find: FindAssignor) -> Assignor:
    name = group.protocol_name if request.assignor is None else request.assignor
    if not name:
        raise _refuse("The group has no assignor yet: name one.", "assignor")
    try:
        return find(name)
    except AssignorError as error:
        raise _refuse(f"The service cannot use this assignor: {error}.", "assignor") from error


def _assign(assignor: Assignor, spec: GroupSpec) -> tuple[int, Assignment]:
    """The last assignment, and how many rebalances it takes."""
    assignment = _run(assignor, spec)
    newest = max((said.generation_id for said in spec.subscriptions.values()), default=0)
    rebalance_count = 1
    while assignor.protocol == "cooperative" and rebalance_count < COOPERATIVE_REBALANCES_MAX:
        generation_id = newest + rebalance_count
        claims = {
            member_id: replace(said, owned=assignment[member_id], generation_id=generation_id)
            for member_id, said in spec.subscriptions.items()
        }
        following = _run(assignor, replace(spec, subscriptions=claims))
        if following == assignment:
            break
        assignment = following
        rebalance_count += 1
    return rebalance_count, assignment


def _run(assignor: Assignor, spec: GroupSpec) -> Assignment:
    try:
        return validity.run(assignor, spec).assignment
    except validity.InvalidAssignment as error:
        raise _refuse(f"What the assignor {assignor.name!r} gives is wrong: {error}.", "assignor") from error
    except Exception as error:  # it may be anybody's code, and may ask for more than the members say
        detail = f"The assignor {assignor.name!r} does not share this out: {error or type(error).__name__}."
        raise _refuse(detail, "assignor") from error


# --- the answer ------------------------------------------------------------------------------------------------------


def _answer(
    group: admin.DescribeAnswer,
    supposed: _Supposed,
    spec: GroupSpec,
    assignor: str,
    rebalance_count: int,
    assignment: Assignment,
) -> admin.PreviewAnswer:
    names = {member.member_id: member for member in group.members}
    moved = _moved(supposed.before, assignment)
    unassigned = measure.unassigned(spec, assignment)
    spec_before = GroupSpec(supposed.counts_before, supposed.said)
    return admin.PreviewAnswer(
        group_id=group.group_id,
        state=group.state,
        generation_id=group.generation_id,
        assignor=assignor,
        rebalance_count=rebalance_count,
        members=tuple(
            _member(member_id, names.get(member_id), supposed, assignment)
            for member_id in (*supposed.said, *(x for x in supposed.after if x not in supposed.said))
        ),
        partitions_moved_count=len(moved),
        partitions_moved=tuple(
            admin.MovedPartition(topic=topic, partition=partition, from_member_id=from_member_id, to_member_id=to)
            for topic, partition, from_member_id, to in moved[: limits.PREVIEW_MOVES_LISTED_MAX]
        ),
        unassigned_count=len(unassigned),
        unassigned=by_topic(unassigned),
        evenness_before=_evenness(spec_before, supposed.before),
        evenness_after=_evenness(spec, assignment),
    )


def _moved(before: Assignment, after: Assignment) -> list[tuple[str, int, str, str | None]]:
    """Topic, partition, from whom and to whom, sorted by topic and partition."""
    owner_after = {topic_partition: member_id for member_id, share in after.items() for topic_partition in share}
    found: dict[str, list[tuple[str, int, str, str | None]]] = {}
    for member_id, share in before.items():
        for topic_partition in share:
            to = owner_after.get(topic_partition)
            if to != member_id:
                found.setdefault(topic_partition[0], []).append((*topic_partition, member_id, to))
    # Topic by topic: one sort of a hundred thousand would hold up every other thread.
    return [move for topic in sorted(found) for move in sorted(found[topic], key=itemgetter(1))]


def _member(
    member_id: str, member: admin.DescribedMember | None, supposed: _Supposed, assignment: Assignment
) -> admin.PreviewedMember:
    before, after = supposed.before.get(member_id, ()), assignment.get(member_id, ())
    had, has = frozenset(before), frozenset(after)
    said = supposed.said.get(member_id) or supposed.after[member_id]
    return admin.PreviewedMember(
        member_id=member_id,
        group_instance_id=said.group_instance_id,
        client_id=None if member is None else member.client_id,
        change="joins" if member is None else "stays" if member_id in supposed.after else "leaves",
        before_count=len(before),
        after_count=len(after),
        before=by_topic(before),
        after=by_topic(after),
        gained=by_topic([tp for tp in after if tp not in had]),
        lost=by_topic([tp for tp in before if tp not in has]),
    )


def _evenness(spec: GroupSpec, assignment: Assignment) -> admin.Evenness:
    counts = tuple(len(assignment.get(member_id, ())) for member_id in spec.subscriptions)
    return admin.Evenness(
        member_count=len(counts),
        least_count=min(counts, default=0),
        most_count=max(counts, default=0),
        pairwise_sum=pairwise(counts),
        least_pairwise_sum=pairwise(optimal_counts(spec)),
        balanced=measure.is_balanced(spec, assignment),
    )
