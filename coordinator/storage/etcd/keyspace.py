"""An acquired keyspace: its appends and hand-overs go out one transaction at a time, in the order of their calls.

Appends that are called while a transaction is under way wait, and are joined into the next ones. A transaction of which
nobody knows what became of it is sent again as it is until that is known (`fence` says why that is safe).
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rallypoint.coordinator.storage.contract import (
    AppendDoubtful,
    AppendFailed,
    AppendMetrics,
    BatchLimits,
    Fenced,
    NodeUnavailable,
    StorageError,
    StorageUnavailable,
    Write,
    size_of,
)
from rallypoint.coordinator.storage.etcd.client import (
    EtcdClient,
    EtcdCompacted,
    EtcdError,
    EtcdLeaseNotFound,
    EtcdNoSpace,
    EtcdRefused,
    EtcdUnknown,
    Found,
    Get,
    KeyRange,
    Trouble,
    Txn,
    TxnAnswer,
)
from rallypoint.coordinator.storage.etcd.fence import Fence, Outcome, coalesced, only
from rallypoint.coordinator.storage.etcd.keys import Keys
from rallypoint.coordinator.storage.etcd.pages import PageSize, after

logger = logging.getLogger(__name__)

ETCD_LIMITS = BatchLimits(writes_max=127, bytes_max=1_500_000)
"""etcd takes 128 operations in a transaction, of which one is the head's, and 1.5 MiB in a request: what is left is for
the prefixes of keys."""

ATTEMPT_TIMEOUT_S = 1.0
ATTEMPT_TIMEOUT_MAX_S = 4.0
"""A first try may not be held by a frozen server; later ones let a slow one answer."""
RETRY_INTERVAL_S = 0.05
RETRY_INTERVAL_MAX_S = 0.5
READ_TIMEOUT_S = 2.0
READ_PATIENCE_S = 10.0
RELEASE_PATIENCE_S = 2.0


class Shared(NamedTuple):
    """What the keyspaces of a store have in common."""

    client: EtcdClient
    keys: Keys
    limits: BatchLimits
    is_lease_live: Callable[[int], bool]
    is_closed: Callable[[], bool]
    new_tag: Callable[[], str]
    meet: Callable[[EtcdError], None]
    wrote: Callable[[], None]
    on_append: Callable[[AppendMetrics], None]
    release_later: Callable[[Txn], None]


@dataclass(slots=True)
class _Append:
    writes: Sequence[Write]
    future: asyncio.Future[None]


@dataclass(slots=True)
class _HandOver:
    target: str
    future: asyncio.Future[None]


class EtcdKeyspace:
    """A keyspace that this node owns, or owned. Belongs to the event loop of its store."""

    def __init__(self, shared: Shared, name: str, epoch: int, lease: int) -> None:
        self.name = name
        self.lease = lease
        self._shared = shared
        self._fence = Fence(shared.keys, name, epoch)
        self._waiting: deque[_Append | _HandOver] = deque()
        self._under_way: list[_Append] | _HandOver = []
        self._pump: asyncio.Task[None] | None = None
        self._lost_by: str | None = None
        self._is_released = False

    @property
    def epoch(self) -> int:
        """Grows with each acquisition of the keyspace."""
        return self._fence.epoch

    @property
    def revision(self) -> int:
        """That of the last write that this owner knows of."""
        return self._fence.head_revision

    @property
    def limits(self) -> BatchLimits:
        """Those of the store."""
        return self._shared.limits

    def is_current(self) -> bool:
        """Whether the lease under which it was acquired cannot have run out, and nobody else is known to have it."""
        return (
            self._lost_by is None
            and not self._is_released
            and not self._shared.is_closed()
            and self._shared.is_lease_live(self.lease)
        )

    def lost(self, reason: str) -> None:
        """Another owner has it, or will: everything that comes now is fenced. What is under way is finished."""
        if self._lost_by is None:
            self._lost_by = reason

    def is_over(self) -> bool:
        """Whether nothing comes of it any more: it is lost or released, and nothing is under way."""
        is_idle = self._pump is None or self._pump.done()
        return is_idle and (self._is_released or self._lost_by is not None)

    def _check_usable(self) -> None:
        if self._shared.is_closed():
            raise StorageUnavailable("the store is closed")
        if self._is_released:
            raise Fenced(f"{self.name} was released")
        if self._lost_by is not None:
            raise Fenced(self._lost_by)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def scan(self, prefix: bytes) -> AsyncIterator[Sequence[tuple[bytes, bytes]]]:
        """Pages at one revision. If etcd compacts it, the rest is read as it is: only this owner writes."""
        base = self._shared.keys.data(self.name)
        size = PageSize()
        keys = after(base + prefix, None)
        revision = 0
        while True:
            self._check_usable()
            answer = await self._read_page(keys, size, revision)
            if answer is None:
                revision = 0
                continue
            revision = revision or answer.revision
            pairs, more = answer.found[0]
            size.saw(pairs)
            if pairs:
                yield [(pair.key[len(base) :], pair.value) for pair in pairs]
            if not more:
                return
            keys = after(base + prefix, pairs[-1].key)

    async def _read_page(self, keys: KeyRange, size: PageSize, revision: int) -> TxnAnswer | None:
        """A page; None where its revision has been compacted."""
        until = asyncio.get_running_loop().time() + READ_PATIENCE_S
        while True:
            try:
                answer = await self._shared.client.txn(self._fence.page(keys, size.rows, revision), READ_TIMEOUT_S)
            except EtcdCompacted:
                return None
            except EtcdRefused as error:
                if error.trouble is not Trouble.TOO_LARGE or not size.is_too_large():
                    raise StorageUnavailable(f"{self.name} cannot be read: {error}") from error
            except EtcdUnknown as error:
                self._shared.meet(error)
                if asyncio.get_running_loop().time() > until:
                    raise StorageUnavailable(f"{self.name} cannot be read: {error}") from error
                await asyncio.sleep(RETRY_INTERVAL_S)
            else:
                if not answer.succeeded:
                    self.lost(f"another owner has {self.name}")
                    self._check_usable()
                return answer
            self._check_usable()

    # --- writing -----------------------------------------------------------------------------------------------------

    async def append(self, writes: Sequence[Write]) -> None:
        """Store all the writes or none; on return a majority of etcd has them on disk.

        Fenced after a try without an answer does not say that nothing was stored: what was, the next owner has read.
        """
        self._shared.limits.check(writes)
        self._check_usable()
        if not writes:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait_for(_Append(writes, future))
        await future

    async def hand_over(self, node_id: str) -> None:
        """Make another live node the owner, after the appends called before; those called after it wait for it."""
        self._check_usable()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait_for(_HandOver(node_id, future))
        await asyncio.shield(future)

    async def release(self) -> None:
        """Give it up, after the appends under way. Where etcd does not answer, that goes on behind the return."""
        if self._is_released:
            return
        self._is_released = True
        if not await self.drained(RELEASE_PATIENCE_S):
            logger.warning("%s is released, and an append is still without an answer from etcd", self.name)
        if self._lost_by is None and not self._shared.is_closed():
            await self._delete_owner()

    async def _delete_owner(self) -> None:
        release = self._fence.release()
        try:
            await self._shared.client.txn(release, ATTEMPT_TIMEOUT_S)
        except EtcdError as error:
            self._shared.meet(error)
            self._shared.release_later(release)

    async def drained(self, timeout_s: float) -> bool:
        """Wait until nothing is under way. False: something still is."""
        if self._pump is not None:
            await asyncio.wait([self._pump], timeout=timeout_s)
        return self._pump is None or self._pump.done()

    async def abandon(self) -> None:
        """Of a store that closes: send nothing any more, and say of what is under way that nobody knows."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait([self._pump])
        self._fail_under_way(AppendDoubtful(f"{self.name}: the store was closed, and etcd had not answered yet"))
        self._fail_waiting(lambda: AppendFailed(f"{self.name}: the store was closed before it was sent"))

    def _wait_for(self, job: _Append | _HandOver) -> None:
        self._waiting.append(job)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Send what waits until nothing does. Whoever waits hears of a fault here."""
        try:
            while self._waiting:
                if self._lost_by is not None:
                    self._fail_waiting(self._fenced)
                elif isinstance(job := self._waiting[0], _HandOver):
                    await self._hand_over(job)
                else:
                    await self._append(self._joined())
        except Exception as fault:
            logger.exception("the engine failed in an append to %s", self.name)
            self.lost(f"the engine failed in an append to {self.name}")
            self._fail_under_way(AppendDoubtful(f"the engine failed: {fault!r}"))
            self._fail_waiting(self._fenced)

    def _fenced(self) -> Fenced:
        return Fenced(self._lost_by or f"another owner has {self.name}")

    def _joined(self) -> list[_Append]:
        """The first that waits, and those behind it that fit in one transaction with it.

        A key that one deletes and another writes is not joined: etcd's history shows the end of a group, and that what
        comes after it is another of the same name.
        """
        appends: list[_Append] = []
        keys: set[bytes] = set()
        deleted: set[bytes] = set()
        total_bytes = 0
        while self._waiting and isinstance(job := self._waiting[0], _Append):
            if any(write.value is not None and write.key in deleted for write in job.writes):
                break
            keys.update(write.key for write in job.writes)
            total_bytes += size_of(job.writes)
            if appends and (len(keys) > self.limits.writes_max or total_bytes > self.limits.bytes_max):
                break
            deleted.update(write.key for write in job.writes if write.value is None)
            appends.append(job)
            self._waiting.popleft()
        return appends

    async def _append(self, appends: list[_Append]) -> None:
        self._under_way = appends
        began_s = time.perf_counter()
        tag = self._shared.new_tag()
        writes = [Write(key, value) for key, value in coalesced(append.writes for append in appends).items()]
        try:
            answer = await self._settled(self._fence.append(writes, tag))
        except (EtcdRefused, EtcdNoSpace) as error:
            self._shared.meet(error)
            self._fail_under_way(AppendFailed(f"{self.name}: {error}"))
            return
        if answer.succeeded:
            self._shared.wrote()
        outcome = self._fence.judge(answer, tag)
        if outcome is not Outcome.STORED:
            self.lost(f"another owner has {self.name}")
        if outcome is Outcome.FENCED:
            self._fail_under_way(self._fenced())
            return
        self._under_way = []
        for append in appends:
            if not append.future.done():  # whoever asked may have gone; what was stored stays stored
                append.future.set_result(None)
        written = sum(len(append.writes) for append in appends)
        self._shared.on_append(AppendMetrics(len(appends), written, time.perf_counter() - began_s))

    async def _settled(self, txn: Txn, *, is_unknown: bool = False) -> TxnAnswer:
        """Send a transaction until it has an answer: its own, or that of a look that shows what became of it.

        Raises EtcdRefused or EtcdNoSpace where no copy of it was or can be carried out.

        is_unknown: an earlier copy may still be carried out, so no refusal is the end.
        """
        timeout_s, pause_s = ATTEMPT_TIMEOUT_S, RETRY_INTERVAL_S
        while True:
            try:
                answer = await self._shared.client.txn(txn, timeout_s)
            except EtcdRefused as error:
                # A refusal speaks of this copy. An earlier one may still be on its way.
                if not is_unknown:
                    raise
                self._shared.meet(error)
                if isinstance(error, EtcdLeaseNotFound):
                    # No copy can be carried out any more, but one may have been, before the lease ended.
                    txn = self._fence.look()
            except EtcdNoSpace as error:
                self._shared.meet(error)
                seen = await self._settled(self._fence.look(), is_unknown=True)
                if not self._fence.is_as_left(seen):
                    return seen
                if not is_unknown:
                    raise
            except EtcdUnknown as error:
                is_unknown = True
                self._shared.meet(error)
            else:
                return answer
            await asyncio.sleep(pause_s)
            timeout_s, pause_s = min(timeout_s * 2, ATTEMPT_TIMEOUT_MAX_S), min(pause_s * 2, RETRY_INTERVAL_MAX_S)

    async def _hand_over(self, job: _HandOver) -> None:
        self._waiting.popleft()
        self._under_way = job
        target, key = job.target.encode(), self._shared.keys.node(job.target)
        lease = await self._lease_of(key)
        outcome = Outcome.NO_TARGET
        if lease:
            tag = self._shared.new_tag()
            try:
                answer = await self._settled(self._fence.hand_over(target, key, lease, tag))
            except EtcdLeaseNotFound:
                outcome = Outcome.NO_TARGET
            except (EtcdRefused, EtcdNoSpace) as error:
                self._shared.meet(error)
                self._fail_under_way(AppendFailed(f"{self.name} is not handed over: {error}"))
                return
            else:
                if answer.succeeded:
                    self._shared.wrote()
                outcome = self._fence.judge_hand_over(answer, target, tag)
        if outcome is Outcome.NO_TARGET:
            self._fail_under_way(NodeUnavailable(f"{job.target} has no live lease, and cannot get {self.name}"))
            return
        self.lost(
            f"another owner has {self.name}"
            if outcome is Outcome.FENCED
            else f"{self.name} was handed over to {job.target}"
        )
        if outcome is Outcome.FENCED:
            self._fail_under_way(self._fenced())
            return
        self._under_way = []
        if not job.future.done():
            job.future.set_result(None)

    async def _lease_of(self, node_key: bytes) -> int:
        """The lease of the node's key; 0 where it is not there."""
        try:
            answer = await self._settled(Txn((), (Get(KeyRange(node_key)),)))
        except EtcdRefused as error:
            self._shared.meet(error)
            return 0
        found: Found = answer.found[0]
        pair = only(found)
        return 0 if pair is None else pair.lease

    def _fail_under_way(self, error: StorageError) -> None:
        jobs = [self._under_way] if isinstance(self._under_way, _HandOver) else self._under_way
        self._under_way = []
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(error)

    def _fail_waiting(self, error: Callable[[], StorageError]) -> None:
        while self._waiting:
            job = self._waiting.popleft()
            if not job.future.done():
                job.future.set_exception(error())
