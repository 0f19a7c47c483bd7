"""What the API asks of the packages behind it: the service that answers calls, and the metrics that are kept of them.

Two small protocols, so that the API is tested against a fake and does not import what it does not use.
"""

from collections.abc import Awaitable, Callable, Mapping, Set
from contextlib import AbstractContextManager
from typing import Any, Protocol

from rallypoint.coordinator.core.commands import GroupRequest
from rallypoint.coordinator.core.effects import Failure, GroupAnswer
from rallypoint.coordinator.runtime.condition import Condition
from rallypoint.coordinator.runtime.contract import NodeAddress
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.coordinator.runtime.members.connection_registry import MemberConnection
from rallypoint.coordinator.runtime.origin import Origin
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m


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

    def condition(self) -> Condition:
        """What the node can do now."""

    async def call(self, group_id: str, request: GroupRequest, *, host: str) -> GroupAnswer | Failure:
        """Do what the request asks of the group. Cancelling the waiting task hangs up; what was begun is finished."""

    def ask(
        self, group_id: str, request: GroupRequest, *, host: str, connection: MemberConnection | None
    ) -> GroupAnswer | Failure | WaitingCall:
        """The same without a task: the answer, or the call that waits for it, whose `on_answer` is to be set.

        `connection`: the channel on which the call came; it carries the caller from now on.
        """

    def waiting(self, group_id: str, member_id: str) -> AbstractContextManager[None]:
        """A request of the member has come and waits for its turn, as long as this is entered: a sign of life."""

    def refuse_assignments(self, group_id: str) -> Failure | None:
        """Why a leader's large sync would be read in vain; None where the group may be waiting for one."""

    def ends(self, topic: str) -> Mapping[int, int]:
        """The end of each partition of the topic that was reported."""

    async def beat(
        self, request: m.HeartbeatsRequest, *, host: str, give_way: Callable[[], Awaitable[None]]
    ) -> m.HeartbeatsAnswer:
        """Many heartbeats, one result each, in order. `give_way` is awaited now and then, and returns in its turn."""

    def carried_count(self, connection: MemberConnection) -> int:
        """How many members the channel carries. Cheap: it is asked for in the middle of a flood."""

    def carried_members(self, connection: MemberConnection, group_id: str) -> Set[str]:
        """The group's members that the channel carries. Not to be kept, nor changed."""

    def is_carried(self, group_id: str, member_id: str) -> bool:
        """Whether a channel carries the member."""

    def session_kept_ms(self, connection: MemberConnection, group_id: str, member_id: str) -> int | None:
        """The session timeout of a member that lives by this channel; None where it does not, or is not known."""

    @property
    def may_vouch(self) -> bool:
        """Whether members may live by what this node says. Not where another may have their groups by now."""

    def tell_doubt_to(self, connection: MemberConnection) -> None:
        """Push to the channel that nothing is known of the groups of its members."""

    def drop_member(self, connection: MemberConnection, group_id: str, member_id: str) -> None:
        """The channel, if it carries the member, does so no longer. The session goes on from what came last."""

    def end_channel(self, connection: MemberConnection, *, by_client: bool) -> None:
        """A channel is over; whose side ended it decides how long its members are waited for."""

    @property
    def clock(self) -> Clock:
        """Time, less that in which the service did not run."""

    def find_coordinators(self, request: m.CoordinatorRequest) -> m.CoordinatorAnswer:
        """One entry for each group asked for."""

    async def list_groups(
        self, request: admin.ListGroupsRequest, sees: Callable[[str], bool] | None = None
    ) -> admin.ListGroupsAnswer | Failure:
        """One page of the groups of this node. With `node_only` it names the shards whose groups it has.

        sees: which groups the caller may see, by id; None: all. Others are not counted either.
        """

    async def find_owner(self, group_id: str, request: admin.OwnerRequest) -> admin.OwnerAnswer | Failure:
        """The owner of a partition."""

    async def list_partitions(
        self, group_id: str, request: admin.ListPartitionsRequest, sees: Callable[[str], bool] | None = None
    ) -> admin.ListPartitionsAnswer | Failure:
        """One page of the group's partitions. sees: which topics the caller may see; None: all."""

    async def lag_history(self, group_id: str) -> admin.LagHistoryAnswer | Failure:
        """The group's lag over the last hour."""

    async def ownership_history(
        self, group_id: str, request: admin.OwnershipHistoryRequest
    ) -> admin.OwnershipHistoryAnswer | Failure:
        """One page of the changes of owners."""

    async def preview(self, group_id: str, request: admin.PreviewRequest) -> admin.PreviewAnswer | Failure:
        """What the assignment would be."""

    def list_topics(
        self, request: m.ListTopicsRequest, sees: Callable[[str], bool] | None = None
    ) -> m.ListTopicsAnswer | Failure:
        """One page of the registered topics. sees: which topics the caller may see; None: all."""

    def find_topic(self, topic: str) -> m.Topic | Failure | None:
        """The topic as it is registered; None where it is not."""

    async def put_topic(self, topic: str, request: m.PutTopicRequest) -> m.Topic | Failure:
        """Register or change a topic."""

    async def delete_topic(self, topic: str) -> m.DeletedTopic | Failure:
        """Take a topic out of the registry."""


class ClusterService(Protocol):
    """The nodes and who owns what. `coordinator.runtime.cluster` has the real one, and that of a single node."""

    @property
    def node_id(self) -> str:
        """The id of this node."""

    @property
    def is_shared(self) -> bool:
        """Whether there may be other nodes."""

    def live_peers(self) -> tuple[NodeAddress, ...]:
        """The other nodes that run, in the order of their ids."""

    def shard_owners(self) -> tuple[str | None, ...]:
        """For each shard the id of the node that coordinates it; None while no node does."""

    def describe_cluster(self) -> admin.ClusterAnswer | Failure:
        """The cluster as this node sees it."""

    async def drain_node(self, node_id: str, *, draining: bool) -> admin.ClusterNode | Failure:
        """Begin or end the drain of a node. Answered when it is stored, not when it is done."""

    async def remove_node(self, node_id: str) -> admin.ClusterNode | Failure:
        """Take a node that is gone out of the placement."""

    async def move_shard(self, shard: int, node_id: str) -> admin.ClusterShard | Failure:
        """Make the node the preferred one for the shard. Answered when it is stored, not when it is done."""


class RequestTracer(Protocol):
    """Makes spans of requests. `coordinator.tracing` has the real one."""

    def request_answered(
        self, operation: str, origin: Origin, *, seconds: float, status: int, outcome: str, group_id: str | None
    ) -> None:
        """A request over HTTP, or a call on a channel, has its answer; the words are those of `HttpMetrics`."""


class HttpMetrics(Protocol):
    """Counts requests, and shows everything that is counted. `coordinator.metrics` has the real one."""

    def request_answered(self, operation: str, outcome: str, seconds: float) -> None:
        """One request was answered: `outcome` is NONE, WAITING, or the name of its error."""

    def connection_cut(self, reason: str) -> None:
        """A connection was cut before its client had authenticated, or for want of open files."""

    def streams_open(self, delta: int) -> None:
        """So many more event streams are open, or fewer."""

    def events_lost(self, count: int) -> None:
        """A stream was so slow that it lost so many events."""

    def peer_streams_open(self, delta: int) -> None:
        """So many more event streams of other nodes are followed, or fewer."""

    def gap_told(self, reason: str) -> None:
        """An event stream was told that events are missing."""

    def channels_open(self, delta: int) -> None:
        """So many more channels are open, or fewer."""

    def channel_call(self, operation: str, outcome: str) -> None:
        """A call on a channel was answered; the words are those of `request_answered`."""

    def channel_pushed(self, event: str) -> None:
        """Something was pushed on a channel."""

    def channel_closed(self, reason: str) -> None:
        """A channel has ended."""

    async def page(
        self, accept: str, sees: Callable[[str], bool] | None = None, *, of_node: bool = True
    ) -> tuple[bytes, str]:
        """The page for Prometheus and its content type, in the format that the `Accept` header asks for.

        sees: which groups the caller may see, by id; None: all. of_node: whether it gets what is not of a group.
        """
