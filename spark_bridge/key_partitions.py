"""Keys to partitions, many at once: the rule of `assignors.placement.partitioners` on Arrow arrays. Knows no Spark.

The rule reads a key in words of four bytes. Here the loop is over the place of the word, and each step mixes that word
of all keys that are long enough; the keys stand sorted by length, so those are a run.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rallypoint.assignors.placement.partitioners import partition_for_key

WORDS_MAX = 256
"""Keys with more words than this are hashed one by one: long runs of short steps would cost more."""

_SEED = np.uint32(0x9747_B28C)
_FACTOR = np.uint32(0x5BD1_E995)

Words = npt.NDArray[np.uint32]
Places = npt.NDArray[np.int64]


def partitions_of(keys: pa.Array, partitions: int) -> pa.Array:
    """The partition, in 0..partitions-1, of each key, as int32; null for a key that is null.

    `keys`: binary. `partitions` must be at least 1. Cost: O(bytes), in C but for the keys beyond WORDS_MAX.
    Source: as `assignors.placement.partitioners.partition_for_key`, which says the same of one key.
    """
    keys = keys.cast(pa.large_binary())
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, len(keys) + 1, keys.offset * 8)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    lengths = np.diff(offsets)
    places = np.zeros(len(keys), np.int32)
    long = lengths // 4 > WORDS_MAX
    short = np.flatnonzero(~long)
    hashes = _murmur2(data, offsets[:-1][short], lengths[short])
    places[short] = (hashes & np.uint32(0x7FFF_FFFF)) % np.uint32(partitions)
    for index in np.flatnonzero(long):
        places[index] = partition_for_key(data[offsets[index] : offsets[index + 1]].tobytes(), partitions)
    return pa.array(places, pa.int32(), mask=keys.is_null().to_numpy(zero_copy_only=False))


def _murmur2(data: npt.NDArray[np.uint8], starts: Places, lengths: Places) -> Words:
    """The unsigned hash of each key. All arithmetic wraps at 32 bits, as arrays of uint32 do."""
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    words = lengths // 4
    hashes = _SEED ^ lengths.astype(np.uint32)
    for place in range(int(words[0]) if len(words) else 0):
        run = int(np.searchsorted(-words, -place))  # the keys that have a word here
        mixed = _bytes(data, starts[:run] + 4 * place, 4) * _FACTOR
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


def _bytes(data: npt.NDArray[np.uint8], at: Places, count: int) -> Words:
    """The little-endian number of `count` bytes at each place."""
    number = np.zeros(len(at), np.uint32)
    for byte in range(count):
        number |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return number
