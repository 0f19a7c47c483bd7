"""The law of the door: whatever bytes arrive, the answer is a coded one, and never a 500."""

import asyncio
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.core.commands import DescribeRequest
from coordinator.core.effects import Failure
from protocol import messages as m
from protocol.errors import ErrorCode
from protocol.operations import OPERATIONS
from tests.coordinator.http.problem_checks import check_problem
from tests.fakes.door_server import open_door, parse_answer
from tests.fakes.fake_service import FakeService

PATHS = [operation.path for operation in OPERATIONS] + ["/", "/docs", "/errors/{slug}", "/metrics", "/nothing"]
SEGMENT = st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="/?# {}"), max_size=12)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted({name for operation in OPERATIONS if operation.request for name in operation.request.model_fields})


@st.composite
def targets(draw: st.DrawFn) -> bytes:
    path = draw(st.sampled_from(PATHS))
    for name in ("{group_id}", "{topic}", "{slug}"):
        path = path.replace(name, draw(SEGMENT))
    query = draw(st.none() | SEGMENT | st.sampled_from(["topic=a", "group_id=%e4", "limit=1&limit=2", "limit=x"]))
    return (path if query is None else f"{path}?{query}").encode()


BODIES = (
    st.binary(max_size=64)
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES, max_size=8).map(lambda value: json.dumps(value).encode())
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Mostly HTTP, with anything in its places; sometimes no HTTP at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(min_size=1, max_size=100)) + b"\r\n\r\n"
    method = draw(st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS"]))
    body = draw(BODIES)
    lines = [b"Host: localhost", b"Content-Length: %d" % len(body)]
    if draw(st.integers(0, 4)):
        lines.append(b"Content-Type: application/json")
    if draw(st.integers(0, 4)) == 0:
        name = draw(st.sampled_from([b"Origin", b"Authorization", b"Content-Encoding", b"Accept", b"Expect"]))
        lines.append(name + b": " + draw(st.text("abc/:*;,=. \xe9", max_size=10)).encode("latin-1"))
    return method + b" " + draw(targets()) + b" HTTP/1.1\r\n" + b"\r\n".join(lines) + b"\r\n\r\n" + body


def answering_service() -> FakeService:
    service = FakeService()
    service.answers = {
        m.JoinRequest: m.WaitingAnswer(),
        m.SyncRequest: m.WaitingAnswer(),
        m.HeartbeatRequest: m.HeartbeatAnswer(),
        m.LeaveRequest: m.LeaveAnswer(members=()),
        m.CommitRequest: m.CommitAnswer(offsets={}),
        m.FetchRequest: m.FetchAnswer(offsets={}),
    }
    service.answers[DescribeRequest] = Failure(ErrorCode.GROUP_ID_NOT_FOUND, "There is no such group.")
    return service


async def exchange(sent: bytes) -> None:
    async with open_door(answering_service()) as door:
        # What ends early may leave the server waiting for the rest of a head; the close tells it that none comes.
        try:
            received = await asyncio.wait_for(door.send(sent, pause=0), 0.5)
        except TimeoutError:
            assert not sent.split(b" ")[0].isalpha(), f"no answer to {sent!r}"
            return
    if received:
        answer = parse_answer(received)
        assert answer.status != 500
        if answer.status >= 400:
            check_problem(answer)


@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_whatever_arrives_is_answered_in_code(sent: bytes) -> None:
    asyncio.run(exchange(sent))
