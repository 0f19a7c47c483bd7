"""From a record to its partition, as Kafka's producers place it. Which member owns a partition is not said here.

Whoever writes records by the rule for keys, or asks it, agrees with every producer that uses Kafka's default
partitioner. A record without a key has no place of its own: `in_turn`, `by_chance` and `stick` are the ways to find
one. What they need of the past, of the clock or of chance comes in as an argument.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

_MASK = 0xFFFF_FFFF
_SEED = 0x9747_B28C
_FACTOR = 0x5BD1_E995


def murmur2(key: bytes) -> int:
    """The signed 32-bit MurmurHash2 of `key`, with the seed that Kafka uses.

    Source: the published algorithm (little-endian words of four bytes, then the one to three left over).
    """
    whole = len(key) & ~3
    value = _SEED ^ len(key)
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        mixed = word * _FACTOR & _MASK
        mixed = (mixed ^ mixed >> 24) * _FACTOR
        value = (value * _FACTOR ^ mixed) & _MASK
    if whole < len(key):
        value = (value ^ int.from_bytes(key[whole:], "little")) * _FACTOR & _MASK
    value = (value ^ value >> 13) * _FACTOR & _MASK
    value ^= value >> 15
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition, in 0..partitions-1, of records with this key. `partitions` must be at least 1.

    The sign bit is cut off, which is not the same as the absolute value that places groups on shards.
    Source: Kafka's `BuiltInPartitioner.partitionForKey` (in older clients `DefaultPartitioner`).
    """
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def partition_for_record(explicit: int | None, key: bytes | None, partitions: int, keyless: Callable[[], int]) -> int:
    """The partition that the writer names, else that of the key, else what `keyless` answers.

    `keyless` is called only for a record that has neither; an empty key is a key. `partitions` must be at least 1.
    Errors: ValueError if the partition that was named or answered is none of the topic's.
    Source: the order in which Kafka's `KafkaProducer` and its default partitioner look.
    """
    if explicit is None and key is not None:
        return partition_for_key(key, partitions)
    partition = keyless() if explicit is None else explicit
    if not 0 <= partition < partitions:
        raise ValueError(f"partition {partition} does not exist: the topic has 0 to {partitions - 1}")
    return partition


def in_turn(turn: int, partitions: int) -> int:
    """Round robin: the partition of the record with this running number. `partitions` must be at least 1."""
    return turn % partitions


def by_chance(chance: float, partitions: int) -> int:
    """Random: `chance` is drawn by the caller, evenly from [0, 1). `partitions` must be at least 1."""
    return int(chance * partitions)


@dataclass(frozen=True, slots=True)
class Stay:
    """A partition that records without a key stay with until a time."""

    partition: int
    until_ms: int


def stick(stay: Stay | None, now_ms: int, stay_ms: int, partitions: int, chance: float) -> Stay:
    """Sticky for a time: the stay that holds at `now_ms`; the caller keeps it for its next record.

    A stay that is over, or whose partition is gone, gives way to one of `stay_ms` in another partition, by chance as in
    `by_chance`; a topic with one partition has no other. It saves connections and makes larger batches, and spreads
    evenly only over many stays. `partitions` must be at least 1.
    Source: Kafka's first producers, which drew a partition for each refresh of the topics (10 minutes).
    """
    if stay is not None and now_ms < stay.until_ms and stay.partition < partitions:
        return stay
    if stay is None or partitions == 1 or stay.partition >= partitions:
        return Stay(by_chance(chance, partitions), now_ms + stay_ms)
    step = 1 + by_chance(chance, partitions - 1)
    return Stay((stay.partition + step) % partitions, now_ms + stay_ms)
