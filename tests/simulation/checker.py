"""What all laws share: what they can look at, and the moments at which they are told something."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from rallypoint.coordinator.core.effects import Event, MembersWent
from rallypoint.coordinator.runtime.event_loop.clock import LATE_MS, SETTLE_TURN_MS, SETTLE_TURNS, TICK_MS
from rallypoint.member.core.states import State
from tests.simulation.client import Client
from tests.simulation.fold import Fold, FoldedGroup
from tests.simulation.network import Answer, ApiCall
from tests.simulation.node import Node, Seen
from tests.simulation.plan import Plan
from tests.simulation.trace import Violation


class Stalls:
    """When the node stood still, in the run's milliseconds, and what of a time its clock may count, or has to."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []

    def begin(self, now_ms: int, for_ms: int) -> None:
        """It stands still for so long, unless it ends before."""
        self._spans.append((now_ms, now_ms + for_ms))

    def end(self, now_ms: int) -> None:
        """It goes on, or is gone."""
        if self._spans:
            since_ms, until_ms = self._spans[-1]
            self._spans[-1] = since_ms, min(until_ms, now_ms)

    def is_unread(self, now_ms: int) -> bool:
        """Whether a stall that counts as none of the service's time may be over too shortly for all to be read."""
        return any(
            since_ms <= now_ms <= until_ms + SETTLE_TURNS * SETTLE_TURN_MS and until_ms - since_ms >= TICK_MS + LATE_MS
            for since_ms, until_ms in self._spans
        )

    def ran_ms(self, since_ms: int, now_ms: int) -> int:
        """So much may count at the most: all but the stalls that are too long to be taken for none."""
        return (now_ms - since_ms) - sum(
            _overlap_ms(span, since_ms, now_ms) for span in self._spans if span[1] - span[0] >= TICK_MS + LATE_MS
        )

    def lost_ms(self, since_ms: int, now_ms: int) -> int:
        """So much may be missing at the most: each stall, what passed since the tick before it, and the settling."""
        return sum(
            _overlap_ms((begun_ms - TICK_MS, over_ms + (SETTLE_TURNS + 1) * SETTLE_TURN_MS), since_ms, now_ms)
            for begun_ms, over_ms in self._spans
        )


def _overlap_ms(span: tuple[int, int], since_ms: int, until_ms: int) -> int:
    return max(0, min(span[1], until_ms) - max(span[0], since_ms))


@dataclass(slots=True)
class Sight:
    """The plan, the log, the node that is up, the time, and the number of the last answer at its API.

    `callers_at_api`: group and member of the calls that have arrived at a node which stood still, and are not read.
    """

    plan: Plan
    callers_at_api: Callable[[], set[tuple[str, str]]] = set
    stalls: Stalls = field(default_factory=Stalls)
    fold: Fold = field(default_factory=Fold)
    node: Node | None = None
    now_ms: int = 0
    number: int = 0
    clock_steps: list[int] = field(default_factory=list)
    """When the node began with a clock that was ahead of the one before's, or behind it."""


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """A topic is to be deleted. `number` orders it among the calls; `before` is the version of its last deletion."""

    number: int
    topic: str
    before: int


class Checker:
    """Hooks; each checker has those it needs."""

    def __init__(self, sight: Sight) -> None:
        self.sight = sight

    def fail(self, text: str) -> NoReturn:
        raise Violation(type(self).__name__, text)

    def stored(self, group_id: str, group: FoldedGroup) -> None:
        """An append that touched the group took effect."""

    def on_call(self, api_call: ApiCall) -> None:
        """A call is about to reach the service."""

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        """The service answered it."""

    def deleting(self, deletion: TopicDeletion) -> None:
        """The registry is about to be asked to delete a topic."""

    def deleted(self, deletion: TopicDeletion, is_done: bool | None, *, is_under_way: bool = False) -> None:
        """It answered: done, not done, or (None) nobody can tell. `is_under_way`: it may be done yet."""

    def waits(self, api_call: ApiCall) -> None:
        """The service did not answer it at once."""

    def hung_up(self, api_call: ApiCall, connection_lost: bool = False) -> None:
        """Nobody waits for it any more, or the node died. `connection_lost`: its client's side ended its channel."""

    def framed(self, line: int, call_id: int | str) -> None:
        """A call is handed to the channel on this line."""

    def rested(self, line: int) -> None:
        """The channel, which goes on, has done with all that was handed to it."""

    def sent(self, line: int, said: dict[str, Any]) -> None:
        """The channel sends an answer or a push."""

    def went(self, event: MembersWent) -> None:
        """Members are out of their group; a turn ago that was let be seen."""

    def dropped(self, line: int, group_id: str, member_id: str) -> None:
        """A client answers for a member on the channel no longer; the service is about to be told so."""

    def channel_ended(self, line: int, by_client: bool) -> None:
        """The channel has ended; the service is about to be told so. `by_client`: by its client's side."""

    def happened(self, event: Event) -> None:
        """The service let an event be seen."""

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        """Commands were applied; the loop is between two turns."""

    def node_began(self) -> None:
        """A new life of the coordinator begins; the one before is over."""

    def believed(self, client: Client) -> None:
        """A member may have changed what it believes to hold."""

    def heard(self, client: Client, generation_id: int, state: State, before_id: int) -> None:
        """A member was told of a rebalance that ends `generation_id`, when it stood in `state`, in `before_id`."""
