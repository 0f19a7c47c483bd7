"""The example of Avro with a schema registry, on a real Kafka: two versions and bad records in one topic, counted."""

import io
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

pytest.importorskip("confluent_kafka", reason="missing confluent-kafka: pip install 'rallypoint[kafka]'")

pytest.importorskip("fastavro", reason="missing fastavro: pip install fastavro")

import fastavro
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from examples.avro.driver import begin, make_parser
from rallypoint.spark import stop
from tests.fakes.schema_registry import framed, running_registry
from tests.real.kafka import create_topic
from tests.spark_bridge.spark_run import WITH_SPARK, wait_until
from tests.spark_bridge.topic_fixture import committed

pytestmark = [*WITH_SPARK, pytest.mark.kafka]

PARTITIONS = 2
ROUNDS = 20
FIELDS = [{"name": "user", "type": "string"}, {"name": "url", "type": "string"}]
OLD = {"type": "record", "name": "Click", "fields": FIELDS}
NEW = {
    "type": "record",
    "name": "Click",
    "fields": [*FIELDS, {"name": "country", "type": "string", "default": "unknown"}],
}
CREDENTIALS = "reader:of-the-registry"
UNKNOWN_ID = 999


def written(schema_id: int, schema: Any, record: Any) -> bytes:
    """What a producer sends."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), record)
    return framed(schema_id, body.getvalue())


def test_every_record_is_decoded_by_its_own_schema_or_stands_beside_with_the_reason(
    spark: SparkSession, service: str, kafka_bootstrap_servers: str, tmp_path: Path
) -> None:
    topic = f"clicks-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_bootstrap_servers, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0})
    ends = [0] * PARTITIONS
    clicks: dict[tuple[str, int, int], tuple[str, str, str]] = {}
    refused: dict[tuple[str, int, int], str] = {}

    def produce(partition: int, value: bytes | None) -> tuple[str, int, int]:
        place = topic, partition, ends[partition]
        producer.produce(topic, value, partition=partition)
        ends[partition] += 1
        return place

    credentials = tmp_path / "credentials"
    credentials.write_text(CREDENTIALS)
    with running_registry(CREDENTIALS) as registry:
        old, new = registry.register(f"{topic}-value", OLD), registry.register(f"{topic}-value", NEW)
        for number in range(ROUNDS * PARTITIONS):
            partition, click = number % PARTITIONS, {"user": f"user-{number}", "url": f"/page/{number}"}
            of_old, of_new = written(old, OLD, click), written(new, NEW, {**click, "country": "NL"})
            clicks[produce(partition, of_old)] = (click["user"], click["url"], "unknown")
            refused[produce(partition, framed(UNKNOWN_ID, of_old[5:]))] = "the registry has no schema 999"
            clicks[produce(partition, of_new)] = (click["user"], click["url"], "NL")
            refused[produce(partition, of_new[:-1])] = f"not readable by schema {new}: "
            refused[produce(partition, None)] = "the record has no value"
        assert producer.flush(30) == 0

        given = make_parser().parse_args([])
        given.coordinator, given.bootstrap_servers, given.registry = service, kafka_bootstrap_servers, registry.url
        given.topic = given.group = topic
        given.credentials_file, given.batch_records = str(credentials), sum(ends) // 2
        given.database, given.checkpoint = tmp_path / "clicks.db", str(tmp_path / "checkpoint")
        query = begin(spark, given)
        try:
            wait_until(lambda: committed(service, topic) == ends, "the commit of every record", query)
            assert stop(query)
        finally:
            query.stop()
        # By each Python worker once, of which there may be two at a time and others later; not by each record.
        assert registry.reads[f"/schemas/ids/{old}"] + registry.reads[f"/schemas/ids/{new}"] <= sum(ends) // 5

    with closing(sqlite3.connect(given.database)) as connection:
        found = connection.execute("SELECT topic, partition, offset, user, url, country FROM clicks").fetchall()
        beside = connection.execute("SELECT topic, partition, offset, error FROM refused").fetchall()
    assert (len(found), len(beside)) == (len(clicks), len(refused))
    assert {row[:3]: row[3:] for row in found} == clicks
    errors = {row[:3]: row[3] for row in beside}
    assert errors.keys() == refused.keys()
    assert all(errors[place].startswith(reason) for place, reason in refused.items())
