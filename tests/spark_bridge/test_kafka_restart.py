"""A broker that goes away under a running query and comes back, at once or later: the query waits, and reads on."""

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

pytest.importorskip("confluent_kafka", reason="missing confluent-kafka: pip install 'rallypoint[kafka]'")

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from rallypoint.spark import start, stop
from tests.real.kafka import Broker, create_topic, require_jars, running_broker
from tests.spark_bridge.ledger import Ledger, value_of
from tests.spark_bridge.spark_run import WITH_SPARK, wait_until
from tests.spark_bridge.topic_fixture import committed

pytestmark = [*WITH_SPARK, pytest.mark.kafka]

PARTITIONS = 3
AWAY_SECONDS = (0.0, 8.0)
"""At once: it answers while it stops and starts, but leads nothing then. Later: several attempts to reach it fail, by
the planning process and by tasks.
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Of this test alone, since it is stopped."""
    home, jars = require_jars()
    with running_broker(tmp_path, jars, home) as broker:
        yield broker


def test_a_broker_that_is_restarted_loses_no_records_for_a_query(
    spark: SparkSession, service: str, broker: Broker, tmp_path: Path
) -> None:
    topic = f"clicks-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    # Its records wait for the broker; sent again, they are still in the log once.
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "enable.idempotence": True})
    ends = [0] * PARTITIONS

    def produce(records: int) -> None:
        for partition, end in enumerate(ends):
            for offset in range(end, end + records):
                producer.produce(topic, value_of(partition, offset), partition=partition)
            ends[partition] = end + records

    ledger = Ledger()
    options = {
        "coordinator": service,
        "group": topic,
        "source": "kafka",
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.log_level": "0",
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "100",
    }
    stream = spark.readStream.format("rallypoint").options(**options).load()
    writer = stream.writeStream.foreachBatch(ledger.of("one")).option("checkpointLocation", str(tmp_path / "one"))
    query = start(writer.trigger(processingTime="200 milliseconds").start)

    def wait_for_all() -> None:
        wait_until(lambda: len(ledger.written) >= sum(ends), f"{sum(ends)} records", query)

    try:
        produce(200)
        assert producer.flush(30) == 0
        # In the middle of the batches that read these.
        wait_until(lambda: len(ledger.written) >= 100, "the first records", query)
        for away_seconds in AWAY_SECONDS:
            broker.stop()
            produce(50)
            back_at = time.monotonic() + away_seconds
            wait_until(lambda: time.monotonic() >= back_at, "nothing", query)  # noqa: B023 - within this round
            broker.start()
            assert producer.flush(60) == 0
            wait_for_all()
        produce(50)
        assert producer.flush(30) == 0
        wait_for_all()
        wait_until(lambda: committed(service, topic) == ends, "the commit", query)
        assert stop(query)
    finally:
        query.stop()
    ledger.check({(topic, partition): end for partition, end in enumerate(ends)})
