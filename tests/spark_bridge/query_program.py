"""A driver that runs the text of a query: `python -m tests.spark_bridge.query_program '{"query": …}'`.

It runs on the PySpark of whichever Python runs it, with the jars it is given. The text finds `spark`, `write` and
`checkpoint`, and leaves a `query`. Each batch appends its rows to the file `out`, a line of JSON each, at once. The end
of standard input ends the query: in good order if it is one of ours.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def plain(value: Any) -> str:
    """Bytes as text: older versions of PySpark give a bytearray, newer ones bytes."""
    return bytes(value).hex() if isinstance(value, bytes | bytearray) else str(value)


def main(query: str, jars: list[str], conf: dict[str, str], register: bool, out: str, checkpoint: str) -> None:
    """Run it until standard input ends."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name, value in {**conf, **({"spark.jars": ",".join(jars)} if jars else {})}.items():
        builder = builder.config(name, value)
    spark: Any = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if register:
        from rallypoint import spark as rallypoint_spark  # noqa: PLC0415 - the other PySpark is too old for it

        rallypoint_spark.register(spark)

    def write(frame: DataFrame, batch_id: int) -> None:
        rows = [json.dumps(row.asDict(recursive=True), default=plain) for row in frame.collect()]
        with Path(out).open("a", encoding="utf-8") as lines:
            lines.write("".join(f"{row}\n" for row in rows))

    names: dict[str, Any] = {"spark": spark, "write": write, "checkpoint": checkpoint}
    exec(query, names)
    sys.stdin.read()
    if register:
        rallypoint_spark.stop(names["query"])
    else:
        names["query"].stop()
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
