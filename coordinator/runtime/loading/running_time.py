"""Writes down when a shard is served, beside its groups, so that a load knows for how long it was not.

The record is written ahead of the time that it covers, and before whatever is stored in that time. Each step of a group
checks whether it is due. Each group has a step in each interval of `offsets_retention_check_interval_ms`, so the record
is written in time even if nothing else happens. A shard without groups writes nothing.
"""

import logging

from rallypoint.coordinator.core import running_time
from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.records import RunningTimeRecord
from rallypoint.coordinator.runtime.appends.writer import Writer
from rallypoint.coordinator.storage.codec import RUNNING_TIME_KEY, decode, encode
from rallypoint.coordinator.storage.contract import (
    AppendFailed,
    Keyspace,
    StorageError,
    StoredDataInvalid,
    Write,
    size_of,
)

TRIED_AGAIN_MS = 10_000
"""So long after a write that failed, at most: what was written ahead must reach until then."""

logger = logging.getLogger(__name__)


class RunningTime:
    """Of one life of a shard."""

    def __init__(self, stored: RunningTimeRecord | None, now_ms: int, rules: Rules) -> None:
        """`stored`: what the lives before have left."""
        self.record = running_time.go_on(stored, now_ms, rules)
        self._now_ms = now_ms
        self._rules = rules
        self._due_at_ms: int | None = None

    def first_write(self) -> Write:
        """To be stored with a load that has found groups."""
        self._due_at_ms = self._now_ms + self._rules.offsets_retention_check_interval_ms
        return encode(self.record)

    def goes_on(self, now_ms: int, writer: Writer) -> None:
        """A group of the shard does something now."""
        if self._due_at_ms is not None and now_ms >= self._due_at_ms:
            self._write(now_ms, writer)

    def is_stored_to(self, now_ms: int, writer: Writer) -> None:
        """Something is about to be stored in the shard; perhaps the first that there is."""
        if self._due_at_ms is None or now_ms >= self._due_at_ms:
            self._write(now_ms, writer)

    def _write(self, now_ms: int, writer: Writer) -> None:
        self._now_ms = now_ms
        self._due_at_ms = now_ms + self._rules.offsets_retention_check_interval_ms
        self.record = running_time.renewed(self.record, now_ms, self._rules)
        writer.submit(_Batch(self, encode(self.record)))

    def settled(self, error: StorageError | None) -> None:
        """The write is durable, or not."""
        if error is not None:
            self._due_at_ms = self._now_ms + min(TRIED_AGAIN_MS, self._rules.offsets_retention_check_interval_ms // 4)
            logger.warning("the running time of a shard was not written down: %s", error)


class _Batch:
    """One write of the record."""

    def __init__(self, running: RunningTime, write: Write) -> None:
        self.writes = (write,)
        self.size_bytes = size_of(self.writes)
        self._running = running

    def settle(self, error: StorageError | None) -> None:
        """See `Batch`."""
        self._running.settled(error)

    def give_up(self) -> None:
        """See `Batch`."""
        self._running.settled(AppendFailed("a fault of the service, which its log has in full"))


async def stored_running_time(keyspace: Keyspace, *, of_newer_minor: bool = False) -> RunningTimeRecord | None:
    """What the keyspace says. One that cannot be read is as none, and written again: no group hangs on it alone.

    Raises whatever the scan raises.
    """
    async for page in keyspace.scan(RUNNING_TIME_KEY):
        for key, value in page:
            if key == RUNNING_TIME_KEY:
                return _read(value, of_newer_minor)
    return None


def _read(value: bytes, of_newer_minor: bool) -> RunningTimeRecord | None:
    try:
        record = decode(RUNNING_TIME_KEY, value, of_newer_minor=of_newer_minor)
        if not isinstance(record, RunningTimeRecord) or not record.pauses:
            raise StoredDataInvalid(f"the stored record {RUNNING_TIME_KEY!r} does not say when counting began")
    except StoredDataInvalid as error:
        logger.error("the running time of a shard is counted again: %s", error)
        return None
    return record
