"""The law of the API: whatever bytes arrive, the answer is a coded one, and never a 500."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rallypoint.assignors import registry
from rallypoint.coordinator.core.commands import DescribeRequest, Rules
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.http.contract import GroupService
from rallypoint.coordinator.http.events.stream import StreamLimits
from rallypoint.coordinator.runtime.contract import NodeAddress, SoleOwner
from rallypoint.coordinator.runtime.event_loop.clock import SystemClock
from rallypoint.coordinator.runtime.service import Service
from rallypoint.coordinator.storage.memory import MemoryStore
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.operations import CHANNEL, EVENTS, OPERATIONS
from tests.coordinator.http.problem_checks import check_problem
from tests.fakes.api_server import open_api, parse_answer
from tests.fakes.fake_service import FakeService
from tests.fakes.null_observer import NullObserver
from tests.sizes import by_size

PATHS = [operation.path for operation in (*OPERATIONS, EVENTS, CHANNEL)] + [
    "/",
    "/docs",
    "/errors/{slug}",
    "/metrics",
    "/nothing",
]
# Few short ids, so that calls meet in one group.
SEGMENT = st.sampled_from(["g", "g", "h", ""]) | st.text(
    alphabet=st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="/?# {}"), max_size=12
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted({name for operation in OPERATIONS if operation.request for name in operation.request.model_fields})
QUERIES = ["topic=a", "group_id=%e4", "limit=1&limit=2", "limit=x"]
QUERIES += ["topic=t&partition=0", "topic=t&key=a", "topic=t&key_base64=%ff", "kinds=x", "cursor=life-0", "cursor=1"]


@st.composite
def targets(draw: st.DrawFn) -> bytes:
    path = draw(st.sampled_from(PATHS))
    for name in ("{group_id}", "{topic}", "{slug}"):
        path = path.replace(name, draw(SEGMENT))
    query = draw(st.none() | SEGMENT | st.sampled_from(QUERIES))
    return (path if query is None else f"{path}?{query}").encode()


JOIN = {"protocol_type": "consumer", "session_timeout_ms": 9000, "rebalance_timeout_ms": 9000}
NAMED = st.sampled_from(["a", "b"])
GOOD_BODIES = st.one_of(
    st.builds(
        lambda instance, metadata: (
            JOIN
            | {"member_id": "", "group_instance_id": instance, "protocols": [{"name": "range", "metadata": metadata}]}
        ),
        NAMED,
        JSON_VALUES,
    ),
    st.builds(
        lambda member_id, generation, value: {
            "member_id": member_id,
            "generation_id": generation,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": member_id, "assignment": value}],
        },
        NAMED | st.just("a-0"),
        st.integers(-1, 2),
        JSON_VALUES,
    ),
    st.builds(
        lambda offset, metadata: {
            "generation_id": -1,
            "offsets": {"t": {"0": {"offset": offset, "metadata": metadata}}},
        },
        st.integers(-(2**63), 2**63 - 1),
        st.text(max_size=8),
    ),
    st.builds(lambda member_id: {"members": [{"member_id": member_id, "group_instance_id": "a"}]}, NAMED | st.just("")),
    st.builds(lambda partitions: {"partitions": partitions}, st.integers(1, 9)),
    st.builds(
        lambda leave, join, count, assignor: {
            "leave": leave,
            "join": join,
            "partitions": {"t": count},
            "assignor": assignor,
        },
        st.lists(NAMED, max_size=2),
        st.lists(st.builds(lambda topics, data: {"topics": topics, "user_data": data}, st.just(["t"]), JSON_VALUES)),
        st.integers(1, 9),
        st.sampled_from([None, "range", "roundrobin", *registry.names([])]),
    ),
).map(lambda value: json.dumps(value).encode())
BODIES = (
    GOOD_BODIES
    | st.binary(max_size=64)
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


@asynccontextmanager
async def real_service() -> AsyncIterator[Service]:
    """The real groups in memory; no call is held."""
    address = NodeAddress("node-1", "http://127.0.0.1:1")
    ids = count()
    store = MemoryStore()
    service = Service(
        store,
        clock=SystemClock(),
        ownership=SoleOwner(address),
        address=address,
        rules=Rules(parked_call_max_wait_ms=0, group_min_session_timeout_ms=1),
        shards=2,
        draw_id=lambda: str(next(ids)),
        observer=NullObserver(),
    )
    await service.start()
    yield service
    await service.drain()
    await store.close()


async def exchange(service: GroupService, sent: bytes) -> None:
    # A stream would not end; with none allowed, a question for one is looked at all the same, and refused.
    async with open_api(service, stream_limits=StreamLimits(event_streams_max=0)) as api:
        # Where a method stands first there is an answer. What ends early may leave the server waiting for the rest of a
        # head; the close tells it that none comes.
        has_method = sent.split(b" ")[0].isalpha()
        try:
            received = await asyncio.wait_for(api.send(sent, pause=0), 30 if has_method else 0.5)
        except TimeoutError:
            assert not has_method, f"no answer to {sent!r}"
            return
    if received:
        answer = parse_answer(received)
        assert answer.status != 500
        if answer.status >= 400:
            check_problem(answer)


@settings(max_examples=by_size(10, 70, 200), suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_whatever_arrives_is_answered_in_code(sent: bytes) -> None:
    asyncio.run(exchange(answering_service(), sent))


@settings(max_examples=by_size(10, 70, 200), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(requests(), min_size=1, max_size=3))
def test_whatever_arrives_at_real_groups_is_answered_in_code(sent: list[bytes]) -> None:
    async def exchange_all() -> None:
        async with real_service() as service:
            for one in sent:
                await exchange(service, one)

    asyncio.run(exchange_all())
