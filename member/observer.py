"""What can be seen of members and consumers while they run, for metrics and the like. Nothing here counts or decides.

One observer may watch many. Its methods are called in the event loop of what it watches, and must return at once and
raise nothing.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from pydantic import BaseModel

from rallypoint.member.assignment import Assignment
from rallypoint.member.core.events import ChannelLost, Event
from rallypoint.member.core.outcomes import Answered, Outcome, Refused, Waiting
from rallypoint.member.core.states import State
from rallypoint.member.options import MemberOptions
from rallypoint.member.transport import Transport
from rallypoint.protocol.operations import Operation

UNREACHABLE = "UNREACHABLE"
"""The outcome of a call that got no answer; others are those of the service's own metrics: NONE, WAITING, an error."""


class ObservedMember(Protocol):
    """What may be read of a member at any time, from any thread; `GroupMember` has it."""

    @property
    def options(self) -> MemberOptions:
        """The options that it was made with."""
        ...

    @property
    def state(self) -> State:
        """Its state."""
        ...

    @property
    def assignment(self) -> Assignment | None:
        """All that it holds."""
        ...


class ObservedConsumer(Protocol):
    """What may be read of a consumer at any time, from any thread; `Consumer` has it."""

    @property
    def options(self) -> MemberOptions:
        """The options that it was made with."""
        ...

    @property
    def paused(self) -> frozenset[tuple[str, int]]:
        """The partitions that are paused."""
        ...

    @property
    def in_hand_ms(self) -> float:
        """How long ago, in ms, the handling of the oldest batch in hand began; 0 if there is none."""
        ...


class Observer(Protocol):
    """Gets what happens to members and consumers, as `MemberMetrics` does. Its methods are called in the event loop
    and must not block or raise.
    """

    def moved(self, member: ObservedMember, old: State, new: State) -> None:
        """The member's state changed; its first move is out of Unjoined, its last to Left or Failed."""

    def called(self, member: ObservedMember, operation: str, outcome: str, seconds: float) -> None:
        """A call to the service ended so. `outcome`: NONE, WAITING, the name of an error, UNREACHABLE."""

    def channel_lost(self, member: ObservedMember) -> None:
        """The connection that carries the member's channel broke."""

    def consumer_began(self, consumer: ObservedConsumer) -> None:
        """The consumer was started."""

    def consumer_ended(self, consumer: ObservedConsumer) -> None:
        """The consumer has stopped."""

    def batch_ended(self, consumer: ObservedConsumer, record_count: int, seconds: float, *, failed: bool) -> None:
        """A handler returned or raised (`failed`), after so many seconds."""

    def handler_stuck(self, consumer: ObservedConsumer) -> None:
        """A handler ran for longer than `max_poll_interval_ms`."""


class ObservedTransport:
    """A transport that reports its calls: `called` gets the operation, the outcome and how long it took in seconds."""

    def __init__(
        self, inner: Transport, called: Callable[[str, str, float], None], channel_lost: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._called = called
        self._channel_lost = channel_lost

    def attach(self, on_event: Callable[[Event], None]) -> None:
        """As `Transport.attach`."""

        def on_both(event: Event) -> None:
            if isinstance(event, ChannelLost):
                self._channel_lost()
            on_event(event)

        self._inner.attach(on_both)

    async def call(
        self, url: str, operation: Operation, body: BaseModel | None, *, group_id: str, timeout_ms: int
    ) -> Outcome:
        """As `Transport.call`. One that is cancelled is not reported."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcome = await self._inner.call(url, operation, body, group_id=group_id, timeout_ms=timeout_ms)
        self._called(operation.name, name_of(outcome), loop.time() - began)
        return outcome

    async def close(self, member_id: str = "") -> None:
        """As `Transport.close`."""
        await self._inner.close(member_id)


def name_of(outcome: Outcome) -> str:
    """The outcome in the words of the service's metrics."""
    match outcome:
        case Answered():
            return "NONE"
        case Waiting():
            return "WAITING"
        case Refused(problem):
            return problem.error_name
        case _:
            return UNREACHABLE
