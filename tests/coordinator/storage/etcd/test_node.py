"""The lease of a node whose renewals etcd gets, and whose answers it does not."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from rallypoint.coordinator.storage.etcd.client import EtcdUnknown, LeaseAnswer, Trouble, Txn, TxnAnswer
from rallypoint.coordinator.storage.etcd.keys import Keys
from rallypoint.coordinator.storage.etcd.lease import LeaseRule
from rallypoint.coordinator.storage.etcd.node import NodeLease
from tests.fakes.fake_etcd import FakeEtcd, FakeEtcdClient
from tests.simulation.loop import VirtualLoop

TTL_MS = 3_000
KEYS = Keys("test")


class HalfCutClient(FakeEtcdClient):
    """While it is cut, etcd carries out what it is asked, and nobody hears of it."""

    async def lease_keep_alive(self, lease: int, timeout_s: float) -> LeaseAnswer:
        answer = await super().lease_keep_alive(lease, timeout_s)
        await self._lose(timeout_s)
        return answer

    async def txn(self, txn: Txn, timeout_s: float) -> TxnAnswer:
        answer = await super().txn(txn, timeout_s)
        await self._lose(timeout_s)
        return answer

    async def _lose(self, timeout_s: float) -> None:
        if self.loses_answers:
            await asyncio.sleep(timeout_s)
            raise EtcdUnknown("no answer in time", Trouble.SLOW)

    loses_answers = False


class Scene:
    """A node that renews its lease on virtual time."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        clock_ms = lambda: round(loop.time() * 1000)  # noqa: E731
        self.etcd = FakeEtcd(clock_ms)
        self.client = HalfCutClient(self.etcd)
        self.node = NodeLease(self.client, KEYS, "n1", b"one", LeaseRule(TTL_MS), clock_ms)

    def is_seen(self) -> bool:
        """Whether others find the node in etcd."""
        self.etcd.expire()
        return self.etcd.newest(KEYS.node("n1")) is not None


def play(act: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def live() -> None:
        scene = Scene()
        await scene.node.open(1.0)
        running = asyncio.create_task(scene.node.run())
        await act(scene)
        running.cancel()
        await asyncio.wait([running])

    loop = VirtualLoop()
    try:
        loop.run_until_complete(live())
    finally:
        loop.close()


def test_a_node_that_hears_nothing_does_not_keep_its_lease_for_ever() -> None:
    async def act(scene: Scene) -> None:
        await asyncio.sleep(10.0)
        assert scene.is_seen()
        scene.client.loses_answers = True
        # The last renewal is sent before its own deadline; etcd counts from then.
        await asyncio.sleep(2 * TTL_MS / 1000)
        assert not scene.is_seen()
        scene.client.loses_answers = False
        await asyncio.sleep(5.0)
        assert scene.is_seen()
        assert scene.node.rule.lost_count == 1

    play(act)


def test_a_node_that_hears_nothing_for_less_than_its_lease_goes_on_with_it() -> None:
    async def act(scene: Scene) -> None:
        await asyncio.sleep(10.0)
        scene.client.loses_answers = True
        await asyncio.sleep(TTL_MS / 1000 + 1.0)
        assert scene.node.rule.remaining_ms(scene.etcd.clock_ms()) < 0
        scene.client.loses_answers = False
        await asyncio.sleep(2.0)
        assert scene.is_seen()
        assert scene.node.rule.remaining_ms(scene.etcd.clock_ms()) > 0
        assert scene.node.rule.lost_count == 0

    play(act)
