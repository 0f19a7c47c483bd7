"""Single decisions of a node: who takes, hands over and drops what, what is held back, when it looks again."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from rallypoint.coordinator.core.cluster import decide as d
from rallypoint.coordinator.core.cluster.placement import NODES_MAX, with_drain
from rallypoint.coordinator.core.cluster.records import NodeAnnouncement, Placement, RegisteredNode
from rallypoint.protocol.errors import ErrorCode

A, B, C = (NodeAnnouncement(each, f"http://{each}", None, "1", 1, 0, 7) for each in "abc")
KEYSPACES = ("topics", "shard-0")
NODES = {"a": A, "b": B, "c": C}
PLACEMENT = Placement(
    {node_id: RegisteredNode() for node_id in "abc"}, {"topics": ("a", "b", "c"), "shard-0": ("b", "c", "a")}
)
OWNERS = {"topics": d.OwnedBy("a", 11), "shard-0": d.OwnedBy("a", 12)}
VIEW = d.ClusterView(20, NODES, OWNERS, PLACEMENT, 10)
LOADED: dict[str, int | None] = {"topics": 11, "shard-0": 12}
HAND_OVER = d.HandOver("shard-0", "b")


def here(
    node: NodeAnnouncement = A,
    loaded: Mapping[str, int | None] = LOADED,
    busy: Mapping[str, int | None] | None = None,
) -> d.Here:
    return d.Here(node, KEYSPACES, loaded, busy or {})


def remembering(*views: d.ClusterView, at_ms: int = 0) -> d.Memory:
    """A memory that saw these states at one instant."""
    memory = d.Memory()
    for view in views:
        memory.observe(view, at_ms)
    return memory


def drained(*node_ids: str, by_operator: bool = False) -> d.ClusterView:
    if not by_operator:
        return replace(VIEW, nodes={**NODES, **{each: replace(NODES[each], is_draining=True) for each in node_ids}})
    placement = PLACEMENT
    for node_id in node_ids:
        placement = with_drain(placement, node_id, is_draining=True)
    return replace(VIEW, placement=placement)


# --- taking ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("node", "turns"), [(A, 2), (B, 0), (C, 1)])
def test_what_nobody_owns_is_taken_in_turn(node: NodeAnnouncement, turns: int) -> None:
    view = replace(VIEW, owners={"topics": OWNERS["topics"]})
    memory = remembering(VIEW)
    memory.observe(view, 5_000)
    loaded: dict[str, int | None] = {"topics": 11} if node is A else {}
    due_ms = 5_000 + turns * d.TURN_MS
    assert d.next_steps(here(node, loaded), view, memory, due_ms) == d.NextSteps((d.Take("shard-0"),), None)
    if turns:
        assert d.next_steps(here(node, loaded), view, memory, due_ms - 1) == d.NextSteps((), due_ms)


def test_the_turns_are_those_of_the_nodes_that_run_and_do_not_drain() -> None:
    for view in (
        replace(VIEW, nodes={"a": A}, owners={}),
        replace(drained("b", "c"), owners={}),
        replace(drained("b", "c", by_operator=True), owners={}),
    ):
        steps = d.next_steps(here(loaded={}), view, remembering(view), 0)
        assert steps == d.NextSteps((d.Take("topics"), d.Take("shard-0")), None)


def test_a_node_that_drains_takes_nothing_while_another_one_can() -> None:
    for view in (drained("a"), drained("a", by_operator=True)):
        free = replace(view, owners={})
        assert d.next_steps(here(loaded={}), free, remembering(free), 60_000) == d.NextSteps((), None)


def test_where_every_node_drains_they_take_and_keep() -> None:
    view = drained("a", "b", "c")
    assert d.next_steps(here(), view, remembering(view), 60_000) == d.NextSteps((), None)
    free = replace(view, owners={})
    assert d.next_steps(here(B, {}), free, remembering(free), 0) == d.NextSteps((d.Take("shard-0"),), d.TURN_MS)


def test_a_turn_counts_from_when_the_keyspace_was_first_seen_without_an_owner() -> None:
    free = replace(VIEW, owners={})
    memory = remembering(free, at_ms=1_000)
    memory.observe(replace(free, revision=21), 1_400)
    assert d.next_steps(here(C, {}), free, memory, 1_000 + d.TURN_MS).steps == (d.Take("shard-0"),)
    memory.observe(VIEW, 2_000)
    memory.observe(free, 3_000)
    assert d.next_steps(here(C, {}), free, memory, 3_499) == d.NextSteps((), 3_500)


def test_what_was_handed_to_this_node_is_loaded_at_once_wherever_it_belongs() -> None:
    owners = {"topics": d.OwnedBy("c", 15), "shard-0": d.OwnedBy("c", 16)}
    view = replace(VIEW, owners=owners)
    assert d.next_steps(here(C, {}), view, remembering(view), 0).steps == (d.Take("topics"), d.Take("shard-0"))


def test_what_could_not_be_taken_is_left_alone_for_a_while() -> None:
    for view in (VIEW, replace(VIEW, owners={"shard-0": d.OwnedBy("a", 12)})):
        memory = remembering(view)
        memory.tried("topics", 5_000)
        loaded: dict[str, int | None] = {"shard-0": None}
        due_ms = 5_000 + d.TRIED_AGAIN_MS
        assert d.next_steps(here(loaded=loaded), view, memory, due_ms - 1) == d.NextSteps((), due_ms)
        assert d.next_steps(here(loaded=loaded), view, memory, due_ms) == d.NextSteps((d.Take("topics"),), None)


def test_what_was_handed_over_is_left_alone_until_the_state_shows_it_and_taken_at_once_when_it_comes_back() -> None:
    memory = remembering(VIEW)
    memory.handed_over("topics", 11, 5_000)
    due_ms = 5_000 + d.TRIED_AGAIN_MS
    loaded: dict[str, int | None] = {"shard-0": None}
    before = replace(VIEW, owners={"topics": d.OwnedBy("a", 11)})
    assert d.next_steps(here(loaded=loaded), before, memory, 5_001) == d.NextSteps((), due_ms)
    back = replace(VIEW, owners={"topics": d.OwnedBy("a", 12)})
    assert d.next_steps(here(loaded=loaded), back, memory, 5_001) == d.NextSteps((d.Take("topics"),), None)
    memory.tried("topics", 5_002)
    assert d.next_steps(here(loaded=loaded), back, memory, 5_003) == d.NextSteps((), 5_002 + d.TRIED_AGAIN_MS)


def test_what_is_being_acquired_is_not_taken_twice() -> None:
    free = replace(VIEW, owners={})
    assert d.next_steps(here(loaded=dict.fromkeys(KEYSPACES)), free, remembering(free), 60_000).steps == ()
    assert d.next_steps(here(loaded={}, busy=dict.fromkeys(KEYSPACES)), free, remembering(free), 0).steps == ()


def test_a_node_of_another_format_s_major_version_neither_counts_nor_gets_anything() -> None:
    newer = {"b": replace(B, format_major=2), "c": replace(C, format_major=2)}
    view = replace(VIEW, nodes={"a": A, **newer})
    assert d.next_steps(here(), view, remembering(view), 60_000) == d.NextSteps((), None)
    free = replace(view, owners={})
    assert d.next_steps(here(loaded={}), free, remembering(free), 0).steps == (d.Take("topics"), d.Take("shard-0"))


def test_a_minor_version_makes_no_difference() -> None:
    view = replace(VIEW, nodes={**NODES, "b": replace(B, format_minor=9)})
    assert d.next_steps(here(), view, remembering(view), 0).steps == (HAND_OVER,)


def test_a_state_that_shows_the_former_process_of_another_format_hands_nothing_over() -> None:
    view = replace(VIEW, nodes={"a": replace(A, format_major=2), "b": replace(B, format_major=2)})
    assert d.next_steps(here(), view, remembering(view), 60_000) == d.NextSteps((), None)


# --- handing over ----------------------------------------------------------------------------------------------------


def test_a_node_that_came_gets_what_is_its_own_once_it_has_settled() -> None:
    memory = remembering(replace(VIEW, nodes={"a": A, "c": C}))
    memory.observe(VIEW, 5_000)
    due_ms = 5_000 + d.SETTLE_MS
    assert d.next_steps(here(), VIEW, memory, due_ms - 1) == d.NextSteps((), due_ms)
    assert d.next_steps(here(), VIEW, memory, due_ms) == d.NextSteps((HAND_OVER,), None)


def test_nodes_that_were_there_before_this_one_have_settled() -> None:
    assert d.next_steps(here(), VIEW, remembering(VIEW), 0) == d.NextSteps((HAND_OVER,), None)


def test_a_node_whose_process_was_restarted_settles_again_and_one_that_announces_more_does_not() -> None:
    memory = remembering(VIEW)
    more = replace(VIEW, nodes={**NODES, "b": replace(B, deletions_seen=3, seen_epoch=9)})
    memory.observe(more, 5_000)
    assert d.next_steps(here(), more, memory, 5_000).steps == (HAND_OVER,)
    restarted = replace(VIEW, nodes={**NODES, "b": replace(B, started_at_ms=8)})
    memory.observe(restarted, 6_000)
    assert d.next_steps(here(), restarted, memory, 6_000) == d.NextSteps((), 6_000 + d.SETTLE_MS)


def test_a_node_that_was_away_settles_again() -> None:
    memory = remembering(VIEW, replace(VIEW, nodes={"a": A, "c": C}))
    memory.observe(VIEW, 5_000)
    assert d.next_steps(here(), VIEW, memory, 5_000) == d.NextSteps((), 5_000 + d.SETTLE_MS)


@pytest.mark.parametrize("by_operator", [False, True])
def test_a_node_that_drains_hands_over_at_once_even_to_one_that_has_just_come(by_operator: bool) -> None:
    view = drained("a", by_operator=by_operator)
    memory = remembering(replace(view, nodes={"a": view.nodes["a"]}))
    memory.observe(view, 5_000)
    steps = d.next_steps(here(view.nodes["a"]), view, memory, 5_000)
    assert steps == d.NextSteps((d.HandOver("topics", "b"), HAND_OVER), None)


@pytest.mark.parametrize("by_operator", [False, True])
def test_what_a_node_that_drains_should_have_goes_to_the_next_in_order(by_operator: bool) -> None:
    view = drained("b", by_operator=by_operator)
    assert d.next_steps(here(), view, remembering(view), 0).steps == (d.HandOver("shard-0", "c"),)


def test_a_hand_over_that_failed_waits_even_while_draining() -> None:
    view = drained("a")
    memory = remembering(view)
    memory.tried("shard-0", 5_000)
    due_ms = 5_000 + d.TRIED_AGAIN_MS
    early = d.next_steps(here(view.nodes["a"]), view, memory, due_ms - 1)
    assert early == d.NextSteps((d.HandOver("topics", "b"),), due_ms)
    assert HAND_OVER in d.next_steps(here(view.nodes["a"]), view, memory, due_ms).steps


def test_what_is_still_being_acquired_is_not_handed_over() -> None:
    steps = d.next_steps(here(loaded={"topics": 11, "shard-0": None}), VIEW, remembering(VIEW), 60_000)
    assert steps == d.NextSteps((), None)


def test_few_hand_overs_are_under_way_at_a_time() -> None:
    names = tuple(f"shard-{number}" for number in range(10))
    placement = Placement(PLACEMENT.nodes, dict.fromkeys(names, ("b", "a", "c")))
    view = d.ClusterView(20, NODES, {name: d.OwnedBy("a", 9) for name in names}, placement, 10)
    for under_way in range(d.HAND_OVERS_AT_ONCE_MAX + 1):
        busy: dict[str, int | None] = {**dict.fromkeys(names[:under_way], 0), "shard-9": None}
        steps = d.next_steps(d.Here(A, names, dict.fromkeys(names, 9), busy), view, remembering(view), 0).steps
        begun = names[under_way : d.HAND_OVERS_AT_ONCE_MAX]
        assert steps == tuple(d.HandOver(name, "b") for name in begun)


def test_hand_overs_of_many_members_come_one_after_the_other() -> None:
    names = tuple(f"shard-{number}" for number in range(4))
    placement = Placement(PLACEMENT.nodes, dict.fromkeys(names, ("b", "a", "c")))
    view = d.ClusterView(20, NODES, {name: d.OwnedBy("a", 9) for name in names}, placement, 10)
    members = dict(zip(names, (d.MEMBERS_AT_ONCE_MAX - 100, 100, 1, 0), strict=True))

    def due(memory: d.Memory, busy: Mapping[str, int | None], now_ms: int) -> d.NextSteps:
        return d.next_steps(d.Here(A, names, dict.fromkeys(names, 9), busy, members), view, memory, now_ms)

    begun = ("shard-0", "shard-1", "shard-3")
    assert due(remembering(view), {}, 0).steps == tuple(d.HandOver(name, "b") for name in begun)
    assert due(remembering(view), {"shard-0": d.MEMBERS_AT_ONCE_MAX}, 0).steps == (d.HandOver("shard-3", "b"),)
    too_many = {"shard-0": d.MEMBERS_AT_ONCE_MAX + 1}
    assert due(remembering(view), too_many, 0) == d.NextSteps((), None), "its end is the next time to look"
    members["shard-0"] = 100 * d.MEMBERS_AT_ONCE_MAX
    assert due(remembering(view), {}, 0).steps == (d.HandOver("shard-0", "b"),), "one alone may have any number"


@pytest.mark.parametrize(
    ("members_take_ms", "wait_ms"), [(0, 0), (0.4, 0), (200, 200), (199.6, 200), (10**9, d.MOVED_MEMBERS_MAX_MS)]
)
def test_the_next_hand_over_leaves_the_members_of_the_last_one_their_time(members_take_ms: float, wait_ms: int) -> None:
    view = replace(drained("a"), owners={"shard-0": d.OwnedBy("a", 12)})
    memory = remembering(view)
    memory.handed_over("topics", 11, 5_000, members_take_ms)
    loaded: dict[str, int | None] = {"shard-0": 12}
    if wait_ms:
        early = d.next_steps(here(view.nodes["a"], loaded), view, memory, 5_000 + wait_ms - 1)
        assert early == d.NextSteps((), 5_000 + wait_ms)
    assert d.next_steps(here(view.nodes["a"], loaded), view, memory, 5_000 + wait_ms).steps == (HAND_OVER,)
    memory.handed_over("shard-7", 9, 5_000, members_take_ms)
    assert memory.hand_overs_from_ms == 5_000 + 2 * wait_ms, "of two that end together, too"


def test_the_more_members_a_node_that_stops_has_the_less_it_waits_for_each() -> None:
    assert [d.moved_member_ms(members, 3_000) for members in (0, 1, 1_500)] == [d.MOVED_MEMBER_MS] * 3
    assert d.moved_member_ms(3_000, 3_000) == 1
    assert d.moved_member_ms(12_000, 3_000) == 0.25
    assert [d.moved_member_ms(12_000, left_ms) for left_ms in (0, -1)] == [0, 0], "its time is over"


def test_who_stops_waits_no_more_for_the_members_of_a_drain_before() -> None:
    view = replace(drained("a"), owners={"shard-0": d.OwnedBy("a", 12)})
    memory = remembering(view)
    memory.handed_over("topics", 11, 5_000, d.MOVED_MEMBERS_MAX_MS)
    loaded: dict[str, int | None] = {"shard-0": 12}
    assert d.next_steps(here(view.nodes["a"], loaded), view, memory, 5_001).steps == ()
    memory.hurry(5_001)
    assert d.next_steps(here(view.nodes["a"], loaded), view, memory, 5_001).steps == (HAND_OVER,)
    memory.hurry(9_000)
    assert memory.hand_overs_from_ms == 5_001, "it waits for nothing that was over"


def test_what_another_node_owns_is_its_business() -> None:
    view = replace(VIEW, owners=dict.fromkeys(KEYSPACES, d.OwnedBy("c", 15)))
    for node in (A, B):
        assert d.next_steps(here(node, {}), view, remembering(view), 60_000) == d.NextSteps((), None)
    gone = replace(view, nodes={"a": A, "b": B})
    assert d.next_steps(here(loaded={}), gone, remembering(gone), 60_000).steps == (), "its lease may still live"


# --- several nodes that give to one ----------------------------------------------------------------------------------

SHARDS = tuple(f"shard-{number}" for number in range(4))
MEMBERS = 100
WAIT_MS = round(MEMBERS * d.MOVED_MEMBER_MS)
CAME_MS = 5_000
BEGIN_MS = CAME_MS + d.SETTLE_MS


def given_to_b(owners: str, **nodes: NodeAnnouncement) -> d.ClusterView:
    """Shards that b should own. `owners`: a letter for each. `nodes`: in place of those of that name."""
    placement = Placement(PLACEMENT.nodes, dict.fromkeys(SHARDS, ("b", "a", "c")))
    owned = {name: d.OwnedBy(node_id, 9) for name, node_id in zip(SHARDS, owners, strict=True)}
    return d.ClusterView(20, {**NODES, **nodes}, owned, placement, 10)


def watching(*views: tuple[int, d.ClusterView]) -> d.Memory:
    """A memory of b's coming, and then of these states at their instants."""
    (_, first), *_ = views
    memory = remembering(
        replace(first, nodes={node_id: node for node_id, node in first.nodes.items() if node_id != "b"})
    )
    for at_ms, view in ((CAME_MS, first), *views):
        memory.observe(view, at_ms)
    return memory


def given(
    node: NodeAnnouncement, view: d.ClusterView, memory: d.Memory, now_ms: int, members: int = MEMBERS
) -> d.NextSteps:
    """What the node gives then of what it owns, which is loaded; every shard has so many members."""
    loaded: dict[str, int | None] = {name: 9 for name, one in view.owners.items() if one.node_id == node.node_id}
    counts = dict.fromkeys(SHARDS, members)
    return d.next_steps(d.Here(node, SHARDS, loaded, {}, counts), view, memory, now_ms)


def test_who_gives_to_a_node_that_came_leaves_the_first_turn_to_the_owner_of_the_first() -> None:
    view = given_to_b("aacc")
    memory = watching((CAME_MS, view))
    first, second = d.HandOver("shard-0", "b"), d.HandOver("shard-2", "b")
    assert given(A, view, memory, BEGIN_MS - 1) == d.NextSteps((), BEGIN_MS)
    assert given(A, view, memory, BEGIN_MS).steps[0] == first
    assert given(C, view, memory, BEGIN_MS + WAIT_MS - 1) == d.NextSteps((), BEGIN_MS + WAIT_MS)
    assert given(C, view, memory, BEGIN_MS + WAIT_MS).steps[0] == second, "it waits no longer for a node that is slow"


def test_who_gives_leaves_the_members_of_what_another_node_gave_their_time() -> None:
    before, view = given_to_b("acac"), given_to_b("bcac")
    memory = watching((CAME_MS, before), (BEGIN_MS + 50, view))
    free_ms = BEGIN_MS + 50 + WAIT_MS
    assert given(C, view, memory, free_ms - 1) == d.NextSteps((), free_ms)
    assert given(C, view, memory, free_ms) == d.NextSteps((d.HandOver("shard-1", "b"),), free_ms + WAIT_MS)
    assert given(A, view, memory, free_ms) == d.NextSteps((), free_ms + WAIT_MS), "it is c's turn"
    assert given(A, view, memory, free_ms + WAIT_MS).steps == (d.HandOver("shard-2", "b"),)


def test_a_node_that_gives_nothing_delays_the_others_by_one_turn_however_much_it_has() -> None:
    view = given_to_b("aaac")
    memory = watching((CAME_MS, view))
    assert given(C, view, memory, BEGIN_MS).look_again_ms == BEGIN_MS + WAIT_MS


def test_a_shard_of_very_many_members_waits_no_longer_than_the_longest_turns() -> None:
    before, view = given_to_b("aaac"), given_to_b("baac")
    memory = watching((CAME_MS, before), (BEGIN_MS, view))
    due_ms = BEGIN_MS + 2 * d.MOVED_MEMBERS_MAX_MS
    assert given(C, view, memory, BEGIN_MS, members=10**6).look_again_ms == due_ms


def test_a_shard_without_members_takes_no_turn() -> None:
    before, view = given_to_b("aaac"), given_to_b("baac")
    memory = watching((CAME_MS, before), (BEGIN_MS, view))
    assert given(C, view, memory, BEGIN_MS, members=0).steps == (d.HandOver("shard-3", "b"),)


def test_turns_begin_anew_when_the_placement_has_changed() -> None:
    before = replace(given_to_b("aacc"), placement=Placement(PLACEMENT.nodes, dict.fromkeys(SHARDS, ("a", "b", "c"))))
    view = replace(given_to_b("aacc"), placement_revision=19)
    memory = remembering(before)
    memory.observe(view, 60_000)
    assert given(A, view, memory, 60_000).steps[0] == d.HandOver("shard-0", "b")
    assert given(C, view, memory, 60_000) == d.NextSteps((), 60_000 + WAIT_MS)


def test_a_node_that_drains_waits_for_no_turn() -> None:
    node = replace(C, is_draining=True)
    before, view = given_to_b("aaac", c=node), given_to_b("baac", c=node)
    memory = watching((CAME_MS, before), (CAME_MS, view))
    assert given(node, view, memory, CAME_MS).steps == (d.HandOver("shard-3", "b"),)


def test_what_is_given_to_another_node_takes_no_turn() -> None:
    view = given_to_b("aaac")
    orders = {**dict.fromkeys(SHARDS, ("c", "b", "a")), "shard-3": ("b", "a", "c")}
    view = replace(view, placement=Placement(PLACEMENT.nodes, orders))
    assert given(C, view, watching((CAME_MS, view)), BEGIN_MS).steps == (d.HandOver("shard-3", "b"),)


def test_what_nodes_owned_in_the_first_state_has_not_just_come_to_them_and_who_is_gone_is_forgotten() -> None:
    view = given_to_b("abca")
    memory = remembering(view)
    assert (memory.got_at_ms, memory.placed_at_ms) == ({}, 0)
    later = given_to_b("bcca")
    memory.observe(later, 7_000)
    memory.observe(given_to_b("ccca"), 8_000)
    assert memory.got_at_ms == {"b": 7_000, "c": 8_000}
    memory.observe(replace(given_to_b("ccca"), nodes={"a": A, "c": C}), 9_000)
    assert memory.got_at_ms == {"c": 8_000}


# --- dropping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", [None, d.OwnedBy("b", 15), d.OwnedBy("a", 15)])
def test_what_is_not_this_node_s_under_its_epoch_is_dropped(owner: d.OwnedBy | None) -> None:
    view = replace(VIEW, owners={"shard-0": OWNERS["shard-0"]} | ({} if owner is None else {"topics": owner}))
    steps = d.next_steps(here(), view, remembering(view), 0).steps
    assert steps == (d.Drop("topics"), HAND_OVER)


def test_what_is_dropped_is_not_handed_over_too() -> None:
    view = replace(VIEW, owners={**OWNERS, "shard-0": d.OwnedBy("a", 15)})
    assert d.next_steps(here(), view, remembering(view), 0).steps == (d.Drop("shard-0"),)


def test_a_state_from_before_the_acquisition_takes_nothing_away() -> None:
    free = replace(VIEW, owners={})
    for epoch, steps in ((None, ()), (21, ()), (20, (d.Drop("topics"),))):
        loaded: dict[str, int | None] = {"topics": epoch, "shard-0": None}
        assert d.next_steps(here(loaded=loaded), free, remembering(free), 60_000).steps == steps


def test_what_a_step_is_under_way_about_is_not_dropped() -> None:
    lost = replace(VIEW, owners={})
    for is_hand_over in (False, True):
        busy = dict.fromkeys(KEYSPACES, 0 if is_hand_over else None)
        assert d.next_steps(here(busy=busy), lost, remembering(lost), 0) == d.NextSteps((), None)


def test_a_node_that_is_not_announced_only_drops() -> None:
    away = replace(VIEW, nodes={"b": B}, owners={})
    assert d.next_steps(here(), away, remembering(away), 60_000) == d.NextSteps(
        (d.Drop("topics"), d.Drop("shard-0")), None
    )
    assert d.next_steps(here(loaded={}), away, remembering(away), 60_000) == d.NextSteps((), None)
    assert d.next_steps(here(loaded={}), d.ClusterView(), d.Memory(), 0) == d.NextSteps((), None)


# --- registering -----------------------------------------------------------------------------------------------------


def test_a_node_registers_before_it_does_anything_else() -> None:
    first = d.ClusterView(5, {"a": A})
    orders = dict.fromkeys(KEYSPACES, ("a",))
    registered = d.Register(Placement({"a": RegisteredNode()}, orders), 0)
    assert d.next_steps(here(loaded={}), first, remembering(first), 0) == d.NextSteps((registered,), None)
    newcomer = replace(A, node_id="d", rack="west")
    view = replace(VIEW, nodes={**NODES, "d": newcomer}, owners={})
    (step,) = d.next_steps(here(newcomer, {}), view, remembering(view), 60_000).steps
    assert isinstance(step, d.Register)
    assert (step.revision, step.placement.nodes["d"]) == (10, RegisteredNode("west"))


def test_a_node_in_another_rack_registers_that() -> None:
    moved = replace(A, rack="east")
    view = replace(VIEW, nodes={**NODES, "a": moved})
    (step,) = d.next_steps(here(moved), view, remembering(view), 60_000).steps
    assert isinstance(step, d.Register)
    assert step.placement.nodes["a"].rack == "east"
    assert [order[0] for order in step.placement.orders.values()] == ["a", "b"]


def test_a_node_that_there_is_no_room_for_is_told_so_and_drops_what_it_lost() -> None:
    nodes = {f"n{at}": RegisteredNode() for at in range(NODES_MAX)}
    full = Placement(nodes, dict.fromkeys(KEYSPACES, tuple(nodes)))
    view = replace(VIEW, placement=full, owners={"shard-0": OWNERS["shard-0"]})
    found = d.next_steps(here(), view, remembering(view), 60_000)
    assert (found.steps, found.look_again_ms) == ((d.Drop("topics"),), None)
    assert found.refusal is not None
    assert (found.refusal.code, found.refusal.limit) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, NODES_MAX)


@pytest.mark.parametrize("keyspaces", [("topics",), (*KEYSPACES, "shard-1")])
@pytest.mark.parametrize("node", [A, replace(A, node_id="d")])
def test_a_node_with_another_number_of_shards_takes_nothing(keyspaces: tuple[str, ...], node: NodeAnnouncement) -> None:
    view = replace(VIEW, nodes={**NODES, node.node_id: node}, owners={})
    found = d.next_steps(d.Here(node, keyspaces, {}, {}), view, remembering(view), 60_000)
    assert found.steps == ()
    assert found.refusal is not None
    assert found.refusal.field == "shards"


# --- what is known ---------------------------------------------------------------------------------------------------


def test_the_owner_is_known_while_it_runs() -> None:
    assert VIEW.owner_of("topics") == A
    assert replace(VIEW, nodes={"b": B}).owner_of("topics") is None
    assert VIEW.owner_of("shard-9") is None


def test_who_drains_is_told_by_the_node_or_by_an_operator() -> None:
    assert [drained("b").drains(node_id) for node_id in "abc"] == [False, True, False]
    assert [drained("c", by_operator=True).drains(node_id) for node_id in "abc"] == [False, False, True]
    assert not VIEW.drains("unheard-of")
