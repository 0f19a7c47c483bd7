"""What the door asks of the rooms behind it: the service that answers calls, and the figures that are kept of them.

Two small protocols, so that the door is tested against a fake and does not import what it does not use.
"""

from typing import Protocol

from coordinator.core.commands import GroupRequest
from coordinator.core.effects import Failure, GroupAnswer
from protocol import messages as m


class GroupService(Protocol):
    """Answers every call, and raises nothing on bad input. `coordinator.runtime.service` has the real one."""

    @property
    def phase(self) -> str:
        """ "starting", "loading", "ready", "draining" or "stopped"."""

    async def call(self, group_id: str, request: GroupRequest, *, host: str) -> GroupAnswer | Failure:
        """Do what the request asks of the group. Cancelling the waiting task hangs up; what was begun is finished."""

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

    def expose(self, accept: str) -> tuple[bytes, str]:
        """The page for Prometheus and its content type, in the format that the `Accept` header asks for."""
