"""The planner among crashes, lost sessions and other drivers, between any two calls.

Promises: a commit never covers records that no batch has written, never goes back, and in the end every record is
written; after an operator's reset, written again. If nothing crashed, no session was lost and each checkpoint had one
driver, each record is written once. If there is one checkpoint, then also after crashes by one batch alone.
"""

from random import Random

import pytest

from tests.sizes import by_size
from tests.spark_bridge.group_model import CallFault, Checkpoint, Crash, Query, World

PARTITIONS = 3
CHECKPOINTS = 2
PART = 250
TRIED = by_size(10, PART)
"""The first seeds of each part."""


class Story:
    """A run of events drawn from one seed."""

    def __init__(self, seed: int, *, faults: bool, checkpoints: int = CHECKPOINTS) -> None:
        self.world = World(PARTITIONS, cooperative=seed % 3 > 0)
        self.checkpoints = [Checkpoint(f"c{which}") for which in range(checkpoints)]
        self.queries: list[Query] = []
        self._random = Random(seed)
        self._faults = faults
        self._depth = 0
        self._drivers = 0
        self.quiet = False
        self.world.between = self.between
        self.world.choose_owners = self.choose_owners
        self.world.lazy = lambda: self.chance(2) == 1
        self.world.trouble = self.trouble
        self.world.now_ms = self.now_ms
        self._now_ms = 0

    def now_ms(self) -> float:
        """Each look at the clock is later than the last, by nothing or by long."""
        self._now_ms += self.chance(2) * 2_000
        return self._now_ms

    def trouble(self) -> CallFault:
        return (CallFault.UNSENT, CallFault.UNANSWERED)[self.chance(1)] if self.chance(9) == 9 else CallFault.NONE

    def chance(self, most: int) -> int:
        return 0 if self.quiet else self._random.randint(0, most)

    def choose_owners(self, members: list[str]) -> dict[int, str]:
        return {p: members[self.chance(len(members) - 1)] for p in range(PARTITIONS)}

    def begin(self, which: int) -> None:
        limit = (None, 1, 3)[self.chance(2)]
        self._drivers += 1
        self.queries.append(Query(self.world, f"d{self._drivers}c{which}", self.checkpoints[which], limit))

    def running(self) -> list[Query]:
        return [query for query in self.queries if not query.dead]

    def between(self, name: str) -> None:
        """Something may happen here, and the process `name` may end here."""
        if self.quiet or self._depth > 1:
            return
        what = self.chance(9 if self._faults else 6)
        self._depth += 1
        try:
            if what == 5:
                self.produce()
            elif what == 6:
                self.trigger()
            elif what == 7:
                self.expire()
            elif what == 8:
                # The next owner may be at work before the process is gone, or knows.
                self.expire()
                self.trigger()
            elif what == 4:
                self.hear()
            elif what == 9:
                raise Crash
        finally:
            self._depth -= 1

    def produce(self) -> None:
        self.world.produce(self.chance(PARTITIONS - 1), 1 + self.chance(3))

    def trigger(self) -> None:
        idle = [query for query in self.running() if not query.busy]
        if idle:
            idle[self.chance(len(idle) - 1)].trigger()

    def expire(self) -> None:
        members = sorted(self.world.group.members)
        if members:
            self.world.group.remove(members[self.chance(len(members) - 1)], heard=self.chance(1) == 0)

    def hear(self) -> None:
        """A heartbeat somewhere."""
        running = self.running()
        if running:
            running[self.chance(len(running) - 1)].membership.wake()

    def kill(self) -> None:
        running = [query for query in self.running() if not query.busy]
        if running:
            query = running[self.chance(len(running) - 1)]
            query.dead = True
            if self.chance(1):
                query.planner.close()

    def step(self) -> None:
        what = self.chance(10 if self._faults else 4)
        if what in {0, 1}:
            self.trigger()
        elif what in {2, 3}:
            self.produce()
        elif what == 4:
            self.begin_where_none_is()
        elif what == 5:
            self.kill()
        elif what == 6:
            self.expire()
        elif what == 7:
            # A second driver on a checkpoint, while the first may live on.
            self.begin(self.chance(len(self.checkpoints) - 1))
        elif what == 8:
            for member_id in sorted(self.world.group.members):
                self.world.group.remove(member_id)
            partition = self.chance(PARTITIONS - 1)
            self.world.reset(partition, self.chance(self.world.ends[partition]))
        else:
            self.trigger()

    def step_of_one(self) -> None:
        """As `step`, for one checkpoint without resets: a driver begins only where none is."""
        (self.trigger, self.trigger, self.produce, self.expire, self.kill, self.begin_where_none_is)[self.chance(5)]()

    def begin_where_none_is(self) -> None:
        for which in range(len(self.checkpoints)):
            if not self._has_driver(which):
                self.begin(which)
                return

    def _has_driver(self, which: int) -> bool:
        return any(query.name.endswith(f"c{which}") for query in self.running())

    def settle(self) -> None:
        """The faults end: one driver for each checkpoint, no session of the dead, until nothing is left to read."""
        self.quiet = True
        for query in self.running():
            query.dead = True
        for member_id in list(self.world.group.members):
            self.world.group.remove(member_id)
        for which in range(len(self.checkpoints)):
            self.begin(which)
        self.drain()

    def drain(self) -> None:
        quiet_rounds = 0
        for _ in range(400):
            ran = [query.trigger() for query in self.running()]
            quiet_rounds = 0 if any(ran) or not self.world.group.settled else quiet_rounds + 1
            # In a first quiet round the last member may have given up; what it was then assigned shows in the second.
            if quiet_rounds == 2:
                return
        raise AssertionError("the queries never come to rest")

    def check_written_once(self, where: str) -> None:
        for partition in self.world.written:
            assert all(len(batches) == 1 for batches in partition), f"{where}: {partition}"

    def check_all_committed(self, where: str) -> None:
        assert not any(query.dead for query in self.queries[-len(self.checkpoints) :]), where
        for partition, end in enumerate(self.world.ends):
            assert all(self.world.written[partition]), f"{where}, lost: {partition}: {self.world.written[partition]}"
            assert self.world.group.committed["clicks", partition].offset == end, where


@pytest.mark.parametrize("seeds", range(0, 2000, PART))
def test_nothing_is_lost_whatever_crashes(seeds: int) -> None:
    for seed in range(seeds, seeds + TRIED):
        story = Story(seed, faults=True)
        story.begin(0)
        for _ in range(5 + seed % 40):
            story.step()
        story.settle()
        story.check_all_committed(f"seed {seed}")


@pytest.mark.parametrize("seeds", range(0, 1000, PART))
def test_nothing_is_written_twice_if_nothing_crashes(seeds: int) -> None:
    for seed in range(seeds, seeds + TRIED):
        story = Story(seed, faults=False)
        story.begin(0)
        for _ in range(5 + seed % 40):
            story.step()
        story.quiet = True
        if len(story.queries) < CHECKPOINTS:
            story.begin(1)
        story.drain()
        story.check_all_committed(f"seed {seed}")
        story.check_written_once(f"seed {seed}")


@pytest.mark.parametrize("seeds", range(0, 1000, PART))
def test_one_driver_at_a_time_on_one_checkpoint_writes_nothing_in_two_batches(seeds: int) -> None:
    for seed in range(seeds, seeds + TRIED):
        story = Story(seed, faults=True, checkpoints=1)
        story.begin(0)
        for _ in range(5 + seed % 40):
            story.step_of_one()
        story.settle()
        story.check_all_committed(f"seed {seed}")
        story.check_written_once(f"seed {seed}")
        assert not any(query.fenced for query in story.queries), f"seed {seed}: fenced by nobody"
