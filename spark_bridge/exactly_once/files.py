"""Exactly-once writes of Parquet, or another format of Spark's, into one folder that several drivers share.

from rallypoint.spark_bridge.exactly_once.files import ExactlyOnceFiles

save = ExactlyOnceFiles("/data/clicks", "clicks-to-files")
query = clicks.writeStream.foreachBatch(save).option("checkpointLocation", …).start()
"""

import logging
import random
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from rallypoint.spark_bridge.exactly_once.errors import LoadFailed
from rallypoint.spark_bridge.exactly_once.file_load import FileLoad
from rallypoint.spark_bridge.exactly_once.file_log import FileLog, check_log_location
from rallypoint.spark_bridge.exactly_once.hadoop_files import HadoopFiles
from rallypoint.spark_bridge.exactly_once.load import WRITTEN, check_columns
from rallypoint.spark_bridge.offsets import TopicPartition

log = logging.getLogger("rallypoint.spark")

HIDDEN = "_rallypoint"
"""The sink's own folder. Readers ignore it because of its first character."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
PART = re.compile(r"part-([0-9]+)-")
"""The beginning of the file names of Spark's writers, with the number of the task's partition."""
ONE_HOST = re.compile(r"local(\[.*\])?")
"""Masters whose tasks run in the driver's own process."""
ATTEMPTS = 100
PAUSE_MAX_MS = 2_000


class ExactlyOnceFiles:
    """A function for `foreachBatch` that writes each record of a group's topics exactly once into files of one folder.

    This holds across replays, rebalances, and late writes by a driver whose session had expired.

    `path`: the folder, in any file system that Spark writes to.
    `name`: the name of this load. All drivers that write the same thing share it.
    `format`: the format of Spark's writer.
    `options`: the options of Spark's writer.
    `partition_by`: the columns to partition the files by, as in Spark's writer.
    `drop`: columns that are not written.
    `log`: a folder for the log of what is written, if it must not be in `path`. See `hadoop_files` for the file systems
    that can hold it.
    `abandoned_after_ms`: the age at which staging folders of killed drivers are deleted.

    The batch must have the source's columns `topic`, `partition` and `offset`. A record may have become several rows or
    none. Spark persists the batch while it is written, so the source is read once.

    Readers of the folder always see complete files, and never a record twice. They may see some files of a batch
    slightly before the others.
    """

    def __init__(
        self,
        path: str,
        name: str,
        *,
        format: str = "parquet",  # noqa: A002 - as Spark's writer calls it
        options: Mapping[str, str] = MappingProxyType({}),
        partition_by: Sequence[str] = (),
        drop: Sequence[str] = (),
        log: str | None = None,
        abandoned_after_ms: int = 86_400_000,
    ) -> None:
        if not NAME.fullmatch(name):
            raise ValueError(
                "ExactlyOnceFiles: name must have 1 to 100 letters, digits, '.', '_' and '-', and begin with a letter"
                " or a digit"
            )
        if abandoned_after_ms < 1:
            raise ValueError("ExactlyOnceFiles: abandoned_after_ms must be at least 1")
        if hidden := [column for column in partition_by if column.startswith((".", "_"))]:
            raise ValueError(
                f"ExactlyOnceFiles: partition_by names {', '.join(hidden)}: readers ignore folders whose names begin"
                " with '.' or '_'; rename the column"
            )
        self._path = str(path)
        self._name = name
        self._format = format
        self._options = dict(options)
        self._partition_by = list(partition_by)
        self._drop = frozenset(drop)
        self._log_folder = log
        self._abandoned_after_ms = abandoned_after_ms
        self._load: FileLoad | None = None
        self._store: HadoopFiles | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write a batch, as `foreachBatch` calls it. Returns once its files are in place."""
        check_columns(frame.dtypes, self._drop)
        load = self._open(frame.sparkSession)
        own = not frame.is_cached  # otherwise the caller unpersists it
        cached = frame.persist() if own else frame
        try:
            if not load.write(FrameBatch(cached, self)):
                log.info("%s: batch %d: all rows were written before", self._name, batch_id)
        finally:
            if own:
                cached.unpersist()

    def forget(self, spark: SparkSession, topic: str) -> int:
        """Delete the positions of a topic. Returns how many partitions it had. Stop the queries first.

        Call it for a topic that was deleted and recreated, whose offsets start at 0 again, or to write records again.
        The files stay.
        """
        return self._open(spark).forget(topic)

    def save(self, frame: DataFrame, folder: str) -> None:
        """Write rows with Spark to a folder below `path`.

        Raises LoadFailed if this driver does not see what executors on other hosts have written.
        """
        assert self._store is not None, "opened first"
        writer = frame.drop(*self._drop).write.format(self._format).options(**self._options)
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.save(f"{self._store.url}/{folder}")
        if self._store.scheme == "file" and not ONE_HOST.fullmatch(frame.sparkSession.sparkContext.master or ""):
            check_parts(frame, self._store.files_below(folder))

    def _open(self, spark: SparkSession) -> FileLoad:
        """Open the load at the first batch, because it needs a session."""
        if self._load is None:
            store = HadoopFiles(spark, self._path)
            self._store = store
            if store.children("_spark_metadata"):
                raise LoadFailed(
                    f"{self._path} has a folder _spark_metadata of Spark's own file sink, so Spark's readers see only"
                    " what that sink wrote; choose another folder, or delete _spark_metadata if no query uses it"
                )
            own = f"{HIDDEN}/{self._name}"
            file_log = self._open_log(spark, store, own)
            self._load = FileLoad(
                self._name,
                store,
                file_log,
                f"{own}/staging",
                now_ms=lambda: time.time_ns() // 1_000_000,
                draw_name=lambda now_ms: f"{now_ms}-{uuid.uuid4().hex[:12]}",
                pause=_pause,
                attempts=ATTEMPTS,
                abandoned_after_ms=self._abandoned_after_ms,
            )
        return self._load

    def _open_log(self, spark: SparkSession, store: HadoopFiles, own: str) -> FileLog:
        """Open the log. `own`: the load's own folder in `path`."""
        if self._log_folder is None:
            store.check_exclusive()
            file_log, location = FileLog(store, f"{own}/log"), "log"
        else:
            elsewhere = HadoopFiles(spark, self._log_folder)
            elsewhere.check_exclusive()
            file_log, location = FileLog(elsewhere, f"{self._name}/log", store.url), f"{elsewhere.url}/{self._name}/log"
        check_log_location(store, f"{own}/log-is-at", location)
        return file_log


class FrameBatch:
    """Implements `file_load.Batch` for a DataFrame, which each call evaluates."""

    def __init__(self, frame: DataFrame, sink: ExactlyOnceFiles) -> None:
        self._frame = frame
        self._sink = sink

    def ranges(self) -> Mapping[TopicPartition, tuple[int, int]]:
        """See `Batch.ranges`. Raises LoadFailed if a row has no topic, partition or offset."""
        bounds = (sf.min("offset").alias("first"), sf.max("offset").alias("last"))
        without = sf.count_if(sf.isnull("offset")).alias("without")
        rows = self._frame.groupBy("topic", "partition").agg(*bounds, without).collect()
        if any(row["without"] or row["topic"] is None or row["partition"] is None for row in rows):
            raise LoadFailed("a row has no topic, partition or offset, so it is unknown whether it was written before")
        return {(row["topic"], row["partition"]): (row["first"], row["last"] + 1) for row in rows}

    def write(self, folder: str, above: Mapping[TopicPartition, int]) -> None:
        """See `Batch.write`."""
        self._sink.save(self._rows_above(above) if above else self._frame, folder)

    def _rows_above(self, above: Mapping[TopicPartition, int]) -> DataFrame:
        """The rows to write. A join has the same plan, and the same cost per row, for any number of partitions."""
        topic, partition, end = WRITTEN
        rows = [(*tp, written) for tp, written in sorted(above.items())]
        ends = self._frame.sparkSession.createDataFrame(rows, f"{topic} string, {partition} bigint, {end} bigint")
        is_of = (sf.col("topic") == sf.col(topic)) & (sf.col("partition") == sf.col(partition))
        joined = self._frame.join(sf.broadcast(ends), is_of, "left")
        return joined.where(sf.isnull(end) | (sf.col("offset") >= sf.col(end))).drop(topic, partition, end)


def check_parts(frame: DataFrame, files: Sequence[str]) -> None:
    """Raise LoadFailed if a task wrote rows and the driver sees none of its files.

    Spark does not detect this: its committer lists the driver's own disk.
    """
    written = (row[0] for row in frame.select(sf.spark_partition_id()).distinct().collect())
    if missing := parts_missing(written, files):
        raise LoadFailed(
            f"the driver sees no files of {len(missing)} tasks that wrote rows (such as number {missing[0]}): executors"
            " on other hosts have written to their own disks; choose a folder that all hosts share"
        )


def parts_missing(written: Iterable[int], files: Iterable[str]) -> list[int]:
    """The task numbers without a file. Empty if no file name has the form of Spark's writers."""
    found = (PART.match(PurePosixPath(file).name) for file in files)
    there = {int(name[1]) for name in found if name}
    return sorted(set(written) - there) if there else []


def _pause(conflicts: int) -> None:
    """Exponential backoff with jitter, so that concurrent drivers do not collide again."""
    time.sleep(min(10 * 2**conflicts, PAUSE_MAX_MS) / 1000 * random.uniform(0.1, 1))
