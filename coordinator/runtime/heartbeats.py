"""Many heartbeats in one request: each goes to its group by itself, and one answer has the results of all.

Each is asked like any other call, so a member that is heard of here is carried by its channel no longer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from rallypoint.coordinator.core.commands import GroupRequest
from rallypoint.coordinator.core.effects import Failure, GroupAnswer
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
