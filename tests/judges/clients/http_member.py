"""A member of a group over Rallypoint's own API, among Kafka's clients: it says what it reads, then commits it.

`python -m tests.judges.clients.http_member SERVICE BOOTSTRAP GROUP TOPIC STRATEGY`. It reads the records from the
broker. Lines on standard output: as those of tests/judges/clients/consume.py.
"""

import sys
import time
from typing import Any

from rallypoint import Assignment, BlockingConsumer, ConsumerOptions, run
from rallypoint.sources import KafkaSource


class Owned:
    """The partitions that it has, said whenever they change."""

    def __init__(self) -> None:
        self._partitions: set[int] = set()

    def assigned(self, assignment: Assignment) -> None:
        self._change(self._partitions | {number for _, number in assignment.partitions})

    def revoked(self, assignment: Assignment) -> None:
        self._change(self._partitions - {number for _, number in assignment.partitions})

    def _change(self, partitions: set[int]) -> None:
        self._partitions = partitions
        print("assigned", time.time(), ",".join(map(str, sorted(partitions))), flush=True)


def handle(batch: Any) -> None:
    for record in batch.records:
        print("record", record.partition, record.offset, record.value.decode(), flush=True)


def main() -> None:
    """Until it is told to end."""
    service, bootstrap, group, topic, strategy = sys.argv[1:]
    owned = Owned()
    options = ConsumerOptions(
        coordinator=service,
        group_id=group,
        topics=(topic,),
        client_id="rallypoint",
        assignors=(strategy,),
        session_timeout_ms=6_000,
        commit_mode="batch",
        max_poll_records=50,
    )
    source = KafkaSource({"bootstrap.servers": bootstrap})
    run(
        BlockingConsumer(
            options, source, handle, on_assigned=owned.assigned, on_revoked=owned.revoked, on_lost=owned.revoked
        )
    )


if __name__ == "__main__":
    main()
