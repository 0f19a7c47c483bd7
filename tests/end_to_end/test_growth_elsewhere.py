"""Topics that are counted outside the service grow while the static leader is away; at its return it finds that."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import pytest

from rallypoint import Batch, BlockingConsumer, BlockingGroupMember, ConsumerOptions, MemberOptions
from rallypoint.member.testing import BlockingMemorySource
from tests.end_to_end.service_process import ServiceProcess, running_service

FOUR = [("clicks", n) for n in range(4)]
SIX = [("clicks", n) for n in range(6)]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service"), "--group-initial-rebalance-delay-ms", "0") as service:
        yield service
        assert service.stop() == 0


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("kind", ["function", "mapping"])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_growth_while_the_static_leader_was_away_is_found_at_its_return(
    service: ServiceProcess, assignor: str, kind: str
) -> None:
    """`metadata_max_age_ms` is an hour: it is found because the leader is back, not because it looks now and then."""
    counts = {"clicks": 4}

    def ask(topics: frozenset[str]) -> Mapping[str, int]:
        return dict(counts)

    def member(name: str) -> BlockingGroupMember:
        options = MemberOptions(
            coordinator=service.url,
            group_id=f"{assignor}-{kind}",
            topics=("clicks",),
            group_instance_id=name,
            assignors=(assignor,),
            metadata_max_age_ms=3_600_000,
        )
        return BlockingGroupMember(options, partition_counts=ask if kind == "function" else dict(counts))

    def held(*members: BlockingGroupMember) -> list[tuple[str, int]]:
        """By all of them together, in one generation; nothing where they are in several."""
        found = [one.assignment for one in members]
        if None in found or len({one.generation_id for one in found if one is not None}) > 1:
            return []
        return sorted(tp for one in found if one is not None for tp in one.partitions)

    others = [member("b")] if assignor == "range" else []
    leader = member("a")
    leader.start()
    leader.wait_assigned(30_000)
    with ExitStack() as stack:
        for other in others:
            stack.enter_context(other)
        eventually(lambda: held(leader, *others) == FOUR)
        assert leader.assignment is not None
        assert leader.assignment.leader
        generation_id = leader.assignment.generation_id
        leader.leave(stay=True)
        with member("a") as again:
            eventually(lambda: held(again, *others) == FOUR)
            assert again.wait_assigned(30_000).generation_id == generation_id, "a restart that finds nothing new"
        counts["clicks"] = 6
        with member("a") as again:
            eventually(lambda: held(again, *others) == SIX)


def test_a_consumer_that_returns_reads_the_partitions_that_came_meanwhile(service: ServiceProcess) -> None:
    memory = BlockingMemorySource[str]({"clicks": 4})
    seen: list[str] = []

    def handle(batch: Batch[str]) -> None:
        seen.extend(batch.records)

    options = ConsumerOptions(
        coordinator=service.url,
        group_id="consumers",
        topics=("clicks",),
        group_instance_id="a",
        metadata_max_age_ms=3_600_000,
        idle_wait_ms=10,
    )
    with BlockingConsumer(options, memory, handle) as consumer:
        eventually(lambda: sorted(consumer.assignment) == FOUR)
    memory.grow("clicks", 6)
    memory.append("clicks", 5, "new")
    with BlockingConsumer(options, memory, handle) as consumer:
        eventually(lambda: seen == ["new"])
        assert sorted(consumer.assignment) == SIX


def test_what_has_grown_is_committed_before_the_next_report_of_ends(service: ServiceProcess) -> None:
    """Ends are reported once an hour, so the service knows of the new partitions because the leader found them."""
    counts, source = {"grown": 2}, BlockingMemorySource[str]({"grown": 4})
    source.append("grown", 0, "a")
    source.append("grown", 3, "x")
    seen: list[str] = []

    def handle(batch: Batch[str]) -> None:
        seen.extend(batch.records)

    def consumer() -> BlockingConsumer[str]:
        options = ConsumerOptions(
            coordinator=service.url,
            group_id="grown",
            topics=("grown",),
            metadata_max_age_ms=200,
            report_interval_ms=3_600_000,
            idle_wait_ms=5,
        )
        return BlockingConsumer(options, source, handle, partition_counts=lambda topics: dict(counts))

    with consumer() as first:
        eventually(lambda: len(first.positions) == 2)
        eventually(lambda: first.committed([("grown", 0)]) != {})
        counts["grown"] = 4
        eventually(lambda: first.committed([("grown", 3)]) != {})
    with consumer() as second:
        eventually(lambda: len(second.positions) == 4)
        assert second.position(("grown", 3)) == 1
    assert seen == ["a", "x"], "the next owner handles nothing again"
