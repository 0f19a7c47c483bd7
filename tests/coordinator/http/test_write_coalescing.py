"""When what is written leaves, in what chunks, and what its end takes with it."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest

from rallypoint.coordinator.http.write_coalescing import (
    FLUSHED_TOGETHER_MAX,
    GATHERED_BYTES_MAX,
    JOINED_BYTES_MAX,
    GatheringTransport,
    WriteCoalescer,
)


class Wire:
    """A transport that keeps what happened to it, in order."""

    def __init__(self) -> None:
        self.happened: list[bytes | str] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        assert not self.closing, "a transport that is closing was written to"
        self.happened.append(data)

    def writelines(self, chunks: Iterable[bytes]) -> None:
        self.write(b"".join(chunks))

    def close(self) -> None:
        self.closing = True
        self.happened.append("closed")

    def abort(self) -> None:
        self.closing = True
        self.happened.append("aborted")

    def write_eof(self) -> None:
        self.happened.append("eof")

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return 7


def transport_on(wire: Wire, coalescer: WriteCoalescer) -> GatheringTransport:
    return GatheringTransport(cast(Any, wire), coalescer)


async def test_what_is_written_in_one_turn_leaves_in_one_write_at_its_end() -> None:
    wire = Wire()
    transport = transport_on(wire, WriteCoalescer())
    transport.write(b"one")
    transport.writelines((b"two", bytearray(b"three")))
    assert wire.happened == []
    assert transport.get_write_buffer_size() == 7 + 11
    await asyncio.sleep(0)
    assert wire.happened == [b"onetwothree"]
    assert transport.get_write_buffer_size() == 7
    transport.write(b"four")
    await asyncio.sleep(0)
    assert wire.happened[1:] == [b"four"]


async def test_what_may_change_is_copied() -> None:
    wire = Wire()
    data = bytearray(b"one")
    transport_on(wire, WriteCoalescer()).write(data)
    data[:] = b"two"
    await asyncio.sleep(0)
    assert wire.happened == [b"one"]


async def test_with_many_connections_the_first_ones_need_not_wait() -> None:
    coalescer, wires = WriteCoalescer(), [Wire() for _ in range(2 * FLUSHED_TOGETHER_MAX + 1)]
    for number, wire in enumerate(wires):
        transport_on(wire, coalescer).write(b"%d" % number)
    sent = [wire.happened for wire in wires]
    assert sent == [[b"%d" % number] for number in range(2 * FLUSHED_TOGETHER_MAX)] + [[]]
    await asyncio.sleep(0)
    assert [wire.happened for wire in wires] == [[b"%d" % number] for number in range(len(wires))]


async def test_much_on_one_connection_does_not_wait_either() -> None:
    wire = Wire()
    transport = transport_on(wire, WriteCoalescer())
    transport.write(b"a" * JOINED_BYTES_MAX)
    transport.write(b"b" * GATHERED_BYTES_MAX)
    assert wire.happened == [b"a" * JOINED_BYTES_MAX + b"b" * GATHERED_BYTES_MAX]
    transport.write(b"c")
    await asyncio.sleep(0)
    assert wire.happened[1:] == [b"c"]


async def test_an_end_comes_after_what_was_written_before_it() -> None:
    closed, halved = Wire(), Wire()
    transport, half = transport_on(closed, WriteCoalescer()), transport_on(halved, WriteCoalescer())
    transport.write(b"last words")
    transport.close()
    half.write(b"no more")
    half.write_eof()
    await asyncio.sleep(0)
    assert closed.happened == [b"last words", "closed"]
    assert halved.happened == [b"no more", "eof"]


async def test_what_is_for_a_client_that_has_gone_is_dropped() -> None:
    wire, cut = Wire(), Wire()
    transport, cut_one = transport_on(wire, WriteCoalescer()), transport_on(cut, WriteCoalescer())
    transport.write(b"one")
    wire.closing = True
    cut_one.write(b"two")
    cut_one.abort()
    await asyncio.sleep(0)
    assert wire.happened == []
    assert cut.happened == ["aborted"]
    assert transport.get_write_buffer_size() == 7


async def test_a_connection_that_cannot_be_written_to_takes_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Wire):
        def write(self, data: bytes) -> None:
            raise RuntimeError("the handler is closed")

    coalescer, broken, sound = WriteCoalescer(), Broken(), Wire()
    transport_on(broken, coalescer).write(b"one")
    transport_on(sound, coalescer).write(b"two")
    await asyncio.sleep(0)
    assert sound.happened == [b"two"]
    assert broken.happened == ["aborted"]
    assert "the handler is closed" in caplog.text
