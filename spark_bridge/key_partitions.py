"""Partitions for many keys at once: `assignors.placement.partitioners.partition_for_key` on Arrow arrays. No Spark.

The hash processes a key in words of four bytes. The loop here is over the index of the word. Each step mixes that word
of all keys that are long enough. The keys are sorted by length, so these are a prefix.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rallypoint.assignors.placement.partitioners import partition_for_key

WORDS_MAX = 256
"""Keys with more words than this are hashed one by one, because many steps over few keys would cost more."""

_SEED = np.uint32(0x9747_B28C)
_FACTOR = np.uint32(0x5BD1_E995)

UInt32Array = npt.NDArray[np.uint32]
Int64Array = npt.NDArray[np.int64]


def partitions_of(keys: pa.Array, partitions: int) -> pa.Array:
    """The partition, in 0..partitions-1, of each key, as int32. Null for a null key.

    `keys`: a binary array.
    `partitions`: the number of partitions, at least 1.

    Cost: O(bytes), in C except for keys beyond `WORDS_MAX`.
    """
    keys = keys.cast(pa.large_binary())
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, len(keys) + 1, keys.offset * 8)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    lengths = np.diff(offsets)
    partitions_found = np.zeros(len(keys), np.int32)
    long = lengths // 4 > WORDS_MAX
    short = np.flatnonzero(~long)
    hashes = _murmur2(data, offsets[:-1][short], lengths[short])
    partitions_found[short] = (hashes & np.uint32(0x7FFF_FFFF)) % np.uint32(partitions)
    for index in np.flatnonzero(long):
        partitions_found[index] = partition_for_key(data[offsets[index] : offsets[index + 1]].tobytes(), partitions)
    return pa.array(partitions_found, pa.int32(), mask=keys.is_null().to_numpy(zero_copy_only=False))


def _murmur2(data: npt.NDArray[np.uint8], starts: Int64Array, lengths: Int64Array) -> UInt32Array:
    """The unsigned hash of each key. Arithmetic of uint32 arrays wraps at 32 bits."""
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    words = lengths // 4
    hashes = _SEED ^ lengths.astype(np.uint32)
    for word_index in range(int(words[0]) if len(words) else 0):
        run = int(np.searchsorted(-words, -word_index))  # how many keys have this word
        mixed = _bytes(data, starts[:run] + 4 * word_index, 4) * _FACTOR
        mixed = (mixed ^ (mixed >> np.uint32(24))) * _FACTOR
        hashes[:run] = (hashes[:run] * _FACTOR) ^ mixed
    for left in (1, 2, 3):
        these = np.flatnonzero(lengths % 4 == left)
        tail = _bytes(data, starts[these] + 4 * words[these], left)
        hashes[these] = (hashes[these] ^ tail) * _FACTOR
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _FACTOR
    hashes ^= hashes >> np.uint32(15)
    unsorted = np.empty_like(hashes)
    unsorted[order] = hashes
    return unsorted


def _bytes(data: npt.NDArray[np.uint8], at: Int64Array, count: int) -> UInt32Array:
    """The little-endian number of `count` bytes at each offset."""
    number = np.zeros(len(at), np.uint32)
    for byte in range(count):
        number |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return number
