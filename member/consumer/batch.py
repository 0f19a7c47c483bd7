"""What a handler gets: some records of one partition, in order, and word of whether they are wanted back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

R = TypeVar("R")


@dataclass(slots=True)
class Batch(Generic[R]):
    """Records of one partition, in order, at least one. The position moves to `next_offset` when the handler returns.

    `offset`: where they were read; the first record's, or before it where offsets are missing. `generation_id`: of the
    assignment that brought the partition; to be passed to `commit`. `attempt`: 1, and one more after each failure.
    """

    topic: str
    partition: int
    offset: int
    next_offset: int
    records: Sequence[R]
    generation_id: int
    attempt: int = 1
    _revoking: bool = field(default=False, repr=False)

    @property
    def revoking(self) -> bool:
        """Whether the partition is to be given up, or is lost, or the consumer stops: the handler had better come to
        an end. May be read from any thread.
        """
        return self._revoking

    def stop_at(self, next_offset: int) -> None:
        """Say that all below `next_offset` is handled and the rest is not, before the handler returns early.

        The rest is handed over again, to whoever has the partition then. ValueError for an offset outside the batch.
        """
        if not self.offset <= next_offset <= self.next_offset:
            raise ValueError(f"next_offset: {next_offset} is not between {self.offset} and {self.next_offset}")
        self.next_offset = next_offset

    def announce(self) -> None:
        """Let `revoking` be true from now on; the consumer calls it."""
        self._revoking = True
