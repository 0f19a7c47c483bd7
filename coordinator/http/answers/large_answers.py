"""Answers of many offsets, members or topics as JSON, in pieces: one is made before others have their turn.

A model of 200,000 offsets would hold up everyone for half a second. The words are those of `answer_text`.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from json.encoder import encode_basestring
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from rallypoint.coordinator.http.answers.answer_text import joined_member_text
from rallypoint.coordinator.http.answers.json_response import JSON_HEADERS
from rallypoint.coordinator.http.limits.deadline import time_limit
from rallypoint.coordinator.http.limits.work_turns import WorkTurns, recent_work_of
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m

PIECE_ENTRIES = 1_000
"""Offsets or members in a piece: some 2 ms."""
WRITE_TIMEOUT_MS = 30_000
"""How long a client may take nothing of its answer; then its connection is cut."""

PIECE_CHARACTERS = 262_144
"""Of texts in a piece, after which it ends: members may say a quarter of a MiB each."""

LargeAnswer = m.FetchAnswer | admin.DescribeAnswer | admin.DeleteOffsetsAnswer | m.ListTopicsAnswer | m.JoinAnswer
Ends = Callable[[str], Mapping[int, int]]
"""The ends of a topic's partitions, as far as they are known."""

_quote = encode_basestring


def pieces_of(answer: LargeAnswer, ends: Ends) -> Iterator[bytes]:
    """The answer's body, piece by piece."""
    if isinstance(answer, admin.DescribeAnswer):
        yield answer.model_dump_json(exclude={"members", "offsets"}).encode()[:-1]
        yield b',"members":['
        yield from _listed(map(_member_text, answer.members))
        yield b'],"offsets":'
        yield from _offsets(answer.offsets, ends)
    elif isinstance(answer, m.JoinAnswer):
        yield answer.model_dump_json(exclude={"members"}).encode()[:-1]
        yield b',"members":['
        yield from _listed(map(joined_member_text, answer.members))
        yield b"]"
    elif isinstance(answer, m.ListTopicsAnswer):
        yield from _joined(_topic_texts(answer.topics))
        yield answer.model_dump_json(exclude={"topics"}).replace("{", ",", 1).encode()[:-1]
    elif isinstance(answer, admin.DeleteOffsetsAnswer):
        yield b'{"offsets":{'
        for at, (topic, results) in enumerate(answer.offsets.items()):
            yield f"{',' if at else ''}{_quote(topic)}:{{".encode()
            yield from _listed(_result_text(*entry) for entry in results.items())
            yield b"}"
        yield b"}"
    else:
        yield b'{"offsets":'
        yield from _offsets(answer.offsets, None)
    yield b"}"


def _offsets(offsets: Mapping[str, Mapping[int, Any]], ends: Ends | None) -> Iterator[bytes]:
    """`ends`: of a description, which shows more of each offset."""
    yield b"{"
    for at, (topic, partitions) in enumerate(offsets.items()):
        yield f"{',' if at else ''}{_quote(topic)}:{{".encode()
        if ends is None:
            yield from _listed(_fetched_text(*entry) for entry in partitions.items())
        else:
            known = ends(topic)
            yield from _listed(_described_text(*entry, known) for entry in partitions.items())
        yield b"}"
    yield b"}"


def _listed(texts: Iterator[str]) -> Iterator[bytes]:
    """With commas between, so many at a time."""
    is_first = True
    while piece := ",".join(_some(texts)):
        yield (piece if is_first else f",{piece}").encode()
        is_first = False


def _some(texts: Iterator[str]) -> Iterator[str]:
    """The next ones, as many as go into a piece."""
    size = 0
    for text in islice(texts, PIECE_ENTRIES):
        yield text
        size += len(text)
        if size >= PIECE_CHARACTERS:
            return


def _joined(texts: Iterator[str]) -> Iterator[bytes]:
    """As they are, so many at a time."""
    while piece := "".join(islice(texts, PIECE_ENTRIES)):
        yield piece.encode()


def _topic_texts(topics: Iterable[m.Topic]) -> Iterator[str]:
    """A page up to the end of its list. One topic alone may have a million ends."""
    yield '{"topics":['
    for at, topic in enumerate(topics):
        yield (
            f'{"," if at else ""}{{"topic":{_quote(topic.topic)},"partitions":{topic.partitions},'
            f'"version":{topic.version},"end_offsets":{{'
        )
        comma = ""
        for partition, end in sorted(topic.end_offsets.items()):
            yield f'{comma}"{partition}":{end}'
            comma = ","
        yield '},"replica_racks":['
        comma = ""
        for racks in topic.replica_racks:
            yield f"{comma}[{','.join(map(_quote, racks))}]"
            comma = ","
        yield "]}"
    yield "]"


def _common(partition: int, committed: m.CommittedOffset) -> str:
    epoch = "null" if committed.leader_epoch is None else committed.leader_epoch
    return f'"{partition}":{{"offset":{committed.offset},"leader_epoch":{epoch},"metadata":{_quote(committed.metadata)}'


def _fetched_text(partition: int, committed: m.CommittedOffset) -> str:
    return f"{_common(partition, committed)}}}"


def _described_text(partition: int, committed: m.CommittedOffset, ends: Mapping[int, int]) -> str:
    end = ends.get(partition)
    lag = "null" if end is None else max(end - committed.offset, 0)
    at_ms = "null" if committed.commit_at_ms is None else committed.commit_at_ms
    shown = f'"commit_at_ms":{at_ms},"end_offset":{"null" if end is None else end},"lag":{lag}'
    return f"{_common(partition, committed)},{shown}}}"


def _result_text(partition: int, result: m.PartitionResult) -> str:
    return f'"{partition}":{{"error_code":{result.error_code:d},"error_name":{_quote(result.error_name)}}}'


def _member_text(member: admin.DescribedMember) -> str:
    instance_id = "null" if member.group_instance_id is None else _quote(member.group_instance_id)
    return (
        f'{{"member_id":{_quote(member.member_id)},"group_instance_id":{instance_id},'
        f'"client_id":{_quote(member.client_id)},"host":{_quote(member.host)},'
        f'"session_timeout_ms":{member.session_timeout_ms},"rebalance_timeout_ms":{member.rebalance_timeout_ms},'
        f'"metadata":{member.metadata.text},"assignment":{member.assignment.text}}}'
    )


class PiecesResponse(web.StreamResponse):
    """An answer of status 200 that is made while it is written. aiohttp asks for its end, and that is when it is.

    Between its pieces it waits for its turn.
    """

    def __init__(self, pieces: Iterator[bytes], clock: Clock, turns: WorkTurns) -> None:
        super().__init__(headers=JSON_HEADERS)
        self._turns = turns
        self._clock = clock
        self._pieces = pieces
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
                piece = next(self._pieces, None)
                turns.add(work, began_s)
                if piece is None:
                    break
                try:
                    async with time_limit(self._clock, WRITE_TIMEOUT_MS):
                        await self.write(piece)
                        await self._writer.drain()
                except TimeoutError:
                    if self._request.transport is not None:
                        self._request.transport.abort()
                    return
                # Many answers that are not large enough to wait for their turns would be one turn together.
                await asyncio.sleep(0)
        await super().write_eof(data)


async def whole_text(pieces: Iterator[bytes]) -> bytes:
    """All of it, where it must go as one message. Others have their turn between the pieces."""
    made: list[bytes] = []
    for piece in pieces:
        made.append(piece)
        await asyncio.sleep(0)
    return b"".join(made)
