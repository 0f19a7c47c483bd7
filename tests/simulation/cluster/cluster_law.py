"""What the laws of the cluster share: moments beside those of one coordinator, and who owns what in etcd."""

from collections.abc import Iterable, Sequence

from rallypoint.coordinator.core.effects import SessionExpired
from rallypoint.coordinator.storage.contract import shard_keyspace
from rallypoint.coordinator.storage.etcd.client import Txn, TxnAnswer
from tests.simulation.checker import Checker
from tests.simulation.cluster.etcd_link import KEYS, ObservedEtcd
from tests.simulation.cluster.node import ClusterNode


class ClusterLaw(Checker):
    """Hooks beside those of `Checker`."""

    def before(self, txn: Txn) -> None:
        """A transaction that writes is about to be carried out."""

    def after(self, txn: Txn, answer: TxnAnswer) -> None:
        """It was carried out."""

    def looked(self, nodes: Iterable[ClusterNode]) -> None:
        """The loop is between two turns."""

    def ended(self, node: ClusterNode) -> None:
        """The node has drained, or could not start."""

    def expired(self, node: ClusterNode, event: SessionExpired) -> None:
        """The node lets be seen that the session of a member is over, or the life of an id."""


class OwnersInEtcd:
    """Who owns each shard, under which epoch. Read again only where etcd has changed: every write has a revision."""

    def __init__(self, etcd: ObservedEtcd, shards: int) -> None:
        self._etcd = etcd
        self._keys = [KEYS.owner(shard_keyspace(shard)) for shard in range(shards)]
        self._revision = 0
        self._owners: list[tuple[str, int] | None] = [None] * shards

    def now(self) -> Sequence[tuple[str, int] | None]:
        """By shard: id of the node and epoch; None without an owner."""
        if self._etcd.revision != self._revision:
            self._revision = self._etcd.revision
            found = map(self._etcd.newest, self._keys)
            self._owners = [None if one is None else (one.value.decode(), one.mod_revision) for one in found]
        return self._owners
