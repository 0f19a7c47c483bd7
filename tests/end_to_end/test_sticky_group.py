"""Members that give up everything before each join, the assignor `sticky`, and the service as a process.

What a member gave up it still names at its join, with the generation in which it had it, or the leader would know
nothing to keep.
"""

from collections.abc import Mapping
from pathlib import Path

from rallypoint import Assignment, GroupMember, MemberOptions
from tests.end_to_end.service_process import ServiceProcess, running_service

QUICK = ("--group-initial-rebalance-delay-ms", "0")
WAIT_MS = 20_000


def member_of(service: ServiceProcess, name: str, *topics: str) -> GroupMember:
    return GroupMember(
        MemberOptions(
            coordinator=service.url, group_id="clicks", topics=topics, client_id=name, assignors=("sticky", "range")
        )
    )


async def settled(members: Mapping[str, GroupMember], newer_than: int) -> tuple[int, dict[str, Assignment]]:
    """The first later generation that all of them are in, and what each has in it."""
    while True:
        held = {name: await member.wait_assigned(WAIT_MS, newer_than=newer_than) for name, member in members.items()}
        generations = {assignment.generation_id for assignment in held.values()}
        if len(generations) == 1:
            return generations.pop(), held
        newer_than = max(generations) - 1


def moved(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    """How many partitions are not with whom they were, of those members that are in both."""
    return sum(len(before[name].partitions - after[name].partitions) for name in before.keys() & after.keys())


def sizes(held: Mapping[str, Assignment]) -> list[int]:
    assert len({partition for one in held.values() for partition in one.partitions}) == 12
    return sorted(len(assignment.partitions) for assignment in held.values())


async def test_only_what_must_moves_when_a_third_joins_and_leaves(tmp_path: Path) -> None:
    with running_service(tmp_path, *QUICK) as service:
        for topic, partitions in (("clicks", 7), ("views", 5)):
            assert service.send("PUT", f"/v1/topics/{topic}", {"partitions": partitions})[0] == 200
        a, b, c = (member_of(service, name, "clicks", "views") for name in "abc")
        async with a:
            generation, _ = await settled({"a": a}, -1)
            async with b:
                generation, two = await settled({"a": a, "b": b}, generation)
                assert sizes(two) == [6, 6]
                assert {held.protocol_name for held in two.values()} == {"sticky"}
                async with c:
                    generation, three = await settled({"a": a, "b": b, "c": c}, generation)
                    assert sizes(three) == [4, 4, 4]
                    assert moved(two, three) == 4  # the newcomer's share; the others exchange nothing
                generation, again = await settled({"a": a, "b": b}, generation)
                assert sizes(again) == [6, 6]
                assert moved(three, again) == 0
        assert service.stop() == 0


async def test_different_subscriptions_stay_as_they_are_where_a_topic_grows(tmp_path: Path) -> None:
    """A rebalance that nobody's membership caused, of members of which one cannot take part in what is new."""
    with running_service(tmp_path, *QUICK) as service:
        for topic, partitions in (("clicks", 4), ("views", 4)):
            assert service.send("PUT", f"/v1/topics/{topic}", {"partitions": partitions})[0] == 200
        members = {"a": member_of(service, "a", "clicks"), "b": member_of(service, "b", "clicks", "views")}
        async with members["a"], members["b"]:
            generation, before = await settled(members, -1)
            while len(before["b"].partitions | before["a"].partitions) < 8:
                generation, before = await settled(members, generation)
            assert (len(before["a"].partitions), len(before["b"].partitions)) == (4, 4)
            assert service.send("PUT", "/v1/topics/views", {"partitions": 8})[0] == 200
            generation, after = await settled(members, generation)
            assert sizes(after) == [4, 8]
            assert moved(before, after) == 0
        assert service.stop() == 0
