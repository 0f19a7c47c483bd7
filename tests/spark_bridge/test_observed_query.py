"""What others see of a query: its secrets nowhere, its progress in Spark's UI, metrics and REST interface.

One run of a driver, at INFO, on a broker and a service that both ask for a secret (`observed_program`); what it leaves
is looked at by all tests.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from rallypoint.coordinator.access.tokens import hash_token
from tests.real.kafka import SecuredBroker, create_topic
from tests.real.parts import PYTHON_PATH, ROOT, last_lines
from tests.spark_bridge.spark_run import WITH_SPARK, running_service

pytestmark = [*WITH_SPARK, pytest.mark.kafka]

TOKEN = "marked-coordinator-token"
TOPIC = "observed"
SECRETS = {
    "token": TOKEN,
    "kafka.ssl.key.password": "marked-key-password",
    "kafka.sasl.oauthbearer.config": "marked-oauth-config",
    "kafka.sasl.oauthbearer.client.secret": "marked-oauth-secret",
    "kafka.sasl.oauthbearer.assertion.private.key.passphrase": "marked-passphrase",
}
WRONG = [
    {"kafka.sasl.password": "marked-wrong-password", "kafkaRequestTimeoutMs": "1500", "group": "other"},
    {"kafka.ssl.key.pem": "marked-private-key"},
]
"""Each set makes a query fail: one when it reads, one at `load()`."""


class Observed:
    """What the run has left."""

    def __init__(self, folder: Path, metrics: str) -> None:
        self.folder = folder
        self.service_metrics = metrics
        self.progress: list[dict[str, Any]] = json.loads(self.text("progress.json"))
        self.pages: dict[str, str] = json.loads(self.text("pages.json"))

    def text(self, name: str) -> str:
        return (self.folder / "seen" / name).read_text("utf-8")


@pytest.fixture(scope="module")
def observed(java_home: Path, secured_kafka: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Observed:
    folder = tmp_path_factory.mktemp("observed")
    (folder / "tmp").mkdir()
    create_topic(secured_kafka.open_servers, TOPIC, 2)
    producer = Producer({"bootstrap.servers": secured_kafka.open_servers, "log_level": 0})
    for number in range(60):
        producer.produce(TOPIC, b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0
    with running_service(tmp_path_factory.mktemp("service"), more=("--tokens", hash_token(TOKEN))) as url:
        options = {
            "coordinator": url,
            "group": "observed",
            "subscribe": f"{TOPIC},no-such-topic",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "20",
            "reportIntervalMs": "200",
            "assignor": "tests.spark_bridge.own_assignor:OwnAssignor",
            "kafka.bootstrap.servers": secured_kafka.servers,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.ca.location": str(secured_kafka.certificate),
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": secured_kafka.user,
            "kafka.sasl.password": secured_kafka.secret,
            # The planner's and the workers' client say how they are set up.
            "kafka.debug": "conf",
            **SECRETS,
        }
        wrong = [options | more for more in WRONG]
        spec = {"folder": str(folder), "options": options, "wrong": wrong, "records": 60}
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "TMPDIR": str(folder / "tmp")}
        environment |= {"SPARK_LOCAL_DIRS": str(folder / "tmp"), "JAVA_HOME": str(java_home), "PYTHONPATH": PYTHON_PATH}
        with (folder / "stderr.txt").open("wb") as errors:
            done = subprocess.run(
                [sys.executable, "-m", "tests.spark_bridge.observed_program"],
                input=json.dumps(spec).encode(), stdout=errors, stderr=errors, cwd=ROOT, env=environment, check=False,
            )  # fmt: skip
        assert done.returncode == 0, last_lines(folder / "stderr.txt", 40)
        request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            metrics = answer.read().decode()
    return Observed(folder, metrics)


def test_no_secret_is_in_what_a_query_leaves_or_shows(observed: Observed) -> None:
    found = {}
    for path in observed.folder.rglob("*"):
        if path.is_file() and (marks := set(re.findall(rb"marked-[a-z-]*", path.read_bytes()))):
            found[str(path.relative_to(observed.folder))] = marks
    assert found == {}
    assert observed.text("temporary.txt") == ""


def test_the_places_where_a_secret_could_be_are_looked_at(observed: Observed) -> None:
    """Or the test before would pass on nothing."""
    names = {str(path.relative_to(observed.folder)) for path in observed.folder.rglob("*") if path.is_file()}
    assert "checkpoint/offsets/2" in names
    assert any(name.startswith("events/") for name in names)
    log = (observed.folder / "driver.log").read_text("utf-8")
    assert " INFO " in log
    assert "kafka.sasl.password=*********(redacted)" in observed.text("explain.txt")
    assert "sasl.password = [redacted]" in (observed.folder / "stderr.txt").read_text("utf-8", "replace")
    assert "org.apache.spark.deploy.SparkSubmit" in observed.text("processes.txt")
    errors = observed.text("errors.txt").split("\n\n")
    assert len([line for line in observed.text("errors.txt").splitlines() if "spark_bridge.errors." in line]) == len(
        WRONG
    ), errors


def test_a_progress_says_where_the_query_is(observed: Observed) -> None:
    (one, *_, last) = [progress["sources"][0] for progress in observed.progress]
    assert one["startOffset"] is None
    assert one["endOffset"]["partitions"] == {TOPIC: {p: {"end": 10, "epoch": 1} for p in "01"}}
    assert one["latestOffset"]["end_offsets"] == {TOPIC: {"0": 30, "1": 30}}
    assert (one["latestOffset"]["rallypoint"]["lag"], last["latestOffset"]["rallypoint"]["lag"]) == (40, 0)
    assert last["latestOffset"]["rallypoint"]["assigned"] == {TOPIC: [0, 1]}
    assert last["latestOffset"]["rallypoint"]["missing_topics"] == ["no-such-topic"]
    assert last["latestOffset"]["rallypoint"]["protocol_name"] == "own"
    assert {one["endOffset"]["group"], last["endOffset"]["group"]} == {"observed"}
    assert last["startOffset"]["partitions"] == {TOPIC: {p: {"end": 20, "epoch": 1} for p in "01"}}
    assert [progress["numInputRows"] for progress in observed.progress] == [20, 20, 20]
    assert all(progress["processedRowsPerSecond"] > 0 for progress in observed.progress)


def test_what_pyspark_leaves_out_of_a_progress_is_what_the_page_says(observed: Observed) -> None:
    source = observed.progress[-1]["sources"][0]
    assert source["description"].startswith(
        "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream"
    )
    assert source.get("metrics", {}) == {}


def test_the_ui_shows_the_query(observed: Observed) -> None:
    assert ">observed<" in re.sub(r"\s+", "", observed.pages["/StreamingQuery/"])
    (statistics,) = [page for path, page in observed.pages.items() if path.startswith("/StreamingQuery/statistics")]
    assert len(re.findall(r'"y": 20\.0\b', statistics)) >= 3
    assert "latestOffset" in statistics
    runs = json.loads(observed.pages["/sql?details=true&planDescription=true"])
    scans = [node for run in runs for node in run["nodes"] if node["nodeName"].startswith("MicroBatchScan")]
    metrics = [{one["name"]: one["value"] for one in scan["metrics"]} for scan in scans]
    assert [one["number of output rows"] for one in metrics if one] == ["20", "20", "20"]


def test_prometheus_has_rates_from_spark_and_lag_from_the_service(observed: Observed) -> None:
    for name in ("inputRate_total", "processingRate_total", "latency"):
        assert re.search(rf"_spark_streaming_observed_{name}_Value\{{.*\}} \d", observed.pages["/metrics/prometheus"])
    assert 'rallypoint_group_lag{group_id="observed"} 0.0' in observed.service_metrics
