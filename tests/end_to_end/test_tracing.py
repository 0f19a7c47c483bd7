"""Spans of a real service, at a real receiver of OTLP over HTTP; and a service whose collector is not there."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider

from rallypoint import Assignment, GroupMember, MemberOptions
from tests.end_to_end.service_process import ServiceProcess
from tests.fakes.channel_client import ChannelClient, beat_body, join_body, open_channel, sync_body
from tests.real.parts import free_port


def values_of(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def traceparent(trace_id: int, span_id: int = 1) -> str:
    return f"00-{trace_id:032x}-{span_id:016x}-01"


class Collector:
    """Keeps what it was sent."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self.came = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest()
        sent.ParseFromString(await request.read())
        for of_resource in sent.resource_spans:
            self.resources.append(values_of(of_resource.resource.attributes))
            for of_scope in of_resource.scope_spans:
                self.spans.extend(of_scope.spans)
        self.came.set()
        return web.Response(content_type="application/x-protobuf")

    def has(self, *wanted: str) -> bool:
        """Whether there is a span of each: a name, a trace, or the group of a rebalance."""
        groups = {values_of(span.attributes)["rallypoint.group_id"] for span in self.named("rebalance")}
        known = {span.name for span in self.spans} | {span.trace_id.hex() for span in self.spans} | groups
        return known >= set(wanted)

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


@asynccontextmanager
async def collector() -> AsyncIterator[tuple[Collector, str]]:
    made, port = Collector(), free_port()
    app = web.Application()
    app.router.add_post("/v1/traces", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield made, f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def refuse_a_second_call_of_an_id(channel: ChannelClient, joined: dict[str, Any], parent: str) -> None:
    """A member's join waits for the other one; meanwhile its id is used again."""
    second = await channel.new_id("g", "b")
    waiting = await channel.send("join", "g", join_body(second, client_id="b"), id="twice", traceparent=parent)
    await channel.send("heartbeat", "g", beat_body(joined), id="twice", traceparent=parent)
    status, refused = await channel.answer("twice")
    assert (status, refused["error_name"]) == (400, "INVALID_REQUEST")
    status, _ = await channel.call("join", "g", join_body(joined["member_id"], client_id="a"))
    assert status == 200
    status, _ = await channel.answer(waiting)
    assert status == 200


async def test_a_collector_gets_the_spans_of_a_rebalance_and_of_the_requests_that_made_it(tmp_path: Path) -> None:
    async with collector() as (got, url):
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
        service = ServiceProcess(tmp_path, options=("--tracing",), environment=environment)
        await asyncio.to_thread(service.start)
        application = TracerProvider(shutdown_on_exit=False).get_tracer("application")
        with application.start_as_current_span("deploy") as span:
            ours = span.get_span_context()
            async with (
                aiohttp.ClientSession() as http,
                open_channel(http, service.port) as channel,
            ):
                parent = traceparent(ours.trace_id, ours.span_id)
                member_id = await channel.new_id("g", "a")
                status, joined = await channel.call(
                    "join", "g", join_body(member_id, client_id="a"), traceparent=parent
                )
                assert status == 200
                status, _ = await channel.call("sync", "g", sync_body(joined), traceparent="no trace")
                assert status == 200
                await refuse_a_second_call_of_an_id(channel, joined, traceparent(6))
                async with http.get(f"{service.url}/v1/groups/g", headers={"traceparent": parent}) as described:
                    assert described.status == 200
                    request_id = described.headers["X-Request-Id"]
            options = MemberOptions(coordinator=service.url, group_id="other", topics=("clicks",), client_id="m")
            assigned = asyncio.Event()

            async def on_assigned(_: Assignment) -> None:
                assigned.set()

            async with GroupMember(options, partition_counts={"clicks": 2}, on_assigned=on_assigned):
                async with asyncio.timeout(60):
                    await assigned.wait()
        async with asyncio.timeout(60):
            while not got.has("describe", "join", "g", "other", f"{6:032x}"):
                got.came.clear()
                await got.came.wait()
        assert await asyncio.to_thread(service.stop) == 0
        assert got.resources[0]["service.name"] == "rallypoint"
        assert got.resources[0]["service.instance.id"]
        rebalance = next(
            one for one in got.named("rebalance") if values_of(one.attributes)["rallypoint.group_id"] == "g"
        )
        assert [link.trace_id.hex() for link in rebalance.links] == [f"{ours.trace_id:032x}"]
        assert not rebalance.parent_span_id
        found = values_of(rebalance.attributes)
        assert (found["rallypoint.leader"], found["rallypoint.member_count"]) == (member_id, 1)
        assert found["rallypoint.outcome"] == "assigned"
        children = {span.name: span for span in got.spans if span.trace_id.hex() == f"{ours.trace_id:032x}"}
        assert children["describe"].parent_span_id.hex() == f"{ours.span_id:016x}"
        assert values_of(children["describe"].attributes)["rallypoint.request_id"] == request_id
        assert "join" in children
        waited = [values_of(span.attributes) for span in got.spans if span.trace_id.hex() == f"{6:032x}"]
        assert [(one["rallypoint.outcome"], one["http.response.status_code"]) for one in waited] == [("NONE", 200)]
        of_member = [
            one for one in got.named("rebalance") if values_of(one.attributes)["rallypoint.group_id"] == "other"
        ]
        assert of_member, "the member's"
        assert f"{ours.trace_id:032x}" in {link.trace_id.hex() for one in of_member for link in one.links}


async def test_a_collector_that_is_not_there_delays_nothing_and_is_told_of_once(tmp_path: Path) -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        "OTEL_TRACES_SAMPLER": "always_on",
    }
    service = ServiceProcess(tmp_path, options=("--tracing",), environment=environment)
    await asyncio.to_thread(service.start)
    async with aiohttp.ClientSession() as http:
        async with asyncio.timeout(60):
            while "the collector of traces" not in service.log:
                async with http.get(f"{service.url}/v1/groups") as listed:
                    assert listed.status == 200
                await asyncio.sleep(0.05)
            for _ in range(20):
                async with http.get(f"{service.url}/v1/groups") as listed:
                    assert listed.status == 200
                await asyncio.sleep(0.05)
    assert await asyncio.to_thread(service.stop) == 0
    assert service.log.count("cannot be reached") == 1
    assert "Traceback" not in service.log
    assert "opentelemetry" not in service.log


async def test_without_the_packages_the_service_says_what_to_install(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    (blocked / "opentelemetry").mkdir(parents=True)
    (blocked / "opentelemetry" / "__init__.py").write_text("raise ImportError('it is not here')\n")
    for variables, said in (
        ({"PYTHONPATH": str(blocked)}, "pip install 'rallypoint[opentelemetry]'"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'"),
    ):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rallypoint.cli.main", "serve", "--port", "0", "--storage", "memory:", "--tracing"),
            stderr=asyncio.subprocess.PIPE,
            env=variables,
        )
        _, error = await process.communicate()
        assert process.returncode != 0
        assert said in error.decode()
        assert "Traceback" not in error.decode()
