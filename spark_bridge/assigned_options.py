"""An assignment as options of Spark's own Kafka source, for queries that do not use this bridge's source.

The query reads these partitions until it is stopped. When the assignment changes, stop it and start another with the
new options and a **new checkpoint**. docs/spark-ways.md says what that costs.
"""

import json
from collections.abc import Iterable, Mapping

from rallypoint.spark_bridge.errors import NotAssigned
from rallypoint.spark_bridge.options import EARLIEST, LATEST

TopicPartition = tuple[str, int]

STARTS = {"earliest": EARLIEST, "latest": LATEST}


def kafka_options(
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    *,
    otherwise: str = "earliest",
) -> dict[str, str]:
    """`assign` and `startingOffsets` for `readStream.format("kafka").options(**…)`.

    `partitions`: those of the assignment.
    `committed`: the group's offsets, as from `GroupMember.committed`, for any partitions. Read them after the
    assignment, when the former owner has committed.
    `otherwise`: where a partition starts that was never committed: `earliest` or `latest`; otherwise ValueError.

    Raises NotAssigned if there are no partitions, because Spark takes no empty list: wait for the next assignment.
    """
    if otherwise not in STARTS:
        raise ValueError(f"otherwise: earliest or latest, not {otherwise!r}")
    owned = sorted(set(partitions))
    if not owned:
        raise NotAssigned("the assignment is empty, and Spark's Kafka source takes no empty one: wait for the next")
    assign: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    for topic, partition in owned:
        assign.setdefault(topic, []).append(partition)
        starts.setdefault(topic, {})[str(partition)] = committed.get((topic, partition), STARTS[otherwise])
    return {"assign": json.dumps(assign), "startingOffsets": json.dumps(starts)}
