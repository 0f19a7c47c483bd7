"""The store of a run: the memory engine behind a drive that is slow, fails, lies, or loses its power.

What it holds outlives the node. Every write that takes effect is reported at that instant, so that checkers fold the
log by themselves; an append under way when the power goes has either taken effect already or never will.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rallypoint.coordinator.storage.contract import (
    AppendDoubtful,
    AppendFailed,
    BatchLimits,
    Fenced,
    Keyspace,
    StorageUnavailable,
    StoreStatus,
    Write,
)
from rallypoint.coordinator.storage.memory import MemoryContents, MemoryStore
from tests.simulation.plan import Plan

SLOW_MS = (300, 1_000, 2_500)
HANGS_MS = (6_000, 15_000, 40_000)


@dataclass(frozen=True, slots=True)
class PowerCut:
    """The power goes at an append: before it has taken effect, or after, but before anybody can be told.

    `keyspace`: only at one of this keyspace; None for any. `of_leavings`: only at one that takes members' records away.
    """

    keyspace: str | None
    is_stored: bool
    cut: Callable[[], None]
    of_leavings: bool = False

    def comes_at(self, keyspace: str, writes: Sequence[Write]) -> bool:
        """Whether it is that append."""
        if self.of_leavings and not any(value is None and b"/m/" in key for key, value in writes):
            return False
        return self.keyspace in (None, keyspace)


class Disk:
    """Outlives the nodes. `on_stored` is told the keyspace and the writes of each append that takes effect."""

    def __init__(
        self,
        plan: Plan,
        chance: random.Random,
        on_stored: Callable[[str, Sequence[Write]], None],
        on_fault: Callable[[str, str], None],
    ) -> None:
        self.contents = MemoryContents()
        self.plan = plan
        self.chance = chance
        self.on_stored = on_stored
        self.on_fault = on_fault
        self.rates = dict(plan.rates)
        self.delay_max_ms = plan.store_delay_max_ms
        self.page_delay_ms = plan.page_delay_ms
        self.at_next_append: PowerCut | None = None
        self._is_healed = asyncio.Event()

    def heal(self) -> None:
        """No more faults."""
        self.rates = dict.fromkeys(self.rates, 0.0)
        self.delay_max_ms = 0
        self.page_delay_ms = 0
        self.at_next_append = None
        self._is_healed.set()

    async def hang(self) -> None:
        """For long, but for no longer than there are faults."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_healed.wait(), self.chance.choice(HANGS_MS) / 1000)

    def strikes(self, kind: str, text: str) -> bool:
        """Whether this fault comes now."""
        rate = self.rates[kind]
        if rate and self.chance.random() < rate:
            self.on_fault(kind, text)
            return True
        return False


class Drive:
    """The disk as one node has it open; `Store` of the contract. It tells what is done while the node is `running`."""

    def __init__(self, disk: Disk, running: asyncio.Event) -> None:
        self.running = running
        self._disk = disk
        self._store = MemoryStore(disk.contents, limits=disk.plan.limits)
        self.has_power = True

    async def acquire(self, keyspace: str) -> "DriveKeyspace":
        self.check_power()
        if self._disk.strikes("store_unreadable", f"acquire {keyspace}"):
            raise StorageUnavailable("planted: cannot be opened")
        return DriveKeyspace(self, self._disk, keyspace, await self._store.acquire(keyspace))

    @property
    def status(self) -> StoreStatus:
        return StoreStatus(None if self.has_power else "planted: no power")

    async def close(self) -> None:
        await self._store.close()

    def cut_power(self) -> None:
        """Nothing takes effect any more."""
        self.has_power = False

    def check_power(self) -> None:
        if not self.has_power:
            raise StorageUnavailable("planted: no power")


class DriveKeyspace:
    """An acquired keyspace."""

    def __init__(self, drive: Drive, disk: Disk, name: str, inner: Keyspace) -> None:
        self._drive = drive
        self._disk = disk
        self._name = name
        self._inner = inner

    @property
    def epoch(self) -> int:
        return self._inner.epoch

    @property
    def limits(self) -> BatchLimits:
        return self._inner.limits

    async def scan(self, prefix: bytes) -> AsyncIterator[Sequence[tuple[bytes, bytes]]]:
        self._drive.check_power()
        async for page in self._inner.scan(prefix):
            for start in range(0, len(page), self._disk.plan.page_rows):
                if self._disk.strikes("store_unreadable", f"scan {self._name}"):
                    raise StorageUnavailable("planted: cannot be read")
                if self._disk.page_delay_ms:
                    await asyncio.sleep(self._disk.page_delay_ms / 1000)
                await self._drive.running.wait()
                yield page[start : start + self._disk.plan.page_rows]

    def is_current(self) -> bool:
        return self._inner.is_current()

    async def append(self, writes: Sequence[Write]) -> None:
        disk = self._disk
        self._drive.check_power()
        power_cut = disk.at_next_append
        if power_cut is not None and power_cut.comes_at(self._name, writes):
            await self._lose_power(power_cut, writes)
        if disk.strikes("store_fenced", self._name):
            raise Fenced("planted: another owner took the keyspace")
        lost = disk.strikes("store_doubtful_lost", self._name)
        refused = not lost and disk.strikes("store_refused", self._name)
        early = disk.strikes("store_applied_early", self._name)
        takes_effect = not (lost or refused)
        if takes_effect and early:
            await self._apply(writes)
        await self._wait()
        if takes_effect and not early:
            await self._apply(writes)
        await self._drive.running.wait()
        if refused:
            raise AppendFailed("planted: definitely not stored")
        if lost or disk.strikes("store_doubtful_stored", self._name):
            raise AppendDoubtful("planted: nobody can say")

    async def _lose_power(self, power_cut: PowerCut, writes: Sequence[Write]) -> None:
        self._disk.at_next_append = None
        if power_cut.is_stored:
            await self._apply(writes)
        power_cut.cut()
        await asyncio.Event().wait()

    async def _wait(self) -> None:
        chance = self._disk.chance
        delay_ms = chance.randint(0, self._disk.delay_max_ms) if self._disk.delay_max_ms else 0
        if self._disk.strikes("store_slow", self._name):
            delay_ms += chance.choice(SLOW_MS)
        if self._disk.strikes("store_hangs", self._name):
            await self._disk.hang()
        await asyncio.sleep(delay_ms / 1000)

    async def _apply(self, writes: Sequence[Write]) -> None:
        self._drive.check_power()
        await self._inner.append(writes)
        self._disk.on_stored(self._name, writes)

    async def release(self) -> None:
        await self._inner.release()
