"""An etcd in memory behind the engine's client protocol: revisions, leases by a given clock, watches that resume,
compaction, refusals as etcd's, and faults between a client and it.

It starts no thread and waits only on the event loop, so it serves in virtual time, too.
tests/real/test_etcd_histories.py holds it to a real one.
"""

import asyncio
import copy
import time
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from rallypoint.coordinator.storage.etcd.client import (
    Compare,
    Delete,
    EtcdCompacted,
    EtcdLeaseNotFound,
    EtcdNoSpace,
    EtcdRefused,
    EtcdUnknown,
    Found,
    Get,
    KeyRange,
    KeyValue,
    LeaseAnswer,
    ModEquals,
    Operation,
    Put,
    ServerStatus,
    Trouble,
    Txn,
    TxnAnswer,
    WatchAnswer,
    WatchEvent,
)

OPERATIONS_MAX = 128
REQUEST_BYTES_MAX = 1_572_864
LEASE_TTL_MIN_S = 2


def no_space() -> EtcdNoSpace:
    """What etcd says of a write while its quota is used up, and of the write that has used it up."""
    return EtcdNoSpace("etcdserver: mvcc: database space exceeded")


class Fault(Enum):
    """What happens to the next transaction of a client."""

    LOST_BEFORE = "it never reaches etcd"
    LOST_AFTER = "it is carried out, and the answer is lost"
    LATE = "it is carried out when `apply_late` is called, long after the client has given up"
    REFUSED = "etcd refuses it, as its quota is used up"
    STORED_AND_REFUSED = "it is carried out, and etcd says that its quota is used up"


@dataclass(slots=True)
class _Lease:
    ttl_s: int
    expires_at_ms: int
    keys: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class _Version:
    revision: int
    pair: KeyValue | None


class Snapshot(NamedTuple):
    """What a restored etcd begins with."""

    revision: int
    compacted: int
    history: list[WatchEvent]
    versions: dict[bytes, list[_Version]]
    leases: dict[int, _Lease]


class FakeEtcd:
    """The servers, as one."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        self.clock_ms = clock_ms
        self.revision = 1
        self.compacted = 0
        self.is_full = False
        """Every write is refused."""
        self.is_filling = False
        """The next write fills it: it is carried out, and answered as if it were refused."""
        self.late: deque[Txn] = deque()
        self.history: list[WatchEvent] = []
        self._versions: dict[bytes, list[_Version]] = {}
        self._leases: dict[int, _Lease] = {}
        self._lease_ids = 0x1000
        self._none_expires_before_ms = 0
        self._changed: dict[asyncio.Event, None] = {}

    # --- backups -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """All that is stored now."""
        return copy.deepcopy(Snapshot(self.revision, self.compacted, self.history, self._versions, self._leases))

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to it. Who watches hears of nothing before the revision that it waits for comes again."""
        self.revision, self.compacted, self.history, self._versions, self._leases = copy.deepcopy(snapshot)
        self._none_expires_before_ms = 0

    # --- leases ------------------------------------------------------------------------------------------------------

    def grant(self, ttl_s: int) -> LeaseAnswer:
        self.expire()
        self._check_space()
        self._lease_ids += 1
        ttl_s = max(ttl_s, LEASE_TTL_MIN_S)
        expires_at_ms = self.clock_ms() + ttl_s * 1000
        self._leases[self._lease_ids] = _Lease(ttl_s, expires_at_ms)
        self._none_expires_before_ms = min(self._none_expires_before_ms, expires_at_ms)
        return LeaseAnswer(self._lease_ids, ttl_s)

    def keep_alive(self, lease: int) -> LeaseAnswer:
        self.expire()
        held = self._leases.get(lease)
        if held is None:
            return LeaseAnswer(lease, 0)
        held.expires_at_ms = self.clock_ms() + held.ttl_s * 1000
        return LeaseAnswer(lease, held.ttl_s)

    def revoke(self, lease: int) -> None:
        self.expire()
        if lease not in self._leases:
            raise EtcdLeaseNotFound("etcdserver: requested lease not found")
        self._end_lease(lease)

    def expire(self) -> None:
        """End the leases that have run out by now."""
        now_ms = self.clock_ms()
        # A renewal only puts an end off, so what was the first of them is no later now.
        if now_ms < self._none_expires_before_ms:
            return
        for lease in [lease for lease, held in self._leases.items() if held.expires_at_ms <= now_ms]:
            self._end_lease(lease)
        ends = [held.expires_at_ms for held in self._leases.values()]
        self._none_expires_before_ms = min(ends, default=now_ms + LEASE_TTL_MIN_S * 1000)

    def prolong_all(self) -> None:
        """What a new leader does."""
        for held in self._leases.values():
            held.expires_at_ms = self.clock_ms() + held.ttl_s * 1000

    def next_expiry_s(self) -> float | None:
        """Until the next lease runs out; None without any."""
        ends = [held.expires_at_ms for held in self._leases.values()]
        return max(0.001, (min(ends) - self.clock_ms()) / 1000) if ends else None

    def _end_lease(self, lease: int) -> None:
        keys = self._leases.pop(lease).keys
        self._write([Delete(key) for key in sorted(keys)])

    # --- transactions ------------------------------------------------------------------------------------------------

    def txn(self, txn: Txn) -> TxnAnswer:
        answer = self.carry_out(txn)
        if self.is_filling and any(isinstance(one, Put) for one in (txn.success if answer.succeeded else txn.failure)):
            self.is_filling, self.is_full = False, True
            raise no_space()
        return answer

    def carry_out(self, txn: Txn) -> TxnAnswer:
        self.expire()
        self._check(txn)
        succeeded = all(self._holds(compare) for compare in txn.compares)
        operations = txn.success if succeeded else txn.failure
        for operation in operations:
            if isinstance(operation, Put) and operation.lease and operation.lease not in self._leases:
                raise EtcdLeaseNotFound("etcdserver: requested lease not found")
            if isinstance(operation, Get):
                self._check_revision(operation.revision)
        self._write([operation for operation in operations if not isinstance(operation, Get)])
        found = tuple(self._found(operation) for operation in operations if isinstance(operation, Get))
        return TxnAnswer(succeeded, self.revision, found)

    def _check(self, txn: Txn) -> None:
        if max(len(txn.compares), len(txn.success), len(txn.failure)) > OPERATIONS_MAX:
            raise EtcdRefused("etcdserver: too many operations in txn request", Trouble.TOO_LARGE)
        for branch in (txn.success, txn.failure):
            put = [operation.key for operation in branch if isinstance(operation, Put)]
            deleted = {operation.key for operation in branch if isinstance(operation, Delete)}
            if len(set(put)) < len(put) or deleted.intersection(put):
                raise EtcdRefused("etcdserver: duplicate key given in txn request")
        operations = (*txn.success, *txn.failure)
        size = sum(len(one.key) + len(one.value) for one in operations if isinstance(one, Put))
        if size > REQUEST_BYTES_MAX:
            raise EtcdRefused("etcdserver: request is too large", Trouble.TOO_LARGE)
        if any(isinstance(one, Put) for one in operations):
            self._check_space()

    def _check_space(self) -> None:
        if self.is_full:
            raise no_space()

    def _check_revision(self, revision: int) -> None:
        if revision > self.revision:
            raise EtcdRefused("etcdserver: mvcc: required revision is a future revision")
        if 0 < revision < self.compacted:
            raise EtcdCompacted("etcdserver: mvcc: required revision has been compacted")

    def _holds(self, compare: Compare) -> bool:
        pair = self._at(compare.key, 0)
        if isinstance(compare, ModEquals):
            return (0 if pair is None else pair.mod_revision) == compare.revision
        return (0 if pair is None else pair.lease) == compare.lease

    def _at(self, key: bytes, revision: int) -> KeyValue | None:
        versions = self._versions.get(key)
        if not versions:
            return None
        if not revision:
            return versions[-1].pair
        return next((one.pair for one in reversed(versions) if one.revision <= revision), None)

    def _found(self, get: Get) -> Found:
        (key, end), limit, revision = get
        keys = sorted(one for one in self._versions if key <= one and (one < end or end == b"\0")) if end else [key]
        pairs = [pair for one in keys if (pair := self._at(one, revision)) is not None]
        return Found(tuple(pairs[:limit] if limit else pairs), bool(limit) and len(pairs) > limit)

    def _write(self, operations: Sequence[Operation]) -> None:
        revision = self.revision + 1
        for operation in operations:
            former = self._at(operation.key, 0) if isinstance(operation, Put | Delete) else None
            if isinstance(operation, Put):
                self._attach(operation, former)
                created = revision if former is None else former.create_revision
                pair = KeyValue(operation.key, operation.value, created, revision, operation.lease)
                self._versions.setdefault(operation.key, []).append(_Version(revision, pair))
                self.history.append(WatchEvent(operation.key, operation.value, revision))
            elif isinstance(operation, Delete) and former is not None:
                if former.lease in self._leases:
                    self._leases[former.lease].keys.discard(operation.key)
                self._versions[operation.key].append(_Version(revision, None))
                self.history.append(WatchEvent(operation.key, None, revision))
        if self.history and self.history[-1].mod_revision == revision:
            self.revision = revision
            self.notify()

    def _attach(self, put: Put, former: KeyValue | None) -> None:
        if former is not None and former.lease in self._leases:
            self._leases[former.lease].keys.discard(put.key)
        if put.lease:
            self._leases[put.lease].keys.add(put.key)

    def apply_late(self) -> list[bool]:
        """Carry out what was late; whether each one's comparisons held."""
        applied = []
        while self.late:
            try:
                applied.append(self.txn(self.late.popleft()).succeeded)
            except EtcdRefused:
                applied.append(False)
        return applied

    def newest(self, key: bytes) -> KeyValue | None:
        """What a key is now, for whoever watches from outside."""
        return self._at(key, 0)

    # --- watches -----------------------------------------------------------------------------------------------------

    def compact(self, revision: int) -> None:
        """Forget what was before the revision."""
        if not self.compacted < revision <= self.revision:
            raise EtcdRefused(f"cannot compact at {revision}: {self.compacted} is, and {self.revision} is the last")
        self.compacted = revision
        self.notify()

    def events(self, ranges: Sequence[KeyRange], start_revision: int, seen_revision: int = 0) -> list[WatchEvent]:
        """The changes of the ranges from the revision on. seen_revision: up to which there were none, as far as that is
        known.
        """
        if start_revision < self.compacted:
            raise EtcdCompacted(f"compacted up to {self.compacted}")
        first_revision = max(start_revision, seen_revision + 1)
        first = bisect_left(self.history, first_revision, key=lambda event: event.mod_revision)
        bounds = [(keys.key, keys.end or keys.key + b"\0") for keys in ranges]
        return [event for event in self.history[first:] if any(begin <= event.key < end for begin, end in bounds)]

    def subscribe(self) -> asyncio.Event:
        changed = asyncio.Event()
        self._changed[changed] = None
        return changed

    def unsubscribe(self, changed: asyncio.Event) -> None:
        self._changed.pop(changed, None)

    def notify(self) -> None:
        for changed in list(self._changed):
            changed.set()


class FakeEtcdClient:
    """One client's connection to the fake.

    faults: of its next transactions that write, one each. broken: raised by each renewal of a lease, as by a client
    that fails in itself. is_cut: nothing comes through, at once. is_frozen: nothing comes through, and each call waits
    for its timeout.
    """

    def __init__(self, etcd: FakeEtcd, delay_s: Callable[[], float] = lambda: 0.0) -> None:
        self.etcd = etcd
        self.faults: deque[Fault] = deque()
        self.broken: Exception | None = None
        self.is_frozen = False
        self.is_closed = False
        self.sent: list[Txn] = []
        self._delay_s = delay_s
        self._is_cut = False

    @property
    def is_cut(self) -> bool:
        return self._is_cut

    @is_cut.setter
    def is_cut(self, is_cut: bool) -> None:
        self._is_cut = is_cut
        self.etcd.notify()

    async def _reach(self, timeout_s: float) -> None:
        if self.is_frozen:
            await asyncio.sleep(timeout_s)
            raise EtcdUnknown("no answer in time", Trouble.SLOW)
        await asyncio.sleep(self._delay_s())
        if self._is_cut or self.is_closed:
            raise EtcdUnknown("cut off", Trouble.AWAY)

    async def txn(self, txn: Txn, timeout_s: float) -> TxnAnswer:
        writes = any(isinstance(one, Put | Delete) for one in txn.success)
        if writes:
            self.sent.append(txn)
        fault = self.faults.popleft() if self.faults and writes else None
        if fault is not None:
            return await self._fail(txn, fault)
        await self._reach(timeout_s)
        return self.etcd.txn(txn)

    async def _fail(self, txn: Txn, fault: Fault) -> TxnAnswer:
        await asyncio.sleep(self._delay_s())
        if fault is Fault.REFUSED:
            raise no_space()
        if fault is Fault.STORED_AND_REFUSED:
            self.etcd.txn(txn)
            raise no_space()
        if fault is Fault.LOST_AFTER:
            self.etcd.txn(txn)
        if fault is Fault.LATE:
            self.etcd.late.append(txn)
        raise EtcdUnknown("etcdserver: request timed out", Trouble.NO_LEADER)

    async def lease_grant(self, ttl_s: int, timeout_s: float) -> LeaseAnswer:
        await self._reach(timeout_s)
        return self.etcd.grant(ttl_s)

    async def lease_keep_alive(self, lease: int, timeout_s: float) -> LeaseAnswer:
        await self._reach(timeout_s)
        if self.broken is not None:
            raise self.broken
        return self.etcd.keep_alive(lease)

    async def lease_revoke(self, lease: int, timeout_s: float) -> None:
        await self._reach(timeout_s)
        self.etcd.revoke(lease)

    async def watch(self, ranges: Sequence[KeyRange], start_revision: int) -> AsyncGenerator[WatchAnswer, None]:
        changed = self.etcd.subscribe()
        try:
            while True:
                await self._reach(1.0)
                self.etcd.expire()
                changed.clear()
                if events := self.etcd.events(ranges, start_revision):
                    start_revision = events[-1].mod_revision + 1
                    yield WatchAnswer(self.etcd.revision, tuple(events))
                try:
                    async with asyncio.timeout(self.etcd.next_expiry_s()):
                        await changed.wait()
                except TimeoutError:
                    self.etcd.expire()
        finally:
            self.etcd.unsubscribe(changed)

    async def status(self, timeout_s: float) -> ServerStatus:
        await self._reach(timeout_s)
        alarms = ("memberID:1 alarm:NOSPACE ",) if self.etcd.is_full else ()
        return ServerStatus("3.6.16", alarms, 0, 0)

    async def close(self) -> None:
        self.is_closed = True
        self.etcd.notify()


class TaskDriver:
    """Runs a lease as a task of the event loop, for one loop of virtual time."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.get_running_loop().create_task(run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
