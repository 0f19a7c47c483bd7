"""The load into files on a real Spark: what its writer makes of a batch, and what its file systems are asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from rallypoint.spark_bridge.exactly_once import LoadFailed
from rallypoint.spark_bridge.exactly_once.files import ONE_HOST, ExactlyOnceFiles, check_parts, parts_missing
from rallypoint.spark_bridge.exactly_once.hadoop_files import HadoopFiles, NotExclusive
from rallypoint.spark_bridge.fencing_check import without
from tests.real.hdfs import class_path
from tests.real.parts import ROOT
from tests.spark_bridge.exactly_once.spark_files import (
    SCHEMA,
    check_exclusive,
    check_replays,
    expected,
    frame_of,
    words,
)
from tests.spark_bridge.spark_run import WITH_SPARK

pytestmark = WITH_SPARK


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_a_replay_with_other_bounds_writes_what_is_new(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    check_replays(spark, str(tmp_path / "it's clicks"), kind)


def test_columns_may_be_dropped_and_options_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    save = ExactlyOnceFiles(
        str(tmp_path / "out"), "load", format="csv", options={"header": "true"}, drop=("topic", "partition")
    )
    save(frame_of(spark, (0, 0, 3)).coalesce(1), 0)
    (file,) = (tmp_path / "out").glob("*.csv")
    assert sorted(file.read_text().splitlines()) == ["0,clicks-0-0", "1,clicks-0-1", "2,clicks-0-2", "offset,word"]


def test_what_cannot_be_written_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for name, age_ms in (("a/b", 1), ("", 1), ("a", 0)):
        with pytest.raises(ValueError, match="ExactlyOnceFiles: "):
            ExactlyOnceFiles(str(tmp_path), name, abandoned_after_ms=age_ms)
    for column in (".day", "_day"):
        with pytest.raises(ValueError, match=rf"partition_by names {column}: readers ignore folders whose names begin"):
            ExactlyOnceFiles(str(tmp_path), "load", partition_by=["topic", column])
    save = ExactlyOnceFiles(str(tmp_path / "out"), "load")
    with pytest.raises(LoadFailed, match="no column offset"):
        save(frame_of(spark, (0, 0, 1)).drop("offset"), 0)
    with pytest.raises(LoadFailed, match="the column _rallypoint_end has a name that the sink uses"):
        save(frame_of(spark, (0, 0, 1)).selectExpr("*", "1 as _rallypoint_end"), 0)
    with pytest.raises(LoadFailed, match="a row has no topic, partition or offset"):
        save(frame_of(spark, (0, 0, 1)).selectExpr("topic", "partition", "cast(null as long) offset"), 0)
    with pytest.raises(
        LoadFailed, match="the column partition is of the type double, and must be tinyint or smallint or int or bigint"
    ):
        save(frame_of(spark, (0, 0, 1)).selectExpr("topic", "cast(partition as double) partition", "offset"), 0)
    save(frame_of(spark, (0, 0, 1)).selectExpr("topic", "cast(partition as smallint) partition", "offset"), 0)
    (tmp_path / "used" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "used" / "_spark_metadata" / "0").touch()
    with pytest.raises(LoadFailed, match="_spark_metadata of Spark's own file sink"):
        ExactlyOnceFiles(str(tmp_path / "used"), "load")(frame_of(spark, (0, 0, 1)), 0)
    with pytest.raises(NotExclusive, match="the file system http: two drivers"):
        ExactlyOnceFiles(str(tmp_path / "out"), "load", log="http://127.0.0.1/log")(frame_of(spark, (0, 0, 1)), 0)


@pytest.mark.parametrize("partition_by", [(), ("partition",)])
def test_what_an_executor_wrote_to_a_disk_of_its_own_is_missed(
    partition_by: tuple[str, ...], spark: SparkSession, tmp_path: Path
) -> None:
    frame = frame_of(spark, (0, 0, 4), (1, 0, 4)).repartition(4, "offset")
    frame.write.partitionBy(*partition_by).parquet(str(tmp_path / "out"))
    store = HadoopFiles(spark, str(tmp_path))
    files = store.files_below("out")
    check_parts(frame, files)
    lost = files[0].rpartition("/")[2].split("-")[1]
    with pytest.raises(
        LoadFailed, match=f"the driver sees no files of 1 tasks that wrote rows .such as number {int(lost)}."
    ):
        check_parts(frame, [file for file in files if f"part-{lost}-" not in file])


def test_which_parts_are_missing_and_whose_disk_is_the_drivers() -> None:
    assert parts_missing([0, 3, 12], ["a=1/part-00003-x.c000.csv", "part-00000-x", "part-00012-x"]) == []
    assert parts_missing([3, 0], ["part-00001-x"]) == [0, 3]
    assert parts_missing([3], ["of-another-writer"]) == []
    assert [one for one in ("local", "local[2]", "local[*]", "local[2,4]") if not ONE_HOST.fullmatch(one)] == []
    assert [one for one in ("local-cluster[2,1,1024]", "spark://one:7077", "yarn") if ONE_HOST.fullmatch(one)] == []


@pytest.mark.parametrize("escaped", ["true", "false"])
def test_a_topic_may_be_of_any_letters(escaped: str, spark: SparkSession, tmp_path: Path) -> None:
    """How a text in a statement is read depends on a setting of Spark's."""
    session = spark.newSession()
    session.conf.set("spark.sql.parser.escapedStringLiterals", escaped)
    topics = ["it's\\x", 'a"b', "%"]
    rows = [(topic, partition, offset, topic) for topic in topics for partition in (0, 1) for offset in range(2)]
    frame = session.createDataFrame(rows, SCHEMA).coalesce(1)
    save = ExactlyOnceFiles(str(tmp_path / "out"), "load")
    save(frame.where("offset = 0"), 0)
    save(frame, 1)
    assert words(session, str(tmp_path / "out")) == sorted(topics * 4)
    kept = without(frame, [(topics[0], 1), (topics[1], 0), (topics[1], 1)])
    assert {(row.topic, row.partition) for row in kept.collect()} == {(topics[0], 0), (topics[2], 0), (topics[2], 1)}


def test_a_batch_is_kept_while_it_is_written_and_no_longer(spark: SparkSession, tmp_path: Path) -> None:
    save = ExactlyOnceFiles(str(tmp_path / "out"), "load")
    frame, callers = frame_of(spark, (0, 0, 3)), frame_of(spark, (0, 3, 6)).persist()
    save(frame, 0)
    save(callers, 1)
    assert (frame.is_cached, callers.is_cached) == (False, True)
    callers.unpersist()


def test_the_log_may_be_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    save = ExactlyOnceFiles(str(tmp_path / "out"), "load", log=str(tmp_path / "log"))
    save(frame_of(spark, (0, 0, 3)), 0)
    save(frame_of(spark, (0, 0, 3)), 0)
    assert words(spark, str(tmp_path / "out")) == expected((0, 0, 3))
    assert [path.name for path in (tmp_path / "log" / "load" / "log").iterdir()] == ["00000000000000000001.json"]
    for wrong, sentence in (
        (ExactlyOnceFiles(str(tmp_path / "out"), "load"), "all drivers that write one load need the same log="),
        (ExactlyOnceFiles(str(tmp_path / "two"), "load", log=str(tmp_path / "log")), "a log belongs to one folder"),
    ):
        with pytest.raises(LoadFailed, match=sentence):
            wrong(frame_of(spark, (0, 0, 3)), 0)
    assert words(spark, str(tmp_path / "out")) == expected((0, 0, 3))


class CopyingFiles(HadoopFiles):
    """Renames as S3A does: by a copy and a deletion, with an error where the name is taken."""

    dies = False

    def rename(self, source: str, target: str) -> bool:
        there, here = self._at(source), self._at(target)
        if self._files.exists(here):
            self._files.create(here, False)  # Java's error for a name that is taken
        conf = self._jvm.org.apache.hadoop.conf.Configuration()
        self._jvm.org.apache.hadoop.fs.FileUtil.copy(self._files, there, self._files, here, False, conf)
        if self.dies:
            raise KeyboardInterrupt
        return bool(self._files.delete(there, False))


def test_a_copy_of_an_object_store_that_was_cut_short_is_ended_by_the_next(spark: SparkSession, tmp_path: Path) -> None:
    store = CopyingFiles(spark, str(tmp_path))
    store.put_if_absent("staged", "rows")
    store.dies = True
    with pytest.raises(KeyboardInterrupt):
        store.move("staged", "day=1/part")
    store.dies = False
    for _ in range(2):
        store.move("staged", "day=1/part")
        assert (store.read("staged"), store.read("day=1/part")) == (None, "rows")
    store.put_if_absent("another", "rows")
    (tmp_path / "file").touch()
    with pytest.raises(Py4JJavaError):
        store.move("another", "file/part")
    assert store.read("another") == "rows"


def test_a_batch_of_thousands_of_partitions_may_overlap_what_is_written(spark: SparkSession, tmp_path: Path) -> None:
    count = 2000
    save = ExactlyOnceFiles(str(tmp_path / "out"), "load")
    for offsets in (2, 3):
        rows = spark.range(0, count * offsets, 1, 2)
        save(rows.selectExpr("'t' topic", f"cast(id % {count} as int) partition", f"id div {count} offset"), 0)
    written = spark.read.parquet(str(tmp_path / "out"))
    assert written.columns == ["topic", "partition", "offset"]
    assert (written.count(), written.distinct().count()) == (count * 3, count * 3)


def test_of_many_that_make_one_file_one_does(spark: SparkSession, tmp_path: Path) -> None:
    check_exclusive(HadoopFiles(spark, str(tmp_path / "store")))


def test_on_hdfs(hdfs_jar: Path, java_home: Path, tmp_path: Path) -> None:
    """In a process of its own, since a JVM takes no jar later on."""
    command = [sys.executable, "-m", "tests.spark_bridge.exactly_once.hdfs_program", str(tmp_path)]
    environment = {**os.environ, **class_path(hdfs_jar)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
