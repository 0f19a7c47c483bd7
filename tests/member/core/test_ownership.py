"""What is owned, given up, kept and named in a join, without any call."""

from dataclasses import replace

import pytest

from rallypoint.assignors.cooperative_sticky import CooperativeStickyAssignor
from rallypoint.assignors.range import RangeAssignor
from rallypoint.member.assignment import Assignment
from rallypoint.member.core.ownership import OWNS_NOTHING, Ownership, is_cooperative

A, B, C, D = (("clicks", number) for number in range(4))


def given(generation_id: int, *partitions: tuple[str, int]) -> Assignment:
    return Assignment(generation_id, "m-1", False, "cooperative-sticky", frozenset(partitions))


def owning(*partitions: tuple[str, int], cooperative: bool = True) -> Ownership:
    owned = Ownership(cooperative=cooperative)
    assert owned.take(given(1, *partitions)) == given(1, *partitions)
    return owned


def test_only_a_list_of_cooperative_rules_makes_a_cooperative_member() -> None:
    sticky, plain = CooperativeStickyAssignor(), RangeAssignor()
    assert is_cooperative([sticky])
    assert not is_cooperative([sticky, plain])
    assert not is_cooperative([plain, sticky])


def test_a_new_assignment_is_what_is_revoked_kept_and_added() -> None:
    owned = owning(A, B)
    new = given(2, B, C)
    assert owned.revoked_by(new) == {A}
    owned.promise(new)
    assert owned.assignment == given(2, A, B), "what is added is not owned before the rest is given up"
    assert owned.give_up(frozenset({A})) == replace(given(2, A), kept=frozenset({B}))
    assert owned.owned_for_join() == (frozenset({A, B}), 2)
    owned.gave_up()
    assert owned.take(new) == replace(given(2, C), kept=frozenset({B}))
    assert owned.assignment == new
    assert owned.owned_for_join() == (frozenset({B, C}), 2)


def test_an_eager_member_names_what_it_gave_up_and_nothing_that_it_lost() -> None:
    owned = owning(A, B, cooperative=False)
    assert owned.owned_for_join() == OWNS_NOTHING, "what it has not given up it may not be asked about"
    assert owned.give_up(frozenset({A, B})) == given(1, A, B)
    owned.gave_up()
    assert (owned.assignment, owned.owned_for_join()) == (None, (frozenset({A, B}), 1))
    assert owned.lose() is None
    assert owned.owned_for_join() == OWNS_NOTHING


def test_a_loss_while_a_part_is_given_up_is_of_the_rest() -> None:
    owned = owning(A, B, C)
    owned.promise(given(2, B, C, D))
    owned.give_up(frozenset({A}))
    assert owned.lose() == given(2, B, C)
    assert (owned.assignment, owned.promised) == (given(2, A), None)
    assert owned.lose() is None, "told once"
    owned.gave_up()
    assert owned.lose() == given(2), "nothing is left"
    assert owned.owned_for_join() == OWNS_NOTHING


@pytest.mark.parametrize(
    ("partitions", "generation_id", "owned_since"),
    [
        ([A], None, True),
        ([A], 1, True),
        ([A], 3, True),
        ([C], 1, False),  # given in 2
        ([C], 2, True),
        ([A, C], 1, False),
        ([B], None, False),  # revoked in 2
        ([B], 1, False),
        ([A], 4, False),  # not heard of yet
        ([A], 0, False),
    ],
)
def test_records_count_if_their_partition_was_owned_all_the_time_since_they_were_read(
    partitions: list[tuple[str, int]], generation_id: int | None, owned_since: bool
) -> None:
    owned = owning(A, B)
    owned.promise(given(2, A, C))
    owned.give_up(frozenset({B}))
    owned.gave_up()
    owned.take(given(2, A, C))
    owned.take(given(3, A, C))
    assert (owned.objection_to(partitions, generation_id) is None) == owned_since


def test_a_partition_that_comes_back_is_owned_since_then() -> None:
    owned = owning(A, B)
    owned.give_up(frozenset({B}))
    assert owned.objection_to([B], 1) is None, "until on_revoked returns"
    owned.gave_up()
    owned.take(given(2, A))
    owned.take(given(3, A, B))
    assert owned.objection_to([B], 1) is not None
    assert owned.objection_to([B], 3) is None


def test_an_eager_member_commits_under_its_own_generation_alone() -> None:
    owned = owning(A, cooperative=False)
    assert owned.objection_to([A, D], 1) is None, "which partitions it commits is its own affair"
    assert owned.objection_to([A], None) is None
    assert owned.objection_to([A], 2) == "this member has no assignment of generation 2 any more"


def test_what_on_assigned_failed_on_is_owned_no_more() -> None:
    owned = owning(A)
    owned.take(given(2, A, B))
    owned.fail(2)
    assert owned.assignment == given(2, A)
