"""The load into files on an HDFS: `python -m tests.spark_bridge.exactly_once.hdfs_program FOLDER`, the jar on the class
path. Exit code 0 if HDFS keeps what the load builds on, and the load what it promises.
"""

import os
import sys
from pathlib import Path

from rallypoint.spark_bridge.exactly_once.files import ExactlyOnceFiles
from rallypoint.spark_bridge.exactly_once.hadoop_files import HadoopFiles
from tests.real.hdfs import running_hdfs
from tests.spark_bridge.exactly_once.spark_files import check_exclusive, check_replays, expected, frame_of, words
from tests.spark_bridge.spark_run import running_spark


def main(folder: Path) -> None:
    """Check the file system, the load on it, and a load on a disk whose log is on it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with running_spark() as spark, running_hdfs(spark, folder / "hdfs") as url:
        check_exclusive(HadoopFiles(spark, f"{url}/store"))
        check_replays(spark, f"{url}/clicks")
        local = str(folder / "clicks")
        for _ in range(2):
            ExactlyOnceFiles(local, "load", log=f"{url}/log")(frame_of(spark, (0, 0, 3)), 0)
        assert words(spark, local) == expected((0, 0, 3))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
