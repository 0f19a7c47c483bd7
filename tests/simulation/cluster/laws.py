"""Laws of the cluster, beside those of one coordinator that hold for several: I1, I2, I3 and what members believe."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.runtime.condition import ShardState
from rallypoint.coordinator.storage.contract import Write
from rallypoint.coordinator.storage.etcd.client import Delete, KeyValue, Put, Txn, TxnAnswer
from rallypoint.coordinator.storage.etcd.fence import Head
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.group_hash import shard_of_group
from tests.simulation.checker import Checker, Sight
from tests.simulation.cluster.channels import ClusterCall
from tests.simulation.cluster.cluster_law import ClusterLaw, OwnersInEtcd
from tests.simulation.cluster.etcd_link import KEYS, ObservedEtcd
from tests.simulation.cluster.laws_of_rest import (
    CarriedHere,
    ExpiredKnows,
    HeardLives,
    OneBelieves,
    PromisedRest,
    RestsProved,
)
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.plan import ClusterPlan
from tests.simulation.laws_of_commits import I3JoinedCommits
from tests.simulation.laws_of_generations import I1Generations, I2SyncAnswers, MembersBelieve
from tests.simulation.laws_of_joining import I22JoinsOnce
from tests.simulation.laws_of_ownership import I12OneAtWork
from tests.simulation.network import Answer, ApiCall
from tests.simulation.node import Node, Seen

OWNER, HEAD, NODE, DATA = (f"{KEYS.prefix}/{kind}/".encode() for kind in ("owner", "head", "node", "data"))
NOT_FROM_MEMORY = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
    }
)
"""Refusals that say nothing of the group."""


class FencedWrites(ClusterLaw):
    """Only the owner writes to a keyspace, under its epoch, and only on top of what it wrote last.

    So a late copy changes nothing, and what was stored once is not stored again. An owner takes a keyspace from nobody
    else, and hangs on the very lease that its node lives by.
    """

    def __init__(self, sight: Sight, etcd: ObservedEtcd) -> None:
        super().__init__(sight)
        self._etcd = etcd
        self._stood: dict[bytes, tuple[KeyValue | None, KeyValue | None]] = {}

    def before(self, txn: Txn) -> None:
        self._stood = {
            name: (self._etcd.newest(OWNER + name), self._etcd.newest(HEAD + name)) for name in _keyspaces_of(txn)
        }

    def after(self, txn: Txn, answer: TxnAnswer) -> None:
        if not answer.succeeded:
            return
        puts = {one.key: one for one in txn.success if isinstance(one, Put)}
        for name, (owner, head) in self._stood.items():
            if (put := puts.get(HEAD + name)) is None:
                self.fail(f"{name.decode()} was written to, and its head was not")
            new = _head_of(put.value)
            if new.epoch == 0:
                self._check_acquired(name, owner, puts.get(OWNER + name))
                continue
            if owner is None or owner.mod_revision != new.epoch:
                self.fail(f"{name.decode()} was written to under epoch {new.epoch}; its owner was {owner}")
            before = None if head is None else _head_of(head.value)
            is_first = head is not None and head.mod_revision == new.epoch
            expected = 1 if is_first or before is None else before.sequence + 1
            if new.sequence != expected:
                self.fail(f"{name.decode()} got number {new.sequence} of epoch {new.epoch} on top of {before}")
        for key, put in puts.items():
            if key.startswith(OWNER):
                self._check_lease(key, put)

    def _check_acquired(self, name: bytes, owner: KeyValue | None, put: Put | None) -> None:
        if put is None or (owner is not None and owner.value != put.value):
            self.fail(f"{name.decode()} was taken from its owner {owner}")

    def _check_lease(self, key: bytes, put: Put) -> None:
        node = self._etcd.newest(NODE + put.value)
        if node is None or not put.lease or node.lease != put.lease:
            self.fail(f"{key.decode()} is {put.value.decode()}'s, on a lease that is not that node's: {node}")


def _keyspaces_of(txn: Txn) -> list[bytes]:
    """Those whose head or contents the transaction changes."""
    names: dict[bytes, None] = {}
    for one in txn.success:
        if isinstance(one, Put | Delete):
            for prefix in (HEAD, DATA):
                if one.key.startswith(prefix):
                    names[one.key.removeprefix(prefix).partition(b"/")[0]] = None
    return list(names)


def _head_of(value: bytes) -> Head:
    epoch, sequence, tag = value.decode().split(" ")
    return Head(int(epoch), int(sequence), tag)


class OneServes(ClusterLaw):
    """Who may tell what it has in memory of a shard is the owner in etcd, under that very epoch.

    A node that stands still may not know better; it must find out before it tells anything.
    """

    def __init__(self, sight: Sight, etcd: ObservedEtcd, owners: "OwnersInEtcd") -> None:
        super().__init__(sight)
        self._etcd = etcd
        self._owners = owners

    def looked(self, nodes: Iterable[ClusterNode]) -> None:
        self._etcd.expire()
        owners = self._owners.now()
        for node in nodes:
            for shard in node.shards:
                # The owner may tell whatever it likes: only of the others it matters whether they would.
                if (
                    shard.state is ShardState.ACTIVE
                    and owners[shard.number] != (node.node_id, shard.epoch)
                    and shard.why_not_current() is None
                ):
                    owner = owners[shard.number]
                    self.fail(f"{node.name} serves shard {shard.number} under epoch {shard.epoch}: {owner}")


@dataclass(slots=True)
class _Span:
    node_id: str
    since_ms: int
    until_ms: int | None = None


class OwnersAnswer(ClusterLaw):
    """What is told of a group was told by a node that owned its shard at some instant since the call came."""

    def __init__(self, sight: Sight, owners: OwnersInEtcd, shards: int) -> None:
        super().__init__(sight)
        self._owners = owners
        self._shards = shards
        self._spans: dict[int, list[_Span]] = {shard: [] for shard in range(shards)}
        self._noted: Sequence[tuple[str, int] | None] = ()

    def looked(self, nodes: Iterable[ClusterNode]) -> None:
        self._note_owners()

    def after(self, txn: Txn, answer: TxnAnswer) -> None:
        self._note_owners()

    def _note_owners(self) -> None:
        owners = self._owners.now()
        if owners is self._noted:
            return
        self._noted = owners
        for shard, spans in self._spans.items():
            owner = owners[shard]
            node_id = None if owner is None else owner[0]
            if spans and spans[-1].until_ms is None:
                if spans[-1].node_id == node_id:
                    continue
                spans[-1].until_ms = self.sight.now_ms
            if node_id is not None:
                spans.append(_Span(node_id, self.sight.now_ms))

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        if isinstance(answer, Failure) and (answer.code in NOT_FROM_MEMORY or answer.limit_name is not None):
            return
        assert isinstance(api_call, ClusterCall)
        assert api_call.node is not None
        node_id = api_call.node.node_id
        shard = shard_of_group(api_call.group_id, self._shards)
        self._note_owners()
        spans = self._spans[shard]
        if not any(
            span.node_id == node_id and (span.until_ms is None or span.until_ms >= api_call.at_ms) for span in spans
        ):
            self.fail(f"{api_call.node.name} tells of {api_call.group_id}, and has not shard {shard}: {answer}")


class EveryAnswer(ClusterLaw):
    """Each call is answered, or parked until a deadline. A node that has drained leaves none behind."""

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._open: dict[ClusterCall, None] = {}

    def on_call(self, api_call: ApiCall) -> None:
        assert isinstance(api_call, ClusterCall)
        self._open[api_call] = None

    def hung_up(self, api_call: ApiCall, connection_lost: bool = False) -> None:
        assert isinstance(api_call, ClusterCall)
        self._open.pop(api_call, None)

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        assert isinstance(api_call, ClusterCall)
        if api_call not in self._open:
            self.fail(f"#{api_call.number} was answered twice")
        del self._open[api_call]

    def ended(self, node: ClusterNode) -> None:
        left = [call.number for call in self._open if call.node is node]
        if left:
            self.fail(f"{node.name} has stopped without an answer to {left}")

    def none_older_than(self, at_ms: int) -> None:
        """No node has been dead or paused since then."""
        left = [call for call in self._open if call.at_ms < at_ms and call.node is not None and call.node.is_up]
        if left:
            first = left[0]
            self.fail(f"#{first.number} of {first.group_id} waits since {first.at_ms} ms: {first.request}")


class Owners:
    """The nodes as one, as far as laws of one coordinator look inside it: each group as its owner has it."""

    is_up = True

    def __init__(self, nodes: dict[str, ClusterNode]) -> None:
        self._nodes = nodes

    def group(self, group_id: str) -> Seen | None:
        """The group at the node that may tell of it."""
        found = (node.group(group_id) for node in self._nodes.values() if node.is_up)
        return next((seen for seen in found if seen is not None), None)


OF_REST = (RestsProved, PromisedRest, HeardLives, ExpiredKnows, OneBelieves, CarriedHere)
"""Laws that are looked at where there are channels."""


class Laws:
    """All of them, and what they look at."""

    def __init__(self, sight: Sight, etcd: ObservedEtcd, nodes: dict[str, ClusterNode], plan: ClusterPlan) -> None:
        self.sight = sight
        shards = plan.shards
        sight.node = cast(Node, Owners(nodes))
        i2 = I2SyncAnswers(sight)
        owners = OwnersInEtcd(etcd, shards)
        self.every_answer = EveryAnswer(sight)
        self.of_cluster: tuple[ClusterLaw, ...] = (
            FencedWrites(sight, etcd),
            OneServes(sight, etcd, owners),
            OwnersAnswer(sight, owners, shards),
            self.every_answer,
            *((law(sight, owners, plan) for law in OF_REST) if plan.basis.channel_share else ()),
        )
        self._nodes = nodes
        self._highest: dict[str, int] = {}
        self._had_offsets: dict[str, bool] = {}
        self._of_groups: tuple[Checker, ...] = (
            I1Generations(sight),
            i2,
            I3JoinedCommits(sight),
            MembersBelieve(sight, i2),
            I12OneAtWork(sight),
            I22JoinsOnce(sight),
        )
        etcd.before = self._before
        etcd.after = self._after

    @property
    def all(self) -> tuple[Checker, ...]:
        """Those of the cluster first: they see a fault where it is made."""
        return (*self.of_cluster, *self._of_groups)

    def _before(self, txn: Txn) -> None:
        for law in self.of_cluster:
            law.before(txn)

    def _after(self, txn: Txn, answer: TxnAnswer) -> None:
        for law in self.of_cluster:
            law.after(txn, answer)
        if not answer.succeeded:
            return
        writes = [
            Write(one.key.removeprefix(DATA).partition(b"/")[2], one.value if isinstance(one, Put) else None)
            for one in txn.success
            if isinstance(one, Put | Delete) and one.key.startswith(DATA)
        ]
        for group_id in self.sight.fold.take(writes):
            self._note_death(group_id)
            for checker in self._of_groups:
                checker.stored(group_id, self.sight.fold.group(group_id))

    def _note_death(self, group_id: str) -> None:
        """A group that goes and begins again in appends that were joined into one transaction has gone all the same. It
        goes without an offset, and is then at its beginning.
        """
        group = self.sight.fold.group(group_id)
        highest = 0 if group.header is None else group.header.highest_generation_id
        had_offsets = self._had_offsets.get(group_id, False)
        if group.header is not None and highest <= 1 < self._highest.get(group_id, 0) and not had_offsets:
            group.deaths += 1
        self._highest[group_id] = highest
        self._had_offsets[group_id] = bool(group.offsets)

    def looked(self) -> None:
        """The loop is between two turns."""
        up = [node for node in self._nodes.values() if node.is_up]
        for law in self.of_cluster:
            law.looked(up)

    def tell(self, hook: str, *args: Any) -> None:
        """Tell each law that hears of such."""
        for law in self.all:
            if (hear := getattr(law, hook, None)) is not None:
                hear(*args)
