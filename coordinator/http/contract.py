"""What the door asks of the rooms behind it: the service that answers calls, and the figures that are kept of them.

Two small protocols, so that the door is tested against a fake and does not import what it does not use.
"""

from collections.abc import Callable
from typing import Any, Protocol

from coordinator.core.commands import GroupRequest
from coordinator.core.effects import Failure, GroupAnswer
from coordinator.runtime.carriers import Carrier, Carriers
from coordinator.runtime.newcomers import Newcomers
from protocol import messages as m


class WaitingCall(Protocol):
    """A call whose answer is not there yet."""

    on_answer: Callable[[Any], None] | None
    """Called with the answer, once; it raises nothing."""

    def hang_up(self, *, connection_lost: bool = False) -> None:
        """Nobody waits for the answer any more. `connection_lost`: of a member whose own side has hung up."""


class GroupService(Protocol):
    """Answers every call, and raises nothing on bad input. `coordinator.runtime.service` has the real one."""

    @property
    def phase(self) -> str:
        """ "starting", "loading", "ready", "draining" or "stopped"."""

    async def call(self, group_id: str, request: GroupRequest, *, host: str) -> GroupAnswer | Failure:
        """Do what the request asks of the group. Cancelling the waiting task hangs up; what was begun is finished."""

    def ask(self, group_id: str, request: GroupRequest, *, host: str) -> GroupAnswer | Failure | WaitingCall:
        """The same without a task: the answer, or the call that waits for it, whose `on_answer` is to be set."""

    async def beat(self, request: m.HeartbeatsRequest, *, host: str) -> m.HeartbeatsAnswer:
        """Many heartbeats, one result each, in order."""

    def end_session(self, carrier: Carrier, *, by_client: bool) -> None:
        """A session is over; whose side ended it decides how long its members are waited for."""

    @property
    def carriers(self) -> Carriers:
        """Which session carries which member."""

    @property
    def newcomers(self) -> Newcomers:
        """Which sessions have not called a group yet."""

    def find_coordinators(self, request: m.CoordinatorRequest) -> m.CoordinatorAnswer:
        """One entry for each group asked for."""

    def list_groups(self, request: m.ListGroupsRequest) -> m.ListGroupsAnswer | Failure:
        """One page of the groups."""

    async def find_owner(self, group_id: str, request: m.OwnerRequest) -> m.OwnerAnswer | Failure:
        """Who owns a partition."""

    async def preview(self, group_id: str, request: m.PreviewRequest) -> m.PreviewAnswer | Failure:
        """What the assignment would be."""

    def list_topics(self, request: m.ListTopicsRequest) -> m.ListTopicsAnswer | Failure:
        """One page of the registered topics."""

    async def put_topic(self, topic: str, request: m.PutTopicRequest) -> m.Topic | Failure:
        """Register or change a topic."""

    async def delete_topic(self, topic: str) -> m.DeletedTopic | Failure:
        """Take a topic out of the registry."""


class Figures(Protocol):
    """Counts requests, and shows everything that is counted. `coordinator.metrics` has the real one."""

    def request_answered(self, operation: str, outcome: str, seconds: float) -> None:
        """One request was answered: `outcome` is NONE, WAITING, or the name of its error."""

    def streams_open(self, delta: int) -> None:
        """So many more event streams are open, or fewer."""

    def events_lost(self, count: int) -> None:
        """A stream was so slow that it lost so many events."""

    def sessions_open(self, delta: int) -> None:
        """So many more sessions are open, or fewer."""

    def session_call(self, operation: str, outcome: str) -> None:
        """A call on a session was answered; the words are those of `request_answered`."""

    def session_pushed(self, event: str) -> None:
        """Something was pushed on a session."""

    def session_closed(self, reason: str) -> None:
        """A session has ended."""

    def expose(self, accept: str) -> tuple[bytes, str]:
        """The page for Prometheus and its content type, in the format that the `Accept` header asks for."""
