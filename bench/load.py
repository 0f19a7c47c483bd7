"""Loads of many requests: as fast as the answers come, or each at its time. Every answer is looked at."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter

from bench.line import Answer, ConnectionBrokenError, Line
from bench.metrics import Tally

FrameOf = Callable[[int, int], bytes]
"""The request of connection `index` with its running number, from 0."""

FaultOf = Callable[[int, int, Answer], str | None]
"""What is wrong with the answer to that request; None for nothing."""


async def run_closed(connections: Sequence[Line], frame_of: FrameOf, fault_of: FaultOf, *, seconds: float) -> Tally:
    """Every connection sends its next request when the last was answered, until the time is over."""
    tally = Tally()
    end = perf_counter() + seconds

    async def send(index: int, connection: Line) -> None:
        number = 0
        while (began := perf_counter()) < end:
            answer = await connection.exchange(frame_of(index, number))
            _count(tally, perf_counter() - began, fault_of(index, number, answer))
            number += 1

    await _run_all(connections, send, tally)
    return tally


async def run_paced(
    connections: Sequence[Line], frame_of: FrameOf, fault_of: FaultOf, *, interval_s: float, seconds: float
) -> Tally:
    """Every connection sends one request each interval, all of them spread evenly over it, until the time is over.

    A latency counts from when the request was due: a service that stalls delays those behind it, and they say so.
    """
    tally = Tally()
    start = perf_counter()

    async def send(index: int, connection: Line) -> None:
        number = 0
        # How many there are must not hang on what the clock's number rounds to.
        while (after_s := interval_s * (number + index / len(connections))) < seconds:
            due = start + after_s
            await asyncio.sleep(due - perf_counter())
            answer = await connection.exchange(frame_of(index, number))
            _count(tally, perf_counter() - due, fault_of(index, number, answer))
            number += 1

    await _run_all(connections, send, tally)
    return tally


def _count(tally: Tally, latency_s: float, fault: str | None) -> None:
    if fault is None:
        tally.right(latency_s)
    else:
        tally.wrong(fault)


async def _run_all(connections: Sequence[Line], send: Callable[[int, Line], Awaitable[None]], tally: Tally) -> None:
    """A connection that breaks is a wrong answer; the others go on."""

    async def guarded(index: int, connection: Line) -> None:
        try:
            await send(index, connection)
        except ConnectionBrokenError as broken:
            tally.wrong(str(broken))

    await asyncio.gather(*(guarded(index, connection) for index, connection in enumerate(connections)))
