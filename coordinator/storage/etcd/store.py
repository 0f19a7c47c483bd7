"""`EtcdStore`: a node's store among those of others. It joins the lease, the keyspaces, the views and a look at etcd's
health; every rule is elsewhere.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Protocol

from rallypoint.coordinator.storage.contract import (
    AppendMetrics,
    BatchLimits,
    Fenced,
    KeyspaceHeld,
    StorageUnavailable,
    StoreStatus,
)
from rallypoint.coordinator.storage.etcd import views
from rallypoint.coordinator.storage.etcd.client import (
    EtcdClient,
    EtcdError,
    EtcdLeaseNotFound,
    EtcdNoSpace,
    EtcdRefused,
    EtcdUnknown,
    Get,
    KeyRange,
    ModEquals,
    Put,
    ServerStatus,
    Trouble,
    Txn,
    TxnAnswer,
)
from rallypoint.coordinator.storage.etcd.fence import Acquisition
from rallypoint.coordinator.storage.etcd.keys import Keys
from rallypoint.coordinator.storage.etcd.keyspace import ETCD_LIMITS, EtcdKeyspace, Shared
from rallypoint.coordinator.storage.etcd.lease import LeaseRule
from rallypoint.coordinator.storage.etcd.node import LeaseDriver, NodeLease
from rallypoint.coordinator.storage.shared_contract import ClusterState, FollowedWrites, LeaseStatus

logger = logging.getLogger(__name__)

OPEN_TIMEOUT_S = 10.0
ACQUIRE_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 1.0
FACT_TIMEOUT_S = 4.0
LOOK_INTERVAL_S = 5.0
LOOK_INTERVAL_IN_TROUBLE_S = 1.0
DRAIN_TIMEOUT_S = 1.0
"""How long a close waits for what is under way. A service that stops has waited for it before, and has little time."""
RETRY_INTERVAL_S = 0.1

VERSION_MIN = (3, 6, 5)
QUOTA_WARNED_AT = 0.8

STORE_TROUBLES = {
    Trouble.AWAY,
    Trouble.SLOW,
    Trouble.NO_LEADER,
    Trouble.NO_SPACE,
    Trouble.BUSY,
    Trouble.CREDENTIALS,
    Trouble.PERMISSION,
    Trouble.TLS,
}
"""What keeps every append from being stored. The others speak of one request."""


class Chance(Protocol):
    """Where tags come from."""

    def getrandbits(self, k: int, /) -> int:
        """A number of that many random bits."""


class EtcdStore:
    """An open store of one node. Belongs to the event loop it was opened in; takes the client over."""

    def __init__(
        self,
        client: EtcdClient,
        node: NodeLease,
        driver: LeaseDriver,
        keys: Keys,
        limits: BatchLimits,
        on_append: Callable[[AppendMetrics], None] | None,
        chance: Chance,
    ) -> None:
        """`open` makes one."""
        self.limits = limits
        self._client = client
        self.node = node
        self.driver = driver
        self.keys = keys
        self._chance = chance
        self._on_append = on_append
        self.keyspaces: dict[str, EtcdKeyspace] = {}
        self._taken: list[EtcdKeyspace] = []
        self._releases: list[Txn] = []
        self._trouble: Trouble | None = None
        self._revision = 0
        self._has_gone_back = False
        self._giving_up: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()
        self._shared = Shared(
            client,
            keys,
            limits,
            lambda lease: node.rule.is_live(lease, node.clock_ms()),
            lambda: self._closing is not None,
            self.new_tag,
            self._meet,
            self._wrote,
            self._appended,
            self._releases.append,
        )
        self._loop = asyncio.get_running_loop()
        node.on_lost = self._tell_lost
        self._looking = asyncio.get_running_loop().create_task(self._look_forever())

    @classmethod
    async def open(
        cls,
        client: EtcdClient,
        driver: LeaseDriver,
        *,
        prefix: str,
        node_id: str,
        identity: bytes,
        lease_ttl_ms: int,
        clock_ms: Callable[[], int],
        limits: BatchLimits = ETCD_LIMITS,
        on_append: Callable[[AppendMetrics], None] | None = None,
        chance: Chance | None = None,
    ) -> "EtcdStore":
        """Take the lease of the node, and begin to renew it.

        `identity` tells a restart of this node from another node that was given its id by mistake: the place that it
        advertises. `limits` count where they are below etcd's.

        Raises KeyspaceHeld where another node has the id, StorageUnavailable where etcd cannot be used.
        """
        keys = Keys(prefix)
        node = NodeLease(client, keys, node_id, identity, LeaseRule(lease_ttl_ms), clock_ms)
        try:
            await _look_at_server(client)
            await node.open(OPEN_TIMEOUT_S)
        except EtcdError as error:
            await client.close()
            raise StorageUnavailable(f"{error.trouble.value}: {error}") from error
        except BaseException:
            await client.close()
            raise
        narrower = BatchLimits(
            min(limits.writes_max, ETCD_LIMITS.writes_max), min(limits.bytes_max, ETCD_LIMITS.bytes_max)
        )
        store = cls(client, node, driver, keys, narrower, on_append, chance or random.SystemRandom())
        driver.start(node.run)
        return store

    # --- what others ask ---------------------------------------------------------------------------------------------

    @property
    def node_id(self) -> str:
        """The id of this node."""
        return self.node.node_id

    @property
    def lease(self) -> LeaseStatus:
        """How the lease stands."""
        rule, now_ms = self.node.rule, self.node.clock_ms()
        return LeaseStatus(rule.age_ms(now_ms), rule.remaining_ms(now_ms), rule.lost_count)

    @property
    def status(self) -> StoreStatus:
        """The last that appends, the lease and a look every few seconds have met."""
        trouble = Trouble.GONE_BACK if self._has_gone_back else self._trouble or self.node.trouble
        return StoreStatus(None if trouble is None else trouble.value)

    async def acquire(self, keyspace: str) -> EtcdKeyspace:
        """Become the owner, unless another node is."""
        self._check_open()
        self._check_not_gone_back()
        held = self.node.rule.held
        if held is None:
            raise StorageUnavailable(f"node {self.node_id} has no lease now")
        acquisition = Acquisition(self.keys, keyspace, self.node_id, held.lease, self.new_tag())
        epoch = await self._take(acquisition)
        taken = EtcdKeyspace(self._shared, keyspace, epoch, held.lease)
        self._taken = [one for one in self._taken if not one.is_over()]
        self._taken.append(taken)
        former = self.keyspaces.get(keyspace)
        if former is not None and former.epoch > epoch:
            taken.lost(f"{keyspace} was acquired again")
            return taken
        if former is not None:
            former.lost(f"{keyspace} was acquired again")
        self.keyspaces[keyspace] = taken
        if not self._is_held(held.lease):
            taken.lost(f"the lease under which {keyspace} was acquired is lost")
        if self._has_gone_back:
            taken.lost(Trouble.GONE_BACK.value)
        return taken

    async def _take(self, acquisition: Acquisition) -> int:
        until = asyncio.get_running_loop().time() + ACQUIRE_TIMEOUT_S
        while True:
            try:
                return await self._try_to_take(acquisition)
            except EtcdLeaseNotFound as error:
                raise StorageUnavailable(f"node {self.node_id} has just lost its lease") from error
            except (EtcdUnknown, EtcdNoSpace) as error:
                self._meet(error)
                if asyncio.get_running_loop().time() > until:
                    raise StorageUnavailable(f"{acquisition.keyspace} cannot be acquired: {error}") from error
            except EtcdRefused as error:
                self._meet(error)
                raise StorageUnavailable(f"{acquisition.keyspace} cannot be acquired: {error}") from error
            await asyncio.sleep(RETRY_INTERVAL_S)

    async def _try_to_take(self, acquisition: Acquisition) -> int:
        answer = await self._read(acquisition.look())
        self._check_not_gone_back()
        seen = acquisition.seen_in(answer)
        while True:
            if (before := acquisition.taken_before(seen)) is not None:
                return before.epoch
            if (holder := acquisition.holder(seen)) is not None:
                raise KeyspaceHeld(f"node {holder} has {acquisition.keyspace}")
            answer = await self._client.txn(acquisition.take(seen), CALL_TIMEOUT_S)
            if (taken := acquisition.taken_in(answer)) is not None:
                self._wrote()
                return taken.epoch
            seen = acquisition.seen_in(answer)

    async def announce(self, value: bytes) -> None:
        """Let other nodes see this as long as the lease lives."""
        self._check_open()
        try:
            await self.node.announce(value)
        except EtcdError as error:
            self._meet(error)
            raise StorageUnavailable(f"node {self.node_id} is not announced yet: {error}") from error

    async def put_fact(self, name: str, value: bytes, revision: int) -> bool:
        """Store a fact if its last write was that of the revision. A try without an answer is not repeated."""
        self._check_open()
        if self._has_gone_back:
            raise StorageUnavailable(Trouble.GONE_BACK.value)
        key = self.keys.fact(name)
        try:
            answer = await self._client.txn(Txn((ModEquals(key, revision),), (Put(key, value),)), FACT_TIMEOUT_S)
        except EtcdError as error:
            self._meet(error)
            raise StorageUnavailable(f"the fact {name} may not be stored: {error}") from error
        return answer.succeeded

    def states(self) -> AsyncIterator[ClusterState]:
        """The state now, and then the newest after each change."""
        return self._until_closed(views.states(self._client, self.keys))

    def follow(self, keyspace: str) -> AsyncIterator[FollowedWrites]:
        """What the keyspace holds, and then each transaction of its owner."""
        return self._until_closed(views.follow(self._client, self.keys, keyspace))

    async def _until_closed(self, items: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """The items, until the store is closed."""
        async with aclosing(items):
            closed = asyncio.ensure_future(self._closed.wait())
            try:
                while not self._closed.is_set():
                    item: asyncio.Task[Any] = asyncio.ensure_future(anext(items))
                    try:
                        await asyncio.wait([item, closed], return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        if not item.done():
                            item.cancel()
                            await asyncio.wait([item])
                    if not item.cancelled():
                        yield item.result()
            finally:
                closed.cancel()

    # --- how etcd stands ---------------------------------------------------------------------------------------------

    def _tell_lost(self) -> None:
        """From whatever thread renews the lease."""
        try:
            self._loop.call_soon_threadsafe(self._fence_what_is_lost)
        except RuntimeError:
            logger.warning("the event loop closed before the store did; nobody is left to be told")

    def _fence_what_is_lost(self) -> None:
        for keyspace in self._taken:
            if not self._is_held(keyspace.lease):
                keyspace.lost(f"the lease under which {keyspace.name} was acquired is lost")

    def new_tag(self) -> str:
        """The tag of one transaction, which no other ever has."""
        return f"{self._chance.getrandbits(96):024x}"

    def _is_held(self, lease: int) -> bool:
        held = self.node.rule.held
        return held is not None and held.lease == lease

    def _meet(self, error: EtcdError) -> None:
        if error.trouble not in STORE_TROUBLES:
            logger.error("%s", error)
            return
        if self._trouble is not error.trouble:
            logger.warning("nothing can be stored now: %s: %s", error.trouble.value, error)
        self._trouble = error.trouble

    def _wrote(self) -> None:
        if self._trouble is not None:
            logger.info("etcd stores again what it is given")
        self._trouble = None

    def _appended(self, metrics: AppendMetrics) -> None:
        if self._on_append is not None:
            self._on_append(metrics)

    async def _look_forever(self) -> None:
        while not self._has_gone_back:
            await asyncio.sleep(LOOK_INTERVAL_S if self._trouble is None else LOOK_INTERVAL_IN_TROUBLE_S)
            try:
                await self._look()
            except EtcdError as error:
                self._meet(error)
            except Exception:
                logger.exception("the engine failed in looking at etcd")

    async def _look(self) -> None:
        """Ask etcd for its revision and its alarms; in trouble, try to write; and make good for a release without an
        answer.
        """
        await self._read(Txn((), (Get(KeyRange(self.keys.node(self.node_id))),)))
        if self._has_gone_back:
            return
        status = await self._client.status(CALL_TIMEOUT_S)
        if any("NOSPACE" in alarm for alarm in status.alarms):
            raise EtcdNoSpace(f"etcd has the alarm {', '.join(status.alarms)}")
        while self._releases:
            await self._client.txn(self._releases[0], CALL_TIMEOUT_S)
            self._releases.pop(0)
        held = self.node.rule.held
        if self._trouble is not None and held is not None:
            await self.node.write_key(held.lease, self.node.announcement)
            self._wrote()

    # --- an etcd that goes back --------------------------------------------------------------------------------------

    async def _read(self, txn: Txn) -> TxnAnswer:
        """The answer to gets alone, which etcd reads at its latest revision.

        Below what was known when it was asked, somebody has restored a snapshot under this node. What it has in its
        memory is of another past, and it would hear of no change before etcd comes to the revisions that it knows. So
        it serves nothing more.
        """
        known_revision = max([self._revision, *(keyspace.revision for keyspace in self._taken)])
        answer = await self._client.txn(txn, CALL_TIMEOUT_S)
        self._revision = max(self._revision, known_revision, answer.revision)
        if answer.revision < known_revision and not self._has_gone_back:
            logger.error(
                "etcd has gone back from revision %d to %d: a snapshot of it was restored while this node ran. The node"
                " serves nothing until it is started again; stop every node first, as docs/etcd.md says of backups",
                known_revision,
                answer.revision,
            )
            self._has_gone_back = True
            for keyspace in self._taken:
                keyspace.lost(Trouble.GONE_BACK.value)
            self._begin_giving_up()
        return answer

    def _check_not_gone_back(self) -> None:
        # Fenced, and not unavailable: nobody is to try again.
        if self._has_gone_back:
            raise Fenced(Trouble.GONE_BACK.value)

    def _begin_giving_up(self) -> asyncio.Task[None]:
        """End the lease, once; the one task of that."""
        self._giving_up = self._giving_up or self._loop.create_task(self._give_up_lease())
        return self._giving_up

    async def _give_up_lease(self) -> None:
        self.node.is_over = True  # also where the driver does not stop
        try:
            await self.driver.stop()
        except Exception:
            logger.exception("the lease of node %s is still driven", self.node_id)
        try:
            await self.node.give_up()
        except EtcdError as error:
            logger.warning("the lease of node %s runs out by itself: %s", self.node_id, error)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Finish the appends under way, end the lease, and with it everything that this node owned."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._closed.set()
        self._looking.cancel()
        await asyncio.wait([self._looking])
        await asyncio.gather(*(keyspace.drained(DRAIN_TIMEOUT_S) for keyspace in self._taken))
        await asyncio.gather(*(keyspace.abandon() for keyspace in self._taken))
        await self._begin_giving_up()
        await self._client.close()

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StorageUnavailable("the store is closed")


async def _look_at_server(client: EtcdClient) -> None:
    """Wait for it, and say so; warn of a version with known faults, and of a quota that is nearly used up."""
    loop = asyncio.get_running_loop()
    until = loop.time() + OPEN_TIMEOUT_S
    is_told = False
    while True:
        try:
            status = await client.status(CALL_TIMEOUT_S)
        except EtcdUnknown as error:
            if loop.time() > until:
                raise
            if not is_told:
                logger.warning("etcd does not answer yet; waiting up to %d s for it: %s", OPEN_TIMEOUT_S, error)
                is_told = True
            await asyncio.sleep(RETRY_INTERVAL_S)
        else:
            break
    for warning in warnings_of(status):
        logger.warning("%s", warning)


def warnings_of(status: ServerStatus) -> list[str]:
    """What an operator should hear of at the start."""
    warnings = []
    if version_of(status.version) < VERSION_MIN:
        wanted = ".".join(map(str, VERSION_MIN))
        warnings.append(f"etcd is {status.version}; before {wanted} it may renew leases that it has given up")
    if status.quota_bytes and status.db_size_bytes > QUOTA_WARNED_AT * status.quota_bytes:
        warnings.append(
            f"etcd's file has {status.db_size_bytes} bytes of the {status.quota_bytes} that its quota allows; "
            "turn on its auto-compaction, and defragment it"
        )
    return warnings


def version_of(text: str) -> tuple[int, ...]:
    """`3.6.16-rc.0` as (3, 6, 16); what is no number ends it."""
    numbers = []
    for part in text.partition("-")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
