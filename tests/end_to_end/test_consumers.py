"""Consumers on a service of its own process: partitions are handed over without a record lost or handled twice."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rallypoint import Batch, BlockingConsumer, ConsumerOptions
from rallypoint.member.sources.files import FilesSource
from rallypoint.member.sources.records import Record
from rallypoint.member.sources.writer import FilesWriter
from tests.end_to_end.service_process import ServiceProcess, running_service
from tests.sizes import in_long

QUICK = ("--group-initial-rebalance-delay-ms", "0")
PARTITIONS = 6
ROUNDS = 40


class Ledger:
    """Every record that was handled, and the last one of each partition."""

    def __init__(self) -> None:
        self.handled: Counter[bytes] = Counter()
        self.lasts: dict[int, int] = {}
        self.faults: list[str] = []
        self.lock = threading.Lock()

    def handler(self, name: str) -> Callable[[Batch[Record]], None]:
        def handle(batch: Batch[Record]) -> None:
            time.sleep(0.002)
            with self.lock:
                for record in batch.records:
                    assert record.value is not None
                    assert record.offset is not None
                    self.handled[record.value] += 1
                    if record.offset != self.lasts.get(batch.partition, -1) + 1:
                        self.faults.append(f"{name} handles {batch.partition}, {record.offset} out of order")
                    self.lasts[batch.partition] = record.offset

        return handle


def consumer(
    service: ServiceProcess, path: Path, ledger: Ledger, name: str, assignor: str, commit_mode: str
) -> BlockingConsumer[Record]:
    options = ConsumerOptions(
        coordinator=service.url,
        group_id="clicks",
        topics=("clicks",),
        client_id=name,
        assignors=(assignor,),
        commit_mode="batch" if commit_mode == "batch" else "interval",
        auto_commit_interval_ms=100_000,
        max_poll_records=3,
        idle_wait_ms=10,
        concurrency=2,
    )
    return BlockingConsumer(options, FilesSource(path), ledger.handler(name))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("assignor", "commit_mode"), [in_long("range", "interval"), ("cooperative-sticky", "interval"), ("range", "batch")]
)
def test_what_moves_between_consumers_is_handled_once_and_in_order(
    tmp_path: Path, assignor: str, commit_mode: str
) -> None:
    with running_service(tmp_path, *QUICK) as service:
        writer = FilesWriter(tmp_path / "topics", "clicks", PARTITIONS)
        ledger = Ledger()
        written: list[bytes] = []

        def write() -> None:
            for partition in range(PARTITIONS):
                values = [f"{partition}:{len(written)}:{n}".encode() for n in range(4)]
                writer.append(partition, [Record(value) for value in values])
                written.extend(values)

        def new(name: str) -> BlockingConsumer[Record]:
            return consumer(service, tmp_path / "topics", ledger, name, assignor, commit_mode)

        with new("a") as first:
            write()
            eventually(lambda: len(first.assignment) == PARTITIONS)
            for round_ in range(ROUNDS):
                write()
                if round_ == 10:
                    second = new("b")
                    second.start()
                if round_ == 30:
                    second.stop()
                time.sleep(0.02)
            eventually(lambda: len(first.assignment) == PARTITIONS)
            eventually(lambda: len(ledger.handled) == len(written))
        assert (first.error, second.error) == (None, None)
        assert ledger.faults == []
        assert ledger.handled == Counter(written), "each once"
        _, answer = service.send("GET", "/v1/groups/clicks/offsets")
        ends = {int(partition): one["offset"] for partition, one in answer["offsets"]["clicks"].items()}
        assert ends == dict.fromkeys(range(PARTITIONS), 4 * (ROUNDS + 1))
        assert service.stop() == 0
