"""The rules for queues as assignors of a group, and what they refuse. Their jars' answers: test_queue_oracles.py."""

import pytest

from rallypoint.assignors import registry
from rallypoint.assignors.contract import GroupSpec, MemberSubscription
from rallypoint.assignors.other_systems import metaq, rocketmq
from rallypoint.assignors.other_systems.allocation import AllocationError, Ring
from rallypoint.assignors.other_systems.rocketmq import MessageQueue
from rallypoint.assignors.range import RangeAssignor

NAMES = [name for name in registry.names(()) if name.startswith(("metaq-", "rocketmq-"))]
HASHES = [name for name in NAMES if name.endswith("-consistent-hash")]
RUNS = ["metaq-default", "rocketmq-averagely"]

MIXED = GroupSpec(
    {"t0": 12, "t1": 7, "t10": 3, "empty": 0, "unwanted": 4},
    {
        "b": MemberSubscription(("t0", "t1", "empty")),
        "a": MemberSubscription(("t0", "t1", "t10")),
        "c": MemberSubscription(("t0", "gone"), "static"),
        "d": MemberSubscription(()),
    },
)


def owners(spec: GroupSpec, name: str) -> dict[tuple[str, int], str]:
    return {one: member for member, share in registry.find(name, ()).assign(spec).items() for one in share}


@pytest.mark.parametrize("name", NAMES)
def test_every_subscribed_partition_goes_once_to_a_subscriber(name: str) -> None:
    given = registry.find(name, ()).assign(MIXED)
    assert list(given) == ["c", "a", "b", "d"]
    assert all(list(share) == sorted(share) for share in given.values())
    assert all({topic for topic, _ in share} <= set(MIXED.subscriptions[m].topics) for m, share in given.items())
    everything = [one for share in given.values() for one in share]
    assert sorted(everything) == [(t, n) for t, count in [("t0", 12), ("t1", 7), ("t10", 3)] for n in range(count)]


@pytest.mark.parametrize("name", RUNS)
def test_in_runs_they_give_what_range_gives(name: str) -> None:
    assert registry.find(name, ()).assign(MIXED) == RangeAssignor().assign(MIXED)


def test_the_circle_begins_again_with_each_topic() -> None:
    both = MemberSubscription(("t0", "t1"))
    given = registry.find("rocketmq-averagely-by-circle", ()).assign(
        GroupSpec({"t0": 3, "t1": 3}, {"a": both, "b": both})
    )
    assert given == {"a": (("t0", 0), ("t0", 2), ("t1", 0), ("t1", 2)), "b": (("t0", 1), ("t1", 1))}


@pytest.mark.parametrize("name", HASHES)
def test_on_a_circle_only_the_partitions_of_who_leaves_move(name: str) -> None:
    everyone = {f"m{n}": MemberSubscription(("t",)) for n in range(6)}
    before = owners(GroupSpec({"t": 200}, everyone), name)
    for leaver in everyone:
        after = owners(GroupSpec({"t": 200}, {m: s for m, s in everyone.items() if m != leaver}), name)
        moved = {one for one in before if before[one] != after[one]}
        assert moved == {one for one in before if before[one] == leaver}
    assert len(set(before.values())) == 6


@pytest.mark.parametrize("name", HASHES)
def test_a_static_member_that_comes_back_has_its_old_partitions(name: str) -> None:
    others = {f"m{n}": MemberSubscription(("t",)) for n in range(3)}
    before = owners(GroupSpec({"t": 60}, {**others, "old-id": MemberSubscription(("t",), "node-7")}), name)
    after = owners(GroupSpec({"t": 60}, {**others, "a-new-id": MemberSubscription(("t",), "node-7")}), name)
    assert {one: "a-new-id" if member == "old-id" else member for one, member in before.items()} == after
    assert "a-new-id" in after.values()


def test_a_partition_of_a_group_is_a_queue_of_the_documented_name() -> None:
    members = {f"m{n}": MemberSubscription(("t",)) for n in range(5)}
    spec = GroupSpec({"t": 40}, members)
    by_metaq = metaq.allocate_by_hash([f"0-{n}" for n in range(40)], sorted(members))
    assert owners(spec, "metaq-consistent-hash") == {
        ("t", int(name.removeprefix("0-"))): member for member, share in by_metaq.items() for name in share
    }
    queues = [MessageQueue("t", "broker-a", n) for n in range(40)]
    by_rocketmq = rocketmq.allocate_by_hash(queues, sorted(members))
    assert owners(spec, "rocketmq-consistent-hash") == {
        ("t", queue.queue_id): member for member, share in by_rocketmq.items() for queue in share
    }


def test_metaq_hashes_no_topic_so_numbers_stay_together() -> None:
    both = {f"m{n}": MemberSubscription(("t", "u")) for n in range(4)}
    given = owners(GroupSpec({"t": 30, "u": 20}, both), "metaq-consistent-hash")
    assert all(given["t", n] == given["u", n] for n in range(20))


@pytest.mark.parametrize(
    ("queues", "consumers", "virtual_nodes", "sentence"),
    [
        (1, [], 10, "consumers: there are none to assign queues to"),
        (1, ["a", "b", "a"], 10, "consumers: 'a' is listed twice"),
        (1, ["a", ""], 10, "consumers: one id is empty"),
        (0, ["a"], 10, "queues: there are none to assign"),
        (1, ["a"], 0, "virtual_nodes: a consumer needs at least 1 point on the ring, not 0"),
    ],
)
def test_what_rocketmq_refuses_is_refused_with_a_sentence(
    queues: int, consumers: list[str], virtual_nodes: int, sentence: str
) -> None:
    with pytest.raises(AllocationError, match=f"^{sentence}$"):
        rocketmq.allocate_by_hash([MessageQueue("t", "b", n) for n in range(queues)], consumers, virtual_nodes)


def test_metaq_needs_consumers_and_each_once() -> None:
    for rule in (metaq.allocate_default, metaq.allocate_by_hash):
        assert rule([], ["a"]) == {"a": ()}
        with pytest.raises(AllocationError, match="there are none"):
            rule(["0-0"], [])
        with pytest.raises(AllocationError, match="twice"):
            rule(["0-0"], ["a", "a"])


def test_a_point_of_the_ring_is_its_own_owner_and_the_end_goes_on_at_the_beginning() -> None:
    ring = Ring([(10, 0), (20, 1), (30, 2), (20, 3)])
    assert [ring.owner(point) for point in (0, 10, 11, 20, 21, 30, 31)] == [0, 0, 3, 3, 2, 2, 0]
