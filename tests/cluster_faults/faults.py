"""What is done to the cluster, and undone. Each fault is a function of the stage on which it happens.

A fault calls `stage.undoing()` when it begins to undo: until then is its first part, in which fail-over is measured.
"""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Protocol

from examples.cluster.run import beside
from examples.cluster.servers import Node
from tests.cluster_faults.network import Host
from tests.cluster_faults.servers import (
    EtcdMember,
    NodeOnHost,
    WallClock,
    empty_quota,
    fill_quota,
    give_space_back,
    store_ballast,
    wait_until_healthy,
)
from tests.real.etcd import RealEtcd

LONGER_THAN_LEASE_S = 6.0
SHORT_S = 3.0
STORE_S = 0.1
FULL_S = 240.0
STEPS_S = (3_600, -3_600, 86_400)
"""Of the wall clock: an hour ahead, an hour behind, a day ahead."""


class Stage(Protocol):
    """What a fault may use. chance: decides what is not said, such as which client is cut off."""

    etcd: RealEtcd
    members: Sequence[EtcdMember]
    nodes: Mapping[str, NodeOnHost]
    clients: Sequence[Host]
    wall_clock: WallClock | None
    chance: random.Random

    async def settle(self, without: Node | None = None) -> None:
        """Until every node but that one says that each shard is where it belongs."""

    async def expect_refusal(self, nodes: Sequence[NodeOnHost]) -> None:
        """Until these nodes say that they are not ready. It is a problem if one of them goes on to be ready."""

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = ...) -> None:
        """Until it is so. Raises Failed, with what was waited for, where it never is."""

    async def read_history(self) -> int:
        """Judge etcd's history up to now, before it is compacted; the revision up to which it was read."""

    def undoing(self) -> None:
        """The fault is at its end."""


async def kill(stage: Stage, node: NodeOnHost) -> None:
    """The process of a node is killed, and started again."""
    node.kill()
    await stage.settle(without=node)
    stage.undoing()
    node.start()


async def pause(stage: Stage, node: NodeOnHost) -> None:
    """A node stands still for longer than its lease lives, and wakes."""
    node.pause()
    await asyncio.gather(stage.settle(without=node), asyncio.sleep(LONGER_THAN_LEASE_S))
    stage.undoing()
    node.resume()


def cut(one: Host, others: Sequence[Host], way: str) -> Callable[[bool], None]:
    """What cuts a host off from others, or mends it. way: `in`, `out` or `both`, as the host sees it."""

    def change(is_cut: bool) -> None:
        for other in others:
            ends = {"in": [(one, other)], "out": [(other, one)], "both": [(one, other), (other, one)]}[way]
            for receiver, sender in ends:
                (receiver.refuse if is_cut else receiver.admit)(sender)

    return change


def from_etcd(way: str) -> Callable[[Stage, NodeOnHost], Awaitable[None]]:
    """A node is cut off from every member of etcd for longer than its lease lives."""

    async def act(stage: Stage, node: NodeOnHost) -> None:
        change = cut(node.line, [member.line for member in stage.members], way)
        change(True)
        await asyncio.gather(
            stage.settle(without=node), stage.expect_refusal([node]), asyncio.sleep(LONGER_THAN_LEASE_S)
        )
        stage.undoing()
        change(False)

    return act


def from_client(way: str) -> Callable[[Stage, NodeOnHost], Awaitable[None]]:
    """A node is cut off from one of the hosts of clients. It coordinates on; nobody else may."""

    async def act(stage: Stage, node: NodeOnHost) -> None:
        change = cut(node.line, [stage.chance.choice(stage.clients)], way)
        change(True)
        await asyncio.sleep(LONGER_THAN_LEASE_S)
        stage.undoing()
        change(False)

    return act


def from_nodes(way: str) -> Callable[[Stage, NodeOnHost], Awaitable[None]]:
    """A node is cut off from the other nodes, which speak to each other through etcd alone."""

    async def act(stage: Stage, node: NodeOnHost) -> None:
        change = cut(node.line, [other.line for other in stage.nodes.values() if other is not node], way)
        change(True)
        await asyncio.sleep(LONGER_THAN_LEASE_S)
        stage.undoing()
        change(False)

    return act


async def kill_leader(stage: Stage, node: NodeOnHost) -> None:
    """The leader of etcd is killed, and started again."""
    member = await _leader(stage)
    member.kill()
    await asyncio.sleep(SHORT_S)
    stage.undoing()
    await _restart([member])


async def kill_leader_at_hand_over(stage: Stage, node: NodeOnHost) -> None:
    """A node is stopped in order, and while it hands its shards over the leader of etcd is killed."""
    member = await _leader(stage)
    stopping = asyncio.create_task(asyncio.to_thread(node.stop))
    await asyncio.sleep(stage.chance.uniform(0.0, 0.15))
    member.kill()
    await stopping
    await stage.settle(without=node)
    stage.undoing()
    node.start()
    await _restart([member])


async def lose_quorum(stage: Stage, node: NodeOnHost) -> None:
    """Two members of etcd stand still for longer than a lease lives, and go on."""
    members = stage.chance.sample(stage.members, k=2)
    for member in members:
        member.signal(signal.SIGSTOP)
    await asyncio.gather(stage.expect_refusal(list(stage.nodes.values())), asyncio.sleep(LONGER_THAN_LEASE_S))
    stage.undoing()
    for member in members:
        member.signal(signal.SIGCONT)


async def fill_disk(stage: Stage, node: NodeOnHost) -> None:
    """The disk of etcd's leader is full: it ends, and is started again when there is space."""
    await _fill_disks(stage, [await _leader(stage)])


async def fill_disks(stage: Stage, node: NodeOnHost) -> None:
    """The disks of two members are full, so there is no quorum until there is space and they are started again."""
    await _fill_disks(stage, stage.chance.sample(stage.members, k=2))


async def _fill_disks(stage: Stage, members: Sequence[EtcdMember]) -> None:
    for member in members:
        await asyncio.to_thread(give_space_back, stage.etcd, stage.members.index(member))
        member.disk.fill()
    async with beside(_go_on_storing(stage)):
        await stage.until(lambda: not any(member.runs for member in members), "etcd has met its full disk", FULL_S)
    if len(members) > 1:
        await stage.expect_refusal(list(stage.nodes.values()))
    await asyncio.sleep(LONGER_THAN_LEASE_S)
    stage.undoing()
    for member in members:
        member.disk.free()
    await _restart(members)


async def _go_on_storing(stage: Stage) -> None:
    """Store more and more: of its pages commits give back as many as they take, and with those that are free a member
    does without its disk.
    """
    for number in count():
        await asyncio.to_thread(store_ballast, stage.etcd, number)
        await asyncio.sleep(STORE_S)


async def use_quota_up(stage: Stage, node: NodeOnHost) -> None:
    """Somebody else's writes use etcd's quota up; an operator compacts, defragments and ends the alarm."""
    await asyncio.to_thread(fill_quota, stage.etcd)
    await asyncio.gather(stage.expect_refusal(list(stage.nodes.values())), asyncio.sleep(SHORT_S))
    revision = await stage.read_history()
    stage.undoing()
    await asyncio.to_thread(empty_quota, stage.etcd, revision)


async def compact(stage: Stage, node: NodeOnHost) -> None:
    """The history is compacted while a node is cut off from etcd, so that its watches cannot go on where they were."""
    change = cut(node.line, [member.line for member in stage.members], "both")
    change(True)
    await stage.settle(without=node)
    revision = await stage.read_history()
    await asyncio.to_thread(stage.etcd.compact, revision)
    await asyncio.sleep(SHORT_S)
    stage.undoing()
    change(False)


async def step_clock(stage: Stage, node: NodeOnHost) -> None:
    """A node's time of day jumps, again and again, under way."""
    assert stage.wall_clock is not None
    for seconds in STEPS_S:
        stage.wall_clock.step(seconds)
        await stage.until(partial(node.is_ahead, seconds), f"its clock has jumped by {seconds} s")
        await asyncio.sleep(SHORT_S)
    stage.undoing()
    stage.wall_clock.step(0)


async def _leader(stage: Stage) -> EtcdMember:
    return stage.members[await asyncio.to_thread(stage.etcd.leader)]


async def _restart(members: Sequence[EtcdMember]) -> None:
    for member in members:
        member.stop()
        member.start()
    for member in members:
        await asyncio.to_thread(wait_until_healthy, member)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. on: the node to which it is done; None: whichever."""

    act: Callable[[Stage, NodeOnHost], Awaitable[None]]
    title: str
    on: str | None = None


CLOCK_NODE = "c"
"""The one node that sees a time of day that can be set."""

FAULTS: Mapping[str, Fault] = {
    "kill": Fault(kill, "kill -9 of a node"),
    "pause": Fault(pause, "SIGSTOP of a node, SIGCONT"),
    "etcd-cut": Fault(from_etcd("both"), "node and etcd cut, both ways"),
    "etcd-cut-in": Fault(from_etcd("in"), "etcd's answers do not reach a node"),
    "etcd-cut-out": Fault(from_etcd("out"), "a node does not reach etcd"),
    "client-cut": Fault(from_client("both"), "node and clients cut, both ways"),
    "client-cut-in": Fault(from_client("in"), "clients do not reach a node"),
    "client-cut-out": Fault(from_client("out"), "a node's answers do not reach clients"),
    "node-cut": Fault(from_nodes("both"), "node and other nodes cut, both ways"),
    "node-cut-in": Fault(from_nodes("in"), "other nodes do not reach a node"),
    "leader-kill": Fault(kill_leader, "kill -9 of etcd's leader"),
    "hand-over": Fault(kill_leader_at_hand_over, "SIGTERM of a node, and etcd's leader killed"),
    "quorum": Fault(lose_quorum, "two of three etcd members paused"),
    "disk": Fault(fill_disk, "disk of etcd's leader full"),
    "disks": Fault(fill_disks, "disks of two etcd members full"),
    "quota": Fault(use_quota_up, "etcd's quota used up"),
    "compaction": Fault(compact, "node cut from etcd, and history compacted"),
    "clock": Fault(step_clock, "a node's wall clock jumps", on=CLOCK_NODE),
}
