"""The orders: made up, the same ones each time, and how they become a topic. No Spark, no service, no database."""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rallypoint.spark import FilesWriter, Record

TOPIC = "orders"
SEED = 2026


class Order(NamedTuple):
    """One record. `cents` is what was paid."""

    order_id: int
    customer: str
    cents: int


Place = tuple[int, int]
"""A partition, and an offset in it."""


def make_orders(count: int) -> list[Order]:
    """So many orders, numbered from 0."""
    chance = random.Random(SEED)
    return [Order(n, f"customer-{chance.randrange(1000):03}", chance.randrange(100, 100_000)) for n in range(count)]


def lay_out(orders: Sequence[Order], partitions: int) -> dict[Place, Order]:
    """Which order stands where in the topic: they go round the partitions in turn."""
    return {(number % partitions, number // partitions): order for number, order in enumerate(orders)}


def write_orders(writer: FilesWriter, sent: Mapping[Place, Order], places: Iterable[Place]) -> None:
    """Append the orders of these places to the topic, each as a JSON object. The places continue what was written."""
    records: dict[int, list[Record]] = {}
    for place in places:
        records.setdefault(place[0], []).append(Record(value=json.dumps(sent[place]._asdict()).encode()))
    for partition, found in records.items():
        writer.append(partition, found)
