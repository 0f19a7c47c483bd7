"""What a store promises, by space. Engines keep it; the runtime asks for nothing more.

A *space* is owned and fenced as a whole: one for each shard, and one for the topic registry. Whoever acquires a space
gets an epoch; appends under an older epoch are refused, so that a process that lost a space can never write to it.

    store = open…                     engine's own
    space = await store.acquire(s)    an epoch; whoever had it before is fenced
    async for page in space.scan(b""):   its writes of the past, by pages, in the order of keys
    await space.append(writes)        durable, all or nothing, when it returns
    await space.release()             others may acquire it at once
    await store.close()

Errors (all are StorageError):
    StorageUnavailable   cannot be reached or opened now; nothing is known to have changed
    SpaceHeld            another live owner has the space
    Fenced               another owner took the space: drop it
    AppendFailed         definitely not stored: forget what it was to change, answer "retry"
    AppendDoubtful       may or may not be stored, and the engine could not find out: drop the space, acquire it anew
    BatchTooLarge        over `limits`; nothing was stored
    StoredDataInvalid    what is stored cannot be read: another version's, or damaged
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

REGISTRY_SPACE = "topics"
"""The space of the topic registry."""


def shard_space(shard: int) -> str:
    """The space of a shard."""
    return f"shard-{shard}"


class StorageError(Exception):
    """Root of what a store raises; see the module's docstring for the tree."""


class StorageUnavailable(StorageError):  # noqa: N818 - a state of the store, named as users meet it
    """The store cannot be reached or opened now."""


class SpaceHeld(StorageError):  # noqa: N818
    """Another live owner has the space."""


class Fenced(StorageError):  # noqa: N818
    """Another owner took the space."""


class AppendFailed(StorageError):  # noqa: N818
    """The batch is definitely not stored."""


class AppendDoubtful(StorageError):  # noqa: N818
    """The batch may or may not be stored."""


class BatchTooLarge(StorageError):  # noqa: N818
    """The batch is over the limits of the engine."""


class StoredDataInvalid(StorageError):  # noqa: N818
    """What is stored cannot be read by this version."""


KEY_BYTES_MAX = 4096


class Write(NamedTuple):
    """One key's new value; None deletes it. Keys are at most 4 KiB. In a batch the last write of a key counts."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much one append may hold. etcd's defaults are 128 operations (one is the fence's own) and 1.5 MiB."""

    writes_max: int
    bytes_max: int

    def check(self, writes: Sequence[Write]) -> None:
        """Raise BatchTooLarge where the writes do not fit in one append, or a key is over 4 KiB."""
        size_bytes = size_of(writes)
        if len(writes) > self.writes_max or size_bytes > self.bytes_max:
            raise BatchTooLarge(
                f"{len(writes)} writes of {size_bytes} bytes; a batch may hold {self.writes_max} of {self.bytes_max}"
            )
        longest = max((write.key for write in writes), key=len, default=b"")
        if len(longest) > KEY_BYTES_MAX:
            raise BatchTooLarge(f"a key of {len(longest)} bytes; a key may have {KEY_BYTES_MAX}: {longest[:80]!r}...")


def size_of(writes: Iterable[Write]) -> int:
    """Bytes of the keys and values, as a batch limit counts them."""
    total = 0  # a loop, since each commit comes by
    for key, value in writes:
        total += len(key) if value is None else len(key) + len(value)
    return total


@dataclass(frozen=True, slots=True)
class AppendFigures:
    """Of one durable write of the engine: batches joined in it, their writes, and how long it took in seconds."""

    batches: int
    writes: int
    seconds: float


class Space(Protocol):
    """An acquired space. Appends of one space are stored in the order in which they were called."""

    @property
    def epoch(self) -> int:
        """Grows with each acquisition of the space."""

    @property
    def limits(self) -> BatchLimits:
        """What one append may hold."""

    def scan(self, prefix: bytes) -> AsyncIterator[Sequence[tuple[bytes, bytes]]]:
        """Pages of (key, value), in the order of keys, of all keys that begin so. Sees every append that returned."""

    async def append(self, writes: Sequence[Write]) -> None:
        """Store all the writes or none; on return they are durable. Several may be under way at once."""

    async def release(self) -> None:
        """Give the space up, after the appends under way; releasing twice is no error."""


class Store(Protocol):
    """An open store."""

    async def acquire(self, space: str) -> Space:
        """Become the owner of a space. Raises SpaceHeld or StorageUnavailable."""

    async def close(self) -> None:
        """Finish what is under way, release everything, close. Closing twice is no error."""
