"""Nodes that decide by the rules alone, with states that come late: what they come to, and by how many steps."""

from collections import Counter
from itertools import pairwise

import pytest

from rallypoint.coordinator.core.cluster import decide as d
from rallypoint.coordinator.core.cluster import placement as p
from tests.coordinator.core.cluster.small_cluster import (
    DELAY_MAX_MS,
    KEYSPACES,
    LEASE_MS,
    STEP_TICKS_MAX,
    TICK_MS,
    Cluster,
)
from tests.sizes import by_size

SEEDS = by_size(10, 60, 2000)
QUIET_MS = 20_000
NAMES = ("n0", "n1", "n2", "n3", "n4")
RACKS = (None, "a", "b")
SEEN_WITHIN_MS = DELAY_MAX_MS + (STEP_TICKS_MAX + 1) * TICK_MS
"""From a change until the step that answers it is done, with no wait between."""


MEMBERS = 200


def disturb(cluster: Cluster) -> None:
    """One random thing that happens to a cluster."""
    random = cluster.random
    name = random.choice(NAMES)
    node = cluster.nodes.get(name)
    is_registered = name in cluster.placement.nodes
    if node is None:
        if is_registered and name not in cluster.store.view.nodes and random.random() < 0.4:
            cluster.put(p.without_node(cluster.placement, name))
        else:
            cluster.start(name, random.choice(RACKS))
        return
    match random.randrange(8):
        case 0 if len(cluster.nodes) > 1:
            cluster.kill(name)
        case 1 if len(cluster.nodes) > 1:
            cluster.stop(name)
        case 2:
            node.paused_until_ms = cluster.store.now_ms + random.randrange(0, 3 * LEASE_MS)
            node.is_renewing = random.random() < 0.5
        case 3:
            cluster.drain(name, is_draining=random.random() < 0.7)
        case 4 if is_registered:
            cluster.put(p.with_drain(cluster.placement, name, is_draining=random.random() < 0.7))
        case 5 if is_registered:
            cluster.put(p.with_preferred(cluster.placement, random.choice(KEYSPACES), name))
        case _:
            cluster.start(name, random.choice(RACKS))  # its process is restarted under the same id


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happened_in_quiet_every_keyspace_comes_to_its_first_node_and_stays(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.start("n0")
    for _ in range(30):
        cluster.run(cluster.random.choice((100, 500, 2_000, 5_000)))
        disturb(cluster)
    for node in cluster.nodes.values():
        node.paused_until_ms = 0
        node.is_renewing = True
    cluster.run(LEASE_MS + d.SETTLE_MS)
    before = len(cluster.store.handed_over)
    cluster.run(QUIET_MS)
    assert cluster.placement.nodes.keys() >= cluster.nodes.keys()
    assert cluster.misplaced() == []
    assert cluster.loaded_by_others() == []
    moves = Counter(keyspace for keyspace, *_ in cluster.store.handed_over[before:])
    assert all(count == 1 for count in moves.values()), "a keyspace went to and fro"
    if not cluster.all_drain():
        assert all(not node.loaded for name, node in cluster.nodes.items() if cluster.store.view.drains(name))
    at_rest = [len(node.steps) for node in cluster.nodes.values()]
    cluster.run(QUIET_MS)
    assert [len(node.steps) for node in cluster.nodes.values()] == at_rest, "a step at rest"


def three_nodes() -> Cluster:
    cluster = Cluster(1)
    for name in NAMES[:3]:
        cluster.start(name)
        cluster.run(8_000)
    assert cluster.misplaced() == []
    return cluster


def owned_by(cluster: Cluster, node_id: str) -> set[str]:
    return {keyspace for keyspace, owner in cluster.store.view.owners.items() if owner.node_id == node_id}


def test_a_join_hands_over_the_newcomer_s_share_and_nothing_else() -> None:
    cluster = three_nodes()
    before = len(cluster.store.handed_over)
    cluster.start("n3")
    started_ms = cluster.store.now_ms
    cluster.run(10_000)
    assert cluster.misplaced() == []
    handed = cluster.store.handed_over[before:]
    assert len(handed) == len(KEYSPACES) // 4
    assert {target for _, _, target, _ in handed} == {"n3"}
    assert all(at_ms >= started_ms + d.SETTLE_MS for *_, at_ms in handed)


def test_what_a_dead_node_had_is_taken_at_once_when_its_lease_has_run_out_and_shared_evenly() -> None:
    cluster = three_nodes()
    lost = owned_by(cluster, "n1")
    killed_ms = cluster.nodes["n1"].renewed_ms
    cluster.kill("n1")
    cluster.store.taken.clear()
    cluster.run(LEASE_MS + 2_000)
    assert len(lost) == 4
    assert sorted(keyspace for keyspace, *_ in cluster.store.taken) == sorted(lost)
    for _, _, at_ms, free_since_ms in cluster.store.taken:
        assert at_ms - free_since_ms <= SEEN_WITHIN_MS
        assert at_ms - killed_ms <= LEASE_MS + SEEN_WITHIN_MS + TICK_MS
    assert sorted(len(owned_by(cluster, name)) for name in ("n0", "n2")) == [6, 7]


def test_the_next_in_order_takes_what_the_one_before_does_not_take_after_a_turn() -> None:
    cluster = three_nodes()
    frozen = cluster.nodes["n0"]
    frozen.paused_until_ms = cluster.store.now_ms + 20_000
    frozen.is_renewing = True
    lost = owned_by(cluster, "n1")
    cluster.kill("n1")
    cluster.store.taken.clear()
    cluster.run(LEASE_MS + 2_000)
    assert {(keyspace, by) for keyspace, by, *_ in cluster.store.taken} == {(keyspace, "n2") for keyspace in lost}
    later = 0
    for keyspace, _, at_ms, free_since_ms in cluster.store.taken:
        turn = [each for each in cluster.placement.orders[keyspace] if each != "n1"].index("n2")
        later += turn
        assert turn * d.TURN_MS <= at_ms - free_since_ms <= turn * d.TURN_MS + SEEN_WITHIN_MS
    assert later > 0


@pytest.mark.parametrize("by_operator", [False, True])
def test_a_node_that_drains_hands_over_everything_even_to_one_that_is_young(by_operator: bool) -> None:
    cluster = three_nodes()
    cluster.kill("n2")
    cluster.run(LEASE_MS + 5_000)
    cluster.start("n2")
    if by_operator:
        cluster.put(p.with_drain(cluster.placement, "n0", is_draining=True))
    else:
        cluster.drain("n0")
    had = len(owned_by(cluster, "n0"))
    started_ms = cluster.store.now_ms
    cluster.run(d.SETTLE_MS - 200)
    assert had > d.HAND_OVERS_AT_ONCE_MAX
    assert not cluster.nodes["n0"].loaded
    assert any(target == "n2" and at_ms > started_ms for _, _, target, at_ms in cluster.store.handed_over)


def test_the_end_of_a_drain_brings_back_what_was_handed_over() -> None:
    cluster = three_nodes()
    had = owned_by(cluster, "n0")
    cluster.put(p.with_drain(cluster.placement, "n0", is_draining=True))
    cluster.run(5_000)
    assert owned_by(cluster, "n0") == set()
    cluster.put(p.with_drain(cluster.placement, "n0", is_draining=False))
    cluster.run(5_000)
    assert owned_by(cluster, "n0") == had


def test_somebody_serves_while_all_drain() -> None:
    cluster = three_nodes()
    for name in NAMES[:3]:
        cluster.drain(name)
    cluster.run(2_000)
    before = len(cluster.store.handed_over)
    cluster.run(5_000)
    assert len(cluster.store.handed_over) == before
    cluster.kill("n0")
    cluster.run(LEASE_MS + 3_000)
    assert cluster.store.view.owners.keys() == set(KEYSPACES)
    assert cluster.misplaced() == []


def test_a_node_that_flaps_pulls_nothing() -> None:
    cluster = three_nodes()
    cluster.kill("n1")
    cluster.run(LEASE_MS + 3_000)
    before = len(cluster.store.handed_over)
    for _ in range(5):
        cluster.start("n1")
        cluster.run(d.SETTLE_MS - 500)
        cluster.start("n1")  # again, under the same id, within the lease
        cluster.run(d.SETTLE_MS - 500)
        cluster.stop("n1")
        cluster.run(1_000)
    assert len(cluster.store.handed_over) == before


def test_a_node_that_comes_back_gets_back_what_it_had_and_nothing_else_moves() -> None:
    cluster = three_nodes()
    owners = {keyspace: owner.node_id for keyspace, owner in cluster.store.view.owners.items()}
    had = owned_by(cluster, "n1")
    cluster.kill("n1")
    cluster.run(LEASE_MS + 3_000)
    before = len(cluster.store.handed_over)
    cluster.start("n1")
    cluster.run(10_000)
    assert {keyspace: owner.node_id for keyspace, owner in cluster.store.view.owners.items()} == owners
    assert sorted(keyspace for keyspace, *_ in cluster.store.handed_over[before:]) == sorted(had)


def return_of_n1(*, frozen: str | None = None) -> list[tuple[str, int]]:
    """Who gave when while n1 came back, and everyone has shards of 200 members. `frozen`: a node that renews its lease,
    and does nothing else.
    """
    cluster = three_nodes()
    cluster.kill("n1")
    cluster.run(LEASE_MS + 3_000)
    for node in cluster.nodes.values():
        node.members = dict.fromkeys(KEYSPACES, MEMBERS)
    before = len(cluster.store.handed_over)
    cluster.start("n1")
    cluster.nodes["n1"].members = dict.fromkeys(KEYSPACES, MEMBERS)
    if frozen is not None:
        cluster.nodes[frozen].paused_until_ms = cluster.store.now_ms + 60_000
        cluster.nodes[frozen].is_renewing = True
    cluster.run(10_000)
    assert {target for _, _, target, _ in cluster.store.handed_over[before:]} == {"n1"}
    return [(giver, at_ms) for _, giver, _, at_ms in cluster.store.handed_over[before:]]


def test_two_nodes_that_give_to_one_that_came_back_do_so_in_turns() -> None:
    gifts = return_of_n1()
    assert {giver for giver, _ in gifts} == {"n0", "n2"}
    assert len(gifts) == 4
    apart_ms = [later - earlier for (_, earlier), (_, later) in pairwise(gifts)]
    assert min(apart_ms) >= MEMBERS * d.MOVED_MEMBER_MS - SEEN_WITHIN_MS / 2, "members come from two at once"
    assert max(apart_ms) <= 2 * MEMBERS * d.MOVED_MEMBER_MS + SEEN_WITHIN_MS


@pytest.mark.parametrize("frozen", ["n0", "n2"])
def test_a_node_that_gives_nothing_does_not_keep_another_one_from_giving(frozen: str) -> None:
    (all_gifts, gifts) = (return_of_n1(), return_of_n1(frozen=frozen))
    assert gifts
    assert Counter(giver for giver, _ in gifts) == {
        giver: count for giver, count in Counter(giver for giver, _ in all_gifts).items() if giver != frozen
    }


def test_a_node_that_was_paused_past_its_lease_drops_what_others_took() -> None:
    cluster = three_nodes()
    paused = cluster.nodes["n1"]
    had = owned_by(cluster, "n1")
    paused.paused_until_ms = cluster.store.now_ms + 3 * LEASE_MS
    paused.is_renewing = False
    cluster.run(2 * LEASE_MS)
    assert owned_by(cluster, "n1") == set()
    assert set(paused.loaded) == had
    cluster.run(LEASE_MS + SEEN_WITHIN_MS + TICK_MS)
    assert {step.keyspace for step in paused.steps if isinstance(step, d.Drop)} == had
    cluster.run(10_000)
    assert (cluster.misplaced(), owned_by(cluster, "n1")) == ([], had)


def test_a_removed_node_leaves_what_the_others_took_where_it_is() -> None:
    cluster = three_nodes()
    cluster.stop("n1")
    cluster.run(5_000)
    owners = dict(cluster.store.view.owners)
    cluster.put(p.without_node(cluster.placement, "n1"))
    cluster.run(5_000)
    assert cluster.store.view.owners == owners
    assert cluster.misplaced() == []


def test_a_node_in_another_rack_registers_that_and_moves_nothing() -> None:
    cluster = three_nodes()
    before = len(cluster.store.handed_over)
    owners = {keyspace: owner.node_id for keyspace, owner in cluster.store.view.owners.items()}
    cluster.start("n1", "a")
    cluster.run(5_000)
    assert cluster.placement.nodes["n1"].rack == "a"
    assert {keyspace: owner.node_id for keyspace, owner in cluster.store.view.owners.items()} == owners
    assert len(cluster.store.handed_over) == before
