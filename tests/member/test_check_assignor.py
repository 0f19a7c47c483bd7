"""The check of assignors finds each of the wrong ones here, and nothing in our own."""

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar, Literal

import pytest
from pydantic import JsonValue

from rallypoint.assignors import registry
from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec
from rallypoint.assignors.cooperative_sticky import CooperativeStickyAssignor
from rallypoint.assignors.order import members_in_order, subscribers_by_topic
from rallypoint.assignors.roundrobin import RoundRobinAssignor
from rallypoint.assignors.sticky import StickyAssignor
from rallypoint.assignors.validity import owners_now
from rallypoint.member.testing import AssignorFault, check_assignor
from tests.sizes import by_size

RULE = RoundRobinAssignor()


class Right(Assignor):
    """What each wrong one would be without its fault."""

    name: ClassVar[str] = "mine"

    def assign(self, spec: GroupSpec) -> Assignment:
        return RULE.assign(spec)


class Cooperative(Right):
    protocol: ClassVar[Literal["eager", "cooperative"]] = "cooperative"

    def assign(self, spec: GroupSpec) -> Assignment:
        return CooperativeStickyAssignor().assign(spec)


# --- what it gives ---------------------------------------------------------------------------------------------------


class ForgetsToReturn(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        return None  # type: ignore[return-value] # as Python does where a return is forgotten


class LeavesOutWhoGetsNothing(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        return {member_id: share for member_id, share in RULE.assign(spec).items() if share}


class InventsAMember(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        return RULE.assign(spec) | {"nobody": ()}


class GivesTwice(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        given = RULE.assign(spec)
        first = members_in_order(spec.subscriptions)[:1]
        return given | {
            member_id: tuple(
                (topic, number)
                for topic in sorted(set(spec.subscriptions[member_id].topics) & spec.partitions_per_topic.keys())
                for number in range(spec.partitions_per_topic[topic])
            )
            for member_id in first
        }


class CountsFromOne(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        return {m: tuple((topic, number + 1) for topic, number in share) for m, share in RULE.assign(spec).items()}


class GivesUnasked(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        members = members_in_order(spec.subscriptions)
        given: Assignment = dict.fromkeys(members, ())
        for topic in subscribers_by_topic(spec, members):
            for number in range(spec.partitions_per_topic[topic]):
                given[members[number % len(members)]] += ((topic, number),)
        return given


class LosesTheRemainder(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        members = members_in_order(spec.subscriptions)
        given: Assignment = dict.fromkeys(members, ())
        for topic, subscribers in subscribers_by_topic(spec, members).items():
            size = spec.partitions_per_topic[topic] // len(subscribers)
            for index, member in enumerate(subscribers):
                given[members[member]] += tuple((topic, number) for number in range(index * size, (index + 1) * size))
        return given


class WorksWithPartitionsAsTexts(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        shares = RULE.assign(spec).items()
        return {m: tuple(f"{t}-{n}" for t, n in share) for m, share in shares}  # type: ignore[misc]


# --- what it makes of its question -----------------------------------------------------------------------------------


class TakesTopicsForExisting(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        for said in spec.subscriptions.values():
            sum(spec.partitions_per_topic[topic] for topic in said.topics)
        return RULE.assign(spec)


class DividesByNobody(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        sum(spec.partitions_per_topic.values()) // len(spec.subscriptions)
        return RULE.assign(spec)


class TrustsUserData(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        for said in spec.subscriptions.values():
            assert said.user_data is None or said.user_data["weights"] is not None  # type: ignore[index,call-overload]
        return RULE.assign(spec)


class TrustsClaims(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        given: dict[str, tuple[tuple[str, int], ...]] = {m: said.owned for m, said in spec.subscriptions.items()}
        return given if any(given.values()) else RULE.assign(spec)


class ChangesItsQuestion(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        given = RULE.assign(spec)
        assert isinstance(spec.partitions_per_topic, dict)
        spec.partitions_per_topic.clear()
        return given


class ForgetsWhatIsOwned(Cooperative):
    """Notes in its question whom it has dealt with, so that nothing there is owned any more."""

    def assign(self, spec: GroupSpec) -> Assignment:
        assert isinstance(spec.subscriptions, dict)
        for member_id, said in spec.subscriptions.items():
            spec.subscriptions[member_id] = replace(said, owned=())
        return RULE.assign(spec)


class ChangesItsQuestionAsItTells(Right):
    def user_data(self, spec: GroupSpec, assignment: Assignment) -> Mapping[str, JsonValue]:
        assert isinstance(spec.subscriptions, dict)
        spec.subscriptions.clear()
        return {}


class ReadsClaimsThoughItSaysNot(StickyAssignor):
    name: ClassVar[str] = "mine"
    reads_owned_partitions: ClassVar[bool] = False


# --- what it depends on ----------------------------------------------------------------------------------------------


class DrawsLots(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        given = RULE.assign(spec)
        shares = list(given.values())
        random.shuffle(shares)
        return dict(zip(given, shares, strict=True)) if _is_equal(spec) else given


class CountsItsCalls(Right):
    calls = count()

    def assign(self, spec: GroupSpec) -> Assignment:
        given = RULE.assign(spec)
        shares, turn = list(given.values()), next(self.calls) % max(1, len(given))
        return dict(zip(given, shares[turn:] + shares[:turn], strict=True)) if _is_equal(spec) else given


class GoesByTheOrderOfMembers(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        return _assigned_in_turn(spec, list(spec.subscriptions))


class GoesByTheOrderOfASet(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        return _assigned_in_turn(spec, list(set(members_in_order(spec.subscriptions))))


def _is_equal(spec: GroupSpec) -> bool:
    return len({frozenset(said.topics) for said in spec.subscriptions.values()}) == 1


def _assigned_in_turn(spec: GroupSpec, members: list[str]) -> Assignment:
    """By turns, to whoever is next in this order and asked for the topic."""
    given: Assignment = dict.fromkeys(members, ())
    for topic in sorted(spec.partitions_per_topic):
        subscribers = [member_id for member_id in members if topic in spec.subscriptions[member_id].topics]
        for number in range(spec.partitions_per_topic[topic] if subscribers else 0):
            given[subscribers[number % len(subscribers)]] += ((topic, number),)
    return given


# --- cooperative -----------------------------------------------------------------------------------------------------


class HoldsNothingBack(Cooperative):
    def assign(self, spec: GroupSpec) -> Assignment:
        return RULE.assign(spec)


class BelievesOldClaims(Cooperative):
    """Who comes first in line keeps what it says it owns, in whichever generation."""

    def assign(self, spec: GroupSpec) -> Assignment:
        owners_named: dict[tuple[str, int], list[str]] = {}
        members = members_in_order(spec.subscriptions)
        for member_id in members:
            for partition in spec.subscriptions[member_id].owned:
                owners_named.setdefault(partition, []).append(member_id)
        given: dict[str, list[tuple[str, int]]] = {member_id: [] for member_id in members}
        for topic, subscribers in subscribers_by_topic(spec, members).items():
            for number in range(spec.partitions_per_topic[topic]):
                owners = owners_named.get((topic, number), [])
                if not owners:
                    given[members[subscribers[number % len(subscribers)]]].append((topic, number))
                elif topic in spec.subscriptions[owners[0]].topics:
                    given[owners[0]].append((topic, number))
        return {member_id: tuple(share) for member_id, share in given.items()}


class NeverRests(Cooperative):
    """Holds back as it must, and moves something in every rebalance."""

    def assign(self, spec: GroupSpec) -> Assignment:
        owners, given = owners_now(spec), RULE.assign(spec)
        newest = max((said.generation_id for said in spec.subscriptions.values()), default=0)
        members = members_in_order(spec.subscriptions)
        turned = _assigned_in_turn(
            spec, members[newest % len(members) :] + members[: newest % len(members)] if members else []
        )
        assert given.keys() == turned.keys()
        return {m: tuple(one for one in share if owners.get(one, (m,)) == (m,)) for m, share in turned.items()}


class HoldsBackWhatNobodyOwns(Cooperative):
    def assign(self, spec: GroupSpec) -> Assignment:
        given = CooperativeStickyAssignor().assign(spec)
        return {member_id: share[:-1] if len(share) > 2 else share for member_id, share in given.items()}


# --- what it tells ---------------------------------------------------------------------------------------------------


class TellsAStranger(Right):
    def user_data(self, spec: GroupSpec, assignment: Assignment) -> Mapping[str, JsonValue]:
        return {"nobody": 1}


class TellsNoJson(Right):
    def user_data(self, spec: GroupSpec, assignment: Assignment) -> Mapping[str, JsonValue]:
        return {member_id: {1, 2} for member_id in assignment}  # type: ignore[misc] # as a program without types may


class GivesMoreAsItTells(Right):
    def user_data(self, spec: GroupSpec, assignment: Assignment) -> Mapping[str, JsonValue]:
        everything = tuple(one for share in assignment.values() for one in share)
        for member_id in assignment:
            assignment[member_id] = everything
        return {}


class TellsSomethingElseEachTime(Right):
    calls = count()

    def user_data(self, spec: GroupSpec, assignment: Assignment) -> Mapping[str, JsonValue]:
        return {member_id: next(self.calls) for member_id in assignment}


class Exits(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        raise SystemExit(3)


class Closes(Right):
    def assign(self, spec: GroupSpec) -> Assignment:
        raise GeneratorExit


WRONG: list[tuple[type[Assignor], str]] = [
    (ForgetsToReturn, "it returns None, not a mapping"),
    (LeavesOutWhoGetsNothing, "is a member, but is missing in the assignment"),
    (InventsAMember, "nobody gets partitions, but is no member"),
    (GivesTwice, "which another member gets, too"),
    (CountsFromOne, "which does not exist"),
    (GivesUnasked, "does not subscribe"),
    (LosesTheRemainder, "it gives .* to nobody"),
    (WorksWithPartitionsAsTexts, "not a pair of a topic and a number"),
    (TakesTopicsForExisting, "it raises KeyError"),
    (DividesByNobody, "it raises ZeroDivisionError"),
    (Exits, "it raises SystemExit: 3"),
    (Closes, "it raises GeneratorExit"),
    (TrustsUserData, "it raises (TypeError|KeyError|IndexError)"),
    (TrustsClaims, "gets|to nobody"),
    (ChangesItsQuestion, "it changes its question"),
    (ForgetsWhatIsOwned, "it changes its question|still owns"),
    (ChangesItsQuestionAsItTells, "it changes its question"),
    (ReadsClaimsThoughItSaysNot, "it looks at what members own, but reads_owned_partitions says not"),
    (
        DrawsLots,
        "it answers the same question in two ways|its answer depends on the (order of its question|process that asks)",
    ),
    (CountsItsCalls, "it answers the same question in two ways"),
    (GoesByTheOrderOfMembers, "its answer depends on the order of its question"),
    (GoesByTheOrderOfASet, "its answer depends on (the process that asks|the order of its question)"),
    (HoldsNothingBack, "still owns"),
    (BelievesOldClaims, "still owns"),
    (NeverRests, "after 10 rebalances without any change partitions still move"),
    (HoldsBackWhatNobodyOwns, "to nobody"),
    (TellsAStranger, "its user_data is for 'nobody', which is no member"),
    (TellsNoJson, "is no JSON value"),
    (GivesMoreAsItTells, "its user_data changes the assignment"),
    (TellsSomethingElseEachTime, "it answers the same question in two ways: members are told"),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG, ids=[wrong.__name__ for wrong, _ in WRONG])
def test_each_wrong_one_is_found_with_a_group_that_shows_it(wrong: type[Assignor], words: str) -> None:
    random.seed(1)  # what draws lots is found by chance, and may show itself in a larger group or in another way
    with pytest.raises(AssignorFault, match=f"the assignor '(mine)' is at fault: .*({words})") as caught:
        check_assignor(wrong)
    assert repr(caught.value.spec) in str(caught.value)
    assert len(caught.value.spec.subscriptions) <= 9


def test_most_are_found_whatever_the_seed() -> None:
    for seed in range(1, 6):
        for wrong in (GivesUnasked, HoldsNothingBack, BelievesOldClaims, NeverRests, GoesByTheOrderOfMembers):
            with pytest.raises(AssignorFault):
                check_assignor(wrong, seed=seed, elsewhere=False)


NAMES = registry.names(installed=())
ELSEWHERE = NAMES[: by_size(2, len(NAMES))]
"""Those that are tried in other processes as well, in each of which they are imported first."""


@pytest.mark.parametrize("name", NAMES)
def test_our_own_have_no_fault(name: str) -> None:
    def weights(chance: random.Random) -> dict[str, Any]:
        return {"weights": {topic: {str(number): chance.randint(0, 9) for number in range(4)} for topic in ("a", "b")}}

    check_assignor(name, groups=by_size(50, 200), user_data=weights, elsewhere=name in ELSEWHERE)


@pytest.mark.slow
def test_the_right_ones_among_the_wrong_have_none() -> None:
    check_assignor(Right())
    check_assignor(Cooperative, elsewhere=False)


def test_what_an_author_means_to_do_is_no_fault() -> None:
    check_assignor(LosesTheRemainder, assigns_all=False, elsewhere=False)
    check_assignor(DrawsLots, deterministic=False)


class Demanding(Right):
    def __init__(self, weight: int) -> None:
        self.hook = lambda: weight


def test_what_cannot_be_tried_is_said() -> None:
    class Local(Right):
        """Not to be imported from elsewhere."""

    check_assignor(Local, groups=20, elsewhere=False)
    with pytest.raises(ValueError, match=r"cannot be asked in another process .*: define it at the top of a module"):
        check_assignor(Local, groups=20)
    with pytest.raises(ValueError, match=r"cannot be asked in another process .*pickle"):
        check_assignor(Demanding(3), groups=20)
    with pytest.raises(registry.UnusableAssignor, match=r"^the assignor .* without arguments; pass an instance: "):
        check_assignor(Demanding)
