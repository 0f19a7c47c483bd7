"""A pattern and the real registry: what is registered later is told to consumers, and they consume it at once."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from rallypoint import Batch, BlockingConsumer, ConsumerOptions
from rallypoint.member.testing import BlockingMemorySource
from tests.end_to_end.service_process import ServiceProcess, running_service


class UncountedSource:
    """Does not tell how many partitions there are, so that the registry is asked."""

    def __init__(self, source: BlockingMemorySource[str]) -> None:
        self.read, self.earliest, self.latest = source.read, source.earliest, source.latest


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def standing_of(service: ServiceProcess) -> tuple[str, int]:
    _, found = service.send("GET", "/v1/groups/g")
    return found.get("state", ""), len(found.get("members", ()))


def test_topics_that_come_grow_and_go_are_followed(tmp_path: Path) -> None:
    memory = BlockingMemorySource[str]({"clicks-a": 4, "clicks-b": 1, "orders": 1})
    memory.append("clicks-a", 3, "a")
    memory.append("clicks-b", 0, "b")
    memory.append("orders", 0, "never")
    seen: list[str] = []
    lock = threading.Lock()

    def handle(batch: Batch[str]) -> None:
        with lock:
            seen.extend(batch.records)

    with running_service(tmp_path, "--group-initial-rebalance-delay-ms", "0") as service:
        options = ConsumerOptions(
            coordinator=service.url,
            group_id="g",
            topics_pattern="clicks-.",
            metadata_max_age_ms=3_600_000,
            idle_wait_ms=10,
            assignors=("cooperative-sticky",),
        )
        consumers = [BlockingConsumer(options, UncountedSource(memory), handle) for _ in range(2)]

        def assigned() -> list[tuple[str, int]]:
            return sorted(tp for consumer in consumers for tp in consumer.assignment)

        with consumers[0], consumers[1]:
            # Who is still connecting when a topic comes is told nothing.
            eventually(lambda: standing_of(service) == ("Stable", 2))
            assert assigned() == []
            service.send("PUT", "/v1/topics/orders", {"partitions": 1})
            service.send("PUT", "/v1/topics/clicks-a", {"partitions": 2})
            eventually(lambda: assigned() == [("clicks-a", 0), ("clicks-a", 1)])
            service.send("PUT", "/v1/topics/clicks-a", {"partitions": 4})
            service.send("PUT", "/v1/topics/clicks-b", {"partitions": 1})
            eventually(lambda: assigned() == [("clicks-a", n) for n in range(4)] + [("clicks-b", 0)])
            eventually(lambda: sorted(seen) == ["a", "b"])
            service.send("DELETE", "/v1/topics/clicks-a")
            eventually(lambda: assigned() == [("clicks-b", 0)])
            assert [consumer.error for consumer in consumers] == [None, None]
        assert service.stop() == 0
