"""The handler of a consumer that has none: `poll` takes each batch, and the next `poll` says that it is handled.

So all that holds for handlers holds here: the group waits for a batch that was taken, one that is held for too long is
stuck, and what was not handled is handed over again. Everything runs in one event loop.
"""

import asyncio
from typing import Generic, TypeVar

from rallypoint.member.consumer.batch import Batch, delivery_of

R = TypeVar("R")


class _Offer(Generic[R]):
    """A batch on its way. `is_void`: its partition is gone, so it must not be taken. `settled`: it is handled, given
    back, or withdrawn.
    """

    def __init__(self, batch: Batch[R]) -> None:
        self.batch = batch
        self.is_taken = self.is_void = self.is_stuck = self.is_committed = self.is_withdrawn = False
        self.settled = asyncio.Event()

    def revoke(self) -> None:
        """As `Offer.revoke`."""
        self.is_void = True
        self.withdraw()

    def withdraw(self) -> None:
        """As `Offer.withdraw`. One that is stuck stays: the next member waits until it is taken."""
        if not self.is_taken and not self.is_stuck:
            self.end_untaken()

    def end_untaken(self) -> None:
        """Nobody has had it."""
        self.is_withdrawn = True
        self.settled.set()

    def give_back(self) -> None:
        """What the user has is not handled, unless its end is committed."""
        if not self.is_committed:
            self.batch.stop_at(self.batch.offset)
        self.settled.set()


class Polling(Generic[R]):
    """Of one consumer, which hands over one batch at a time."""

    def __init__(self) -> None:
        self._offer: _Offer[R] | None = None
        self._changed = asyncio.Event()

    async def __call__(self, batch: Batch[R]) -> None:
        """Offer it, and return when it is handled, given back or withdrawn."""
        offer = self._offer = _Offer(batch)
        delivery_of(batch).offer(offer)
        self._changed.set()
        try:
            await offer.settled.wait()
        finally:
            if self._offer is offer:
                self._offer = None

    @property
    def taken(self) -> Batch[R] | None:
        """The batch that was taken, until it is handled or given back."""
        offer = self._taken_offer
        return None if offer is None else offer.batch

    def take(self) -> Batch[R] | None:
        """What is offered, if anything; the user has it from now on."""
        offer = self._offer
        if offer is None or offer.is_taken or offer.settled.is_set():
            return None
        if offer.is_void:
            offer.end_untaken()
            return None
        offer.is_taken = True
        delivery_of(offer.batch).note_taken()
        return offer.batch

    async def change(self) -> None:
        """Wait until something may be there to take, or `wake` was called. Nothing else may have run since `take`."""
        self._changed.clear()
        await self._changed.wait()

    def wake(self) -> None:
        """Wake `change`."""
        self._changed.set()

    def finish(self) -> Batch[R] | None:
        """What the user has is handled, to its end, or as far as `stop_at` says; what that was."""
        if (offer := self._taken_offer) is None:
            return None
        offer.settled.set()
        return offer.batch

    def give_back(self) -> None:
        """What the user has is not handled, unless its end is committed."""
        if (offer := self._taken_offer) is not None:
            offer.give_back()

    def note_committed(self) -> None:
        """The end of what the user has is committed."""
        if (offer := self._taken_offer) is not None:
            offer.is_committed = True

    def note_stuck(self) -> None:
        """No poll has come for too long: the next member waits for one."""
        if self._offer is not None:
            self._offer.is_stuck = True

    @property
    def _taken_offer(self) -> _Offer[R] | None:
        offer = self._offer
        return offer if offer is not None and offer.is_taken and not offer.settled.is_set() else None
