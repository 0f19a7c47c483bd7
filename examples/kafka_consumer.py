"""Print what comes into topics of Kafka, as one of a group: start it twice, and the partitions are shared.

    python -m examples.kafka_consumer --bootstrap-servers 127.0.0.1:9092 clicks

The group is Rallypoint's, so the service must run: `rallypoint serve`. Ctrl-C or SIGTERM ends it in order.
"""

import argparse
from collections.abc import Sequence

from rallypoint import Batch, BlockingConsumer, ConsumerOptions, run
from rallypoint.sources import KafkaRecord, KafkaSource


def handle(batch: Batch[KafkaRecord]) -> None:
    """Print the records of one partition. When this returns, their end is committed."""
    for record in batch.records:
        print(f"{record.topic}-{record.partition} at {record.offset}: {record.value!r}", flush=True)


def main(given: Sequence[str] | None = None) -> None:
    """Consume until a signal comes."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.kafka_consumer", description="Print what comes into topics."
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092", help="brokers, with commas between")
    parser.add_argument("--coordinator", default="http://127.0.0.1:8000", help="URL of the service")
    parser.add_argument("--group", default="prints", help="who shares the partitions")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="of librdkafka, as security.protocol=SSL"
    )
    told = parser.parse_args(given)
    more = dict(option.split("=", 1) for option in told.option)
    options = ConsumerOptions(
        coordinator=told.coordinator,
        group_id=told.group,
        topics=tuple(told.topics),
        assignors=("cooperative-sticky",),
    )
    run(BlockingConsumer(options, KafkaSource({"bootstrap.servers": told.bootstrap_servers, **more}), handle))


if __name__ == "__main__":
    main()
