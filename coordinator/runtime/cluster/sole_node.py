"""The cluster of one node, which owns everything and can hand over nothing."""

from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.runtime.contract import NodeAddress, SoleOwner
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode


class SoleNode(SoleOwner):
    """Answers as the only node of its cluster."""

    def __init__(self, address: NodeAddress, *, shards: int, release: str, started_at_ms: int) -> None:
        """Describe this node.

        address: this node.
        shards: the number of shards.
        release: the version of this release.
        started_at_ms: when the process started, by the wall clock.
        """
        super().__init__(address)
        self._shards = shards
        self._release = release
        self._started_at_ms = started_at_ms

    async def close(self) -> None:
        """Nothing is under way."""

    @property
    def node_id(self) -> str:
        """The id of the only node."""
        return self._address.node_id

    def live_peers(self) -> tuple[NodeAddress, ...]:
        """None."""
        return ()

    def shard_owners(self) -> tuple[str | None, ...]:
        """This node, for every shard."""
        return (self._address.node_id,) * self._shards

    def describe_cluster(self) -> admin.ClusterAnswer:
        """One node, with every shard."""
        nodes = (self._address.node_id,)
        return admin.ClusterAnswer(
            node_id=self._address.node_id,
            registry_owner=self._address.node_id,
            nodes=(self._node(),),
            shards=tuple(
                admin.ClusterShard(shard=shard, owner=self._address.node_id, nodes=nodes)
                for shard in range(self._shards)
            ),
        )

    async def drain_node(self, node_id: str, *, draining: bool) -> admin.ClusterNode | Failure:
        """Nobody could take what it has; without a drain it is as it was."""
        if node_id != self._address.node_id:
            return _not_registered(node_id)
        return self._refused("drained") if draining else self._node()

    async def remove_node(self, node_id: str) -> admin.ClusterNode | Failure:
        """It runs."""
        return self._refused("removed") if node_id == self._address.node_id else _not_registered(node_id)

    async def move_shard(self, shard: int, node_id: str) -> admin.ClusterShard | Failure:
        """It is where it is."""
        if shard >= self._shards:
            detail = f"There are {self._shards} shards, numbered from 0."
            return Failure(ErrorCode.INVALID_REQUEST, detail, field="shard")
        if node_id != self._address.node_id:
            return _not_registered(node_id)
        return admin.ClusterShard(shard=shard, owner=node_id, nodes=(node_id,))

    def _node(self) -> admin.ClusterNode:
        return admin.ClusterNode(
            node_id=self._address.node_id,
            state="live",
            url=self._address.url,
            rack=None,
            release=self._release,
            started_at_ms=self._started_at_ms,
            shards=self._shards,
            preferred_shards=self._shards,
        )

    def _refused(self, what: str) -> Failure:
        detail = (
            f"Node {self._address.node_id!r} is the only one and cannot be {what}; nobody else could take its groups."
        )
        return Failure(ErrorCode.INVALID_REQUEST, detail, field="node_id")


def _not_registered(node_id: str) -> Failure:
    return Failure(ErrorCode.BROKER_ID_NOT_REGISTERED, f"The cluster has no node {node_id!r}.", field="node_id")
