"""Runs an assignor and validates its result. Every caller of an assignor uses `run`, so no invalid result gets through.

Nothing is repaired: a result with a fault is refused as a whole, with a message for the author of the assignor. The
quality of a valid result is the subject of `measure`.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from pydantic import JsonValue

from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, TopicPartition
from rallypoint.assignors.order import in_java_order, java_order
from rallypoint.protocol.opaque import check_json


class InvalidAssignment(ValueError):  # noqa: N818 - reads as a sentence, as the names of the protocol's errors do
    """The assignor's result must not be used. The message says why."""


@dataclass(frozen=True, slots=True)
class Result:
    """The valid result of an assignor. `user_data`: that of the members for which the assignor returned any."""

    assignment: Assignment
    user_data: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of an assignment, ordered by member in `java_order`. It is false if there are none.

    `missing_members`: members without an entry in the assignment.
    `unknown_members`: entries of the assignment that are no members.
    `unknown`: assigned partitions that do not exist, as (member id, topic, partition).
    `not_subscribed`: partitions of topics to which their member does not subscribe, in the same form.
    `assigned_twice`: all owners of a partition but the first, in the same form.
    `still_owned`: for a cooperative assignor, partitions that another member still owns, with its id as the fourth.

    An unassigned partition is no fault, because a cooperative assignor holds some back. See `measure.unassigned`.
    """

    missing_members: tuple[str, ...] = ()
    unknown_members: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str, int], ...] = ()
    not_subscribed: tuple[tuple[str, str, int], ...] = ()
    assigned_twice: tuple[tuple[str, str, int], ...] = ()
    still_owned: tuple[tuple[str, str, int, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(
            self.missing_members
            or self.unknown_members
            or self.unknown
            or self.not_subscribed
            or self.assigned_twice
            or self.still_owned
        )

    def sentences(self) -> list[str]:
        """A readable sentence for each fault."""
        return [
            *(f"{member_id} is a member, but is missing in the assignment" for member_id in self.missing_members),
            *(f"{member_id} gets partitions, but is no member" for member_id in self.unknown_members),
            *(f"{member_id} gets {topic}-{n}, which does not exist" for member_id, topic, n in self.unknown),
            *(
                f"{member_id} gets {topic}-{n}, but does not subscribe to it"
                for member_id, topic, n in self.not_subscribed
            ),
            *(
                f"{member_id} gets {topic}-{n}, which another member gets, too"
                for member_id, topic, n in self.assigned_twice
            ),
            *(
                f"{member_id} gets {topic}-{n}, which {owner} still owns: a cooperative assignor assigns it to nobody"
                " until its owner has given it up"
                for member_id, topic, n, owner in self.still_owned
            ),
        ]


def run(assignor: Assignor, spec: GroupSpec, *, strict: bool = False) -> Result:
    """Call the assignor and validate all that it returns.

    `assignor`: the assignor to run. It gets copies, so that it cannot change `spec` or the result.
    `spec`: the group. The members' `user_data` is not copied.
    `strict`: treat a change of its arguments as a fault, too.

    Raises InvalidAssignment. Errors that the assignor raises pass through. Cost: that of the assignor and of
    `faults_of`, plus a copy of the spec without the owned partitions; `strict` adds two `repr` of the spec.
    """
    asked = _copy_of(spec)
    before = repr(asked) if strict else ""
    assignment = _shaped(assignor.assign(asked))
    sentences = faults_of(spec, assignment, cooperative=assignor.protocol == "cooperative").sentences()
    if sentences:
        more = f"; and {len(sentences) - 1} more such faults" if len(sentences) > 1 else ""
        raise InvalidAssignment(f"{sentences[0]}{more}")
    shown = dict(assignment)
    user_data = _user_data(spec, assignor.user_data(asked if strict else _copy_of(spec), shown))
    if strict and repr(asked) != before:
        raise InvalidAssignment(f"it changes its question, to {asked!r}")
    if strict and shown != assignment:
        raise InvalidAssignment(f"its user_data changes the assignment that it is shown, to {shown!r}")
    return Result(assignment, user_data)


def faults_of(spec: GroupSpec, assignment: Assignment, *, cooperative: bool = False) -> Faults:
    """The faults of an assignment. Cost: O(assigned and owned partitions + subscribed topics), plus sorting."""
    unknown, unasked, twice, owned = [], [], [], []
    seen: set[TopicPartition] = set()
    owners = owners_now(spec) if cooperative else {}
    for member_id in sorted(assignment, key=java_order):
        subscription = spec.subscriptions.get(member_id)
        topics = frozenset(subscription.topics) if subscription else None
        for topic, partition in assignment[member_id]:
            if not 0 <= partition < spec.partitions_per_topic.get(topic, 0):
                unknown.append((member_id, topic, partition))
            elif topics is not None and topic not in topics:
                unasked.append((member_id, topic, partition))
            if (topic, partition) in seen:
                twice.append((member_id, topic, partition))
            seen.add((topic, partition))
            its_owners = owners.get((topic, partition), ())
            if its_owners and member_id not in its_owners:
                owned.append((member_id, topic, partition, its_owners[0]))
    return Faults(
        missing_members=in_java_order(spec.subscriptions.keys() - assignment.keys()),
        unknown_members=in_java_order(assignment.keys() - spec.subscriptions.keys()),
        unknown=tuple(unknown),
        not_subscribed=tuple(unasked),
        assigned_twice=tuple(twice),
        still_owned=tuple(owned),
    )


def owners_now(spec: GroupSpec) -> dict[TopicPartition, tuple[str, ...]]:
    """The members that may be reading each partition, by what they report, in `java_order`.

    These are the members that report it with the highest generation of all; several if their reports contradict each
    other. A member that reports it with a lower generation has lost it.
    Source: Kafka's `ConsumerCoordinator.validateCooperativeAssignment`, which does not look at generations.
    """
    owners: dict[TopicPartition, tuple[int, tuple[str, ...]]] = {}
    for member_id in sorted(spec.subscriptions, key=java_order):
        subscription = spec.subscriptions[member_id]
        for partition in set(subscription.owned):
            generation_id, others = owners.get(partition, (subscription.generation_id, ()))
            if subscription.generation_id > generation_id:
                owners[partition] = subscription.generation_id, (member_id,)
            elif subscription.generation_id == generation_id:
                owners[partition] = generation_id, (*others, member_id)
    return {partition: members for partition, (_, members) in owners.items()}


def _copy_of(spec: GroupSpec) -> GroupSpec:
    """A copy with its own mappings. Their values are immutable, except for the members' `user_data`."""
    racks = {topic: tuple(map(tuple, racks)) for topic, racks in spec.replica_racks.items()}
    return GroupSpec(dict(spec.partitions_per_topic), dict(spec.subscriptions), racks)


def _shaped(given: object) -> Assignment:
    """The returned object as an assignment, if it has the shape of one."""
    if not isinstance(given, Mapping):
        raise InvalidAssignment(f"it returns {_shown(given)}, not a mapping from member ids to tuples of partitions")
    return {_member(member_id): _partitions(member_id, value) for member_id, value in given.items()}


def _member(member_id: object) -> str:
    if not isinstance(member_id, str):
        raise InvalidAssignment(f"it assigns partitions to {_shown(member_id)}, which is no member id")
    return member_id


def _partitions(member_id: object, value: object) -> tuple[TopicPartition, ...]:
    if not isinstance(value, Sequence | Set) or isinstance(value, str | bytes):
        raise InvalidAssignment(f"{member_id} gets {_shown(value)}, not a tuple of partitions")
    partitions = tuple(value)
    for one in partitions:
        match one:
            case (str(), int()) if isinstance(one, tuple) and not isinstance(one[1], bool):
                pass
            case _:
                raise InvalidAssignment(f"{member_id} gets {_shown(one)}, not a pair of a topic and a number")
    return partitions


def _user_data(spec: GroupSpec, given: object) -> Mapping[str, JsonValue]:
    if not isinstance(given, Mapping):
        raise InvalidAssignment(f"its user_data is {_shown(given)}, not a mapping from member ids to JSON values")
    user_data = dict(given)
    for member_id, one in user_data.items():
        if member_id not in spec.subscriptions:
            raise InvalidAssignment(f"its user_data is for {_shown(member_id)}, which is no member")
        try:
            check_json(one)
        except ValueError as error:
            raise InvalidAssignment(f"its user_data for {member_id} is no JSON value: {error}") from error
    return user_data


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
