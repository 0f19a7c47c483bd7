"""One process of the load: a member of each group, which commits increasing offsets and writes down what it is told.

SIGTERM ends it: each member ends the call that it is in, and stops without leaving its group.
"""

import argparse
import asyncio
import itertools
import logging
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from examples.cluster.books import TOPIC, Assigned, Commit, Failed, Fetch, Writer
from rallypoint.member.assignment import Assignment
from rallypoint.member.client import GroupMember
from rallypoint.member.errors import CommitFailed, CoordinatorUnavailable, MemberError
from rallypoint.member.options import MemberOptions
from rallypoint.protocol.group_hash import SHARDS_DEFAULT, shard_of_group

WAIT_MS = 500
"""How long one look for an assignment takes, until it is asked whether to stop."""
COMMITS_BETWEEN_FETCHES = 10


def group_ids(count: int, prefix: str = "group") -> list[str]:
    """The groups of the load, with the prefix in their names.

    Their shards are as far from each other as they can be, so that each node has some.
    """
    names = (f"{prefix}-{number}" for number in itertools.count())
    by_shard: defaultdict[int, list[str]] = defaultdict(list)
    found = []
    for number in range(count):
        shard = number * SHARDS_DEFAULT // count
        while not by_shard[shard]:
            name = next(names)
            by_shard[shard_of_group(name)].append(name)
        found.append(by_shard[shard].pop(0))
    return found


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What a process of the load does.

    coordinators: the URLs of the nodes.
    partitions: of the topic, in each group.
    interval_ms: between a member's commits.
    """

    name: str
    coordinators: tuple[str, ...]
    groups: int
    partitions: int
    interval_ms: int


class Worker:
    """One member, and what it has committed."""

    def __init__(self, number: int, group_id: str, options: LoadOptions, books: Writer, stop: asyncio.Event) -> None:
        self._group_id = group_id
        self._name = options.name
        self._interval_s = options.interval_ms / 1000
        self._books = books
        self._stop = stop
        self._member = GroupMember(
            MemberOptions(
                coordinator=options.coordinators,
                group_id=group_id,
                topics=(TOPIC,),
                client_id=options.name,
                transport="http" if number % 2 else "channel",
            ),
            partition_counts={TOPIC: options.partitions},
            on_assigned=self._note_assignment,
        )

    async def run(self) -> None:
        """Commit until it is time to stop. What ends the member is written down."""
        await self._member.start()
        try:
            while not self._stop.is_set():
                with suppress(TimeoutError):
                    assignment = await self._member.wait_assigned(WAIT_MS)
                    await self._work(assignment)
        except MemberError as error:
            self._books.write(Failed(self._group_id, self._name, _now_ms(), str(error)))

    async def close(self) -> None:
        """Stop at once, without leaving: the other member's group is not to rebalance for it."""
        await self._member.close()

    async def _note_assignment(self, assignment: Assignment) -> None:
        partitions = tuple(sorted(partition for _, partition in assignment.partitions))
        self._books.write(Assigned(self._group_id, self._name, _now_ms(), assignment.generation_id, partitions))

    async def _work(self, assignment: Assignment) -> None:
        """Go on from what is committed, as long as the assignment holds."""
        committed = await self._fetch()
        offsets = {partition: committed.get(partition, 0) for _, partition in assignment.partitions}
        commits = 0
        while self._holds(assignment) and not self._stop.is_set():
            if offsets and await self._commit(
                {partition: offset + 1 for partition, offset in offsets.items()}, assignment
            ):
                offsets = {partition: offset + 1 for partition, offset in offsets.items()}
            commits += 1
            if commits % COMMITS_BETWEEN_FETCHES == 0:
                await self._fetch()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), self._interval_s)

    def _holds(self, assignment: Assignment) -> bool:
        held = self._member.assignment
        return held is not None and held.generation_id == assignment.generation_id

    async def _commit(self, offsets: dict[int, int], assignment: Assignment) -> bool:
        began_ms = _now_ms()
        error: str | None = None
        try:
            await self._member.commit(
                {(TOPIC, partition): offset for partition, offset in offsets.items()},
                generation_id=assignment.generation_id,
            )
        except (CommitFailed, CoordinatorUnavailable) as refusal:
            error = str(refusal)
        self._books.write(Commit(self._group_id, self._name, began_ms, _now_ms(), offsets, error))
        return error is None

    async def _fetch(self) -> dict[int, int]:
        began_ms = _now_ms()
        committed = await self._member.committed([TOPIC])
        offsets = {partition: found.offset for (_, partition), found in committed.items()}
        self._books.write(Fetch(self._group_id, self._name, began_ms, _now_ms(), offsets))
        return offsets


async def run_load(options: LoadOptions, books: Writer) -> None:
    """Run a member of each group until SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    workers = [
        Worker(number, group_id, options, books, stop) for number, group_id in enumerate(group_ids(options.groups))
    ]
    await asyncio.gather(*(worker.run() for worker in workers))
    await asyncio.gather(*(worker.close() for worker in workers))


def main(arguments: Sequence[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m examples.cluster.load", description=__doc__)
    parser.add_argument("--name", required=True, help="client id of the members")
    parser.add_argument("--coordinator", required=True, help="URLs of the nodes, with commas between")
    parser.add_argument("--books", required=True, type=Path, help="file for what the members are told")
    parser.add_argument("--groups", required=True, type=int, help="number of groups")
    parser.add_argument("--partitions", required=True, type=int, help="partitions of each group's topic")
    parser.add_argument("--interval-ms", required=True, type=int, help="time between a member's commits")
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    options = LoadOptions(
        given.name, tuple(given.coordinator.split(",")), given.groups, given.partitions, given.interval_ms
    )
    books = Writer(given.books)
    try:
        asyncio.run(run_load(options, books))
    finally:
        books.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
