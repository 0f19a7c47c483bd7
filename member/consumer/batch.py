"""What a handler gets: some records of one partition, in order, and word of whether they are wanted back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

R = TypeVar("R")


class Offer(Protocol):
    """A batch's way to whoever polls, if there is no handler. `is_withdrawn`: nobody has had it, and nobody will."""

    is_taken: bool
    is_withdrawn: bool

    def revoke(self) -> None:
        """The partition is to be given up, or is lost, or the consumer stops."""
        ...

    def withdraw(self) -> None:
        """Let nobody have it from now on. Nothing if somebody has it."""
        ...


@dataclass(slots=True)
class Batch(Generic[R]):
    """Records of one partition, in order, at least one. The position moves to `next_offset` when the handler returns.

    `offset`: where they were read; the first record's, or before it if offsets are missing. `generation_id`: of the
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
    _offer: Offer | None = field(default=None, repr=False, compare=False)
    _taken: Callable[[], None] | None = field(default=None, repr=False, compare=False)

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
        """Let `revoking` be true from now on; the consumer calls it, in its event loop."""
        self._revoking = True
        if self._offer is not None:
            self._offer.revoke()

    # --- for consumers without a handler -----------------------------------------------------------------------------

    @property
    def is_handed_over(self) -> bool:
        """Whether somebody has it. A handler has it as soon as there is one."""
        return self._offer is None or self._offer.is_taken

    @property
    def is_withdrawn(self) -> bool:
        """Whether it was offered, and taken back before anybody had it."""
        return self._offer is not None and self._offer.is_withdrawn

    def offer(self, offer: Offer) -> None:
        """It waits for somebody to take it."""
        self._offer = offer

    def withdraw(self) -> None:
        """Take it back, unless somebody has it."""
        if self._offer is not None:
            self._offer.withdraw()

    def when_taken(self, taken: Callable[[], None]) -> None:
        """Have it called when somebody takes what was offered."""
        self._taken = taken

    def note_taken(self) -> None:
        """Somebody has taken it."""
        if self._taken is not None:
            self._taken()
