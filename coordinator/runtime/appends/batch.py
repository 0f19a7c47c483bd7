"""What an executor passes to its writer: the steps that become durable together, or one step that is too large."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rallypoint.coordinator.core.commands import Command
from rallypoint.coordinator.core.effects import Effect
from rallypoint.coordinator.core.records import GroupFact, GroupRecord, MemberRecord
from rallypoint.coordinator.runtime.appends.chunks import Change, cut
from rallypoint.coordinator.storage.codec import encode
from rallypoint.coordinator.storage.contract import BatchLimits, StorageError, Write, size_of

ENCODED_AT_ONCE_MAX = 200
"""Records that are encoded before others have their turn: some milliseconds. A step with more of them goes alone."""


CHARACTERS_PER_RECORD = 5_000
"""What a member says, and has, that takes as long to be encoded as another record."""


def weight_of(record: GroupFact) -> int:
    """So many records of the usual size take as long to be encoded."""
    if type(record) is MemberRecord:
        return 1 + (len(record.metadata.text) + len(record.assignment.text)) // CHARACTERS_PER_RECORD
    return 1


class BatchOwner(Protocol):
    """The executor, as its batch knows it."""

    def settled(self, batch: "GroupBatch", error: StorageError | None) -> None:
        """The append under way has ended, one way or the other."""

    def give_up(self) -> None:
        """A fault of ours, which is logged, has made the group what it should not be."""


@dataclass(slots=True)
class Stepped:
    """What one command made. `large`: its records where they are not encoded yet, or no append can hold them;
    `header`: the group's before the step. `is_long`: its effects are too many to be released in one go. Never changed;
    freezing it would cost each heartbeat a microsecond.
    """

    command: Command
    writes: Sequence[Write]
    size_bytes: int
    effects: Sequence[Effect]
    large: Sequence[GroupFact] = ()
    header: GroupRecord | None = None
    is_long: bool = False


class GroupBatch:
    """The steps of an executor that become durable, and are released, together. At most one step stores if it is large.

    `deletions_seen` is the group's after the last step. `weight`: so many steps of the usual size were made for it.
    `stepped_at_ms`: the instant of its last step, or of the turn in which it is stored.
    """

    __slots__ = (
        "_deleted",
        "_executor",
        "_large",
        "deletions_seen",
        "size_bytes",
        "stepped_at_ms",
        "steps",
        "stores",
        "weight",
        "writes",
    )

    def __init__(self, executor: BatchOwner) -> None:
        self._executor = executor
        self._large: Stepped | None = None
        self._deleted: set[bytes] = set()
        self.steps: list[Stepped] = []
        self.writes: list[Write] = []
        self.size_bytes = 0
        self.stores = False
        self.weight = 0
        self.deletions_seen = 0
        self.stepped_at_ms = 0

    @property
    def is_large(self) -> bool:
        """Its records are still to be encoded, and perhaps cut: `cut` gives the batches to store."""
        return self._large is not None

    def has_room_for(self, stepped: Stepped, limits: BatchLimits) -> bool:
        """Whether it can be stored together with what is here already. A step of its own is taken whatever its size.

        A key that one step deletes and another writes is stored in two appends. Together they would be one write, and
        the store's history would not show that the group ended, and that another of its name began.
        """
        if not self.stores or not (stepped.writes or stepped.large):
            return True
        if self.is_large or stepped.large or self._writes_what_is_deleted(stepped):
            return False
        return (
            len(self.writes) + len(stepped.writes) <= limits.writes_max
            and self.size_bytes + stepped.size_bytes <= limits.bytes_max
        )

    def add(self, stepped: Stepped) -> None:
        """Take the step in."""
        self.steps.append(stepped)
        if stepped.large:
            self._large = stepped
            self.stores = True
        elif stepped.writes:
            self.writes.extend(stepped.writes)
            for write in stepped.writes:
                if write.value is None:
                    self._deleted.add(write.key)
            self.size_bytes += stepped.size_bytes
            self.stores = True

    def _writes_what_is_deleted(self, stepped: Stepped) -> bool:
        return bool(self._deleted) and any(
            write.value is not None and write.key in self._deleted for write in stepped.writes
        )

    async def cut(self, limits: BatchLimits) -> list[list[Write]]:
        """Encode a large step in slices; the batches to store one after the other. Raises BatchTooLarge."""
        assert self._large is not None
        changes: list[Change] = []
        left = ENCODED_AT_ONCE_MAX
        for record in self._large.large:
            if left <= 0:
                left = ENCODED_AT_ONCE_MAX
                await asyncio.sleep(0)
            left -= weight_of(record)
            changes.append((record, encode(record)))
        self.size_bytes = size_of(write for _, write in changes)
        return cut(changes, self._large.header, limits)

    def settle(self, error: StorageError | None) -> None:
        """The batch is durable, or it definitely is not."""
        self._executor.settled(self, error)

    def give_up(self) -> None:
        """A fault of ours, which is logged, has kept it from being stored or settled."""
        self._executor.give_up()
