"""The query of docs/spark.md, written for Spark's own Kafka source, and after the three lines are changed.

Before it, it runs on the PySpark that the connector was released with; after it, on two drivers of the one in use. Both
are given the same records of a real broker.
"""

import os
import re
import sys
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.real.parts import ROOT

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from confluent_kafka import Producer

from tests.real.kafka import create_topic
from tests.real.spark_kafka import SparkPair
from tests.spark_bridge.running_query import Row, running_query, wait_for
from tests.spark_bridge.spark_run import running_service
from tests.spark_bridge.topic_fixture import describe

PARTITIONS = 4


def before_and_after() -> tuple[str, str]:
    """The two texts of the diff."""
    found = re.search(r"^```diff\n(.*?)^```$", (ROOT / "docs" / "spark.md").read_text("utf-8"), re.M | re.S)
    assert found is not None
    lines = found[1].splitlines()
    return tuple("\n".join(line[1:] for line in lines if line[0] != other) for other in "+-")  # type: ignore[return-value]


def test_three_lines_make_the_difference() -> None:
    before, after = (text.splitlines() for text in before_and_after())
    assert [line.strip() for line in before if line not in after] == ['.format("kafka")']
    assert [line.strip().partition(",")[0] for line in after if line not in before] == [
        '.format("rallypoint")', '.option("coordinator"', '.option("group"',
    ]  # fmt: skip


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_query_for_sparks_own_source_runs_on_two_drivers_after_the_change_of_three_lines(
    kafka_bootstrap_servers: str, spark_pair: SparkPair, tmp_path: Path
) -> None:
    topic = f"clicks-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_bootstrap_servers, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0})

    # Old enough, and the broker would delete them within minutes: it goes by the records' own times.
    began_ms = int(time.time() * 1000)

    def produce(start: int, end: int) -> None:
        for number in range(start, end):
            headers: list[tuple[str, str | bytes | None]] = [("number", b"%d" % number)] if number % 3 else []
            producer.produce(
                topic, b"page-%d" % number, None if number % 5 == 0 else b"user-%d" % (number % 7),
                partition=number % PARTITIONS, timestamp=began_ms + number, headers=headers,
            )  # fmt: skip
        assert producer.flush(30) == 0

    with running_service(tmp_path) as url:
        before, after = (
            text.replace("127.0.0.1:9092", kafka_bootstrap_servers)
            .replace("http://127.0.0.1:8000", url)
            .replace('"clicks"', f'"{topic}"')
            for text in before_and_after()
        )
        produce(0, 200)
        own = {**os.environ, "PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(spark_pair.java_home)}
        with ExitStack() as stack:
            drivers = [
                stack.enter_context(running_query(name, tmp_path, Path(sys.executable), own, after))
                for name in ("one", "two")
            ]

            def rows() -> list[Row]:
                for driver in drivers:
                    driver.check()
                return [row for driver in drivers for row in driver.rows()]

            wait_for(lambda: len(rows()) >= 200, "what was there at the beginning")
            wait_for(lambda: shares(url, topic) == [2, 2], "a share for each")
            produce(200, 400)
            wait_for(lambda: len(rows()) >= 400, "all records")
            assert all(len(driver.rows()) >= 100 for driver in drivers)
        shared = [row for driver in drivers for row in driver.rows()]
        environment = spark_pair.environment(os.environ)
        with running_query("spark", tmp_path, spark_pair.python, environment, before, spark_pair.jars) as alone:
            wait_for(lambda: len(alone.rows()) >= 400, "all records, by one driver")
    wanted = alone.rows()
    assert len(set(wanted)) == len(wanted) == 400
    assert sorted(shared) == sorted(wanted)


def shares(url: str, group: str) -> list[int]:
    """How many partitions each member has, once the group is settled."""
    found = describe(url, group)
    if found["state"] != "Stable":
        return []
    return sorted(sum(map(len, member["assignment"]["partitions"].values())) for member in found["members"])
