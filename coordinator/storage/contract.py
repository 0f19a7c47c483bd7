"""What a store promises, by keyspace. Engines keep it; the runtime asks for nothing more.

A *keyspace* is owned and fenced as a whole: one for each shard, one for the topic registry, one for the store's format.
Whoever acquires a keyspace gets an epoch; appends under an older epoch are refused, so that a process that lost a
keyspace can never write to it.

    store = open…                     engine's own
    keyspace = await store.acquire(s)    an epoch; whoever had it before is fenced
    async for page in keyspace.scan(b""):   its writes of the past, by pages, in the order of keys
    await keyspace.append(writes)        durable, all or nothing, when it returns
    await keyspace.release()             others may acquire it at once
    await store.close()

Errors (all are StorageError):
    StorageUnavailable   cannot be reached or opened now; nothing is known to have changed
    KeyspaceHeld         another live owner has the keyspace
    Fenced               another owner took the keyspace: drop it
    NodeUnavailable      the node that was to get the keyspace is not there; nothing has changed
    AppendFailed         definitely not stored: forget what it was to change, answer "retry"
    AppendDoubtful       may or may not be stored, and the engine could not find out: drop the keyspace, and acquire it
    BatchTooLarge        over `limits`; nothing was stored
    StoredDataInvalid    what is stored cannot be read: another version's, or damaged
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

REGISTRY_KEYSPACE = "topics"
"""The keyspace of the topic registry."""

FORMAT_KEYSPACE = "format"
"""The keyspace of the one record that says in which format the store is. A release of before it was there never
looks.
"""


def shard_keyspace(shard: int) -> str:
    """The keyspace of a shard."""
    return f"shard-{shard}"


class StorageError(Exception):
    """Root of what a store raises; see the module's docstring for the tree."""


class StorageUnavailable(StorageError):  # noqa: N818 - a state of the store, named as users meet it
    """The store cannot be reached or opened now."""


class KeyspaceHeld(StorageError):  # noqa: N818
    """Another live owner has the keyspace."""


class Fenced(StorageError):  # noqa: N818
    """Another owner took the keyspace."""


class NodeUnavailable(StorageError):  # noqa: N818
    """The node that was to get a keyspace has no live lease."""


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

    writes_max: int = 200_000
    """One write does not hold up all others. A larger change is stored in chunks, and counts with the last that it
    needs."""
    bytes_max: int = 64 * 1024 * 1024
    """Of keys and values. One record that is larger is refused: a member's subscription and assignment fit together."""

    def check(self, writes: Sequence[Write]) -> None:
        """Raise BatchTooLarge where the writes do not fit in one append, or a key is over 4 KiB."""
        size_bytes = 0  # a loop, since each commit comes by
        for key, value in writes:
            key_bytes = len(key)
            if key_bytes > KEY_BYTES_MAX:
                raise BatchTooLarge(f"a key of {key_bytes} bytes; a key may have {KEY_BYTES_MAX}: {key[:80]!r}...")
            size_bytes += key_bytes if value is None else key_bytes + len(value)
        if len(writes) > self.writes_max or size_bytes > self.bytes_max:
            raise BatchTooLarge(
                f"{len(writes)} writes of {size_bytes} bytes; a batch may hold {self.writes_max} of {self.bytes_max}"
            )


def size_of(writes: Iterable[Write]) -> int:
    """Bytes of the keys and values, as a batch limit counts them."""
    total = 0  # a loop, since each commit comes by
    for key, value in writes:
        total += len(key) if value is None else len(key) + len(value)
    return total


@dataclass(frozen=True, slots=True)
class AppendMetrics:
    """Of one durable write of the engine: batches joined in it, their writes, and how long it took in seconds."""

    batches: int
    writes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """How a store stands.

    trouble: why nothing can be stored now, in a few words that name no file, for anybody to read; None while it can.
    log_bytes: size of its write-ahead log; 0 without one.
    """

    trouble: str | None = None
    log_bytes: int = 0


class Keyspace(Protocol):
    """An acquired keyspace. Appends of one keyspace are stored in the order in which they were called."""

    @property
    def epoch(self) -> int:
        """Grows with each acquisition of the keyspace."""

    @property
    def limits(self) -> BatchLimits:
        """What one append may hold."""

    def scan(self, prefix: bytes) -> AsyncIterator[Sequence[tuple[bytes, bytes]]]:
        """Pages of (key, value), in the order of keys, of all keys that begin so. Sees every append that returned."""

    def is_current(self) -> bool:
        """Whether nobody else can own the keyspace at this instant, so that what the owner has in memory may be told.

        False once the keyspace is released, handed over or known to be lost; on an engine with leases also from the
        lease's deadline on, until the lease is known to have gone on. Never waits.
        """

    async def append(self, writes: Sequence[Write]) -> None:
        """Store all the writes or none; on return they are durable. Several may be under way at once."""

    async def release(self) -> None:
        """Give the keyspace up, after the appends under way; releasing twice is no error."""


class Store(Protocol):
    """An open store."""

    async def acquire(self, keyspace: str) -> Keyspace:
        """Become the owner of a keyspace. Raises KeyspaceHeld, StorageUnavailable; Fenced where this never helps."""

    @property
    def status(self) -> StoreStatus:
        """How it stands now. After a failure it says so until something can be stored again, which the engine tries by
        itself.
        """

    async def close(self) -> None:
        """Finish what is under way, release everything, close. Closing twice is no error.

        Raises nothing, and returns after the engine's own deadline even if its disk hangs: then calls under way are
        never answered, and what was acknowledged is safe.
        """
