"""A driver that runs the documentation's writing examples side by side: `python -m tests.spark_bridge.snippet_program`.

Its argument is JSON: `texts` by name, what `clicks` is for each (`options`), and `sent`, a file for what an example
sends away. It says the name of each that runs; the last text is a loop that does not return.
"""

import json
import logging
import os
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from rallypoint import spark as rallypoint_spark
from tests.spark_bridge.driver_program import Voice
from tests.spark_bridge.spark_run import running_spark


def main(text: str) -> None:
    """Run until it is killed."""
    voice, given = Voice(), json.loads(text)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.basicConfig(level=logging.INFO)
    with running_spark() as spark, Path(given["sent"]).open("a", buffering=1) as sent:
        rallypoint_spark.register(spark)

        def send(row: Any) -> None:
            sent.write(json.dumps([row.topic, row.partition, row.offset]) + "\n")

        def begin(name: str, stream: str) -> StreamingQuery:
            clicks = spark.readStream.format("rallypoint").options(**given["options"][name]).load()
            names: dict[str, Any] = {"spark": spark, "clicks": clicks, "send": send}
            exec(stream, names)
            query: StreamingQuery = names["query"]
            return query

        def watch(name: str, query: StreamingQuery) -> None:
            with suppress(Exception):  # asked for below
                query.awaitTermination()
            voice.say("failed", name=name, sentence=str(query.exception()))

        *streams, (_, loop) = given["texts"].items()
        for name, stream in streams:
            query = rallypoint_spark.start(partial(begin, name, stream))
            threading.Thread(target=watch, args=(name, query), daemon=True).start()
            voice.say(name)
        exec(loop, {"spark": spark})


if __name__ == "__main__":
    main(sys.argv[1])
