"""From a record to its partition, as Kafka's producers choose it.

`partition_for_key` agrees with every producer that uses Kafka's default partitioner. `in_turn`, `by_chance` and `stick`
choose the partition of records without a key. Their state, the time and random numbers are arguments.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

_MASK = 0xFFFF_FFFF
_SEED = 0x9747_B28C
_FACTOR = 0x5BD1_E995


def murmur2(key: bytes) -> int:
    """The signed 32-bit MurmurHash2 of `key`, with Kafka's seed.

    Source: the published algorithm (little-endian words of four bytes, then the one to three remaining bytes).
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
    """The partition, in 0..partitions-1, of records with this key.

    `partitions`: the topic's number of partitions, at least 1.

    It clears the sign bit of the hash. The mapping of groups to shards takes the absolute value instead.
    Source: Kafka's `BuiltInPartitioner.partitionForKey` (in older clients `DefaultPartitioner`).
    """
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def partition_for_record(explicit: int | None, key: bytes | None, partitions: int, keyless: Callable[[], int]) -> int:
    """The explicit partition if there is one, otherwise that of the key, otherwise the result of `keyless`.

    `explicit`: the partition that the producer's caller names, or None.
    `key`: the record's key, or None. An empty key is a key.
    `partitions`: the topic's number of partitions, at least 1.
    `keyless`: called only for a record without a partition and a key.

    Raises ValueError if the partition does not exist.
    Source: the order of precedence of Kafka's `KafkaProducer` and its default partitioner.
    """
    if explicit is None and key is not None:
        return partition_for_key(key, partitions)
    partition = keyless() if explicit is None else explicit
    if not 0 <= partition < partitions:
        raise ValueError(f"partition {partition} does not exist: the topic has 0 to {partitions - 1}")
    return partition


def in_turn(turn: int, partitions: int) -> int:
    """Round-robin: the partition of the `turn`-th record. `partitions` must be at least 1."""
    return turn % partitions


def by_chance(chance: float, partitions: int) -> int:
    """Random: the caller draws `chance` uniformly from [0, 1). `partitions` must be at least 1."""
    return int(chance * partitions)


@dataclass(frozen=True, slots=True)
class Stay:
    """The sticky partition of records without a key, and until when it is used."""

    partition: int
    until_ms: int


def stick(stay: Stay | None, now_ms: int, stay_ms: int, partitions: int, chance: float) -> Stay:
    """Sticky for a time: the sticky partition at `now_ms`. The caller passes the result with its next record.

    `stay`: the previous result; None for the first record.
    `now_ms`: the current time.
    `stay_ms`: for how long a new sticky partition is used.
    `partitions`: the topic's number of partitions, at least 1.
    `chance`: drawn as for `by_chance`; used if a new partition is chosen.

    A new partition is chosen if the time is over or the partition no longer exists. It differs from the previous one,
    unless the topic has only one. Sticky partitions make larger batches, and are even only in the long run.
    Source: Kafka's first producers, which chose a partition at each refresh of the metadata (10 minutes).
    """
    if stay is not None and now_ms < stay.until_ms and stay.partition < partitions:
        return stay
    if stay is None or partitions == 1 or stay.partition >= partitions:
        return Stay(by_chance(chance, partitions), now_ms + stay_ms)
    step = 1 + by_chance(chance, partitions - 1)
    return Stay((stay.partition + step) % partitions, now_ms + stay_ms)
