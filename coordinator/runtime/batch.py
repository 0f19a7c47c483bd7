"""What a lane hands to its writer: the steps that become durable together, or one step that is too large for that."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from coordinator.core.commands import Command
from coordinator.core.effects import Effect
from coordinator.core.records import GroupFact, GroupRecord
from coordinator.runtime.pieces import Change, cut
from coordinator.storage.codec import encode
from coordinator.storage.contract import BatchLimits, StorageError, Write, size_of

ENCODED_AT_ONCE_MAX = 200
"""Records that are encoded before others have their turn: some milliseconds. A step with more of them goes alone."""


class BatchOwner(Protocol):
    """The lane, as its batch knows it."""

    def settled(self, batch: "LaneBatch", error: StorageError | None) -> None:
        """The append under way has ended, one way or the other."""

    def faulted(self) -> None:
        """A fault of ours is being handled: the group is not what it should be."""


@dataclass(slots=True)
class Stepped:
    """What one command made. `large`: its records where they are not encoded yet, or no append can hold them;
    `header`: the group's before the step. Never changed; freezing it would cost each heartbeat a microsecond.
    """

    command: Command
    writes: Sequence[Write]
    size_bytes: int
    effects: Sequence[Effect]
    large: Sequence[GroupFact] = ()
    header: GroupRecord | None = None


class LaneBatch:
    """The steps of a lane that become durable, and are released, together. At most one step stores if it is large.

    `deletions_seen` is the group's after the last step.
    """

    __slots__ = ("_lane", "_large", "deletions_seen", "size_bytes", "steps", "stores", "writes")

    def __init__(self, lane: BatchOwner) -> None:
        self._lane = lane
        self._large: Stepped | None = None
        self.steps: list[Stepped] = []
        self.writes: list[Write] = []
        self.size_bytes = 0
        self.stores = False
        self.deletions_seen = 0

    @property
    def is_large(self) -> bool:
        """Its records are still to be encoded, and perhaps cut: `cut` gives the batches to store."""
        return self._large is not None

    def has_room_for(self, stepped: Stepped, limits: BatchLimits) -> bool:
        """Whether it can be stored together with what is here already. A step of its own is taken whatever its size."""
        if not self.stores or not (stepped.writes or stepped.large):
            return True
        if self.is_large or stepped.large:
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
            self.size_bytes += stepped.size_bytes
            self.stores = True

    async def cut(self, limits: BatchLimits) -> list[list[Write]]:
        """Encode a large step in slices; the batches to store one after the other. Raises BatchTooLarge."""
        assert self._large is not None
        changes: list[Change] = []
        for record in self._large.large:
            if changes and len(changes) % ENCODED_AT_ONCE_MAX == 0:
                await asyncio.sleep(0)
            changes.append((record, encode(record)))
        self.size_bytes = size_of(write for _, write in changes)
        return cut(changes, self._large.header, limits)

    def settle(self, error: StorageError | None) -> None:
        """The batch is durable, or it definitely is not."""
        self._lane.settled(self, error)

    def give_up(self) -> None:
        """By a fault of ours it will never be durable."""
        self._lane.faulted()
