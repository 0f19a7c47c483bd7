"""From a record's key to its partition, as Kafka's producers place it. Which member owns a partition is not said here.

Whoever writes records by this rule, or asks it, agrees with every producer that uses Kafka's default partitioner.
"""

import struct

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
