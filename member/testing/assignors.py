"""Tries an assignor with generated groups: whether it keeps to what the leader of a group, and a group's rest, rely on.

    def test_my_rule() -> None:
        check_assignor(MyAssignor)

How even a rule is, and how much it moves, is its author's affair and not looked at (`assignors.measure` says it). The
same arguments try the same groups, small ones first, so the group that a fault shows is about as small as it can be.
"""

import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from pydantic import JsonValue

from rallypoint.assignors import registry, validity
from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec, MemberSubscription, TopicPartition
from rallypoint.assignors.measure import unassigned

V = TypeVar("V")

UserData = Callable[[random.Random], JsonValue]
"""Draws user data as a member of this assignor might have it."""

REBALANCES = 4
"""How often each group rebalances: members join, leave or miss a rebalance, topics grow, and all name what they own."""

SETTLING_REBALANCES_MAX = 10
"""How many rebalances a cooperative assignor may need until a group that does not change settles. Two are usual."""

ELSEWHERE_GROUPS_MAX = 100
HASH_SEEDS = ("1", "2")
"""Of other processes: the order of a set of texts differs from the one here, in one of them at least."""

TOPICS = ("a", "b", "t1", "t10", "t2", "\uff21", "\U0001f600")
RACKS = ("x", "y")
JUNK: tuple[JsonValue, ...] = (None, 0, -1.5, "", "x", True, [], {}, [None], {"": None}, {"weights": 3})

CHILD = """
import pickle, sys
out, sys.stdout = sys.stdout.buffer, sys.stderr
sys.path[:] = pickle.load(sys.stdin.buffer)
rule, specs = pickle.load(sys.stdin.buffer)
rule = rule() if isinstance(rule, type) else rule
given = [rule.assign(spec) for spec in specs]
pickle.dump([(one, rule.user_data(spec, dict(one))) for one, spec in zip(given, specs)], out)
"""


class AssignorFault(AssertionError):  # noqa: N818 - a failed test, as pytest shows it
    """An assignor broke its contract. `what` says how, in a sentence; `spec` is the group that shows it."""

    def __init__(self, name: str, what: str, spec: GroupSpec) -> None:
        self.what = what
        self.spec = spec
        super().__init__(f"the assignor {name!r} is at fault: {what}\nas this group shows:\n{spec!r}")


def check_assignor(
    choice: registry.Choice,
    *,
    groups: int = 200,
    seed: int = 0,
    user_data: UserData | None = None,
    assigns_all: bool = True,
    deterministic: bool = True,
    elsewhere: bool = True,
) -> None:
    """Try an assignor with generated groups. Raises AssignorFault at the first fault.

    It checks for every group that the assignor raises nothing, that its result is valid (`assignors.validity`), that it
    changes neither the `GroupSpec` nor, in `user_data`, its result, and that odd owned partitions and user data do no
    harm. An assignor that says that it does not read owned partitions must not. A cooperative assignor must give no
    partition to a member while another owns it, and must settle.

    Args:
        choice: A name in `assignors.registry`, or a class or an instance. Raises what `registry.resolve` raises if
            there is no such assignor.
        groups: How many groups to try.
        seed: Which groups: the same seed draws the same.
        user_data: Draws the user data of a member. Half of the members have other data all the same, as members of
            another version might.
        assigns_all: False for an assignor that leaves partitions unassigned on purpose. A cooperative one may always
            hold back what another member owns.
        deterministic: False for an assignor that may give several results for one group.
        elsewhere: Also try it in other processes, in which sets of strings have another order. The assignor is imported
            there by name, so it must stand at the top of a module, else ValueError.
    """
    trial = _Trial(choice, assigns_all=assigns_all, deterministic=deterministic)
    for number in range(groups):
        chance = random.Random(f"{seed}/{number}")
        spec = STRANGE[number] if number < len(STRANGE) else _any_group(chance, 2 + 6 * number // groups, user_data)
        for _ in range(REBALANCES):
            spec = _after_a_rebalance(chance, spec, trial.check(chance, spec))
    if deterministic and elsewhere:
        trial.check_elsewhere()


@dataclass(frozen=True, slots=True)
class _Answer:
    spec: GroupSpec
    result: validity.Result


class _Trial:
    """Of one assignor."""

    def __init__(self, choice: registry.Choice, *, assigns_all: bool, deterministic: bool) -> None:
        self._choice = choice
        self._rule = registry.resolve(choice)
        self._assigns_all = assigns_all
        self._deterministic = deterministic
        self._answers: list[_Answer] = []

    def check(self, chance: random.Random, spec: GroupSpec) -> Assignment:
        """Everything that can be asked about one group; what was given."""
        result = self._ask(spec)
        if len(self._answers) < ELSEWHERE_GROUPS_MAX:
            self._answers.append(_Answer(spec, result))
        if self._deterministic:
            self._expect_same(spec, spec, result, "it answers the same question in two ways")
            self._expect_same(spec, _shuffled(chance, spec), result, "its answer depends on the order of its question")
            if not self._rule.reads_owned_partitions:
                silent = _with_owned(spec, {})
                self._expect_same(
                    spec, silent, result, "it looks at what members own, but reads_owned_partitions says not"
                )
        left = unassigned(spec, result.assignment) if self._assigns_all else ()
        if self._rule.protocol == "cooperative":
            owners = validity.owners_now(spec)
            left = tuple(partition for partition in left if partition not in owners)
            self._check_settles(spec, result.assignment)
        if left:
            raise self._fault(f"it gives {_named(left[0])} to nobody", spec)
        return result.assignment

    def check_elsewhere(self) -> None:
        """The same questions in other processes."""
        rule = self._choice if isinstance(self._choice, type) else self._rule
        given = pickle.dumps(sys.path) + _pickled(rule, [answer.spec for answer in self._answers])
        for hash_seed in HASH_SEEDS:
            done = subprocess.run(
                [sys.executable, "-c", CHILD],
                input=given,
                env=os.environ | {"PYTHONHASHSEED": hash_seed},
                capture_output=True,
                check=False,
            )
            if done.returncode != 0:
                said = done.stderr.decode().strip().rpartition("\n")[2]
                raise ValueError(f"the assignor cannot be asked in another process: {said}")
            differing = [
                here.spec
                for here, (assignment, told) in zip(self._answers, pickle.loads(done.stdout), strict=True)
                if not _same(here.result, validity.Result(assignment, told))
            ]
            if differing:
                raise self._fault(
                    "its answer depends on the process that asks, as the order of a set does",
                    min(differing, key=lambda spec: len(spec.subscriptions)),
                )

    def _ask(self, spec: GroupSpec) -> validity.Result:
        try:
            return validity.run(self._rule, spec, strict=True)
        except validity.InvalidAssignment as error:
            raise self._fault(str(error), spec) from error
        except (Exception, SystemExit, GeneratorExit) as error:  # anybody's code
            raise self._fault(f"it raises {type(error).__name__}: {error}", spec) from error

    def _expect_same(self, spec: GroupSpec, question: GroupSpec, result: validity.Result, what: str) -> None:
        other = self._ask(question)
        if not _same(result, other):
            raise self._fault(f"{what}: {_difference(result, other)}", spec)

    def _check_settles(self, spec: GroupSpec, given: Assignment) -> None:
        """The members name what they were given, and nothing else changes: soon nothing moves, and everything has an
        owner.
        """
        for generation_id in range(100, 100 + SETTLING_REBALANCES_MAX):
            following = self._ask(
                _with_owned(spec, {member_id: (share, generation_id) for member_id, share in given.items()})
            )
            if _sets(following.assignment) == _sets(given):
                break
            given = following.assignment
        else:
            raise self._fault(
                f"after {SETTLING_REBALANCES_MAX} rebalances without any change partitions still move", spec
            )
        if self._assigns_all and (left := unassigned(spec, given)):
            raise self._fault(f"it gives {_named(left[0])} to nobody, though nobody owns it any more", spec)

    def _fault(self, what: str, spec: GroupSpec) -> AssignorFault:
        return AssignorFault(self._rule.name, what, spec)


# --- the groups ------------------------------------------------------------------------------------------------------

_BOTH = MemberSubscription(("a", "b"))
STRANGE: tuple[GroupSpec, ...] = (
    GroupSpec({}, {}),
    GroupSpec({"a": 3}, {}),
    GroupSpec({}, {"m0": _BOTH}),
    GroupSpec({"a": 0, "b": 0}, {"m0": _BOTH}),
    GroupSpec({"a": 1}, {"m0": MemberSubscription(())}),
    GroupSpec({"a": 1, "b": 2}, {"m0": MemberSubscription(("a", "gone"))}),
    GroupSpec({"a": 2}, {"m0": MemberSubscription(("a", "a")), "m1": MemberSubscription(("gone",))}),
    GroupSpec({"a": 1}, {f"m{number}": _BOTH for number in range(9)}),
    GroupSpec({"a": 2}, {f"m{number}": MemberSubscription(("a",), None, (("a", 0),), 3) for number in range(3)}),
)
"""What every rule meets some day, by itself and first."""


def _any_group(chance: random.Random, size: int, user_data: UserData | None) -> GroupSpec:
    """With up to so many members."""
    topics = chance.sample(TOPICS, chance.randint(1, 4))
    counts = {topic: chance.choice((0, 1, 1, 2, 3, 5, 8)) for topic in topics}
    of_all = _some(chance, topics)
    is_equal = chance.random() < 0.5
    members = [
        f"{chance.choice('abm')}{number}-{chance.choice(('x', chr(0xFF21)))}"
        for number in range(chance.randint(1, size))
    ]
    chance.shuffle(members)
    subscriptions = {
        member_id: _said(chance, of_all if is_equal else _some(chance, topics), member_id, user_data)
        for member_id in members
    }
    racks = {
        topic: [chance.sample(RACKS, chance.randint(0, len(RACKS))) for _ in range(count)]
        for topic, count in counts.items()
        if chance.random() < 0.3
    }
    spec = GroupSpec(counts, subscriptions, racks)
    return _with_owned(spec, dict(_odd_owned(chance, spec))) if chance.random() < 0.4 else spec


def _said(
    chance: random.Random, topics: tuple[str, ...], member_id: str, user_data: UserData | None
) -> MemberSubscription:
    return MemberSubscription(
        topics,
        group_instance_id=f"i-{member_id}" if chance.random() < 0.3 else None,
        rack_id=chance.choice((*RACKS, None, "elsewhere")),
        user_data=chance.choice(JUNK) if user_data is None or chance.random() < 0.5 else user_data(chance),
    )


def _some(chance: random.Random, topics: list[str]) -> tuple[str, ...]:
    wanted = [topic for topic in (*topics, "gone") if chance.random() < 0.6]
    return tuple(wanted + wanted[:1] if chance.random() < 0.2 else wanted)


def _odd_owned(chance: random.Random, spec: GroupSpec) -> Iterator[tuple[str, tuple[tuple[TopicPartition, ...], int]]]:
    """Disputed ones, old ones, and such to what does not exist."""
    known = [(topic, number) for topic, count in spec.partitions_per_topic.items() for number in range(count)]
    for member_id in spec.subscriptions:
        wanted = [*known, *known, ("gone", 0), ("a", 99)]
        yield member_id, (tuple(chance.sample(wanted, chance.randint(0, min(4, len(wanted))))), chance.randint(-1, 3))


def _after_a_rebalance(chance: random.Random, spec: GroupSpec, given: Assignment) -> GroupSpec:
    """The members name what they were given, some have missed the rebalance, and something has changed."""
    generation_id = 1 + max((said.generation_id for said in spec.subscriptions.values()), default=0)
    later_owned = {member_id: (share, generation_id) for member_id, share in given.items() if chance.random() < 0.9}
    later = _with_owned(
        spec,
        {member_id: (said.owned, said.generation_id) for member_id, said in spec.subscriptions.items()} | later_owned,
    )
    subscriptions, counts = dict(later.subscriptions), dict(later.partitions_per_topic)
    match chance.choice(("joins", "leaves", "grows", "goes", "nothing")):
        case "joins" if subscriptions:
            like = chance.choice(sorted(subscriptions))
            said = replace(subscriptions[like], owned=(), generation_id=-1, group_instance_id=None)
            subscriptions[f"n{generation_id}-{len(subscriptions)}"] = said
        case "leaves" if subscriptions:
            del subscriptions[chance.choice(sorted(subscriptions))]
        case "grows" if counts:
            counts[chance.choice(sorted(counts))] += 1
        case "goes" if counts:
            del counts[chance.choice(sorted(counts))]
    return GroupSpec(counts, subscriptions, later.replica_racks)


def _with_owned(spec: GroupSpec, owned_of: Mapping[str, tuple[tuple[TopicPartition, ...], int]]) -> GroupSpec:
    """The same group, in which members own this, by the generation that they name; the others nothing."""
    subscriptions = {}
    for member_id, said in spec.subscriptions.items():
        owned, generation_id = owned_of.get(member_id, ((), -1))
        subscriptions[member_id] = replace(said, owned=tuple(sorted(owned)), generation_id=generation_id)
    return GroupSpec(dict(spec.partitions_per_topic), subscriptions, dict(spec.replica_racks))


def _shuffled(chance: random.Random, spec: GroupSpec) -> GroupSpec:
    """The same question, with all in another order that has no meaning."""
    subscriptions = {
        member_id: replace(
            said,
            topics=tuple(chance.sample(said.topics, len(said.topics))),
            owned=tuple(chance.sample(said.owned, len(said.owned))),
        )
        for member_id, said in _in_any_order(chance, spec.subscriptions).items()
    }
    counts, racks = _in_any_order(chance, spec.partitions_per_topic), _in_any_order(chance, spec.replica_racks)
    return GroupSpec(counts, subscriptions, racks)


def _in_any_order(chance: random.Random, mapping: Mapping[str, V]) -> dict[str, V]:
    return dict(chance.sample(list(mapping.items()), len(mapping)))


# --- two answers -----------------------------------------------------------------------------------------------------


def _pickled(rule: type[Assignor] | Assignor, specs: list[GroupSpec]) -> bytes:
    kind = rule if isinstance(rule, type) else type(rule)
    why = "it stands in the program itself" if kind.__module__ == "__main__" else ""
    try:
        given = pickle.dumps((rule, specs))
    except Exception as error:  # whatever an instance holds
        why, given = str(error), b""
    if why:
        raise ValueError(
            f"the assignor cannot be asked in another process ({why}): define it at the top of a module, or pass"
            " elsewhere=False"
        )
    return given


def _sets(assignment: Assignment) -> dict[str, frozenset[TopicPartition]]:
    return {member_id: frozenset(share) for member_id, share in assignment.items()}


def _same(one: validity.Result, other: validity.Result) -> bool:
    return _sets(one.assignment) == _sets(other.assignment) and dict(one.user_data) == dict(other.user_data)


def _difference(one: validity.Result, other: validity.Result) -> str:
    first, second = _sets(one.assignment), _sets(other.assignment)
    for member_id in sorted(first):
        if differing := sorted(first[member_id] ^ second.get(member_id, frozenset())):
            return f"{_named(differing[0])} is given to {member_id} or not"
    return f"members are told {dict(one.user_data)} or {dict(other.user_data)}"


def _named(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"
