"""Members that say a fifth of a MiB each: joins, records and loads have their turns by what is said, not by number."""

import asyncio

from rallypoint.coordinator.core.commands import Settle
from rallypoint.coordinator.core.records import GroupFact, GroupRecord, MemberRecord
from rallypoint.coordinator.runtime.appends.batch import ENCODED_AT_ONCE_MAX, GroupBatch, Stepped, weight_of
from rallypoint.coordinator.runtime.group_executor import STEPS_MAX
from rallypoint.coordinator.runtime.loading.stored_groups import (
    CHARACTERS_PER_RECORD,
    READ_AT_ONCE_BYTES,
    StoredGroup,
    stored_groups,
)
from rallypoint.coordinator.storage.codec import encode
from rallypoint.coordinator.storage.contract import BatchLimits, shard_keyspace
from rallypoint.coordinator.storage.memory import MemoryStore
from rallypoint.protocol import messages as m
from rallypoint.protocol.opaque import OpaqueJson
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import ServiceHarness, commit, join

COUNT = 12
SAID = OpaqueJson.of({"topics": [f"topic-{number:05}" for number in range(10_000)], "more": "x" * 60_000})


def record(number: int) -> MemberRecord:
    return MemberRecord(
        "g", f"m{number}", 1, number, None, "c", "h", 10_000, 10_000, None, SAID, OpaqueJson("{}"), None
    )


HEADER = GroupRecord("g", "consumer", "range", 1, 1, "m0", 1)


class Nobody:
    """Whose batch it is does not matter."""

    def settled(self, batch: GroupBatch, error: object) -> None:
        raise AssertionError

    def give_up(self) -> None:
        raise AssertionError


async def turns_of(task: "asyncio.Task[object]") -> int:
    """How many turns of the loop it takes."""
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


async def test_records_are_encoded_some_at_a_time() -> None:
    records: list[GroupFact] = [HEADER, *map(record, range(4 * COUNT))]
    batch = GroupBatch(Nobody())
    batch.add(Stepped(Settle(), (), 0, (), records, None))
    weight = sum(map(weight_of, records))
    assert weight > 5 * ENCODED_AT_ONCE_MAX, "so many turns for fewer records than go in one"
    cutting = asyncio.create_task(batch.cut(BatchLimits(writes_max=1_000, bytes_max=2**30)))
    assert await turns_of(cutting) >= weight // (2 * ENCODED_AT_ONCE_MAX)


async def test_a_load_reads_and_makes_members_some_at_a_time() -> None:
    keyspace = await MemoryStore().acquire(shard_keyspace(0))
    records: list[GroupFact] = [HEADER, *map(record, range(COUNT))]
    await keyspace.append([encode(one) for one in records])
    size_bytes = COUNT * len(encode(record(0)).value or b"")
    found: list[StoredGroup] = []

    async def load() -> None:
        async for page in stored_groups(keyspace, b"", lambda group_id: True):
            found.extend(one for one in page if isinstance(one, StoredGroup))

    assert await turns_of(asyncio.create_task(load())) >= size_bytes // READ_AT_ONCE_BYTES
    (stored,) = found
    turns = await turns_of(asyncio.create_task(stored.restore()))
    assert turns >= COUNT * len(SAID.text) // CHARACTERS_PER_RECORD // 10_000
    assert turns > 1


async def test_joins_that_say_much_are_stepped_few_at_a_time() -> None:
    """They come while the group is being written, and wait."""
    harness = await ServiceHarness().start()
    ids = [(await harness.now("g", join("m", ""))).member_id or "" for _ in range(COUNT)]  # type: ignore[union-attr]
    harness.store.append_gate.shut()
    harness.ask("g", commit(1))
    await settle()
    executor = next(shard.executors["g"] for shard in harness.service._shards if "g" in shard.executors)
    for member_id in ids:
        harness.ask("g", join("m", member_id, protocols=(m.JoinProtocol(name="range", metadata=SAID),)))
    await settle()
    assert len(executor) == COUNT
    harness.store.append_gate.let_go()
    most, before = 0, len(executor)
    while len(executor):
        await asyncio.sleep(0)
        most, before = max(most, before - len(executor)), len(executor)
    assert STEPS_MAX > COUNT, "by their number they went in one turn"
    assert 0 < most <= 6, "three, and three more where the append took no time"
    await harness.service.drain()
