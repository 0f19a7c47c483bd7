"""Real services over one store in memory, each behind its API on a port of its own: a cluster in this process."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.http.access.control import AccessControl
from rallypoint.coordinator.http.cluster.peers import PeerClient
from rallypoint.coordinator.http.events.stream import StreamLimits
from rallypoint.coordinator.http.security import SecurityPolicy
from rallypoint.coordinator.runtime.event_loop.clock import SystemClock
from rallypoint.coordinator.runtime.events.feed import EventFeed
from tests.fakes.api_server import Answer, ApiClient, open_api
from tests.fakes.cluster_harness import Cluster
from tests.real.parts import free_port


class Nodes:
    """By node id, which is the host and the port. Time stands still, unless a test moves the cluster's clock."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.clients: dict[str, ApiClient] = {}
        self.peers: dict[str, PeerClient] = {}
        self.stacks: dict[str, AsyncExitStack] = {}
        self.feeds: dict[str, EventFeed] = {}
        self.lives = 0

    async def start(
        self,
        token: str | None = None,
        accepted: str | None = None,
        timeout_ms: int = 5_000,
        node_id: str | None = None,
        kept_max: int = 1_000,
        stream_limits: StreamLimits | None = None,
        access: AccessControl | None = None,
    ) -> str:
        """A node more. `token`: what it presents. `accepted`: the token that it asks for. `node_id`: one that it had
        before. `kept_max`: of its events. `access`: who may do what, in place of `accepted`.
        """
        node_id = node_id or f"127.0.0.1:{free_port()}"
        self.lives += 1
        clock = self.cluster.clock
        feed = self.feeds[node_id] = EventFeed(f"life{self.lives}", kept_max, clock.now_ms)
        await self.cluster.start(node_id)
        stack = self.stacks[node_id] = AsyncExitStack()
        peers = await stack.enter_async_context(PeerClient(SystemClock(), token, timeout_ms=timeout_ms))
        self.peers[node_id] = peers
        policy = SecurityPolicy(tokens=() if accepted is None else (hash_token(accepted),))
        node = self.cluster[node_id]
        api = open_api(
            node.service,
            cluster=node.member,
            peers=peers,
            policy=policy,
            port=int(node_id.rpartition(":")[2]),
            feed=feed,
            stream_limits=stream_limits,
            clock=SystemClock(),
            access=access,
        )
        self.clients[node_id] = await stack.enter_async_context(api)
        return node_id

    async def stop(self, node_id: str) -> None:
        """It hands everything over and is gone."""
        await self.stacks.pop(node_id).aclose()
        await self.cluster[node_id].stop()

    async def ask(self, node_id: str, query: str = "", token: str | None = None) -> Any:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        answer: Answer = await self.clients[node_id].request("GET", f"/v1/groups{query}", headers=headers)
        assert answer.status == 200, answer.body
        return answer.json

    async def form(self, count: int) -> list[str]:
        group_ids = [f"group-{number:02}" for number in range(count)]
        for group_id in group_ids:
            await self.cluster.form(group_id)
        return group_ids

    def shards_of(self, node_id: str) -> set[int]:
        return self.cluster[node_id].shards


@asynccontextmanager
async def opened() -> AsyncIterator[Nodes]:
    nodes = Nodes()
    try:
        yield nodes
    finally:
        for stack in nodes.stacks.values():
            await stack.aclose()
        await nodes.cluster.end()
