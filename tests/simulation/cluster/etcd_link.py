"""A node's connection to etcd: requests and answers may be late, lost in either direction, or cut off for a while.

A request that is late is carried out all the same, also after its caller has given up, or has died.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from rallypoint.coordinator.storage.etcd.client import (
    Delete,
    EtcdError,
    EtcdUnknown,
    KeyRange,
    LeaseAnswer,
    Put,
    ServerStatus,
    Trouble,
    Txn,
    TxnAnswer,
    WatchAnswer,
)
from rallypoint.coordinator.storage.etcd.keys import Keys
from tests.fakes.fake_etcd import FakeEtcd
from tests.simulation.cluster.processes import ClusterLoop, in_no_process, process_now
from tests.simulation.trace import Trace

KEYS = Keys("sim")
WATCH_LOOK_S = 1.0
WATCH_SILENCE_MAX_S = 8.0
LATE_MS = (20, 300, 1_100, 2_500, 7_000, 20_000)


class ObservedEtcd(FakeEtcd):
    """Tells of each transaction that writes: what it was, before it is carried out, and its answer after it."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        super().__init__(clock_ms)
        self.before: Callable[[Txn], None] = lambda txn: None
        self.after: Callable[[Txn, TxnAnswer], None] = lambda txn, answer: None
        self.has_leader = True

    def carry_out(self, txn: Txn) -> TxnAnswer:
        if not any(isinstance(one, Put | Delete) for one in txn.success):
            return super().carry_out(txn)
        self.expire()
        self.before(txn)
        answer = super().carry_out(txn)
        self.after(txn, answer)
        return answer


class EtcdFaults:
    """Of all links. `rates`: of each request, by kind: lost, late, answer_lost, slow."""

    def __init__(self, chance: random.Random, trace: Trace, rates: dict[str, float]) -> None:
        self.chance = chance
        self.rates = dict(rates)
        self._trace = trace

    def strikes(self, kind: str, now_ms: int, text: str) -> bool:
        rate = self.rates[kind]
        if rate and self.chance.random() < rate:
            self._trace.fault(now_ms, f"etcd_{kind}", text)
            return True
        return False


class EtcdLink:
    """`EtcdClient` of one life of a node."""

    def __init__(self, name: str, etcd: ObservedEtcd, loop: ClusterLoop, faults: EtcdFaults) -> None:
        self.cuts: dict[str, int] = {"up": 0, "down": 0}
        self.watch_delay_ms = 1
        self._name = name
        self._etcd = etcd
        self._loop = loop
        self._faults = faults
        self._is_closed = False

    # --- one request -------------------------------------------------------------------------------------------------

    async def _ask(self, what: str, apply: Callable[[], Any], timeout_s: float) -> Any:
        if self._is_closed:
            raise EtcdUnknown("the connection is closed", Trouble.AWAY)
        self._check_process(what)
        answered: asyncio.Future[Any] = self._loop.create_future()
        in_no_process(self._send, what, apply, answered)
        try:
            async with asyncio.timeout(timeout_s):
                outcome = await answered
        except TimeoutError:
            raise EtcdUnknown(f"no answer to a {what} within {timeout_s} s", Trouble.SLOW) from None
        if isinstance(outcome, EtcdError):
            raise outcome
        return outcome

    def _check_process(self, what: str) -> None:
        """A program that got out of its process would go on while that stands still, and after its death."""
        process = process_now()
        if process is None or not process.is_running:
            self._loop.fault = AssertionError(f"{self._name} asks etcd for a {what}, and in no process that runs")

    def _send(self, what: str, apply: Callable[[], Any], answered: "asyncio.Future[Any]") -> None:
        if self.cuts["up"] or self._strikes("lost", what):
            return
        delay_ms = 1
        if self._strikes("slow", what):
            delay_ms = self._faults.chance.choice(LATE_MS[:2])
        elif self._strikes("late", what):
            delay_ms = self._faults.chance.choice(LATE_MS)
        self._loop.call_later(delay_ms / 1000, self._arrive, what, apply, answered)

    def _arrive(self, what: str, apply: Callable[[], Any], answered: "asyncio.Future[Any]") -> None:
        outcome: Any
        if not self._etcd.has_leader:
            outcome = EtcdUnknown("etcdserver: request timed out", Trouble.NO_LEADER)
        else:
            try:
                outcome = apply()
            except EtcdError as error:
                outcome = error
        if not self.cuts["down"] and not self._strikes("answer_lost", what):
            self._loop.call_later(0.001, self._come, answered, outcome)

    def _come(self, answered: "asyncio.Future[Any]", outcome: Any) -> None:
        if not answered.done():
            answered.set_result(outcome)

    def _strikes(self, kind: str, what: str) -> bool:
        return self._faults.strikes(kind, round(self._loop.time() * 1000), f"{self._name} {what}")

    # --- as EtcdClient -----------------------------------------------------------------------------------------------

    async def txn(self, txn: Txn, timeout_s: float) -> TxnAnswer:
        writes = any(isinstance(one, Put | Delete) for one in txn.success)
        answer: TxnAnswer = await self._ask("write" if writes else "read", lambda: self._etcd.txn(txn), timeout_s)
        return answer

    async def lease_grant(self, ttl_s: int, timeout_s: float) -> LeaseAnswer:
        answer: LeaseAnswer = await self._ask("grant", lambda: self._etcd.grant(ttl_s), timeout_s)
        return answer

    async def lease_keep_alive(self, lease: int, timeout_s: float) -> LeaseAnswer:
        answer: LeaseAnswer = await self._ask("renewal", lambda: self._etcd.keep_alive(lease), timeout_s)
        return answer

    async def lease_revoke(self, lease: int, timeout_s: float) -> None:
        await self._ask("revocation", lambda: self._etcd.revoke(lease), timeout_s)

    async def watch(self, ranges: Sequence[KeyRange], start_revision: int) -> AsyncGenerator[WatchAnswer, None]:
        changed = self._etcd.subscribe()
        heard_at_s = self._loop.time()
        seen_revision = 0
        try:
            while True:
                await asyncio.sleep(self.watch_delay_ms / 1000)
                if self._is_closed:
                    raise EtcdUnknown("the connection is closed", Trouble.AWAY)
                changed.clear()
                if not any(self.cuts.values()) and self._etcd.has_leader:
                    heard_at_s = self._loop.time()
                    self._etcd.expire()
                    events = self._etcd.events(ranges, start_revision, seen_revision)
                    seen_revision = self._etcd.revision
                    if events:
                        start_revision = events[-1].mod_revision + 1
                        yield WatchAnswer(self._etcd.revision, tuple(events))
                elif self._loop.time() - heard_at_s > WATCH_SILENCE_MAX_S:
                    raise EtcdUnknown("the watch has heard nothing", Trouble.SLOW)
                await self._wait_for(changed)
        finally:
            self._etcd.unsubscribe(changed)

    async def _wait_for(self, changed: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(WATCH_LOOK_S):
                await changed.wait()
        except TimeoutError:
            return

    async def status(self, timeout_s: float) -> ServerStatus:
        alarms = ("memberID:1 alarm:NOSPACE ",) if self._etcd.is_full else ()
        status: ServerStatus = await self._ask("status", lambda: ServerStatus("3.6.16", alarms, 0, 0), timeout_s)
        return status

    async def close(self) -> None:
        self._is_closed = True
        self._etcd.notify()
