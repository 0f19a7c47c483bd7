"""What a handler gets: records of one partition, in order, and whether the partition is being revoked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

R = TypeVar("R")


class Offer(Protocol):
    """A batch on its way to `Consumer.poll`. `is_withdrawn`: it was not taken, and will not be."""

    is_taken: bool
    is_withdrawn: bool

    def revoke(self) -> None:
        """The partition is to be given up, or is lost, or the consumer stops."""
        ...

    def withdraw(self) -> None:
        """Withdraw it. Nothing if it was taken."""
        ...


class Delivery:
    """How far a batch has come; the consumer's side of a `Batch`, which `delivery_of` gives."""

    __slots__ = ("_offer", "_on_taken", "revoking")

    def __init__(self) -> None:
        self.revoking = False
        self._offer: Offer | None = None
        self._on_taken: Callable[[], None] | None = None

    def revoke(self) -> None:
        """Let `Batch.revoking` be true from now on. Called in the consumer's event loop."""
        self.revoking = True
        if self._offer is not None:
            self._offer.revoke()

    @property
    def is_taken(self) -> bool:
        """Whether the batch was taken. A handler takes it as soon as there is one."""
        return self._offer is None or self._offer.is_taken

    @property
    def is_withdrawn(self) -> bool:
        """Whether the batch was offered, and withdrawn before it was taken."""
        return self._offer is not None and self._offer.is_withdrawn

    def offer(self, offer: Offer) -> None:
        """Offer the batch to `Consumer.poll`."""
        self._offer = offer

    def withdraw(self) -> None:
        """Withdraw the batch, unless it was taken."""
        if self._offer is not None:
            self._offer.withdraw()

    def when_taken(self, on_taken: Callable[[], None]) -> None:
        """Call `on_taken` when the offered batch is taken."""
        self._on_taken = on_taken

    def note_taken(self) -> None:
        """The offered batch was taken."""
        if self._on_taken is not None:
            self._on_taken()


@dataclass(slots=True)
class Batch(Generic[R]):
    """Records of one partition, in order, at least one."""

    topic: str
    """The topic of the records."""

    partition: int
    """The partition of the records."""

    offset: int
    """Where the records were read: the offset of the first one, or one before it if offsets are missing."""

    next_offset: int
    """Where the position moves when the handler returns."""

    records: Sequence[R]
    """The records, as the source makes them."""

    generation_id: int
    """The generation of the assignment that brought the partition, to be passed to `Consumer.commit`."""

    attempt: int = 1
    """1, and one more after each failure of the handler."""

    _delivery: Delivery = field(default_factory=Delivery, init=False, repr=False, compare=False)

    @property
    def revoking(self) -> bool:
        """Whether the handler should come to an end, because the partition is to be given up, or is lost, or the
        consumer stops. May be read from any thread.
        """
        return self._delivery.revoking

    def stop_at(self, next_offset: int) -> None:
        """Declare what is below `next_offset` handled and the rest not, before the handler returns early.

        The rest is handed over again, to whichever consumer has the partition then.

        Args:
            next_offset: An offset from `offset` to `next_offset`; ValueError for any other.
        """
        if not self.offset <= next_offset <= self.next_offset:
            raise ValueError(f"next_offset: {next_offset} is not between {self.offset} and {self.next_offset}")
        self.next_offset = next_offset


def delivery_of(batch: Batch[Any]) -> Delivery:
    """The consumer's side of a batch."""
    return batch._delivery
