"""Signs of life that are not one heartbeat in its turn: many heartbeats in one request, and requests that wait.

Each heartbeat of a request goes to its group by itself, like any other call. So a member whose heartbeat comes here is
carried by its channel no longer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count

from rallypoint.coordinator.core.commands import GroupRequest
from rallypoint.coordinator.core.effects import Failure, GroupAnswer
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.coordinator.runtime.group_executor import Answer, Waiting
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode

SLICE = 100
"""Heartbeats that are asked in one go, before others have their turn."""

Ask = Callable[[str, GroupRequest], GroupAnswer | Failure | Waiting]


async def beat_all(
    request: m.HeartbeatsRequest, ask: Ask, give_way: Callable[[], Awaitable[None]]
) -> m.HeartbeatsAnswer:
    """The results, in order. They come when the last one is there: a group that is being written answers then.

    `give_way` is awaited between slices.

    Cancelling hangs up those that wait; those that were heard of were heard of.
    """
    waiting: list[Waiting] = []
    answers: list[Answer | asyncio.Future[Answer]] = []
    try:
        for number, beat in enumerate(request.heartbeats, start=1):
            answer = ask(beat.group_id, _request_of(beat))
            if isinstance(answer, Waiting):
                waiting.append(answer)
                future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
                answer.on_answer = partial(_put, future)
                answers.append(future)
            else:
                answers.append(answer)
            if number % SLICE == 0:
                await give_way()
        settled = [await answer if isinstance(answer, asyncio.Future) else answer for answer in answers]
    except asyncio.CancelledError:
        for call in waiting:
            if call.answer is None:
                call.hang_up()
        raise
    return m.HeartbeatsAnswer(heartbeats=tuple(map(_result, request.heartbeats, settled)))


def _request_of(beat: m.GroupHeartbeat) -> m.HeartbeatRequest:
    return m.HeartbeatRequest(
        generation_id=beat.generation_id, member_id=beat.member_id, group_instance_id=beat.group_instance_id
    )


def _put(future: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)


def _result(beat: m.GroupHeartbeat, answer: Answer) -> m.HeartbeatResult:
    failure = answer if isinstance(answer, Failure) else None
    code = ErrorCode.NONE if failure is None else failure.code
    return m.HeartbeatResult(
        group_id=beat.group_id,
        member_id=beat.member_id,
        error_code=code,
        error_name=code.name,
        generation_id=None if failure is None else failure.generation_id,
        node_id=None if failure is None else failure.node_id,
        url=None if failure is None else failure.url,
    )


class WaitingRequests:
    """Requests that have come and are not read yet, or wait for their turn, of all groups of a node.

    The group hears of a request when it is its turn. If many others send much, that is seconds later, and the member
    that waits for the answer may say nothing else meanwhile. Belongs to one event loop.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = count()
        self._waiting: dict[tuple[str, str], dict[int, int]] = {}

    @contextmanager
    def waiting(self, group_id: str, member_id: str) -> Iterator[None]:
        """A request of the member has just come, and waits until the block ends. Pass it to the group right after."""
        number = next(self._numbers)
        came = self._waiting.setdefault((group_id, member_id), {})
        came[number] = self._clock.now_ms()
        try:
            yield
        finally:
            del came[number]
            if not came:
                del self._waiting[group_id, member_id]

    def last_ms(self, group_id: str, member_id: str) -> int | None:
        """When the last of the member's requests came that wait; None where none does."""
        came = self._waiting.get((group_id, member_id))
        return None if came is None else max(came.values())
