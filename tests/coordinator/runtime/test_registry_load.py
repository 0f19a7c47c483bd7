"""However much the registry holds, each turn of the loop reads its share of it, and a large topic is read beside."""

import asyncio
import threading
from typing import Any

import pytest

from rallypoint.coordinator.core.records import Record, RegistryRecord, TopicRecord
from rallypoint.coordinator.runtime.loading.stored_registry import READ_AT_ONCE_BYTES, RegistryLoad
from rallypoint.coordinator.storage.codec import decode, encode
from rallypoint.coordinator.storage.contract import StoredDataInvalid

LARGE = 25_000
MIDDLE = 1_000


class Reader:
    """Reads records, and counts what is read on the loop's own thread."""

    def __init__(self) -> None:
        self.loop_thread = threading.get_ident()
        self.on_loop_bytes = 0
        self.beside: list[bytes] = []

    def decode(self, key: bytes, value: bytes, **how: Any) -> Record:
        if threading.get_ident() == self.loop_thread:
            self.on_loop_bytes += len(value)
        else:
            self.beside.append(key)
        return decode(key, value, **how)


def topic(name: str, partitions: int) -> TopicRecord:
    return TopicRecord(name, partitions, 1, dict.fromkeys(range(partitions), 10**15))


async def test_each_turn_reads_its_share_and_a_large_topic_is_read_beside_the_loop() -> None:
    topics = [topic("large", LARGE), *(topic(f"t{number}", MIDDLE) for number in range(60))]
    records: list[Record] = [RegistryRecord(1), *topics]
    page = [(write.key, write.value or b"") for write in map(encode, records)]
    sizes = {key: len(value) for key, value in page}
    assert sizes[b"t/large"] > READ_AT_ONCE_BYTES, "else this test has no large one"
    reader, most, before = Reader(), 0, 0
    found = RegistryLoad(reader.decode)
    taking = asyncio.create_task(found.take_page(page, of_newer_minor=False))
    while not taking.done():
        await asyncio.sleep(0)
        most, before = max(most, reader.on_loop_bytes - before), reader.on_loop_bytes
    await taking
    assert reader.beside == [b"t/large"]
    assert reader.on_loop_bytes == sum(sizes.values()) - sizes[b"t/large"] > 4 * READ_AT_ONCE_BYTES
    assert 0 < most <= READ_AT_ONCE_BYTES
    assert found.result().topics == {record.topic: record for record in topics}
    assert found.result().partition_counts == {record.topic: record.partitions for record in topics}


async def test_a_large_topic_that_cannot_be_read_is_registered_all_the_same() -> None:
    write = encode(topic("large", LARGE))
    found = RegistryLoad()
    page = [(b"r", encode(RegistryRecord(1)).value or b""), (write.key, (write.value or b"")[:-1])]
    await found.take_page(page, of_newer_minor=False)
    assert found.result().unreadable == {"large"}


async def test_what_everything_hangs_on_ends_the_load() -> None:
    with pytest.raises(StoredDataInvalid, match="b'r'"):
        await RegistryLoad().take_page([(b"r", b"{}")], of_newer_minor=False)
