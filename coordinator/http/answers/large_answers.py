"""Answers of many offsets, members or topics as JSON, in chunks, with a turn for others between two chunks.

Encoding 200,000 offsets in one go would hold up everyone for half a second. A chunk is encoded as in `answer_text`.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from pydantic import BaseModel

from rallypoint.coordinator.http.answers.answer_text import encode
from rallypoint.coordinator.http.answers.json_response import JSON_HEADERS
from rallypoint.coordinator.http.limits.deadline import time_limit
from rallypoint.coordinator.http.limits.work_turns import WorkTurns, recent_work_of
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m

CHUNK_ENTRIES = 1_000
"""Offsets or members in a chunk: some 2 ms."""
WRITE_TIMEOUT_MS = 30_000
"""How long a client may take nothing of its answer; then its connection is cut."""

CHUNK_BYTES = 262_144
"""Bytes in a chunk, after which it ends: members may say a quarter of a MiB each."""

TOPIC_ENTRIES = 3
"""What a topic counts in a chunk beside its ends and racks."""

Batch = TypeVar("Batch", dict[Any, Any], list[Any])
LargeAnswer = m.FetchAnswer | admin.DescribeAnswer | admin.DeleteOffsetsAnswer | m.ListTopicsAnswer | m.JoinAnswer
Ends = Callable[[str], Mapping[int, int]]
"""The ends of a topic's partitions, as far as they are known."""


def chunks_of(answer: LargeAnswer, ends: Ends) -> Iterator[bytes]:
    """The answer's body, chunk by chunk."""
    if isinstance(answer, admin.DescribeAnswer):
        yield _without(answer, "members", "offsets")[:-1]
        yield b',"members":['
        yield from _listed(map(encode, answer.members))
        yield b'],"offsets":{'
        yield from _by_topic((topic, _described(of, ends(topic))) for topic, of in answer.offsets.items())
        yield b"}"
    elif isinstance(answer, m.JoinAnswer):
        yield _without(answer, "members", "channel_keeps_session")[:-1]
        yield b',"members":['
        yield from _listed(map(encode, answer.members))
        yield b"]"
    elif isinstance(answer, m.ListTopicsAnswer):
        yield b'{"topics":['
        yield from _topics(answer.topics)
        yield b"]," + _without(answer, "topics")[1:-1]
    elif isinstance(answer, m.FetchAnswer):
        yield b'{"offsets":{'
        yield from _by_topic((topic, _fetched(of)) for topic, of in answer.offsets.items())
        yield b"}"
    else:
        yield b'{"offsets":{'
        yield from _by_topic((topic, of.items()) for topic, of in answer.offsets.items())
        yield b"}"
    yield b"}"


def _without(answer: BaseModel, *left_out: str) -> bytes:
    """The answer's other fields, as an object."""
    return encode({name: field for name, field in answer.__dict__.items() if name not in left_out})


def _fetched(offsets: Mapping[int, m.CommittedOffset]) -> Iterator[tuple[int, Any]]:
    for partition, one in offsets.items():
        yield partition, {"offset": one.offset, "leader_epoch": one.leader_epoch, "metadata": one.metadata}


def _described(offsets: Mapping[int, m.CommittedOffset], ends: Mapping[int, int]) -> Iterator[tuple[int, Any]]:
    for partition, fields in _fetched(offsets):
        end = ends.get(partition)
        lag = None if end is None else max(end - fields["offset"], 0)
        yield partition, fields | {"commit_at_ms": offsets[partition].commit_at_ms, "end_offset": end, "lag": lag}


def _by_topic(topics: Iterable[tuple[str, Iterable[tuple[int, Any]]]]) -> Iterator[bytes]:
    """An object for each topic, its partitions some at a time."""
    for at, (topic, partitions) in enumerate(topics):
        yield b"%b%b:{" % (b"," if at else b"", encode(topic))
        yield from _with_commas(encode(some)[1:-1] for some in _batches(partitions, dict))
        yield b"}"


def _listed(entries: Iterator[bytes]) -> Iterator[bytes]:
    """Entries with commas between, as many at a time as go into a chunk."""
    return _with_commas(iter(lambda: b",".join(_some(entries)), b""))


def _some(entries: Iterator[bytes]) -> Iterator[bytes]:
    """The next ones, as many as go into a chunk."""
    size = 0
    for entry in islice(entries, CHUNK_ENTRIES):
        yield entry
        size += len(entry)
        if size >= CHUNK_BYTES:
            return


def _batches(entries: Iterable[Any], make: Callable[[Iterable[Any]], Batch]) -> Iterator[Batch]:
    """What `make` makes of so many entries at a time."""
    rest = iter(entries)
    while batch := make(islice(rest, CHUNK_ENTRIES)):
        yield batch


def _with_commas(parts: Iterable[bytes]) -> Iterator[bytes]:
    for at, part in enumerate(parts):
        yield b"," + part if at else part


def _topics(topics: Iterable[m.Topic]) -> Iterator[bytes]:
    """The entries of a page. Many are in one chunk if they are small, and one of a million ends is in many."""
    made, weight = [], 0
    for at, topic in enumerate(topics):
        made.append(b"," if at else b"")
        for part, entries in _topic_parts(topic):
            made.append(part)
            weight += entries
            if weight >= CHUNK_ENTRIES:
                yield b"".join(made)
                made, weight = [], 0
    yield b"".join(made)


def _topic_parts(topic: m.Topic) -> Iterator[tuple[bytes, int]]:
    """A topic in parts, each with the number of its entries; what every topic has counts as `TOPIC_ENTRIES`."""
    head = encode({"topic": topic.topic, "partitions": topic.partitions, "version": topic.version})
    yield head[:-1] + b',"end_offsets":{', TOPIC_ENTRIES
    ends = list(_batches(sorted(topic.end_offsets.items()), dict))
    for part, some in zip(_with_commas(encode(some)[1:-1] for some in ends), ends, strict=True):
        yield part, len(some)
    yield b'},"replica_racks":[', 0
    racks = list(_batches(topic.replica_racks, list))
    for part, those in zip(_with_commas(encode(those)[1:-1] for those in racks), racks, strict=True):
        yield part, len(those)
    yield b"]}", 0


class StreamedResponse(web.StreamResponse):
    """An answer of status 200 that is made while it is written. aiohttp asks for its end, and that is when it is.

    Between its chunks it waits for its turn.
    """

    def __init__(self, chunks: Iterator[bytes], clock: Clock, turns: WorkTurns) -> None:
        super().__init__(headers=JSON_HEADERS)
        self._turns = turns
        self._clock = clock
        self._chunks = chunks
        self._request: web.BaseRequest | None = None
        self._writer: AbstractStreamWriter | None = None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Called by aiohttp: send the head."""
        self._request = request
        self._writer = await super().prepare(request)
        return self._writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Called by aiohttp once the head is sent."""
        assert self._request is not None
        assert self._writer is not None
        if self._request.method != "HEAD":
            turns, work = self._turns, recent_work_of(self._request)
            while True:
                await turns.enter(work)
                began_s = turns.worked_s()
                chunk = next(self._chunks, None)
                turns.add(work, began_s)
                if chunk is None:
                    break
                try:
                    async with time_limit(self._clock, WRITE_TIMEOUT_MS):
                        await self.write(chunk)
                        await self._writer.drain()
                except TimeoutError:
                    if self._request.transport is not None:
                        self._request.transport.abort()
                    return
                # Many answers that are not large enough to wait for their turns would be one turn together.
                await asyncio.sleep(0)
        await super().write_eof(data)


async def whole_text(chunks: Iterator[bytes]) -> bytes:
    """All of it, where it must go as one message. Others have their turn between the chunks."""
    made: list[bytes] = []
    for chunk in chunks:
        made.append(chunk)
        await asyncio.sleep(0)
    return b"".join(made)
