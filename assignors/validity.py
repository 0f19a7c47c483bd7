"""Whether what an assignor gives may be handed out at all. Whoever runs one does it here, so that nobody forgets it.

Nothing is repaired: a result with a fault is refused as a whole, in a sentence for whoever wrote the rule. How good a
valid one is, `measure` says.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from pydantic import JsonValue

from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, TopicPartition
from rallypoint.assignors.order import java_order
from rallypoint.protocol.opaque import check_json


class InvalidAssignment(ValueError):  # noqa: N818 - reads as a sentence, as the names of the protocol's errors do
    """What an assignor gave must not be handed out. The text says why."""


@dataclass(frozen=True, slots=True)
class Result:
    """What an assignor gave, and nothing in it is at fault. `user_data`: for those members that are told something."""

    assignment: Assignment
    user_data: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Faults:
    """What an assignment does that no rule may. False if it is empty. By member, in the order of `java_order`.

    `left_out`: members that are not in it. `strangers`: whom it names, though they are no members. `unknown`: what it
    gives although no such topic or partition exists, `not_subscribed`: to somebody who did not ask for the topic, each
    as (member id, topic, partition). `assigned_twice`: each surplus owner, in the same form: all but the first.
    `still_owned`: of a cooperative rule, what it gives to one while another still owns it, whose id comes fourth.
    What it gives to nobody is no fault in itself (see `measure.unassigned`): a cooperative rule holds partitions back.
    """

    left_out: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str, int], ...] = ()
    not_subscribed: tuple[tuple[str, str, int], ...] = ()
    assigned_twice: tuple[tuple[str, str, int], ...] = ()
    still_owned: tuple[tuple[str, str, int, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(
            self.left_out
            or self.strangers
            or self.unknown
            or self.not_subscribed
            or self.assigned_twice
            or self.still_owned
        )

    def sentences(self) -> list[str]:
        """One for each fault, for people."""
        return [
            *(f"{member_id} is a member, but is left out" for member_id in self.left_out),
            *(f"{member_id} is given a share, but is no member" for member_id in self.strangers),
            *(f"{member_id} is given {topic}-{n}, which does not exist" for member_id, topic, n in self.unknown),
            *(f"{member_id} is given {topic}-{n} unasked" for member_id, topic, n in self.not_subscribed),
            *(
                f"{member_id} is given {topic}-{n}, which is given out already"
                for member_id, topic, n in self.assigned_twice
            ),
            *(
                f"{member_id} is given {topic}-{n}, which {owner} still owns: a cooperative assignor gives it to nobody"
                " until its owner has given it up"
                for member_id, topic, n, owner in self.still_owned
            ),
        ]


def run(assignor: Assignor, spec: GroupSpec, *, strict: bool = False) -> Result:
    """Ask the assignor, and look at all that it gives. Raises InvalidAssignment; what it raises itself passes through.

    It is asked with copies: what it changes in them changes neither the question that the check reads, nor the
    result. A member's `user_data` is no part of the check and is not copied. `strict`: what it changes is a fault too.
    Cost: that of the assignor, of `faults_of`, and of a copy without the members' owned partitions; strict writes all
    out twice.
    """
    asked = _copy_of(spec)
    before = repr(asked) if strict else ""
    assignment = _shaped(assignor.assign(asked))
    sentences = faults_of(spec, assignment, cooperative=assignor.protocol == "cooperative").sentences()
    if sentences:
        more = f"; and {len(sentences) - 1} more such faults" if len(sentences) > 1 else ""
        raise InvalidAssignment(f"{sentences[0]}{more}")
    shown = dict(assignment)
    user_data = _told(spec, assignor.user_data(asked if strict else _copy_of(spec), shown))
    if strict and repr(asked) != before:
        raise InvalidAssignment(f"it changes its question, to {asked!r}")
    if strict and shown != assignment:
        raise InvalidAssignment(f"its user_data changes the assignment that it is shown, to {shown!r}")
    return Result(assignment, user_data)


def faults_of(spec: GroupSpec, assignment: Assignment, *, cooperative: bool = False) -> Faults:
    """What is wrong with it. Cost: O(partitions given and owned + topics subscribed to), besides the sorting."""
    unknown, unasked, twice, owned = [], [], [], []
    seen: set[TopicPartition] = set()
    owners = owners_now(spec) if cooperative else {}
    for member_id in sorted(assignment, key=java_order):
        said = spec.subscriptions.get(member_id)
        topics = frozenset(said.topics) if said else None
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
        left_out=_in_order(spec.subscriptions.keys() - assignment.keys()),
        strangers=_in_order(assignment.keys() - spec.subscriptions.keys()),
        unknown=tuple(unknown),
        not_subscribed=tuple(unasked),
        assigned_twice=tuple(twice),
        still_owned=tuple(owned),
    )


def owners_now(spec: GroupSpec) -> dict[TopicPartition, tuple[str, ...]]:
    """Who may be at work on a partition by what members say: whoever names it in the highest generation that any does,
    several if they contradict each other, in the order of `java_order`. Who names it in a lower one has lost it.
    Source: Kafka's `ConsumerCoordinator.validateCooperativeAssignment`, which does not look at generations.
    """
    owners: dict[TopicPartition, tuple[int, tuple[str, ...]]] = {}
    for member_id in sorted(spec.subscriptions, key=java_order):
        said = spec.subscriptions[member_id]
        for partition in set(said.owned):
            generation_id, others = owners.get(partition, (said.generation_id, ()))
            if said.generation_id > generation_id:
                owners[partition] = said.generation_id, (member_id,)
            elif said.generation_id == generation_id:
                owners[partition] = generation_id, (*others, member_id)
    return {partition: members for partition, (_, members) in owners.items()}


def _copy_of(spec: GroupSpec) -> GroupSpec:
    """Whose mappings are its own. What stands in them is made of tuples, but for what members say."""
    racks = {topic: tuple(map(tuple, racks)) for topic, racks in spec.replica_racks.items()}
    return GroupSpec(dict(spec.partitions_per_topic), dict(spec.subscriptions), racks)


def _shaped(given: object) -> Assignment:
    """It, whatever it is, as an assignment."""
    if not isinstance(given, Mapping):
        raise InvalidAssignment(f"it gives {_shown(given)}, not a mapping from member ids to tuples of partitions")
    return {_member(member_id): _share(member_id, share) for member_id, share in given.items()}


def _member(member_id: object) -> str:
    if not isinstance(member_id, str):
        raise InvalidAssignment(f"it gives a share to {_shown(member_id)}, which is no member id")
    return member_id


def _share(member_id: object, share: object) -> tuple[TopicPartition, ...]:
    if not isinstance(share, Sequence | Set) or isinstance(share, str | bytes):
        raise InvalidAssignment(f"what {member_id} is given is {_shown(share)}, not a tuple of partitions")
    partitions = tuple(share)
    for one in partitions:
        match one:
            case (str(), int()) if isinstance(one, tuple) and not isinstance(one[1], bool):
                pass
            case _:
                raise InvalidAssignment(f"{member_id} is given {_shown(one)}, not a pair of a topic and a number")
    return partitions


def _told(spec: GroupSpec, told: object) -> Mapping[str, JsonValue]:
    if not isinstance(told, Mapping):
        raise InvalidAssignment(f"its user_data is {_shown(told)}, not a mapping from member ids to what they are told")
    user_data = dict(told)
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


def _in_order(names: Set[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=java_order))
