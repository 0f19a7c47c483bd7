"""What is read, and by which group: a topic of files, a group of the service, and the ledger of what was written."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from rallypoint.spark_bridge.sources.files import FilesWriter, Record
from tests.spark_bridge.ledger import Ledger, TopicPartition, value_of

TOPIC = "clicks"
PARTITIONS = 4


class TopicFixture:
    """The directory `path` with one topic; the group has the same name. Nothing here knows Spark."""

    def __init__(self, url: str, path: Path, partitions: int = PARTITIONS) -> None:
        self.url = url
        self.path = path
        self.group = path.name
        self.ledger = Ledger()
        self.writer = FilesWriter(path, TOPIC, partitions)
        self.ends = [0] * partitions

    def produce(self, records: int) -> None:
        """Append so many records to each partition."""
        for partition, end in enumerate(self.ends):
            new = [Record(value=value_of(partition, offset)) for offset in range(end, end + records)]
            assert self.writer.append(partition, new) == end
            self.ends[partition] = end + records

    def grow(self, partitions: int) -> None:
        """Let the topic have more partitions."""
        self.writer.grow(partitions)
        self.ends += [0] * (partitions - len(self.ends))

    @property
    def produced(self) -> int:
        """How many records there are."""
        return sum(self.ends)

    @property
    def ends_by_partition(self) -> dict[TopicPartition, int]:
        """Where each partition ends."""
        return {(TOPIC, partition): end for partition, end in enumerate(self.ends)}

    def options(self, **more: str) -> dict[str, str]:
        """Those of a query or loop that reads all of it. An empty one is left out."""
        given = {
            "coordinator": self.url,
            "group": self.group,
            "source": "files",
            "path": str(self.path),
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            **more,
        }
        return {name: value for name, value in given.items() if value}

    def committed(self) -> list[int]:
        """What the group has committed, in order of the partitions; those that nobody committed are left out."""
        return committed(self.url, self.group)

    def members(self) -> int:
        """How many the group has."""
        return len(describe(self.url, self.group)["members"])

    def check_exactly(self) -> None:
        """Every record is written, and by one batch."""
        self.ledger.check(self.ends_by_partition)


def describe(urls: str, group: str) -> dict[str, Any]:
    """The group as the service shows it. `urls`: of its nodes, with commas."""
    value: dict[str, Any] = _ask(urls, f"/v1/groups/{group}")
    return value


def committed(urls: str, group: str) -> list[int]:
    """The offsets of a group that reads one topic, in order of its partitions. `urls`: of the nodes, with commas."""
    topics = _ask(urls, f"/v1/groups/{group}/offsets")["offsets"]
    return [some[name]["offset"] for some in topics.values() for name in sorted(some, key=int)]


def _ask(urls: str, path: str) -> Any:
    """What the group's coordinator answers, among these nodes. Raises the error of the last one asked."""
    *others, last = urls.split(",")
    for url in others:
        with suppress(OSError), urlopen(url + path, timeout=10) as answer:
            return json.load(answer)
    with urlopen(last + path, timeout=10) as answer:
        return json.load(answer)
