"""What the bridge offers beside Spark's own streaming Kafka source, with that source, on a real broker."""

import json
import os
import subprocess
import uuid
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.real.parts import ROOT, free_port, last_lines

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from confluent_kafka import Producer

from tests.real.kafka import create_topic
from tests.real.spark_kafka import SparkPair
from tests.spark_bridge.running_query import wait_for
from tests.spark_bridge.spark_run import running_service
from tests.spark_bridge.topic_fixture import describe

RECORDS = 30
"""Of each of three partitions."""


def committed(url: str, group: str) -> dict[str, int]:
    with urlopen(f"{url}/v1/groups/{group}/offsets", timeout=10) as answer:
        topics: dict[str, Any] = json.load(answer)["offsets"]
    return {name: one["offset"] for some in topics.values() for name, one in some.items()}


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_final_assignment_is_read_and_a_query_is_shown(
    kafka_bootstrap_servers: str, spark_pair: SparkPair, tmp_path: Path
) -> None:
    topic = f"shown-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_bootstrap_servers, topic, 3)
    producer = Producer({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0})

    def produce(records: int) -> None:
        for number in range(3 * records):
            producer.produce(topic, b"v", partition=number % 3)
        assert producer.flush(30) == 0

    produce(RECORDS)
    with running_service(tmp_path) as url:
        log = tmp_path / "driver.log"
        given = {
            "coordinator": url, "bootstrap": kafka_bootstrap_servers, "topic": topic, "partitions": [0, 2],
            "committed": {"2": 5, "1": 7}, "jars": [str(path) for path in spark_pair.jars],
            "checkpoints": str(tmp_path), "conf": {
                "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.port": str(free_port()), "spark.blockManager.port": str(free_port()),
            },
        }  # fmt: skip
        with log.open("wb") as errors, subprocess.Popen(
            [str(spark_pair.python), "-m", "tests.spark_bridge.spark_source_program", json.dumps(given)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT,
            env=spark_pair.environment(os.environ),
        ) as driver:  # fmt: skip
            try:
                assert driver.stdin is not None
                assert driver.stdout is not None
                said = next((line for line in driver.stdout if line.startswith(b"read ")), b"")
                assert said, last_lines(log)
                wanted = [[0, offset] for offset in range(RECORDS)] + [[2, offset] for offset in range(5, RECORDS)]
                assert json.loads(said.removeprefix(b"read ")) == wanted
                wait_for(lambda: committed(url, "shown") == dict.fromkeys("012", RECORDS), "the ends of all batches")
                produce(10)
                wait_for(lambda: committed(url, "shown") == dict.fromkeys("012", RECORDS + 10), "what came later")
                driver.stdin.close()
                assert driver.wait(90) == 0, last_lines(log)
            finally:
                driver.kill()
        shown = describe(url, "shown")
        assert shown["members"] == []
        entries = shown["offsets"][topic]
        assert {name: (one["end_offset"], one["lag"]) for name, one in entries.items()} == dict.fromkeys(
            "012", (RECORDS + 10, 0)
        )
