"""A driver of which everything is kept that somebody else can see: `python -m tests.spark_bridge.observed_program`.

Standard input is a `Spec` as JSON: its secrets are no arguments. The query reads what is in the topic, three batches.
What it leaves in the folder `seen`: `explain.txt`; `progress.json`, a list; `pages.json`, the UI's by their paths;
`processes.txt`, the command lines of all processes of the machine; `errors.txt`, what queries with wrong options say.
The driver's log, its event log, its checkpoints and its temporary files are beside it.
"""

import contextlib
import io
import json
import logging
import os
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from rallypoint import spark as rallypoint_spark
from tests.real.parts import free_port
from tests.spark_bridge.spark_run import wait_until

LOGGING = """<?xml version="1.0"?>
<Configuration status="WARN">
  <Appenders>
    <File name="file" fileName="{log}"><PatternLayout pattern="%d{{HH:mm:ss.SSS}} %p %c: %m%n%ex"/></File>
  </Appenders>
  <Loggers><Root level="INFO"><AppenderRef ref="file"/></Root></Loggers>
</Configuration>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """`options` of the query; `wrong`, options of others, one query for each set; `records`, how many there are."""

    folder: str
    options: Mapping[str, str]
    wrong: list[dict[str, str]]
    records: int


def make_session(folder: Path) -> SparkSession:
    """One with all that Spark shows of itself, each in the folder."""
    (folder / "log4j2.xml").write_text(LOGGING.format(log=folder / "driver.log"))
    (folder / "events").mkdir()
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": (
            f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile={folder / 'log4j2.xml'}"
        ),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.port": str(free_port()),
        "spark.blockManager.port": str(free_port()),
        "spark.ui.port": str(free_port()),
        "spark.ui.prometheus.enabled": "true",
        "spark.sql.streaming.metricsEnabled": "true",
        "spark.metrics.conf.*.sink.prometheusServlet.class": "org.apache.spark.metrics.sink.PrometheusServlet",
        "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.master("local[2]").appName("observed")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def explained(of: Any) -> str:
    """What `explain` prints, of a DataFrame or a query."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        of.explain(True)
    return out.getvalue()


def pages(spark: SparkSession, run_id: str) -> dict[str, str]:
    """The UI's HTML, its REST interface and its metrics."""
    context = spark.sparkContext
    application = f"/api/v1/applications/{context.applicationId}"
    paths = [
        "/StreamingQuery/",
        f"/StreamingQuery/statistics/?id={run_id}",
        "/SQL/",
        *(f"/SQL/execution/?id={number}" for number in range(4)),
        "/environment/",
        "/jobs/",
        "/stages/",
        f"{application}/sql?details=true&planDescription=true",
        f"{application}/environment",
        f"{application}/stages?details=true",
        "/metrics/prometheus",
        "/metrics/executors/prometheus",
    ]
    found = {}
    for path in paths:
        with urllib.request.urlopen(f"{context.uiWebUrl}{path}", timeout=60) as answer:
            found[path.removeprefix(application)] = answer.read().decode()
    return found


def command_lines() -> str:
    """Of every process of the machine that can be looked at."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return "\n".join(lines)


def said(spark: SparkSession, options: Mapping[str, str], checkpoint: Path) -> str:
    """The error of a query that cannot run."""
    try:
        stream = spark.readStream.format("rallypoint").options(**options).load()
        query = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
        query.awaitTermination(60)
    except Exception as error:
        return f"{error!r}\n{error}"
    raise AssertionError("the query runs")


def main(spec: Spec) -> None:
    """Run the query, keep what is seen, end it."""
    logging.basicConfig(level=logging.INFO)
    folder = Path(spec.folder)
    seen = folder / "seen"
    seen.mkdir()
    spark = make_session(folder)
    rallypoint_spark.register(spark)
    counts: list[int] = []

    def write(frame: DataFrame, batch_id: int) -> None:
        counts.append(frame.count())

    frame = spark.readStream.format("rallypoint").options(**spec.options).load()
    plans = [explained(frame), repr(frame)]
    values = frame.selectExpr("cast(value as string) as value", "partition", "offset")
    query = (
        values.writeStream.queryName("observed")
        .foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    wait_until(lambda: sum(counts) == spec.records and len(query.recentProgress) >= len(counts), "all records", query)
    plans += [explained(query), repr(query)]
    (seen / "explain.txt").write_text("\n".join(plans))
    (seen / "progress.json").write_text(json.dumps([json.loads(one.json) for one in query.recentProgress]))
    (seen / "processes.txt").write_text(command_lines())
    # Spark tells its UI and its metrics of a batch a moment after the query's own progress.
    wait_until(lambda: str(spec.records // 3) in pages(spark, str(query.runId))["/StreamingQuery/"], "the UI", query)
    (seen / "pages.json").write_text(json.dumps(pages(spark, str(query.runId))))
    assert rallypoint_spark.stop(query)
    errors = [said(spark, wrong, folder / f"wrong-{number}") for number, wrong in enumerate(spec.wrong)]
    (seen / "errors.txt").write_text("\n\n".join(errors))
    (seen / "temporary.txt").write_text("\n".join(marked_files(Path(os.environ["TMPDIR"]))))
    spark.stop()


def marked_files(folder: Path) -> list[str]:
    """The files with a secret in them, while the driver still has its temporary ones."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and b"marked-" in path.read_bytes()]


if __name__ == "__main__":
    main(Spec(**json.loads(sys.stdin.read())))
