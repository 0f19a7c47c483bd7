"""The documentation's examples that write: how each is run by two drivers, and how its records are counted.

An example that writes has a name, in the line that opens it, and an entry in SNIPPETS; or it is a part of a program in
`examples/`, whose own tests kill a driver and count. A new one without fails `test_spark_doc`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pyarrow.parquet as pq

from tests.real.parts import ROOT, whole_lines
from tests.spark_bridge.ledger import Place
from tests.spark_bridge.topic_fixture import TOPIC

BLOCK = re.compile(r"^```python *(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WRITES = re.compile(r"writeStream|\.write\b|\bbatches\(|foreachBatch|ExactlyOnce|only_owned")


@dataclass(frozen=True)
class Written:
    """Where a snippet of that name has written to: below `folder`, into the database, or away."""

    folder: Path
    conninfo: str
    sent: Sequence[Path]


def in_files(written: Written) -> Counter[Place]:
    """How often each record stands in the Parquet files that a reader sees."""
    found: Counter[Place] = Counter()
    for file in (written.folder / "clicks").glob("*.parquet"):
        for row in pq.read_table(file, columns=["topic", "partition", "offset"]).to_pylist():
            found[row["topic"], row["partition"], row["offset"]] += 1
    return found


def in_the_table(written: Written) -> Counter[Place]:
    """How often it stands in the table of that name."""
    with psycopg.connect(written.conninfo) as connection:
        return Counter(connection.execute('SELECT topic, "partition", "offset" FROM clicks').fetchall())


def as_counts(written: Written) -> Counter[Place]:
    """How often it was counted: each is a word of its own."""
    with psycopg.connect(written.conninfo) as connection:
        rows = connection.execute("SELECT word, count FROM words").fetchall()
    found: Counter[Place] = Counter()
    for word, count in rows:
        partition, offset = map(int, word.split("-"))
        found[TOPIC, partition, offset] += count
    return found


def as_sent(written: Written) -> Counter[Place]:
    """How often it was sent. AssertionError if one driver has sent it twice: none of them reads anything again."""
    found: Counter[Place] = Counter()
    for file in written.sent:
        sent = Counter(tuple(json.loads(line)) for line in whole_lines(file))
        assert set(sent.values()) <= {1}
        found += sent
    return found


@dataclass(frozen=True)
class Snippet:
    """`count`: how often each record is there. `replaced`: what must stand in it, and what stands there in a test;
    `before` and `after` are run with it.
    """

    count: Callable[[Written], Counter[Place]]
    replaced: Mapping[str, str] = field(default_factory=dict)
    before: str = ""
    after: str = ""
    topics: tuple[str, ...] = (TOPIC,)
    twice: bool = False
    """Whether a record may be there twice that a killed driver had in hand."""

    def text(self, written: str, common: Mapping[str, str]) -> str:
        """What is run of what is `written` in the documentation. `common` may stand in it."""
        for old, new in self.replaced.items():
            assert old in written, f"not in the example any more: {old}"
            written = written.replace(old, new)
        text = self.before + written + self.after
        for old, new in common.items():
            text = text.replace(old, new)
        return text


FILES = '.option("source", "files").option("path", "TOPICS").option("sessionTimeoutMs", 6000)'
SNIPPETS: dict[str, Snippet] = {
    "first": Snippet(
        in_files,
        {
            '.option("group", "clicks")': '.option("group", "first")',
            '.option("kafka.bootstrap.servers", "127.0.0.1:9092")': FILES,
        },
        topics=(TOPIC, "orders"),
    ),
    "files-sink": Snippet(in_files),
    "database-sink": Snippet(in_the_table, {"dbname=shop": "CONNINFO"}),
    "own-write": Snippet(
        as_counts,
        {"dbname=shop": "CONNINFO"},
        before=(
            "from rallypoint.spark_bridge.exactly_once import ExactlyOnce\n"
            "from rallypoint.spark_bridge.exactly_once.postgresql import PostgreSQL\n"
        ),
        after=(
            'rows = clicks.selectExpr("topic", "partition", "offset", "cast(value as string) word")\n'
            'query = rows.writeStream.foreachBatch(load).option("checkpointLocation", "/data/checkpoints/one")\n'
            "query = query.start()\n"
        ),
    ),
    "claims": Snippet(as_sent, {'8000", "clicks"': '8000", "claims"'}, twice=True),
    "batches": Snippet(
        in_files,
        {
            '"group": "clicks"': '"group": "batches"',
            '"source": "kafka"': '"source": "files"',
            '"kafka.bootstrap.servers": "127.0.0.1:9092"': '"path": "TOPICS", "sessionTimeoutMs": "6000"',
        },
    ),
}
"""In the order in which they are run: the one that does not return is the last."""

ON_A_CLUSTER = "cluster-driver"
"""The one that `test_spark_cluster` runs, where hosts die, too."""


def examples() -> list[tuple[str, str, str]]:
    """Of each example that writes, the page, its name or nothing, and its text."""
    return [
        (page.name, name, text)
        for page in sorted((ROOT / "docs").glob("*.md"))
        for name, text in BLOCK.findall(page.read_text("utf-8"))
        if WRITES.search(text)
    ]
