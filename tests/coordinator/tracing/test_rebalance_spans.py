"""Which spans a real service in memory makes of its rebalances, and what they are linked to."""

import asyncio
from itertools import count
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rallypoint.coordinator.core.commands import Trigger
from rallypoint.coordinator.core.effects import Failure, GroupAnswer, RebalanceBegan
from rallypoint.coordinator.runtime.contract import SoleOwner
from rallypoint.coordinator.runtime.origin import ORIGIN, Origin
from rallypoint.coordinator.runtime.service import Service
from rallypoint.coordinator.storage.memory import MemoryStore
from rallypoint.coordinator.tracing.rebalance_spans import RebalanceSpans
from rallypoint.coordinator.tracing.request_spans import RequestSpans
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.fakes.manual_clock import ManualClock, settle
from tests.fakes.service_harness import HERE, RULES, SHARDS, join, sync


def traceparent(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


class Traced:
    """A service whose rebalances are spans."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        instants = count(1_000)
        self.tracer = provider.get_tracer("test")
        self.spans = RebalanceSpans(self.tracer, lambda: next(instants))
        ids = count(1)
        self.clock = ManualClock()
        self.service = Service(
            MemoryStore(),
            clock=self.clock,
            ownership=SoleOwner(HERE),
            address=HERE,
            rules=RULES,
            shards=SHARDS,
            draw_id=lambda: f"{next(ids):04}",
            observer=self.spans,
            member_calls=self.spans,
        )

    def ask(self, request: Any, number: int | None = None) -> "asyncio.Task[GroupAnswer | Failure]":
        """`number`: of the client's trace."""
        before = ORIGIN.set(Origin("r", None if number is None else traceparent(number)))
        task = asyncio.create_task(self.service.call("g", request, host=""))
        ORIGIN.reset(before)
        return task

    async def new_id(self, name: str) -> str:
        answer = await self.ask(join(name, ""))
        assert isinstance(answer, Failure)
        assert answer.member_id
        return answer.member_id

    def finished(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    assert span.attributes is not None
    return {name.removeprefix("rallypoint."): value for name, value in span.attributes.items()}


def linked_to(span: ReadableSpan) -> set[int]:
    return {link.context.trace_id for link in span.links}


def assigned(member_id: str) -> m.SyncAssignment:
    return m.SyncAssignment(member_id=member_id, assignment=OpaqueJson.of({"partitions": {"clicks": [0, 1]}}))


async def test_a_rebalance_is_a_span_from_its_reason_to_the_last_sync_linked_to_who_took_part() -> None:
    traced = Traced()
    await traced.service.start()
    a = await traced.new_id("a")
    first = traced.ask(join("a", a), 1)
    await settle()
    leader = await first
    assert isinstance(leader, m.JoinAnswer)
    b = await traced.new_id("b")
    second, again = traced.ask(join("b", b), 2), traced.ask(join("a", a), 3)
    await settle()
    (superseded,) = traced.finished()
    assert attributes_of(superseded)["outcome"] == "superseded"
    assert linked_to(superseded) == {1}
    assert isinstance(await second, m.JoinAnswer)
    joined = await again
    assert isinstance(joined, m.JoinAnswer)
    both = (assigned(a), m.SyncAssignment(member_id=b, assignment=OpaqueJson.of({"partitions": {}})))
    leads = {a: both, b: ()} if joined.leader == a else {a: (), b: both}
    await traced.ask(sync(joined.leader, joined.generation_id, both), 4)
    assert len(traced.finished()) == 1, "a member has not synced yet"
    other = b if joined.leader == a else a
    await traced.ask(sync(other, joined.generation_id, leads[other]), None)
    _, span = traced.finished()
    assert span.name == "rebalance"
    assert span.parent is None
    assert linked_to(span) == {2, 3, 4}
    found = attributes_of(span)
    assert b in found.pop("reason")
    assert found == {
        "group_id": "g",
        "rebalance_id": 2,
        "trigger": "member_joined",
        "member_id": b,
        "generation_id": joined.generation_id,
        "member_count": 2,
        "leader": joined.leader,
        "partitions_moved": found["partitions_moved"],
        "outcome": "assigned",
    }
    assert [event.name for event in span.events] == ["join_phase_ended", "sync_phase_ended"]
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time < span.events[0].timestamp < span.events[1].timestamp < span.end_time


async def test_a_join_that_begins_nothing_is_linked_to_nothing() -> None:
    traced = Traced()
    await traced.service.start()
    a = await traced.new_id("a")
    joined = await traced.ask(join("a", a), 1)
    assert isinstance(joined, m.JoinAnswer)
    await traced.ask(sync(a, joined.generation_id, (assigned(a),)))
    (span,) = traced.finished()
    assert linked_to(span) == {1}
    traced.exporter.clear()
    # Nothing rebalances by an id that is handed out.
    refused = await traced.ask(join("b", ""), 2)
    assert isinstance(refused, Failure)
    b = refused.member_id
    assert b
    traced.ask(join("b", b), 3)
    await settle()
    traced.spans.close()
    (span,) = traced.finished()
    assert (linked_to(span), attributes_of(span)["outcome"]) == ({3}, "unfinished")


async def test_a_join_on_its_way_to_a_rebalance_keeps_its_link_when_another_is_refused() -> None:
    traced = Traced()
    refused, on_its_way = join("c", ""), join("a", "a-1")
    for request, number in ((refused, 1), (on_its_way, 2)):
        before = ORIGIN.set(Origin("r", traceparent(number)))
        traced.spans.called("g", request)
        ORIGIN.reset(before)
    traced.spans.answered("g", refused, Failure(ErrorCode.MEMBER_ID_REQUIRED, "take this one"))
    traced.spans.event(RebalanceBegan("g", Trigger.MEMBER_JOINED, "a-1", 0, "a-1 joined", 1))
    traced.spans.close()
    (span,) = traced.finished()
    assert linked_to(span) == {2}


async def test_a_request_is_a_span_if_its_client_named_a_trace_or_if_all_are_wanted() -> None:
    traced = Traced()
    for spans_all, number in ((False, None), (False, 5), (True, None)):
        requests = RequestSpans(traced.tracer, lambda: 2_000_000_000, spans_all=spans_all)
        origin = Origin("r-1", None if number is None else traceparent(number))
        requests.request_answered("join", origin, seconds=1.0, status=409, outcome="X", group_id="g")
    child, root = traced.finished()
    assert child.parent is not None
    assert (child.parent.trace_id, child.name, child.kind.name) == (5, "join", "SERVER")
    assert (child.start_time, child.end_time) == (1_000_000_000, 2_000_000_000)
    assert child.attributes == {
        "http.response.status_code": 409,
        "rallypoint.outcome": "X",
        "rallypoint.request_id": "r-1",
        "rallypoint.group_id": "g",
    }
    assert root.parent is None
    unsampled = Origin("r-2", traceparent(6)[:-1] + "0")
    requests.request_answered("join", unsampled, seconds=1.0, status=200, outcome="NONE", group_id=None)
    assert len(traced.finished()) == 2, "the client said that its trace is not kept"
