"""What all laws share: what they can look at, and the moments at which they are told something."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from coordinator.core.effects import Event
from member.core.states import State
from tests.simulation.client import Client
from tests.simulation.fold import Fold, FoldedGroup
from tests.simulation.network import Answer, Asked
from tests.simulation.node import Node, Seen
from tests.simulation.plan import Plan
from tests.simulation.trace import Violation


@dataclass(slots=True)
class Sight:
    """The plan, the log, the node that is up, the time, and the number of the last answer at its door."""

    plan: Plan
    fold: Fold = field(default_factory=Fold)
    node: Node | None = None
    now_ms: int = 0
    number: int = 0


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

    def asked(self, asked: Asked) -> None:
        """A call is about to reach the service."""

    def answered(self, asked: Asked, answer: Answer) -> None:
        """The service answered it."""

    def deleting(self, deletion: TopicDeletion) -> None:
        """The registry is about to be asked to delete a topic."""

    def deleted(self, deletion: TopicDeletion, is_done: bool | None) -> None:
        """It answered: done, not done, or (None) nobody can tell."""

    def waits(self, asked: Asked) -> None:
        """The service did not answer it at once."""

    def hung_up(self, asked: Asked, connection_lost: bool = False) -> None:
        """Nobody waits for it any more, or the node died. `connection_lost`: its client's side ended its session."""

    def framed(self, line: int, call_id: int | str) -> None:
        """A call is handed to the session on this line."""

    def rested(self, line: int) -> None:
        """The session, which goes on, has done with all that was handed to it."""

    def sent(self, line: int, said: dict[str, Any]) -> None:
        """The session sends an answer or a push."""

    def session_ended(self, line: int, by_client: bool) -> None:
        """The session has ended; the service is about to be told so. `by_client`: by its client's side."""

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
