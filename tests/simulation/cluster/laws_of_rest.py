"""Laws of members at rest in a cluster: whose word they live by, and when a session may end."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from rallypoint.coordinator.core.effects import SessionExpired
from rallypoint.coordinator.core.group import Group
from rallypoint.coordinator.runtime.cluster.member_node import LEASE_LOOKED_AT_MS
from rallypoint.coordinator.runtime.condition import ShardState
from rallypoint.coordinator.runtime.members.connection_registry import MemberConnection
from rallypoint.coordinator.runtime.service import Phase
from rallypoint.coordinator.storage.contract import shard_keyspace
from rallypoint.member.core.context import SESSION
from rallypoint.member.core.states import State
from rallypoint.protocol.group_hash import shard_of_group
from tests.simulation.checker import Sight
from tests.simulation.client import Client
from tests.simulation.cluster.channels import ClusterCall
from tests.simulation.cluster.cluster_law import ClusterLaw, OwnersInEtcd
from tests.simulation.cluster.network import ClusterClient
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.plan import ClusterPlan
from tests.simulation.laws_of_rest import HEAD_START_MS
from tests.simulation.network import LATE_MS, ApiCall

MemberKey = tuple[str, str]
"""Group id and member id."""

TRIES_MS = 3_000
"""For a node to ask etcd again what became of a transaction whose answer was lost."""


def late_ms_of(plan: ClusterPlan) -> int:
    """How late something may come on a line that passes."""
    return max(LATE_MS) if plan.rates["delayed"] else 0


@dataclass(slots=True)
class Doubt:
    """Why a member at rest may not be what it believes, and since when; `undisturbed_ms`: since when its node and the
    line to it have worked beside that.
    """

    why: str
    since_ms: int
    undisturbed_ms: int


def reaches(client: Client) -> bool:
    """Whether the line by which it lives passes, both ways."""
    return isinstance(client, ClusterClient) and client.kept_by is not None and client.reaches(client.kept_by)


class RestsProved(ClusterLaw):
    """I23 of a cluster. Who says nothing, for a channel keeps its session, is in the generation of a group that the
    node of that channel serves. Where it is not, it learns so within a session; sooner where its node runs and its line
    passes: in an instant if the node's lease may be over, and within a lease if etcd has another owner.
    """

    def __init__(self, sight: Sight, owners: OwnersInEtcd, plan: ClusterPlan) -> None:
        super().__init__(sight)
        self._owners = owners
        self._shards = plan.shards
        told_ms = 2 * LEASE_LOOKED_AT_MS + late_ms_of(plan)
        self._limits_ms = {
            "its lease may be over": told_ms,
            "it has another owner": plan.lease_ttl_ms + TRIES_MS + told_ms,
        }
        self._clients: dict[str, Client] = {}
        self._doubts: dict[str, Doubt] = {}

    def believed(self, client: Client) -> None:
        if client.runs and client.rests:
            self._clients[client.name] = client
        else:
            self._clients.pop(client.name, None)
            self._doubts.pop(client.name, None)

    def looked(self, nodes: Iterable[ClusterNode]) -> None:
        by_url = {node.url: node for node in nodes}
        for client in self._clients.values():
            node = by_url.get(client.kept_by or "")
            why = None if client.is_stalled or client.state is not State.STABLE else self._why_not_proved(client, node)
            if why is None or not client.rests:
                self._doubts.pop(client.name, None)
            else:
                self._look_at(client, node, why)

    def _why_not_proved(self, client: Client, node: ClusterNode | None) -> str | None:
        if node is None or node.service is None or node.member is None:
            return "its node is gone"
        shard = node.shards[shard_of_group(client.group_id, self._shards)]
        if not node.member.may_tell:
            return "its lease may be over"
        owner = self._owners.now()[shard.number]
        if owner is None or owner[0] != node.node_id:
            return "it has another owner"
        executor = shard.executors.get(client.group_id)
        if executor is None:
            # It is handed over, or read again.
            return None if shard_keyspace(shard.number) in node.member._busy else "the group is not here"
        member = executor._group.members.get(client.machine.member_id)
        is_in = member is not None and client.machine.generation_id == executor._group.generation_id
        return None if is_in else "the group has gone on without it"

    def _look_at(self, client: Client, node: ClusterNode | None, why: str) -> None:
        now_ms = self.sight.now_ms
        doubt = self._doubts.get(client.name)
        if doubt is None:
            doubt = self._doubts[client.name] = Doubt(why, now_ms, now_ms)
        if doubt.why != why:
            doubt.why, doubt.undisturbed_ms = why, now_ms
        if node is None or not node.process.is_running or not reaches(client):
            doubt.undisturbed_ms = now_ms
        limit_ms = client.options.session_timeout_ms + 2 * LEASE_LOOKED_AT_MS + HEAD_START_MS
        if now_ms - doubt.since_ms > limit_ms:
            self.fail(f"{client.name} rests at {client.kept_by} for {now_ms - doubt.since_ms} ms, and {why}")
        sharp_ms = self._limits_ms.get(why, limit_ms) + HEAD_START_MS
        if now_ms - doubt.undisturbed_ms > sharp_ms:
            self.fail(f"{client.name} rests at {client.kept_by}, which it reaches, for {sharp_ms} ms, and {why}")


class PromisedRest(ClusterLaw):
    """That its channel keeps its session is said to a member alone whose group is loaded at that node, and that the
    channel carries.
    """

    def __init__(self, sight: Sight, owners: OwnersInEtcd, plan: ClusterPlan) -> None:
        super().__init__(sight)
        self._shards = plan.shards
        self._asked: dict[tuple[int, int | str], ClusterCall] = {}

    def on_call(self, api_call: ApiCall) -> None:
        if api_call.line is not None and api_call.call_id is not None:
            assert isinstance(api_call, ClusterCall)
            self._asked[api_call.line, api_call.call_id] = api_call

    def sent(self, line: int, said: dict[str, Any]) -> None:
        call = self._asked.pop((line, said["id"]), None) if "id" in said else None
        if call is None or not said["body"].get("channel_keeps_session"):
            return
        node, member_id = call.node, said["body"].get("member_id") or call.request.member_id
        assert node is not None
        assert node.service is not None
        assert node.api is not None
        shard = node.shards[shard_of_group(call.group_id, self._shards)]
        executor = shard.executors.get(call.group_id) if shard.state is ShardState.ACTIVE else None
        carrier = node.service.connections.connection_of(call.group_id, member_id)
        if executor is None or member_id not in executor._group.members:
            self.fail(f"{node.name} lets {member_id} rest, and has not loaded it in {call.group_id}")
        if carrier is None or node.api.numbers().get(carrier) != line:
            self.fail(f"{node.name} lets {member_id} of {call.group_id} rest on line {line}, which does not carry it")


@dataclass(slots=True)
class Heard:
    """A member of a group in a node's memory: for how long its session is, and when something came last, on a channel
    that carried it.
    """

    connection: MemberConnection | None
    node_ms: int | None
    at_ms: int
    session_ms: int
    gone_at_ms: int | None = None


class HeardLives(ClusterLaw):
    """No session ends before its time has passed since something came on a channel that carried the member, whatever
    has become of that channel since.
    """

    def __init__(self, sight: Sight, owners: OwnersInEtcd, plan: ClusterPlan) -> None:
        super().__init__(sight)
        self._heard: dict[tuple[str, str], dict[str, Heard]] = {}

    def looked(self, nodes: Iterable[ClusterNode]) -> None:
        for node in nodes:
            for shard in node.shards:
                if shard.state is ShardState.ACTIVE:
                    for group_id, executor in shard.executors.items():
                        self._look_at(node, group_id, executor._group)

    def _look_at(self, node: ClusterNode, group_id: str, group: Group) -> None:
        assert node.service is not None
        connections = node.service.connections
        heard = self._heard.setdefault((node.name, group_id), {})
        for member_id, member in group.members.items():
            connection = connections.connection_of(group_id, member_id)
            known = heard.get(member_id)
            if known is None:
                known = heard[member_id] = Heard(None, None, -member.terms.session_timeout_ms, 0)
            node_ms = None if connection is None else connection.heard_at_ms
            if node_ms is not None and (connection, node_ms) != (known.connection, known.node_ms):
                # The answer to a first join binds the member, to a channel that may have been silent since its call.
                ago_ms = node.service.clock.now_ms() - node_ms
                known.connection, known.node_ms, known.at_ms = connection, node_ms, self.sight.now_ms - ago_ms
            # A step that took it out may not have been stored, and then it is back.
            known.gone_at_ms, known.session_ms = None, 0 if member.is_new else member.terms.session_timeout_ms
        for member_id in heard.keys() - group.members.keys():
            if heard[member_id].gone_at_ms is None:
                heard[member_id].gone_at_ms = self.sight.now_ms

    def expired(self, node: ClusterNode, event: SessionExpired) -> None:
        known = self._heard.get((node.name, event.group_id), {}).pop(event.member_id, None)
        if known is None or event.pending or event.disconnected:
            return
        gone_at_ms = self.sight.now_ms if known.gone_at_ms is None else known.gone_at_ms
        silent_ms = gone_at_ms - known.at_ms
        if silent_ms < known.session_ms - HEAD_START_MS:
            self.fail(f"{event.group_id}: {node.name} expires {event.member_id}, of which it heard {silent_ms} ms ago")


class ExpiredKnows(ClusterLaw):
    """A member on channels knows no later than its group that its session is over: it counts from when it sent a ping
    that was answered, and the node from when that came. Only an answer, which may have been on its way, lets it believe
    in more.
    """

    def __init__(self, sight: Sight, owners: OwnersInEtcd, plan: ClusterPlan) -> None:
        super().__init__(sight)
        self._late_ms = late_ms_of(plan) + HEAD_START_MS
        self._clients: dict[str, ClusterClient] = {}

    def believed(self, client: Client) -> None:
        if isinstance(client, ClusterClient) and client.host is not None and client.runs and client.held is not None:
            self._clients[client.name] = client
        else:
            self._clients.pop(client.name, None)

    def expired(self, node: ClusterNode, event: SessionExpired) -> None:
        for client in self._clients.values():
            is_meant = client.group_id == event.group_id and client.machine.member_id == event.member_id
            if not is_meant or event.disconnected or client.is_stalled or client.state is not State.STABLE:
                continue
            left_ms = client.machine._net.timers.get(SESSION, 0) - self.sight.now_ms
            if left_ms > self._late_ms:
                self.fail(
                    f"{node.name} expires {event.member_id} of {event.group_id}, and {client.name} believes in its"
                    f" session for {left_ms} ms more"
                )


class OneBelieves(ClusterLaw):
    """A partition has two owners who may both work no longer than a session: who is out of the generation, and neither
    ends nor stands still, has learnt it by then.
    """

    def __init__(self, sight: Sight, owners: OwnersInEtcd, plan: ClusterPlan) -> None:
        super().__init__(sight)
        self._late_ms = late_ms_of(plan) + HEAD_START_MS
        self._holding: dict[str, dict[str, Client]] = {}
        self._both_since: dict[tuple[str, str], int] = {}

    def believed(self, client: Client) -> None:
        held = client.held
        of_group = self._holding.setdefault(client.group_id, {})
        if held is not None and held.partitions and client.runs:
            of_group[client.name] = client
        else:
            of_group.pop(client.name, None)

    def looked(self, nodes: Iterable[ClusterNode]) -> None:
        now_ms = self.sight.now_ms
        both: dict[tuple[str, str], int] = {}
        for of_group in self._holding.values():
            for first, second in combinations(of_group.values(), 2):
                if first.is_stalled or second.is_stalled or first.held is None or second.held is None:
                    continue
                if first.held.partitions.isdisjoint(second.held.partitions):
                    continue
                pair = first.name, second.name
                both[pair] = self._both_since.get(pair, now_ms)
                older = min(first, second, key=lambda one: one.machine.generation_id)
                if now_ms - both[pair] > older.options.session_timeout_ms + self._late_ms:
                    self.fail(f"{' and '.join(pair)} of {first.group_id} both work, for {now_ms - both[pair]} ms")
        self._both_since = both


class CarriedHere(ClusterLaw):
    """The channels of a node carry members of no group whose shard another node may have."""

    def __init__(self, sight: Sight, owners: OwnersInEtcd, plan: ClusterPlan) -> None:
        super().__init__(sight)
        self._shards = plan.shards

    def looked(self, nodes: Iterable[ClusterNode]) -> None:
        for node in nodes:
            service = node.service
            if service is None or node.member is None or service.phase in (Phase.DRAINING, Phase.STOPPED):
                continue
            for group_id in service.connections.groups():
                shard = node.shards[shard_of_group(group_id, self._shards)]
                if shard.state is ShardState.ABSENT and shard_keyspace(shard.number) not in node.member._busy:
                    self.fail(f"{node.name} has not shard {shard.number}, and its channels carry members of {group_id}")
