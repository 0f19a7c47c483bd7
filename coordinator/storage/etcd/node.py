"""The lease of this node, and the node's key that hangs on it: taken, renewed, replaced when lost, given up.

`NodeLease` is the coroutine side, and belongs to no event loop. In the service a thread with an event loop of its own
runs it (`LeaseThread`), so that a busy service cannot miss a renewal; a simulation runs it as a task of its loop.
`lease.LeaseRule` decides when the lease holds.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from rallypoint.coordinator.storage.contract import KeyspaceHeld
from rallypoint.coordinator.storage.etcd.client import (
    Compare,
    Delete,
    EtcdClient,
    EtcdError,
    EtcdLeaseNotFound,
    EtcdUnknown,
    Get,
    KeyRange,
    KeyValue,
    LeaseEquals,
    ModEquals,
    Put,
    Trouble,
    Txn,
)
from rallypoint.coordinator.storage.etcd.fence import only
from rallypoint.coordinator.storage.etcd.keys import Keys, is_of_identity, node_value
from rallypoint.coordinator.storage.etcd.lease import LeaseRule

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 1.0
"""Of a call that is tried again if it takes longer: so long may a frozen server hold it."""

FORMER_GRACE_S = 2.0
"""Beyond the TTL: etcd looks for leases that have run out every half second, and a new leader prolongs them."""

FORMER_LOOK_INTERVAL_S = 0.2


def boot_time_ms() -> int:
    """The clock of leases: it goes on while the machine sleeps. macOS's monotonic clock does so, too."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000


class NodeLease:
    """The lease of one node. `rule` and `trouble` may be read from any thread, and `is_over` set: then it is renewed no
    more.
    """

    def __init__(
        self,
        client: EtcdClient,
        keys: Keys,
        node_id: str,
        identity: bytes,
        rule: LeaseRule,
        clock_ms: Callable[[], int],
    ) -> None:
        """`on_lost` is called, by whoever runs `run`, when etcd has said that the lease is gone."""
        self.on_lost: Callable[[], None] = lambda: None
        self.rule = rule
        self.trouble: Trouble | None = None
        self.announcement: bytes | None = None
        self.is_over = False
        self.node_id = node_id
        self.clock_ms = clock_ms
        self._client = client
        self._key = keys.node(node_id)
        self._identity = identity
        self._announced_under = 0

    # --- at the start ------------------------------------------------------------------------------------------------

    async def open(self, timeout_s: float) -> None:
        """Take the lease and the node's key. A former process of the same identity is ended; another's is waited for.

        Raises KeyspaceHeld where another node goes on to have the id, EtcdError where etcd does not help within the
        timeout, which counts from its first refusal to answer.
        """
        patience_ms = self.rule.ttl_ms + FORMER_GRACE_S * 1000
        began_ms = self.clock_ms()
        while (former := await self._tried(self._look, timeout_s)) is not None:
            if is_of_identity(former.value, self._identity):
                logger.info("the former process of node %s still has a lease: it is revoked", self.node_id)
                await self._tried(partial(self._end, former), timeout_s)
            elif self.clock_ms() - began_ms > patience_ms:
                raise KeyspaceHeld(f"another node is called {self.node_id}, and lives")
            else:
                await asyncio.sleep(FORMER_LOOK_INTERVAL_S)
        await self._tried(self._take, timeout_s)

    async def _tried(self, call: Callable[[], Coroutine[Any, Any, Any]], timeout_s: float) -> Any:
        began_ms = self.clock_ms()
        while True:
            try:
                return await call()
            except EtcdUnknown:
                if self.clock_ms() - began_ms > timeout_s * 1000:
                    raise
            await asyncio.sleep(FORMER_LOOK_INTERVAL_S)

    async def _look(self) -> KeyValue | None:
        answer = await self._client.txn(Txn((), (Get(KeyRange(self._key)),)), CALL_TIMEOUT_S)
        return only(answer.found[0])

    async def _end(self, former: KeyValue) -> None:
        if former.lease:
            await self._revoke(former.lease)
        else:  # somebody wrote it by hand
            delete = Txn((ModEquals(self._key, former.mod_revision),), (Delete(self._key),))
            await self._client.txn(delete, CALL_TIMEOUT_S)

    async def _revoke(self, lease: int) -> None:
        try:
            await self._client.lease_revoke(lease, CALL_TIMEOUT_S)
        except EtcdLeaseNotFound:
            logger.debug("the lease %x has run out by itself", lease)

    # --- while it runs -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Renew the lease until cancelled or over; when it is lost, take another and announce the node again.

        Past the deadline, etcd has to answer something before it is asked for another renewal: renewals that reach it
        while their answers are lost would keep from the other nodes, for ever, what this one does not serve.

        No fault of this process ends it, such as a thread that gRPC cannot start: a node that renews no more would
        never serve again.
        """
        wait_ms: float = self.rule.renew_interval_ms
        while True:
            await asyncio.sleep(max(0.0, wait_ms / 1000))
            if self.is_over:
                return
            began_ms = self.clock_ms()
            try:
                held = self.rule.held
                if held is None:
                    await self._take()
                else:
                    if not self.rule.is_live(held.lease, began_ms):
                        await self._look()
                    await self._renew(held.lease)
                if self.announcement is not None and self.rule.held is not None:
                    await self._announce_under(self.rule.held.lease)
            except EtcdError as error:
                self._meet(error)
                wait_ms = self.rule.retry_interval_ms
            except KeyspaceHeld as error:
                if self.trouble is not Trouble.ANOTHER_NODE:
                    logger.error("%s", error)
                self.trouble = Trouble.ANOTHER_NODE
                wait_ms = self.rule.renew_interval_ms
            except Exception:
                if self.trouble is not Trouble.FAULT:
                    logger.exception("node %s failed in renewing its lease, and tries again", self.node_id)
                self.trouble = Trouble.FAULT
                wait_ms = self.rule.retry_interval_ms
            else:
                self._recover()
                wait_ms = self.rule.renew_interval_ms - (self.clock_ms() - began_ms)

    def _meet(self, error: EtcdError) -> None:
        if self.trouble is not error.trouble:
            logger.warning("the lease of node %s is not renewed: %s", self.node_id, error)
        self.trouble = error.trouble

    def _recover(self) -> None:
        if self.trouble is not None:
            logger.info("the lease of node %s is renewed again", self.node_id)
        self.trouble = None

    async def _renew(self, lease: int) -> None:
        sent_at_ms = self.clock_ms()
        try:
            ttl_s = (await self._client.lease_keep_alive(lease, self.rule.call_timeout_ms / 1000)).ttl_s
        except EtcdLeaseNotFound:
            ttl_s = 0
        if not self.rule.answered(lease, ttl_s, sent_at_ms):
            logger.warning("node %s has lost its lease, and all that it owned under it", self.node_id)
            self.on_lost()
            await self._take()

    async def _take(self) -> None:
        """Get a lease, and write the node's key with it. Raises KeyspaceHeld where another has written the key."""
        sent_at_ms = self.clock_ms()
        lease, ttl_s = await self._client.lease_grant(self.rule.ttl_s, CALL_TIMEOUT_S)
        try:
            await self._claim(lease)
        except (EtcdError, KeyspaceHeld):
            await self._forget(lease)
            raise
        self.rule.granted(lease, ttl_s, sent_at_ms)

    async def _claim(self, lease: int) -> None:
        announcement = self.announcement
        claim = Txn(
            (ModEquals(self._key, 0),),
            (Put(self._key, node_value(self._identity, announcement), lease),),
            (Get(KeyRange(self._key)),),
        )
        answer = await self._client.txn(claim, CALL_TIMEOUT_S)
        if not answer.succeeded:
            raise KeyspaceHeld(f"another node is called {self.node_id}, and lives")
        self._announced_under = lease if announcement is not None else 0

    async def _forget(self, lease: int) -> None:
        """End a lease that did not come to be used. Without an answer from etcd it runs out by itself."""
        try:
            await self._client.lease_revoke(lease, CALL_TIMEOUT_S)
        except EtcdError as error:
            logger.debug("a lease that is not used runs out by itself: %s", error)

    # --- for the store -----------------------------------------------------------------------------------------------

    async def announce(self, value: bytes) -> None:
        """Announce this now, and with each lease to come. Raises EtcdError: then it comes with the next renewal."""
        self.announcement = value
        self._announced_under = 0
        held = self.rule.held
        if held is not None:
            await self._announce_under(held.lease)

    async def _announce_under(self, lease: int) -> None:
        if self._announced_under == lease or self.announcement is None:
            return
        value = self.announcement
        await self.write_key(lease, value)
        if value == self.announcement:
            self._announced_under = lease

    async def write_key(self, lease: int, announcement: bytes | None) -> None:
        """Write the node's key again, which shows that etcd takes writes. Raises EtcdError.

        Also where somebody has deleted it: until it is there, nobody finds this node, nor takes what it owns.
        """
        put = Put(self._key, node_value(self._identity, announcement), lease)
        compares: tuple[Compare, ...] = (LeaseEquals(self._key, lease), ModEquals(self._key, 0))
        for compare in compares:
            if (await self._client.txn(Txn((compare,), (put,)), CALL_TIMEOUT_S)).succeeded:
                return

    async def give_up(self) -> None:
        """End the lease, so that all that hangs on it is free at once. Raises EtcdError: then it runs out by itself."""
        held = self.rule.held
        self.rule.given_up()
        if held is not None:
            await self._revoke(held.lease)


class LeaseDriver(Protocol):
    """What runs a `NodeLease`."""

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin to run it."""

    async def stop(self) -> None:
        """End it; on return it does nothing any more."""


STOP_TIMEOUT_S = 2.0


class LeaseThread:
    """Runs a lease in a thread with an event loop of its own."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin to run it."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop, run), name="etcd lease", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Cancel it, and wait for the thread; a thread that does not end in time ends with the process."""
        if self._thread is None or self._loop is None:
            return
        if self._thread.is_alive():
            try:
                self._loop.call_soon_threadsafe(self._cancel)
            except RuntimeError:
                logger.debug("the lease's thread has ended by itself")
        await asyncio.to_thread(self._thread.join, STOP_TIMEOUT_S)
        if self._thread.is_alive():
            logger.error("the lease's thread does not end, and is left behind")

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self, loop: asyncio.AbstractEventLoop, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            self._task = loop.create_task(run())
            loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            logger.debug("the lease is not renewed any more")
        except Exception:
            logger.exception("the lease's thread met a fault: the lease runs out")
        finally:
            loop.close()
