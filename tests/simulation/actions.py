"""What a plan may do to a world, one action at a time. An action that finds nobody to act on does nothing."""

import asyncio
from typing import Literal

from rallypoint.coordinator.storage.contract import REGISTRY_KEYSPACE
from rallypoint.member.core import events as ev
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from tests.simulation.client import Client
from tests.simulation.disk import PowerCut
from tests.simulation.plan import COOLDOWN_MAX_MS, FREEZE_MAX_MS, NODE_STALL_MS
from tests.simulation.stranger import ask_for_id, lie
from tests.simulation.world import GROWTH_MAX, TOPICS, World

STALL_MS = (500, 3_000, 15_000)
FREEZES_MS = (500, 3_000, FREEZE_MAX_MS, FREEZE_MAX_MS + 1)
COOLDOWNS_MS = (None, 0, 500, COOLDOWN_MAX_MS, COOLDOWN_MAX_MS + 1)
"""Of each the last is more than the settings allow."""
JOIN_WAITS_MS = (None, 500, 2_000, 3_000, 60_000)
"""One is too short."""


class Actions:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def act(self, kind: str) -> None:
        """One action of the plan; one that finds nobody to act on does nothing."""
        chance = self._world.chance
        client = self._pick()
        match kind:
            case "start":
                self._world.start_client()
            case "come_back":
                if self._world.away:
                    self._world.start_client(self._world.away.pop(chance.randrange(len(self._world.away))))
            case "topic_grows":
                self._world.grow(chance.choice(sorted(TOPICS)))
            case "grows_elsewhere":
                self._world.grow_elsewhere(chance.choice(sorted(TOPICS)))
            case "topic_put" | "topic_deleted":
                self._change_registry(kind)
            case "many_leave":
                self._many_leave()
            case "many_leave_and_crash":
                self._many_leave()
                self._cut_power_at_next_append(of_leavings=True)
            case "lie":
                self._lie()
            case "ask_ids":
                self._ask_ids()
            case "idle_line":
                self._open_idle_line()
            case "crash":
                self._world.do(self._world.kill_node())
            case "crash_at_append":
                if chance.random() < 0.7:
                    self._cut_power_at_next_append()
                else:
                    self.grow_and_lose_power()
            case "drain":
                self._world.do(self._world.drain_node())
            case "node_stall":
                self._world.stall_node(chance.choice(NODE_STALL_MS))
            case "fetch":
                group_id = chance.choice(self._world.plan.groups)
                self._world.say("reader", group_id, ops.FETCH, m.FetchRequest())
            case "freeze" | "thaw" | "cooldown" | "rebalance":
                self._operate(kind, chance.choice(self._world.plan.groups))
            case "proceed" | "join_wait" | "freeze_until":
                self._operate_on_members(kind, chance.choice(self._world.plan.groups))
            case "remove":
                self._remove_members(chance.choice(self._world.plan.groups))
            case "proxy_restart":
                self._world.trace.fault(self._world.now_ms, kind)
                self._world.cut_all_lines()
            case "delete_group" | "delete_offsets" | "reset_offsets":
                self._administer(kind)
            case _ if client is not None:
                self._act_on(kind, client)

    def _change_registry(self, kind: str) -> None:
        """A topic is registered or gets a partition more, or is deleted; sometimes as the last thing a node does."""
        chance, world = self._world.chance, self._world
        topic = chance.choice(sorted(TOPICS))
        if kind == "topic_put":
            count = world.partitions(topic)
            wanted = count + 1 if count else chance.randint(1, 4)
            world.do(world.put_topic(topic, min(wanted, GROWTH_MAX)))
            return
        if "crash_at_append" in world.plan.weights and chance.random() < 0.3:
            world.disk.at_next_append = PowerCut(REGISTRY_KEYSPACE, True, lambda: world.do(world.kill_node()))
        world.do(world.delete_topic(topic))

    def _operate(self, kind: str, group_id: str) -> None:
        """What an operator asks; the wire may lose it, or bring it twice."""
        chance = self._world.chance
        self._world.trace.note(self._world.now_ms, f"   the operator asks for {kind} of {group_id}")
        operation: ops.Operation = ops.FREEZE
        body: m.RequestModel = admin.FreezeRequest(duration_ms=chance.choice(FREEZES_MS))
        if kind == "thaw":
            body = admin.FreezeRequest(duration_ms=0)
        elif kind == "cooldown":
            operation, body = ops.COOLDOWN, admin.CooldownRequest(cooldown_ms=chance.choice(COOLDOWNS_MS))
        elif kind == "rebalance":
            operation, body = ops.START_REBALANCE, admin.StartRebalanceRequest(reason="why not")
        self._world.say("operator", group_id, operation, body)

    def _operate_on_members(self, kind: str, group_id: str) -> None:
        chance, world = self._world.chance, self._world
        world.trace.note(world.now_ms, f"   the operator asks for {kind} of {group_id}")
        operation: ops.Operation = ops.PROCEED
        body: m.RequestModel = admin.ProceedRequest(reason="slow", dry_run=chance.random() < 0.1)
        if kind == "join_wait":
            operation, body = ops.JOIN_WAIT, admin.JoinWaitRequest(join_wait_max_ms=chance.choice(JOIN_WAITS_MS))
        elif kind == "freeze_until":
            until: Literal["members_present", "members_replaced"] = chance.choice(
                ["members_present", "members_replaced"]
            )
            operation = ops.FREEZE
            body = admin.FreezeRequest(duration_ms=chance.choice([3_000, FREEZE_MAX_MS]), until=until)
        world.say("operator", group_id, operation, body)

    def _remove_members(self, group_id: str) -> None:
        """One or a few that run, by id or by instance id; sometimes also somebody who is not there."""
        chance, world = self._world.chance, self._world
        here = [client for client in world.running() if client.group_id == group_id]
        chosen = chance.sample(here, min(len(here), chance.choice([1, 1, 2, 3])))
        names = [
            client.options.group_instance_id if client.options.group_instance_id and chance.random() < 0.5
            else client.machine.member_id
            for client in chosen
        ]  # fmt: skip
        members = tuple(name for name in [*names, *(["nobody"] if chance.random() < 0.2 else [])] if name)
        if not members:
            return
        world.trace.note(world.now_ms, f"   the operator asks to remove {members} of {group_id}")
        body = admin.RemoveMembersRequest(members=members, reason="hung", dry_run=chance.random() < 0.1)
        world.say("operator", group_id, ops.REMOVE_MEMBERS, body)

    def _administer(self, kind: str) -> None:
        """What an operator does to a group's offsets, or to a group: mostly where nobody is, else much is refused."""
        chance, world = self._world.chance, self._world
        seen = [] if world.node is None else [world.node.group(group_id) for group_id in world.plan.groups]
        deserted = [one.group.group_id for one in seen if one is not None and not one.group.members]
        group_id = chance.choice(deserted if deserted and chance.random() < 0.7 else world.plan.groups)
        topics = chance.choice([("t",), ("u",), ("t", "u")])
        operation: ops.Operation = ops.DELETE_GROUP
        body: m.RequestModel | None = None
        if kind == "delete_offsets":
            operation, body = ops.DELETE_OFFSETS, admin.DeleteOffsetsRequest(topics=topics)
            if chance.random() < 0.4:
                body = admin.DeleteOffsetsRequest(
                    partitions=tuple(f"{topic}:{chance.randrange(3)}" for topic in topics)
                )
        elif kind == "reset_offsets":
            to: Literal["offset", "earliest"] = chance.choice(["offset", "offset", "earliest"])
            operation = ops.RESET_OFFSETS
            if chance.random() < 0.3:
                offsets = {topic: {chance.randrange(3): next(world.offsets)} for topic in topics}
                body = admin.ResetOffsetsRequest(to="offsets", offsets=offsets)
            else:
                body = admin.ResetOffsetsRequest(
                    to=to,
                    offset=next(world.offsets) if to == "offset" else None,
                    topics={topic: tuple(range(chance.randint(1, 3))) for topic in topics},
                    dry_run=chance.random() < 0.2,
                )
        world.trace.note(world.now_ms, f"   the operator asks for {kind} of {group_id}")
        world.say("operator", group_id, operation, body)

    def _act_on(self, kind: str, client: Client) -> None:
        chance = self._world.chance
        match kind:
            case "leave":
                client.feed(ev.LeaveRequested("done", stay=False))
            case "stop_static" if client.options.group_instance_id is not None:
                client.feed(ev.LeaveRequested(None, stay=True))
                self._world.away.append(client.options)
            case "commit":
                client.commit(next(self._world.offsets))
            case "rejoin":
                client.feed(ev.RejoinRequested("asked to"))
            case "resubscribe":
                client.feed(ev.SubscriptionChanged(chance.choice([("t",), ("t", "u"), ("u",)]), None))
            case "vanish" | "cut_off":
                self._world.vanish(client, cut_off=kind == "cut_off")
            case "stall":
                for_ms = chance.choice(STALL_MS)
                self._world.trace.fault(self._world.now_ms, kind, f"{client.name} {for_ms} ms")
                for mate in self._world.mates_of(client):
                    mate.stall(for_ms)
            case "switch" if client.link is not None:
                self._world.trace.fault(self._world.now_ms, kind, client.name)
                client.switch()
            case "late_line" if client.link is not None and client.link.line is not None:
                # What is on its way then comes after what is said on the next line.
                self._world.trace.fault(self._world.now_ms, kind, client.link.name)
                client.leave_a_heartbeat_behind()
            case "cut" | "half_open" if client.link is not None and client.link.line is not None:
                self._world.trace.fault(self._world.now_ms, kind, client.link.name)
                if kind == "half_open":
                    client.link.line.lose()
                else:
                    client.link.cut(chance.choice(["both", "client", "service"]))
            case "duplicate" if client.options.group_instance_id is not None:
                self._world.trace.fault(self._world.now_ms, kind, client.name)
                self._world.start_client(client.options)
            case "slow_callback":
                self._world.trace.fault(self._world.now_ms, kind, client.name)
                client.callback_ms = chance.choice([1, 800, 6_000])

    def _many_leave(self) -> None:
        """Most members of a group leave in the same instant, and the others stay."""
        group_id = self._world.chance.choice(self._world.plan.groups)
        clients = [client for client in self._world.running() if client.group_id == group_id]
        for client in clients[: len(clients) * 2 // 3]:
            client.feed(ev.LeaveRequested("done", stay=False))

    def _cut_power_at_next_append(self, *, of_leavings: bool = False) -> None:
        world = self._world
        is_stored = world.chance.random() < 0.5
        world.disk.at_next_append = PowerCut(None, is_stored, lambda: world.do(world.kill_node()), of_leavings)

    def grow_and_lose_power(self) -> None:
        """A topic has grown, and the node dies before it could tell anybody; who loads the groups must find out."""
        world = self._world
        world.disk.at_next_append = PowerCut(REGISTRY_KEYSPACE, True, lambda: world.do(world.kill_node()))
        world.grow(world.chance.choice(sorted(TOPICS)))

    def _lie(self) -> None:
        group_id = self._world.chance.choice(self._world.plan.groups)
        seen = None if self._world.node is None else self._world.node.group(group_id)
        operation, body = lie(
            self._world.chance, self._world.plan, None if seen is None else seen.group, next(self._world.offsets)
        )
        self._world.trace.fault(self._world.now_ms, "lie", operation.name)
        self._world.say("stranger", group_id, operation, body)

    def _ask_ids(self) -> None:
        """Again and again, or a few at once."""
        chance, world = self._world.chance, self._world
        group_id = chance.choice(world.plan.groups)
        count, gap_ms = chance.choice([(1, 0), (10, 0), (30, 150), (15, 700)])
        world.trace.fault(world.now_ms, "ask_ids", f"{count} of {group_id}, every {gap_ms} ms")

        async def ask() -> None:
            for _ in range(count):
                if world.is_calm:
                    return
                world.say("stranger", group_id, ops.JOIN, ask_for_id(world.plan))
                await asyncio.sleep(gap_ms / 1000)

        world.do(ask())

    def _open_idle_line(self) -> None:
        """A channel on which nobody ever says anything, no pong either."""
        self._world.trace.fault(self._world.now_ms, "idle_line", "stranger")
        self._world.network.line_to(lambda line, frame: None, lambda: 0.0)

    def _pick(self) -> Client | None:
        running = self._world.running()
        return self._world.chance.choice(running) if running else None
