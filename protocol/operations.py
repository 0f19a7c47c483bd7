"""Every operation of the contract: its name, its path, its models, and whether it may wait.

One table, so that the API, the OpenAPI document, the clients and the channels cannot disagree. Paths are
templates of RFC 6570's simplest level; `path_of` fills them, percent-encoding each id once.
"""

from dataclasses import dataclass
from urllib.parse import quote

from pydantic import BaseModel

from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m


@dataclass(frozen=True, slots=True)
class Operation:
    """`request` is the model of the body, for a GET of the query. `waits`: it may answer 202 `WaitingAnswer`."""

    name: str
    method: str
    path: str
    request: type[m.RequestModel] | None
    answer: type[BaseModel]
    waits: bool
    summary: str


COORDINATOR = Operation(
    "coordinator", "GET", "/v1/coordinator", m.CoordinatorRequest, m.CoordinatorAnswer, False,
    "Find the node that coordinates each of the groups",
)  # fmt: skip
JOIN = Operation(
    "join", "POST", "/v1/groups/{group_id}/join", m.JoinRequest, m.JoinAnswer, True,
    "Join the group, or join again; waits until the join phase ends",
)  # fmt: skip
SYNC = Operation(
    "sync", "POST", "/v1/groups/{group_id}/sync", m.SyncRequest, m.SyncAnswer, True,
    "Get the assignment; the leader submits everyone's, the followers wait for it",
)  # fmt: skip
HEARTBEAT = Operation(
    "heartbeat", "POST", "/v1/groups/{group_id}/heartbeat", m.HeartbeatRequest, m.HeartbeatAnswer, False,
    "Say that the member lives; with wait_ms, learn of a rebalance the moment it begins",
)  # fmt: skip
HEARTBEATS = Operation(
    "heartbeats", "POST", "/v1/heartbeats", m.HeartbeatsRequest, m.HeartbeatsAnswer, False,
    "Many heartbeats in one request, for a host of many members",
)  # fmt: skip
LEAVE = Operation(
    "leave", "POST", "/v1/groups/{group_id}/leave", m.LeaveRequest, m.LeaveAnswer, False,
    "Leave the group",
)  # fmt: skip
COMMIT = Operation(
    "commit", "POST", "/v1/groups/{group_id}/offsets", m.CommitRequest, m.CommitAnswer, False,
    "Commit offsets; the answer means they are on disk",
)  # fmt: skip
FETCH = Operation(
    "fetch", "GET", "/v1/groups/{group_id}/offsets", m.FetchRequest, m.FetchAnswer, False,
    "Fetch committed offsets",
)  # fmt: skip
RESET_OFFSETS = Operation(
    "reset_offsets", "POST", "/v1/groups/{group_id}/offsets/reset",
    admin.ResetOffsetsRequest, admin.ResetOffsetsAnswer, False,
    "Put the committed offsets of a group without members elsewhere, or see where they would go",
)  # fmt: skip
DELETE_OFFSETS = Operation(
    "delete_offsets", "DELETE", "/v1/groups/{group_id}/offsets",
    admin.DeleteOffsetsRequest, admin.DeleteOffsetsAnswer, False,
    "Delete the committed offsets of topics that no member subscribes to",
)  # fmt: skip
LIST_GROUPS = Operation(
    "list_groups", "GET", "/v1/groups", admin.ListGroupsRequest, admin.ListGroupsAnswer, False,
    "List the groups, page by page",
)  # fmt: skip
DESCRIBE = Operation(
    "describe", "GET", "/v1/groups/{group_id}", None, admin.DescribeAnswer, False,
    "Describe a group: members, assignment, offsets and lag",
)  # fmt: skip
DELETE_GROUP = Operation(
    "delete_group", "DELETE", "/v1/groups/{group_id}", None, admin.DeletedGroup, False,
    "Delete a group without members, with its offsets",
)  # fmt: skip
LIST_REBALANCES = Operation(
    "list_rebalances", "GET", "/v1/groups/{group_id}/rebalances", None, admin.ListRebalancesAnswer, False,
    "List the group's last rebalances: why each began, how long it took, who is awaited",
)  # fmt: skip
START_REBALANCE = Operation(
    "start_rebalance", "POST", "/v1/groups/{group_id}/rebalance",
    admin.StartRebalanceRequest, admin.StartedRebalance, False,
    "Start a rebalance of the group",
)  # fmt: skip
FREEZE = Operation(
    "freeze", "PUT", "/v1/groups/{group_id}/freeze", admin.FreezeRequest, admin.FreezeAnswer, False,
    "Hold the group's rebalances for a while; one follows when it is over, if there is reason for it",
)  # fmt: skip
THAW = Operation(
    "thaw", "DELETE", "/v1/groups/{group_id}/freeze", None, admin.FreezeAnswer, False,
    "End the group's freeze",
)  # fmt: skip
COOLDOWN = Operation(
    "cooldown", "PUT", "/v1/groups/{group_id}/cooldown", admin.CooldownRequest, admin.CooldownAnswer, False,
    "Set how long after a rebalance of the group the next one is held",
)  # fmt: skip
JOIN_WAIT = Operation(
    "join_wait", "PUT", "/v1/groups/{group_id}/join_wait", admin.JoinWaitRequest, admin.JoinWaitAnswer, False,
    "Set how long a rebalance of the group waits at most for members to join",
)  # fmt: skip
PROCEED = Operation(
    "proceed", "POST", "/v1/groups/{group_id}/rebalance/proceed", admin.ProceedRequest, admin.ProceedAnswer, False,
    "Let the rebalance under way go on without those that it waits for",
)  # fmt: skip
REMOVE_MEMBERS = Operation(
    "remove_members", "POST", "/v1/groups/{group_id}/members/remove",
    admin.RemoveMembersRequest, admin.RemoveMembersAnswer, False,
    "Take members out of the group, or see who would go; they may join again",
)  # fmt: skip
OWNER = Operation(
    "owner", "GET", "/v1/groups/{group_id}/owner", admin.OwnerRequest, admin.OwnerAnswer, False,
    "Find the member that owns a partition, or the partition of a key",
)  # fmt: skip
LIST_PARTITIONS = Operation(
    "list_partitions", "GET", "/v1/groups/{group_id}/partitions",
    admin.ListPartitionsRequest, admin.ListPartitionsAnswer, False,
    "List the group's partitions: owner, offset, lag, status and pace of each, committed or not",
)  # fmt: skip
LAG_HISTORY = Operation(
    "lag_history", "GET", "/v1/groups/{group_id}/lag", None, admin.LagHistoryAnswer, False,
    "Show the group's lag over the last hour, and when it will be gone",
)  # fmt: skip
OWNERSHIP_HISTORY = Operation(
    "ownership_history", "GET", "/v1/groups/{group_id}/ownership",
    admin.OwnershipHistoryRequest, admin.OwnershipHistoryAnswer, False,
    "List which partitions passed from whom to whom, the newest first",
)  # fmt: skip
PREVIEW = Operation(
    "preview", "POST", "/v1/groups/{group_id}/preview", admin.PreviewRequest, admin.PreviewAnswer, False,
    "See what the assignment would be if members left or joined or topics grew; changes nothing",
)  # fmt: skip
LIST_TOPICS = Operation(
    "list_topics", "GET", "/v1/topics", m.ListTopicsRequest, m.ListTopicsAnswer, False,
    "List the registered topics, in pages if asked for",
)  # fmt: skip
DESCRIBE_TOPIC = Operation(
    "describe_topic", "GET", "/v1/topics/{topic}", admin.DescribeTopicRequest, admin.DescribeTopicAnswer, False,
    "Describe a topic, with the groups that subscribe to it or have committed it",
)  # fmt: skip
PUT_TOPIC = Operation(
    "put_topic", "PUT", "/v1/topics/{topic}", m.PutTopicRequest, m.Topic, False,
    "Register a topic, let it grow, or report its end offsets",
)  # fmt: skip
DELETE_TOPIC = Operation(
    "delete_topic", "DELETE", "/v1/topics/{topic}", None, m.DeletedTopic, False,
    "Take a topic out of the registry, and its committed offsets out of every group",
)  # fmt: skip
DESCRIBE_CLUSTER = Operation(
    "describe_cluster", "GET", "/v1/cluster", None, admin.ClusterAnswer, False,
    "Describe the cluster: its nodes, and who coordinates which shard",
)  # fmt: skip
DRAIN_NODE = Operation(
    "drain_node", "POST", "/v1/cluster/nodes/{node_id}/drain", None, admin.ClusterNode, False,
    "Let a node hand over everything that it coordinates, and take nothing more",
)  # fmt: skip
RESUME_NODE = Operation(
    "resume_node", "DELETE", "/v1/cluster/nodes/{node_id}/drain", None, admin.ClusterNode, False,
    "End the drain of a node: it gets back what it is preferred for",
)  # fmt: skip
REMOVE_NODE = Operation(
    "remove_node", "DELETE", "/v1/cluster/nodes/{node_id}", None, admin.ClusterNode, False,
    "Take a node that does not run out of the cluster for good",
)  # fmt: skip
MOVE_SHARD = Operation(
    "move_shard", "POST", "/v1/cluster/shards/{shard}/move", admin.MoveShardRequest, admin.ClusterShard, False,
    "Make a node the preferred one for a shard; it is handed over within seconds",
)  # fmt: skip

EVENTS = Operation(
    "events", "GET", "/v1/events", admin.EventsRequest, admin.GroupEvent, False,
    "Follow what happens to groups, as server-sent events",
)  # fmt: skip
"""Not among `OPERATIONS`, whose answers end: this one is a stream of `answer`s, one in the data of each event."""

CHANNEL = Operation(
    "channel", "GET", "/v1/channel", None, m.Upgraded, False,
    "A WebSocket for the calls of many members, which tells them of rebalances as they begin",
)  # fmt: skip
"""Not among `OPERATIONS` either: `protocol.channel_messages` has what is said on it."""

OPERATIONS = (
    COORDINATOR,
    JOIN,
    SYNC,
    HEARTBEAT,
    HEARTBEATS,
    LEAVE,
    COMMIT,
    FETCH,
    RESET_OFFSETS,
    DELETE_OFFSETS,
    LIST_GROUPS,
    DESCRIBE,
    DELETE_GROUP,
    LIST_REBALANCES,
    START_REBALANCE,
    FREEZE,
    THAW,
    COOLDOWN,
    JOIN_WAIT,
    PROCEED,
    REMOVE_MEMBERS,
    OWNER,
    LIST_PARTITIONS,
    LAG_HISTORY,
    OWNERSHIP_HISTORY,
    PREVIEW,
    LIST_TOPICS,
    DESCRIBE_TOPIC,
    PUT_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DRAIN_NODE,
    RESUME_NODE,
    REMOVE_NODE,
    MOVE_SHARD,
)
"""In the order in which a reader meets them."""


def path_of(operation: Operation, **ids: str) -> str:
    """The operation's path with its ids filled in, each percent-encoded once ("a/b" gives "a%2Fb")."""
    return operation.path.format(**{name: quote(value, safe="") for name, value in ids.items()})
