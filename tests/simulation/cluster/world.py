"""Three nodes, an etcd, the wires and the members; and what a plan's steps do to them."""

import asyncio
import random
from collections.abc import Coroutine
from itertools import count
from typing import Any, TypeVar

from rallypoint.assignors.contract import Assignor
from rallypoint.assignors.cooperative_sticky import CooperativeStickyAssignor
from rallypoint.assignors.range import RangeAssignor
from rallypoint.assignors.roundrobin import RoundRobinAssignor
from rallypoint.coordinator.core.effects import Event, Failure, SessionExpired
from rallypoint.coordinator.runtime.condition import ShardState
from rallypoint.member.core import events as ev
from rallypoint.member.options import MemberOptions
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from tests.simulation.checker import Sight
from tests.simulation.client import Client
from tests.simulation.cluster.channels import ClusterLink, Host, NodeChannels
from tests.simulation.cluster.etcd_link import EtcdFaults, EtcdLink, ObservedEtcd
from tests.simulation.cluster.laws import Laws
from tests.simulation.cluster.network import ClusterClient, ClusterNetwork, RoutedExchange
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.plan import NODE_IDS, WALL_AHEAD_MS, ClusterPlan, Step
from tests.simulation.cluster.processes import ClusterLoop
from tests.simulation.network import Answer, ApiCall, HttpApi, raise_its_fault
from tests.simulation.trace import Trace, Violation

Key = TypeVar("Key")

TOPICS = {"t": 4, "u": 3}
GROWTH_MAX = 12
BACK_MS = (1, 500, 3_000, 12_000)
CALL_PATIENCE_S = 12.0
MOVES_WITHIN_MS = 1_000
"""A shard that is to go somewhere else, if nothing stands in its way."""
_ASSIGNORS: dict[str, Assignor] = {
    one.name: one for one in (RangeAssignor(), RoundRobinAssignor(), CooperativeStickyAssignor())
}


class ClusterWorld(HttpApi):
    """Everything that takes part in a run."""

    def __init__(self, plan: ClusterPlan, chance: random.Random, trace: Trace, loop: ClusterLoop) -> None:
        self.plan = plan
        self.chance = chance
        self.trace = trace
        self.loop = loop
        self.is_over = False
        self.is_calm = False
        self.etcd = ObservedEtcd(lambda: self.now_ms)
        self.etcd_faults = EtcdFaults(random.Random(f"etcd {plan.seed}"), trace, plan.etcd_rates)
        late_chance = random.Random(f"late {plan.seed}")
        urls = tuple(f"http://{node_id}" for node_id in NODE_IDS)
        self.network = ClusterNetwork(loop, chance, trace, dict(plan.rates), self, late_chance, self.node_at, urls)
        self.nodes: dict[str, ClusterNode] = {}
        self.clients: list[ClusterClient] = []
        self.sight = Sight(plan.basis)
        self.laws = Laws(self.sight, self.etcd, self.nodes, plan)
        self._numbers = count(1)
        self._offsets = count(1)
        self._ids = count(1)
        self._lives = count(1)
        self._wanted: set[str] = set()
        self._line_chance = random.Random(f"lines {plan.seed}")
        self.hosts: list[Host] = []
        loop.after_turn = self._turned

    @property
    def now_ms(self) -> int:
        return round(self.loop.time() * 1000)

    def _turned(self) -> None:
        self.sight.now_ms = self.now_ms
        if not self.is_over:
            self.laws.looked()

    def note(self, text: str) -> None:
        """For the trace."""
        self.trace.note(self.now_ms, f"   {text}")

    # --- nodes -------------------------------------------------------------------------------------------------------

    def node_at(self, url: str) -> ClusterNode | None:
        """The node whose process is there, paused or not."""
        node = self.nodes.get(url.removeprefix("http://"))
        return node if node is not None and node.is_up else None

    def begin_node(self, node_id: str) -> None:
        """A process begins, unless there is one."""
        former = self.nodes.get(node_id)
        if self.is_over or node_id not in self._wanted or (former is not None and former.is_up):
            return
        life = next(self._lives)
        link = EtcdLink(f"{node_id}.{life}", self.etcd, self.loop, self.etcd_faults)
        basis = self.plan.basis
        self.nodes[node_id] = ClusterNode(
            node_id,
            life,
            self.loop,
            link,
            rules=basis.rules,
            capacity=basis.capacity,
            limits=self.plan.limits,
            shards=self.plan.shards,
            lease_ttl_ms=self.plan.lease_ttl_ms,
            clock_rate=self.plan.clock_rates[NODE_IDS.index(node_id)],
            wall_ahead_ms=self.chance.choice(WALL_AHEAD_MS),
            ids=self._ids,
            chance=random.Random(f"tags {self.plan.seed} {life}"),
            on_end=self._node_ended,
            on_event=self._happened,
            channels_of=self._channels_of if basis.channel_share else None,
        )
        self.note(f"{self.nodes[node_id].name} begins")

    def _channels_of(self, node: ClusterNode) -> NodeChannels:
        return NodeChannels(node, self.plan.basis, self.network, self)

    def _node_ended(self, node: ClusterNode, why: str) -> None:
        self.note(f"{node.name} {why}")
        self.network.reset(node)
        for law in self.laws.of_cluster:
            law.ended(node)
        self.loop.call_later(self.chance.choice(BACK_MS[:3]) / 1000, self.begin_node, node.node_id)

    def _happened(self, node: ClusterNode, event: Event) -> None:
        if isinstance(event, SessionExpired):
            self.note(f"{event.group_id}: {node.name} expires {event.member_id}")
            self._tell("expired", node, event)

    def want(self, node_id: str, *, is_wanted: bool = True) -> None:
        """Whether a node whose process has ended begins again."""
        if is_wanted:
            self._wanted.add(node_id)
        else:
            self._wanted.discard(node_id)

    def kill(self, node: ClusterNode, back_ms: int) -> None:
        """The process dies, and another begins later."""
        node.kill()
        self.network.reset(node)
        self.loop.call_later(back_ms / 1000, self.begin_node, node.node_id)

    # --- members -----------------------------------------------------------------------------------------------------

    def running(self) -> list[ClusterClient]:
        """Those whose member has not ended."""
        return [client for client in self.clients if client.runs]

    def start_client(self) -> None:
        """A process with a member begins, unless there are enough."""
        if len(self.running()) >= self.plan.members_max:
            return
        chance, basis = self.chance, self.plan.basis
        group_id = chance.choice(basis.groups)
        taken = {one.options.group_instance_id for one in self.running() if one.group_id == group_id}
        free = [f"i{number}" for number in range(self.plan.members_max) if f"i{number}" not in taken]
        first = chance.randrange(len(NODE_IDS))
        urls = [f"http://{node_id}" for node_id in (*NODE_IDS[first:], *NODE_IDS[:first])]
        options = MemberOptions(
            coordinator=urls,
            group_id=group_id,
            topics=chance.choice([("t",), ("t", "u")]),
            client_id=f"m{next(self._numbers)}",
            group_instance_id=chance.choice(free) if chance.random() < 0.3 else None,
            assignors=chance.choice(basis.offers),
            session_timeout_ms=chance.choice(basis.session_timeouts_ms),
            rebalance_timeout_ms=chance.choice(basis.rebalance_timeouts_ms),
            heartbeat_wait_ms=chance.choice([0, 20_000]),
            request_timeout_ms=chance.choice([1_000, 2_000]),
            park_wait_ms=chance.choice([1_000, 20_000]),
            leave_timeout_ms=1_000,
            call_timeout_ms=10_000,
        )
        client = ClusterClient(
            f"c{next(self._numbers)}",
            options,
            tuple(_ASSIGNORS[str(name)] for name in options.assignors),
            loop=self.loop,
            network=self.network,
            chance=chance,
            trace=self.trace,
            numbers=self._numbers,
            on_view=self._believed,
            on_push=lambda client, generation_id, state, before_id: None,
            host=self._host(),
        )
        self.clients.append(client)
        self.note(f"{client.name} starts in {group_id}, {options.group_instance_id or 'dynamic'}")
        client.feed(ev.Started())

    def _host(self) -> Host | None:
        """A process that begins, or takes another member; None for one without channels."""
        chance, basis = self._line_chance, self.plan.basis
        if chance.random() >= basis.channel_share:
            return None
        with_room = [host for host in self.hosts if host.has_room]
        if with_room and chance.random() < 0.6:
            return chance.choice(with_room)
        host = Host(f"p{len(self.hosts) + 1}", self._link, basis.mates_max)
        self.hosts.append(host)
        return host

    def _link(self, name: str, url: str) -> ClusterLink:
        return ClusterLink(name, self.network, self._line_chance, self.plan.basis, url)

    def _believed(self, client: Client) -> None:
        self._tell("believed", client)

    def fetch(self, group_id: str, node_id: str) -> None:
        """Somebody reads the committed offsets at a node."""
        body = m.FetchRequest()
        exchange = RoutedExchange("reader", group_id, ops.FETCH, body, lambda outcome: None, url=f"http://{node_id}")
        self.network.send(exchange, 3_000)

    # --- calls of operators ------------------------------------------------------------------------------------------

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        """Beside everything else; what it raises ends the run."""
        task = self.loop.create_task(work)
        task.add_done_callback(raise_its_fault)

    async def ask(self, node: ClusterNode, work: Coroutine[Any, Any, Any]) -> Any:
        """A call that an operator makes at a node; None where it has no answer for too long."""
        task = node.process.spawn(work)
        await asyncio.wait([task], timeout=CALL_PATIENCE_S)
        return task.result() if task.done() and not task.cancelled() else None

    async def put_topic(self, topic: str, partitions: int) -> bool:
        """Ask every node, of which one changes the registry."""
        for node in list(self.nodes.values()):
            if not node.is_up or node.service is None:
                continue
            answer = await self.ask(node, node.service.put_topic(topic, m.PutTopicRequest(partitions=partitions)))
            if answer is not None and not isinstance(answer, Failure):
                self.note(f"{topic} has {partitions} partitions, by {node.name}")
                return True
        return False

    async def register_topics(self) -> None:
        """Until each is there."""
        for topic, partitions in TOPICS.items():
            while topic not in self.sight.fold.topics:
                await self.put_topic(topic, partitions)
                await asyncio.sleep(0.2)

    async def change_placement(self, kind: str, node_id: str, shard: int) -> bool:
        """Ask the nodes in turn until one has done it."""
        for node in list(self.nodes.values()):
            if not node.is_up or node.member is None or node.member.live_count == 0:
                continue
            if kind == "move_shard":
                answer = await self.ask(node, node.member.move_shard(shard, node_id))
            else:
                answer = await self.ask(node, node.member.drain_node(node_id, draining=kind == "operator_drain"))
            self.note(f"{kind} {node_id} {shard} at {node.name}: {'done' if answer else answer}")
            if answer is not None and not isinstance(answer, Failure):
                return True
        return False

    # --- steps -------------------------------------------------------------------------------------------------------

    def act(self, step: Step) -> None:
        """One step of the plan; one that finds nobody to act on does nothing."""
        node = self.nodes[NODE_IDS[int(step.pick * 1_000) % len(NODE_IDS)]]
        running = self.running()
        client = running[int(step.pick * len(running))] if running else None
        if not self._act_on_members(step, client):
            self.trace.fault(self.now_ms, step.kind, f"{node.name} {step.for_ms} ms")
            if not self._act_on_etcd(step):
                self._act_on_node(step, node)

    def _act_on_members(self, step: Step, client: ClusterClient | None) -> bool:
        groups = self.plan.basis.groups
        match step.kind:
            case "start":
                self.start_client()
            case "fetch":
                self.fetch(groups[int(step.pick * len(groups))], NODE_IDS[int(step.pick * 1_000) % len(NODE_IDS)])
            case "commit" | "leave" | "stop" | "vanish" | "rejoin" | "client_stall" if client is None:
                return True
            case "commit" if client is not None:
                client.commit(next(self._offsets))
            case "leave" if client is not None:
                client.feed(ev.LeaveRequested("done", stay=False))
            case "stop" if client is not None:
                client.feed(ev.LeaveRequested("stopped", stay=True))
            case "vanish" if client is not None:
                for mate in client.mates():
                    mate.vanish(cut_off=step.pick < 0.5)
            case "rejoin" if client is not None:
                client.feed(ev.RejoinRequested("asked to"))
            case "client_stall" if client is not None:
                for mate in client.mates():
                    mate.stall(step.for_ms)
            case "cut_line" | "half_open":
                self._act_on_lines(step)
            case "cut_while_moving":
                self._cut_while_moving(step)
            case _:
                return False
        return True

    def _act_on_lines(self, step: Step) -> None:
        """A line ends, or is half-open from now on."""
        links = [link for host in self.hosts for link in host.open_lines()]
        if not links:
            return
        link = links[int(step.pick * len(links))]
        self.trace.fault(self.now_ms, step.kind, link.name)
        if step.kind == "cut_line":
            link.cut(("both", "client", "service")[int(step.pick * 1_000) % 3])
        elif link.line is not None:
            link.line.lose()

    def _cut_while_moving(self, step: Step) -> None:
        """A shard whose members rest is moved, and its node is cut off from etcd amid the hand-over."""
        resting = [client for client in self.running() if client.rests]
        client = resting[int(step.pick * len(resting))] if resting else None
        node = None if client is None else self.node_at(client.kept_by or "")
        if client is None or node is None or node.service is None or node.member is None:
            return
        shard = node.service._shard_of(client.group_id)
        others = [node_id for node_id in NODE_IDS if node_id != node.node_id]
        to = others[int(step.pick * 1_000) % len(others)]

        async def move_and_cut(node: ClusterNode) -> None:
            await self.change_placement("move_shard", to, shard)
            for _ in range(MOVES_WITHIN_MS):
                if not node.is_up or self.is_calm:
                    return
                if node.shards[shard].state is ShardState.ABSENT:
                    self.trace.fault(self.now_ms, step.kind, f"{node.name} {step.for_ms} ms")
                    for way in ("up", "down"):
                        self._cut(node.link.cuts, way, step)
                    return
                await asyncio.sleep(0.001)

        self.do(move_and_cut(node))

    def _act_on_etcd(self, step: Step) -> bool:
        match step.kind:
            case "no_leader":
                self.etcd.has_leader = False
                self._later(step, self._leader_is_there)
            case "new_leader":
                self.etcd.prolong_all()
            case "etcd_full":
                self.etcd.is_filling = True
                self._later(step, self._etcd_has_room)
            case "compact":
                if self.etcd.compacted < self.etcd.revision:
                    self.etcd.compact(self.etcd.revision)
            case "operator_drain" | "operator_undrain" | "move_shard":
                node_id = NODE_IDS[int(step.pick * 1_000) % len(NODE_IDS)]
                self.do(self.change_placement(step.kind, node_id, int(step.pick * self.plan.shards)))
            case "topic_grows":
                self._grow(step)
            case _:
                return False
        return True

    def _grow(self, step: Step) -> None:
        topic = sorted(TOPICS)[int(step.pick * len(TOPICS))]
        record = self.sight.fold.topics.get(topic)
        if record is not None and record.partitions < GROWTH_MAX:
            self.do(self.put_topic(topic, record.partitions + 1))

    def _act_on_node(self, step: Step, node: ClusterNode) -> None:
        match step.kind:
            case _ if not node.is_up:
                return
            case "pause":
                node.pause(step.for_ms / 1000)
            case "stall":
                node.stall(step.for_ms / 1000)
            case "cut_up" | "cut_down" | "cut_both":
                for way in ("up", "down"):
                    if step.kind in (f"cut_{way}", "cut_both"):
                        self._cut(node.link.cuts, way, step)
            case "cut_clients":
                self._cut(self.network.cut, node.url, step)
            case "cut_clients_up" | "cut_clients_down":
                self._cut(self.network.half_cut, (node.url, step.kind.removeprefix("cut_clients_")), step)
            case "kill":
                self.kill(node, BACK_MS[int(step.pick * len(BACK_MS))])
            case "drain":
                node.drain()
            case "slow_watch":
                node.link.watch_delay_ms = min(step.for_ms, 2_500)

    def _cut(self, cuts: dict[Key, int], what: Key, step: Step) -> None:
        cuts[what] = cuts.get(what, 0) + 1

        def mend() -> None:
            cuts[what] = max(0, cuts.get(what, 0) - 1)

        self._later(step, mend)

    def _later(self, step: Step, callback: Any) -> None:
        self.loop.call_later(step.for_ms / 1000, callback)

    def _leader_is_there(self) -> None:
        if not self.etcd.has_leader:
            self.etcd.has_leader = True
            self.etcd.prolong_all()

    def _etcd_has_room(self) -> None:
        self.etcd.is_filling = self.etcd.is_full = False

    def heal(self) -> None:
        """No more faults. Who is paused goes on by itself, and who is dead begins again."""
        self.is_calm = True
        self.network.mend_cuts()
        self.network.heal()
        self.etcd_faults.rates = dict.fromkeys(self.etcd_faults.rates, 0.0)
        self._leader_is_there()
        self._etcd_has_room()
        for node_id in NODE_IDS:
            node = self.nodes[node_id]
            node.link.cuts = dict.fromkeys(node.link.cuts, 0)
            node.link.watch_delay_ms = 1
            self.begin_node(node_id)

    # --- as HttpApi --------------------------------------------------------------------------------------------------

    def on_call(self, api_call: ApiCall) -> None:
        self._tell("on_call", api_call)

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        self.sight.number = self.network.next_number()
        self._tell("on_answer", api_call, answer)

    def hung_up(self, api_call: ApiCall, *, connection_lost: bool = False) -> None:
        self._tell("hung_up", api_call, connection_lost)

    def sent(self, line: int, said: dict[str, Any]) -> None:
        if "event" in said:
            self.note(f"line {line} < {said}")
        self._tell("sent", line, said)

    def _tell(self, hook: str, *args: Any) -> None:
        if self.is_over:
            return
        self.sight.now_ms = self.now_ms
        try:
            self.laws.tell(hook, *args)
        except Violation as violation:
            # Not raised here, for the service would take it for a fault of its own; the run ends with this turn.
            self.loop.fault = self.loop.fault or violation
