"""Where keyspaces are placed: balance, least movement, racks, who steps in, what is refused."""

from collections import Counter
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rallypoint.assignors.placement.replicas import place
from rallypoint.coordinator.core.cluster import placement as p
from rallypoint.coordinator.core.cluster.records import Placement, RegisteredNode
from rallypoint.coordinator.core.effects import Failure
from rallypoint.protocol.errors import ErrorCode
from tests.sizes import by_size

SHARDS = 50
EXAMPLES = by_size(20, 60, 1500)


def keyspaces(shards: int = SHARDS) -> tuple[str, ...]:
    return ("topics", *(f"shard-{shard}" for shard in range(shards)))


def grown(racks: list[str | None], shards: int = SHARDS) -> Placement:
    """A cluster that nodes joined one by one: n0, then n1, and so on."""
    placement = Placement()
    for at, rack in enumerate(racks):
        placement = p.with_node(placement, keyspaces(shards), f"n{at}", rack)
    return placement


def check_orders(placement: Placement, shards: int = SHARDS) -> None:
    assert set(placement.orders) == set(keyspaces(shards))
    for order in placement.orders.values():
        assert sorted(order) == sorted(placement.nodes)


def counts(placement: Placement, lost: frozenset[str] = frozenset()) -> list[int]:
    """How many keyspaces each survivor has once some nodes are lost."""
    owners = Counter(next(each for each in order if each not in lost) for order in placement.orders.values())
    return sorted(owners[node_id] for node_id in placement.nodes.keys() - lost)


def moved(before: Placement, after: Placement) -> dict[str, tuple[str, str]]:
    """Whose preferred node is another one: the former and the present one."""
    firsts = {name: (order[0], after.orders[name][0]) for name, order in before.orders.items()}
    return {name: pair for name, pair in firsts.items() if pair[0] != pair[1]}


RACKS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=8) | st.lists(st.none(), min_size=1, max_size=8)


@settings(max_examples=EXAMPLES, deadline=None)
@given(RACKS, st.integers(0, 120))
def test_a_join_moves_an_even_share_to_the_newcomer_and_nothing_else(racks: list[str | None], shards: int) -> None:
    before = grown(racks, shards)
    after = p.with_node(before, keyspaces(shards), "new", "b" if racks[0] else None)
    check_orders(after, shards)
    assert counts(after)[-1] - counts(after)[0] <= 1
    moves = moved(before, after)
    assert len(moves) == (shards + 1) // (len(racks) + 1)
    assert {to for _, to in moves.values()} <= {"new"}


def test_one_join_moves_what_is_ideal_where_kafka_s_formula_moves_three_times_as_much() -> None:
    ids = ["n0", "n1", "n2", "n3"]
    three, four = place(ids[:3], SHARDS, 3), place(ids, SHARDS, 4)
    assert sum(three[shard][0] != four[shard][0] for shard in range(SHARDS)) == 36
    before, after = grown([None] * 3), grown([None] * 4)
    moves = moved(before, after)
    assert len(moves) == 12
    assert "topics" not in moves, "the registry stays where it is"
    assert counts(after) == [12, 13, 13, 13]


def test_each_join_moves_its_share() -> None:
    sizes = [grown([None] * size) for size in range(1, 8)]
    assert [len(moved(*pair)) for pair in pairwise(sizes)] == [25, 17, 12, 10, 8, 7]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.booleans(), max_size=12), st.integers(0, 120), st.data())
def test_the_loss_of_any_node_leaves_the_others_even_whoever_came_and_went(
    comes: list[bool], shards: int, data: st.DataObject
) -> None:
    placement = grown([None, None], shards)
    for number, is_coming in enumerate(comes):
        if is_coming:
            placement = p.with_node(placement, keyspaces(shards), f"later-{number}", None)
        elif len(placement.nodes) > 2:
            placement = p.without_node(placement, data.draw(st.sampled_from(sorted(placement.nodes))))
        check_orders(placement, shards)
    for lost in placement.nodes:
        left = counts(placement, frozenset({lost}))
        assert left[-1] - left[0] <= 1


def test_so_does_the_loss_of_a_node_where_each_has_a_rack_of_its_own_or_all_have_the_same() -> None:
    for racks in (["a", "b", "c", "d"], ["a", "a", "a", "a"]):
        placement = grown([*racks])
        for lost in placement.nodes:
            assert counts(placement, frozenset({lost})) == [17, 17, 17]


@pytest.mark.parametrize(("size", "apart"), [(4, 9), (5, 8), (6, 6), (8, 4)])
def test_the_loss_of_two_nodes_leaves_the_others_no_further_apart_than_kafka_s_formula(size: int, apart: int) -> None:
    def furthest(placement: Placement) -> int:
        left = [counts(placement, frozenset(lost)) for lost in combinations(sorted(placement.nodes), 2)]
        return max(each[-1] - each[0] for each in left)

    ours = grown([None] * size)
    by_formula = place(sorted(ours.nodes), SHARDS + 1, size)
    assert furthest(ours) == apart
    assert apart <= furthest(Placement(ours.nodes, {f"shard-{at}": order for at, order in by_formula.items()}))


@pytest.mark.parametrize(
    ("racks", "apart"),
    [("abab", 9), ("aabb", 9), ("abcabc", 4), ("aabbcc", 4), ("abcab", 6), ("aab", 17)],
)
def test_with_racks_another_rack_counts_more_than_an_even_share(racks: str, apart: int) -> None:
    placement = grown([*racks])
    found = []
    for lost in placement.nodes:
        left = counts(placement, frozenset({lost}))
        found.append(left[-1] - left[0])
    assert max(found) == apart


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=2, max_size=8), st.data())
def test_every_rack_comes_once_before_one_comes_again_whatever_was_changed(
    racks: list[str | None], data: st.DataObject
) -> None:
    placement = grown(racks)
    changed = data.draw(st.sampled_from(sorted(placement.nodes)))
    placement = p.with_node(placement, keyspaces(), changed, data.draw(st.sampled_from(["a", "d"])))
    placement = p.with_preferred(placement, data.draw(st.sampled_from(keyspaces())), changed)
    if len(placement.nodes) > 2:
        placement = p.without_node(placement, data.draw(st.sampled_from(sorted(placement.nodes))))
        placement = p.with_preferred(placement, "topics", min(placement.nodes))
    check_orders(placement)
    rack_count = len({node.rack for node in placement.nodes.values()})
    for order in placement.orders.values():
        assert len({placement.nodes[node_id].rack for node_id in order[:rack_count]}) == rack_count


def test_racks_are_not_looked_at_while_one_is_unknown() -> None:
    with_a_gap = grown(["a", "a", "b", None])
    assert with_a_gap.orders == grown([None] * 4).orders
    assert with_a_gap.nodes["n0"] == RegisteredNode("a")


def test_a_node_in_another_rack_stays_preferred_for_what_it_was_and_stays_drained() -> None:
    before = p.with_drain(grown(["a", "b", "a", "b"]), "n1", is_draining=True)
    after = p.with_node(before, keyspaces(), "n1", "a")
    check_orders(after)
    assert moved(before, after) == {}
    assert after.nodes["n1"] == RegisteredNode("a", is_draining=True)
    assert after.orders != before.orders


def test_a_removed_node_leaves_its_keyspaces_to_the_next_in_order() -> None:
    before = grown([None] * 4)
    after = p.without_node(before, "n1")
    check_orders(after)
    for name, order in before.orders.items():
        assert after.orders[name][0] == next(each for each in order if each != "n1")
    assert p.without_node(grown([None]), "n0") == Placement()


def test_a_move_by_hand_changes_one_order() -> None:
    before = grown([None] * 3)
    target = before.orders["shard-7"][2]
    after = p.with_preferred(before, "shard-7", target)
    check_orders(after)
    assert after.orders["shard-7"][0] == target
    assert {name for name, order in after.orders.items() if order != before.orders[name]} == {"shard-7"}
    assert p.with_preferred(after, "shard-7", target) == after


def test_a_drain_changes_no_order() -> None:
    before = grown(["a", "b", "c"])
    drained = p.with_drain(before, "n1", is_draining=True)
    assert drained.nodes["n1"] == RegisteredNode("b", is_draining=True)
    assert drained.orders == before.orders
    assert p.with_drain(drained, "n1", is_draining=False) == before


def test_no_change_touches_the_placement_that_it_began_with() -> None:
    before, same = grown([None] * 3), grown([None] * 3)
    p.with_node(before, keyspaces(), "n3", "a")
    p.without_node(before, "n1")
    p.with_drain(before, "n1", is_draining=True)
    p.with_preferred(before, "shard-7", before.orders["shard-7"][2])
    assert before == same


FULL = Placement({f"n{at:03}": RegisteredNode() for at in range(p.NODES_MAX)}, {"topics": ()})


def test_one_node_more_than_may_be_registered_does_not_join() -> None:
    refused = p.why_not_joined(FULL, ["topics"], "more")
    assert isinstance(refused, Failure)
    assert (refused.code, refused.field) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "node_id")
    assert (refused.limit_name, refused.limit) == ("nodes_max", p.NODES_MAX)
    assert p.why_not_joined(FULL, ["topics"], "n000") is None


def test_nodes_do_not_join_beyond_the_placement_that_one_write_holds() -> None:
    shards = p.PLACES_MAX // 4 - 1
    three = Placement({f"n{at}": RegisteredNode() for at in range(3)}, dict.fromkeys(keyspaces(shards), ()))
    assert p.why_not_joined(three, keyspaces(shards), "n3") is None
    three = Placement(three.nodes, dict.fromkeys(keyspaces(shards + 1), ()))
    refused = p.why_not_joined(three, keyspaces(shards + 1), "n3")
    assert isinstance(refused, Failure)
    assert (refused.code, refused.field) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "shards")
    assert (refused.limit_name, refused.limit) == ("places_max", p.PLACES_MAX)
    assert p.why_not_joined(three, keyspaces(shards + 1), "n0") is None


@pytest.mark.parametrize("shards", [SHARDS - 1, SHARDS + 1])
@pytest.mark.parametrize("node_id", ["n0", "new"])
def test_a_node_with_another_number_of_shards_does_not_join(shards: int, node_id: str) -> None:
    refused = p.why_not_joined(grown([None]), keyspaces(shards), node_id)
    assert isinstance(refused, Failure)
    assert (refused.code, refused.field) == (ErrorCode.INVALID_REQUEST, "shards")
    assert f"The cluster has {SHARDS} shards, and this node is set to {shards};" in refused.detail
    assert p.why_not_joined(Placement(), keyspaces(shards), node_id) is None


def test_a_node_that_is_not_registered_is_named() -> None:
    assert p.why_not_registered(grown([None]), "n0") is None
    for placement in (grown([None]), Placement(), None):
        refused = p.why_not_registered(placement, "n7")
        assert isinstance(refused, Failure)
        assert (refused.code, refused.field) == (ErrorCode.BROKER_ID_NOT_REGISTERED, "node_id")


def test_as_many_nodes_as_may_be_registered_share_what_there_is() -> None:
    placement = grown([None] * p.NODES_MAX)
    check_orders(placement)
    assert counts(placement) == [0] * (p.NODES_MAX - SHARDS - 1) + [1] * (SHARDS + 1)
