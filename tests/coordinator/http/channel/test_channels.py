"""Channels: the same calls as over HTTP, what is pushed, how they are bounded, and how they end."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.core.commands import Trigger
from rallypoint.coordinator.core.effects import RebalanceBegan
from rallypoint.coordinator.http.errors import ERROR_PAGES
from rallypoint.coordinator.http.reference.openapi import openapi_document
from rallypoint.coordinator.http.requests.large_bodies import LARGE_BYTES
from rallypoint.coordinator.http.security import SecurityPolicy
from rallypoint.protocol import messages as m
from rallypoint.protocol.channel_messages import OPERATIONS_BY_OP
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.operations import CHANNEL
from tests.coordinator.http.problem_checks import check_documented, check_problem
from tests.fakes.api_server import ApiClient, open_api
from tests.fakes.channel_client import ChannelClient, beat_body, join_body, open_channel, sync_body
from tests.fakes.fake_service import FakeService
from tests.fakes.set_service import open_service
from tests.sizes import by_size

HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
COMMIT = {"clicks": {"0": {"offset": 42}}}


@asynccontextmanager
async def channel_of(
    *, policy: SecurityPolicy | None = None, headers: dict[str, str] | None = None, **given: Any
) -> AsyncIterator[tuple[ApiClient, ChannelClient]]:
    """A service with one channel."""
    async with (
        open_service(policy=policy, **given) as api,
        open_channel(api.http, api.port, headers=headers) as client,
    ):
        yield api, client


def check_body(status: int, problem: dict[str, Any]) -> None:
    """A problem document is the same as over HTTP."""
    page = ERROR_PAGES[problem["type"].removeprefix("/errors/")]
    assert (page.status, page.code, page.retriable) == (status, problem["error_code"], problem["retriable"])
    assert problem["status"] == status
    assert problem["error_name"] == ErrorCode(problem["error_code"]).name
    assert problem["detail"].endswith(".")


# --- calls -----------------------------------------------------------------------------------------------------------


async def test_a_member_lives_on_a_channel_as_it_does_over_http() -> None:
    async with channel_of() as (api, client):
        joined = await client.form("g")
        member_id = joined["member_id"]
        assert await client.call("heartbeat", "g", beat_body(joined)) == (200, {"channel_keeps_session": True})
        status, committed = await client.call("commit", "g", beat_body(joined, offsets=COMMIT))
        assert (status, committed) == (200, {"offsets": {"clicks": {"0": {"error_code": 0, "error_name": "NONE"}}}})
        for body in ({"topics": ["clicks"]}, {}, None):
            over_http = await api.request("GET", "/v1/groups/g/offsets")
            assert await client.call("fetch", "g", body) == (200, over_http.json)
        over_http = await api.request("GET", "/v1/coordinator?group_id=g&group_id=h")
        assert await client.call("coordinator", None, {"group_ids": ["g", "h"]}) == (200, over_http.json)
        status, left = await client.call("leave", "g", {"members": [{"member_id": member_id}]})
        assert (status, left["members"][0]["error_name"]) == (200, "NONE")
        status, problem = await client.call("heartbeat", "g", beat_body(joined))
        check_body(status, problem)
        assert (status, problem["error_name"], problem["field"]) == (404, "UNKNOWN_MEMBER_ID", "member_id")
        assert api.metrics.channel_calls["heartbeat", "NONE"] == 1
        assert api.metrics.channel_calls["heartbeat", "UNKNOWN_MEMBER_ID"] == 1
        assert set(OPERATIONS_BY_OP) == {op for op, _ in api.metrics.channel_calls}


async def test_answers_come_as_they_are_ready_and_many_calls_wait() -> None:
    async with channel_of(parked_call_max_wait_ms=60_000) as (_, client):
        joined = await client.form("g")
        waiting = await client.send("heartbeat", "g", beat_body(joined, wait_ms=60_000))
        others = [await client.send("heartbeat", f"other-{n}", beat_body(joined)) for n in range(20)]
        for call_id in reversed(others):
            assert (await client.answer(call_id))[1]["error_name"] == "UNKNOWN_MEMBER_ID"
        # The new member's join is what the waiting heartbeat waits for; both are on this connection.
        second = await client.new_id("g", "b")
        join = await client.send("join", "g", join_body(second))
        assert (await client.answer(waiting))[1]["error_name"] == "REBALANCE_IN_PROGRESS"
        rejoin = await client.send("join", "g", join_body(joined["member_id"]))
        assert (await client.answer(join))[0] == (await client.answer(rejoin))[0] == 200


async def test_an_id_may_be_a_text_and_comes_back_as_it_was() -> None:
    async with channel_of() as (_, client):
        for call_id in ('é"\\', "1", 0, 2**53 - 1):
            await client.socket.send_str(json.dumps({"id": call_id, "op": "fetch", "group_id": "g"}))
            assert (await client.answer(call_id))[0] == 200


async def test_a_waiting_call_keeps_its_id_to_itself() -> None:
    async with channel_of(parked_call_max_wait_ms=60_000) as (_, client):
        joined = await client.form("g")
        call = {"id": "w", "op": "heartbeat", "group_id": "g", "body": beat_body(joined, wait_ms=60_000)}
        await client.socket.send_str(json.dumps(call))
        await client.socket.send_str(json.dumps(call))
        status, problem = await client.answer("w")
        check_body(status, problem)
        assert (status, problem["field"]) == (400, "id")


async def test_a_lost_channel_drops_its_pending_responses() -> None:
    async with channel_of(parked_call_max_wait_ms=60_000) as (api, client):
        joined = await client.form("g")
        await client.send("heartbeat", "g", beat_body(joined, wait_ms=60_000))
        assert await client.call("fetch", "g") == (200, {"offsets": {}})
        assert api.service.parked_calls == 1
        await client.socket.close()
        await eventually(lambda: api.service.parked_calls == 0 and api.metrics.channels == 0)
        # The member itself is there.
        answer = await api.request("POST", "/v1/groups/g/heartbeat", beat_body(joined))
        assert answer.status == 200
        assert api.metrics.closed == {"closed": 1}


async def eventually(holds: Any) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - it is somebody else's count
            await asyncio.sleep(0.005)


# --- pushes ----------------------------------------------------------------------------------------------------------


async def test_a_rebalance_is_pushed_to_every_channel_with_a_member_that_has_not_come_to_it() -> None:
    async with channel_of(parked_call_max_wait_ms=60_000) as (api, first):
        joined = await first.form("g")
        async with open_channel(api.http, api.port) as second, open_channel(api.http, api.port) as third:
            await third.form("h")
            member_id = await second.new_id("g", "b", reason="more work")
            join = await second.send("join", "g", join_body(member_id, reason="more work"))
            expected = {
                "event": "rebalance",
                "group_id": "g",
                "generation_id": joined["generation_id"],
                "reason": f"member {member_id} joined: more work",
                "rejoin_within_ms": 10_000,
            }
            assert await first.push() == expected
            rejoined = await first.send("join", "g", join_body(joined["member_id"]))
            assert (await second.answer(join))[0] == (await first.answer(rejoined))[0] == 200
            assert await third.call("fetch", "h") == (200, {"offsets": {}})
            assert third.pushes == first.pushes == []
            # Its own join is why, as it was of those that formed the groups: whoever waits for a rebalance knows of it.
            assert second.pushes == []
        assert api.metrics.pushed == {"rebalance": 1}


async def test_a_rebalance_is_pushed_where_a_member_of_several_has_not_come_to_it() -> None:
    async with channel_of(parked_call_max_wait_ms=60_000) as (api, channel):
        first = await channel.form("g")
        second_id = await channel.new_id("g", "b")
        second = await channel.send("join", "g", join_body(second_id))
        assert (await channel.push())["generation_id"] == first["generation_id"]
        again = await channel.send("join", "g", join_body(first["member_id"]))
        assert (await channel.answer(second))[0] == (await channel.answer(again))[0] == 200
        assert api.metrics.pushed == {"rebalance": 1}


async def test_topics_that_come_and_go_are_pushed_and_growth_is_not() -> None:
    async with channel_of() as (api, client):
        await client.form("g")
        client.pushes.clear()

        async def put(**content: Any) -> None:
            answer = await api.request("PUT", "/v1/topics/clicks-new", json.dumps(content).encode())
            assert answer.status == 200

        await put(partitions=2)
        assert await client.push() == {"event": "topics", "topics": ["clicks-new"]}
        await put(partitions=2)
        await put(partitions=3, end_offsets={"0": 7})
        assert (await client.call("fetch", "g"), client.pushes) == ((200, {"offsets": {}}), [])
        assert (await api.request("DELETE", "/v1/topics/clicks-new")).status == 200
        assert await client.push() == {"event": "topics", "topics": ["clicks-new"]}
        assert api.metrics.pushed["topics"] == 2


async def test_a_member_is_carried_by_the_connection_on_which_it_called_last() -> None:
    async with channel_of() as (api, first):
        joined = await first.form("g")
        async with open_channel(api.http, api.port) as second:
            assert await second.call("heartbeat", "g", beat_body(joined)) == (200, {"channel_keeps_session": True})
            await api.request("POST", "/v1/groups/g/rebalance", {})
            assert (await second.push())["reason"]
            assert await first.push() == {"event": "dropped", "group_id": "g", "member_id": joined["member_id"]}
            assert (await first.call("fetch", "g"), first.pushes) == ((200, {"offsets": {}}), [])
            status, again = await second.call("join", "g", join_body(joined["member_id"]))
            assert status == 200
            assert (await second.call("sync", "g", sync_body(again)))[0] == 200
            answer = await api.request("POST", "/v1/groups/g/heartbeat", beat_body(again))
            assert answer.status == 200
            await api.request("POST", "/v1/groups/g/rebalance", {})
            assert (await second.push())["event"] == "dropped"
            assert (await second.call("fetch", "g"), second.pushes) == ((200, {"offsets": {}}), [])


async def test_who_has_left_is_told_nothing_and_nobody_is_remembered() -> None:
    async with channel_of() as (api, client):
        joined = await client.form("g")
        for number in range(50):
            await client.call("heartbeat", "g", {"generation_id": 1, "member_id": f"invented-{number}"})
            await client.call("commit", f"g{number}", {"generation_id": 1, "member_id": "b", "offsets": COMMIT})
        connections = api.service.connections
        assert connections.members_of("g") == {joined["member_id"]}
        assert connections.group_count == 1
        await client.call("leave", "g", {"members": [{"member_id": joined["member_id"]}]})
        assert (connections.group_count, len(connections)) == (0, 0)
        assert client.pushes == []


async def test_who_is_told_that_a_rebalance_is_in_progress_is_carried() -> None:
    async with channel_of(parked_call_max_wait_ms=60_000) as (api, client):
        joined = await client.form("g")
        async with open_channel(api.http, api.port) as second:
            await api.request("POST", "/v1/groups/g/rebalance", {})
            await client.push()
            status, problem = await second.call("heartbeat", "g", beat_body(joined))
            assert (status, problem["error_name"]) == (409, "REBALANCE_IN_PROGRESS")
            assert api.service.connections.members_of("g") == {joined["member_id"]}
            await client.socket.close()
            await eventually(lambda: len(api.service.connections) == 1)


# --- what is refused -------------------------------------------------------------------------------------------------

BAD: list[tuple[str, int | str | None, int, str | None]] = [
    ("", None, 400, None),
    ("{", None, 400, None),
    ("[]", None, 400, None),
    ("null", None, 400, None),
    ("{}", None, 400, "op"),
    ('{"id": 7}', 7, 400, "op"),
    ('{"id": 7, "op": "dance"}', 7, 400, "op"),
    ('{"id": 7, "op": null}', 7, 400, "op"),
    ('{"id": 7, "op": "describe", "group_id": "g"}', 7, 400, "op"),
    ('{"op": "fetch", "group_id": "g"}', None, 400, "id"),
    ('{"id": true, "op": "fetch", "group_id": "g"}', None, 400, "id"),
    ('{"id": -1, "op": "fetch", "group_id": "g"}', None, 400, "id"),
    ('{"id": 1.5, "op": "fetch", "group_id": "g"}', None, 400, "id"),
    ('{"id": null, "op": "fetch", "group_id": "g"}', None, 400, "id"),
    ('{"id": "", "op": "fetch", "group_id": "g"}', None, 400, "id"),
    ('{"id": [1], "op": "fetch", "group_id": "g"}', None, 400, "id"),
    (json.dumps({"id": 2**53, "op": "fetch", "group_id": "g"}), None, 400, "id"),
    (json.dumps({"id": "x" * 65, "op": "fetch", "group_id": "g"}), None, 400, "id"),
    ('{"id": 7, "op": "fetch"}', 7, 400, "group_id"),
    ('{"id": 7, "op": "fetch", "group_id": 5}', 7, 400, "group_id"),
    ('{"id": 7, "op": "fetch", "group_id": ".."}', 7, 400, "group_id"),
    ('{"id": 7, "op": "fetch", "group_id": "g", "more": 1}', 7, 400, "more"),
    ('{"id": 7, "op": "fetch", "group_id": "g", "body": []}', 7, 400, "body"),
    ('{"id": 7, "op": "fetch", "group_id": "g", "body": {"topic": 1}}', 7, 400, "topic"),
    ('{"id": 7, "op": "heartbeat", "group_id": "g"}', 7, 400, "body"),
    ('{"id": 7, "op": "heartbeat", "group_id": "g", "body": {"generation_id": "1"}}', 7, 400, "generation_id"),
    (
        '{"id": 7, "op": "heartbeat", "group_id": "", "body": {"generation_id": 1, "member_id": "a"}}',
        7,
        400,
        "group_id",
    ),
    ('{"id": 7, "op": "coordinator", "body": {"group_ids": []}}', 7, 400, "group_ids"),
    ('{"id": 7, "op": "coordinator", "group_id": "g", "body": {"group_ids": ["g"]}}', 7, 400, "group_id"),
    ('{"id": 7, "op": "authenticate"}', 7, 400, "token"),
    ('{"id": 7, "op": "authenticate", "token": 5}', 7, 400, "token"),
]


@pytest.mark.parametrize(("text", "call_id", "status", "field"), BAD, ids=[text for text, *_ in BAD])
async def test_a_wrong_message_gets_a_coded_answer_that_names_the_field(
    text: str, call_id: int | str | None, status: int, field: str | None
) -> None:
    async with channel_of() as (_, client):
        if call_id is None:
            answer = await client.refusal(text)
            found, problem = answer["status"], answer["body"]
        else:
            await client.socket.send_str(text)
            found, problem = await client.answer(call_id)
        check_body(found, problem)
        assert (found, problem.get("field")) == (status, field), problem
        assert (await client.call("fetch", "g"))[0] == 200


@pytest.mark.parametrize(
    ("op", "body", "field", "setting"),
    [
        ("fetch", {"topics": ["a", "b"]}, "topics", "request_topics_max"),
        ("fetch", {"topics": ["x" * 300]}, "topics.0", "topic_length_max"),
        ("leave", {"members": [{"member_id": "a"}] * 3}, "members", "leave_members_max"),
        ("join", join_body("", protocols=[{"name": "r", "metadata": 0}] * 40), "protocols", "join_protocols_max"),
    ],
)
async def test_the_limits_of_requests_hold_on_channels(op: str, body: Any, field: str, setting: str) -> None:
    async with channel_of(request_topics_max=1, leave_members_max=2) as (_, client):
        status, problem = await client.call(op, "g", body)
        check_body(status, problem)
        assert (problem["field"], problem["limit_name"]) == (field, setting)
        assert problem["limit"] > 0


async def test_partitions_of_a_commit_are_counted_over_all_topics() -> None:
    async with channel_of(request_partitions_max=3) as (_, client):
        for counts, expected in (((2, 0, 1), 200), ((2, 0, 2), 413)):
            offsets = {
                f"t{n}": {str(number): {"offset": 1} for number in range(count)} for n, count in enumerate(counts)
            }
            status, problem = await client.call("commit", "g", {"generation_id": -1, "offsets": offsets})
            assert status == expected
        check_body(status, problem)
        assert (problem["field"], problem["limit_name"]) == ("offsets", "request_partitions_max")


async def test_a_body_is_as_deep_as_over_http_and_no_deeper() -> None:
    def nested(levels: int) -> Any:
        value: Any = 0
        for _ in range(levels):
            value = [value]
        return value

    async with channel_of(json_depth_max=10) as (api, client):
        # A body, its list of protocols and one of these are three levels.
        for levels, status in ((7, 409), (8, 400)):
            body = join_body("", protocols=[{"name": "r", "metadata": nested(levels)}])
            over_http = await api.request("POST", "/v1/groups/g/join", body)
            on_channel, problem = await client.call("join", "g", body)
            assert (over_http.status, on_channel) == (status, status)
        assert problem["limit_name"] == "json_depth_max"
        answer = await client.refusal('{"id":1,"op":"fetch","body":' + "[" * 10_000)
        assert answer["status"] == 400


async def test_binary_is_refused_and_the_channel_goes_on() -> None:
    async with channel_of() as (_, client):
        await client.socket.send_bytes(b"{}")
        await client.read()
        check_body(client.nameless[0]["status"], client.nameless[0]["body"])
        await client.socket.send_str("x" * 10)
        assert (await client.call("fetch", "g"))[0] == 200


@pytest.mark.parametrize("padding", [LARGE_BYTES - 2_000, LARGE_BYTES])
async def test_a_large_assignment_is_read_beside_the_loop_and_in_its_turn(
    padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside: list[object] = []
    submit = ThreadPoolExecutor.submit

    def submit_noted(pool: ThreadPoolExecutor, parse: Any) -> Any:
        beside.append(parse)
        return submit(pool, parse)

    async with channel_of() as (_, client):
        member_id = await client.new_id("g", "m")
        _, joined = await client.call("join", "g", join_body(member_id))
        monkeypatch.setattr(ThreadPoolExecutor, "submit", submit_noted)
        given = {"member_id": member_id, "assignment": {"x": "y" * padding}}
        large = await client.send("sync", "g", {**sync_body(joined), "assignments": [given]})
        wrong = await client.send("sync", "g", {**sync_body(joined), "assignments": [{**given, "member_id": 1}]})
        after = await client.send("heartbeat", "g", beat_body(joined))
        status, answer = await client.answer(after)
        assert (status, answer) == (200, {"channel_keeps_session": True})
        status, answer = await client.answer(large)
        assert (status, answer["assignment"]) == (200, given["assignment"])
        status, answer = await client.answer(wrong)
        check_body(status, answer)
        assert answer["field"] == "assignments.0.member_id"
    assert len(beside) == (2 if padding == LARGE_BYTES else 0)


async def test_a_large_commit_is_stored_before_another_large_message_is_read() -> None:
    service = FakeService()
    offsets = {"t": {str(n): {"offset": n, "metadata": "x" * 40} for n in range(1_500)}}
    commit = {"generation_id": -1, "offsets": offsets}
    assert len(json.dumps(commit)) > LARGE_BYTES
    async with open_api(service) as api, aiohttp.ClientSession() as http, open_channel(http, api.port) as client:
        first = await client.send("commit", "a", commit)
        await service.parked.wait()
        service.answers[m.FetchRequest] = m.FetchAnswer(offsets={})
        assert (await client.call("fetch", "a"))[0] == 200
        second = await client.send("commit", "b", commit)
        await eventually(lambda: api.http_api.bodies.total_bytes > 0)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert [group_id for group_id, request, _ in service.calls if isinstance(request, m.CommitRequest)] == ["a"]
        service.answers[m.CommitRequest] = m.CommitAnswer(offsets={})
        service.parked_calls[0].answer(m.CommitAnswer(offsets={}))
        assert (await client.answer(first))[0] == (await client.answer(second))[0] == 200
        assert not api.http_api.bodies.total_bytes


async def test_a_large_commit_that_is_refused_for_its_id_keeps_nothing_behind_it_waiting() -> None:
    service = FakeService()
    offsets = {"t": {str(n): {"offset": n, "metadata": "x" * 40} for n in range(1_500)}}
    commit = {"generation_id": -1, "offsets": offsets}
    async with open_api(service) as api, aiohttp.ClientSession() as http, open_channel(http, api.port) as client:
        waiting = await client.send("join", "a", join_body("a-1"))
        await service.parked.wait()
        await client.send("commit", "a", commit, id=waiting)
        assert (await client.answer(waiting))[0] == 400
        service.answers[m.CommitRequest] = m.CommitAnswer(offsets={})
        async with asyncio.timeout(30):
            assert (await client.call("commit", "b", commit))[0] == 200
        service.parked_calls[0].answer(m.CommitAnswer(offsets={}))


async def test_a_large_message_is_a_sync_or_nothing() -> None:
    async with channel_of(max_body_bytes=2_000, max_sync_bytes=4_000) as (api, client):
        status, problem = await client.call("fetch", "g", {"topics": ["x" * 100] * 30})
        check_body(status, problem)
        assert (status, problem["limit_name"], problem["limit"]) == (413, "max_body_bytes", 2_000)
        shares = [{"member_id": "x" * 100, "assignment": None}] * 20
        body = {"generation_id": 1, "member_id": "a", "assignments": shares}
        assert (await client.call("sync", "g", body))[0] == 404
        await client.send("sync", "g", body | {"assignments": shares * 2})
        assert await client.close_code() == 1009
        await eventually(lambda: api.metrics.closed["too_large"] == 1)


async def test_calls_in_flight_are_bounded() -> None:
    async with channel_of(channel_calls_max=2, parked_call_max_wait_ms=60_000) as (_, client):
        first = await client.form("g")
        second = await client.form("h")
        third = await client.form("i")
        waiting = [
            await client.send("heartbeat", group_id, beat_body(joined, wait_ms=60_000))
            for group_id, joined in (("g", first), ("h", second))
        ]
        status, problem = await client.call("heartbeat", "i", beat_body(third))
        check_body(status, problem)
        assert (status, problem["limit_name"], problem["limit"]) == (429, "channel_calls_max", 2)
        assert problem["throttle_time_ms"] == 1_000, "no header can say it here"
        await client.call("coordinator", None, {"group_ids": ["g"]})
        assert len(waiting) == 2


async def test_channels_that_call_no_group_lengthen_no_join_phase() -> None:
    # A join that has to wait would be told so at once.
    async with (
        open_service() as api,
        open_channel(api.http, api.port),
        open_channel(api.http, api.port) as silent,
        open_channel(api.http, api.port) as client,
    ):
        await silent.call("coordinator", body={"group_ids": ["g"]})
        status, answer = await client.call("join", "g", join_body("", group_instance_id="a"))
        assert (status, answer["generation_id"]) == (200, 1)


async def test_groups_of_a_channel_are_bounded() -> None:
    async with channel_of(channel_groups_max=1) as (_, client):
        joined = await client.form("g")
        other = await client.new_id("h", "b")
        status, problem = await client.call("join", "h", join_body(other))
        check_body(status, problem)
        assert (status, problem["limit_name"], problem["limit"]) == (429, "channel_groups_max", 1)
        assert (await client.call("heartbeat", "g", beat_body(joined)))[0] == 200
        await client.call("leave", "g", {"members": [{"member_id": joined["member_id"]}]})
        assert (await client.call("join", "h", join_body(other)))[0] == 200


async def test_channels_are_bounded() -> None:
    async with channel_of(channels_max=1) as (api, client):
        answer = await api.request("GET", "/v1/channel", headers=HANDSHAKE)
        problem = check_problem(answer)
        assert (problem["status"], problem["limit_name"], problem["limit"]) == (429, "channels_max", 1)
        check_documented(CHANNEL, problem)
        assert api.metrics.channels == 1
        await client.socket.close()
        await eventually(lambda: api.metrics.channels == 0)
        async with open_channel(api.http, api.port) as again:
            assert (await again.call("fetch", "g"))[0] == 200


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({}, "Upgrade"),
        (HANDSHAKE | {"Upgrade": "h2c"}, "Upgrade"),
        (HANDSHAKE | {"Sec-WebSocket-Version": "12"}, "Sec-WebSocket-Version"),
        (HANDSHAKE | {"Sec-WebSocket-Key": "short"}, "Sec-WebSocket-Key"),
        ({name: value for name, value in HANDSHAKE.items() if name != "Sec-WebSocket-Key"}, "Sec-WebSocket-Key"),
    ],
)
async def test_what_is_no_handshake_is_refused(headers: dict[str, str], field: str) -> None:
    async with open_service() as api:
        answer = await api.request("GET", "/v1/channel", headers=headers)
        problem = check_problem(answer)
        assert (problem["status"], problem["field"]) == (400, field)
        check_documented(CHANNEL, problem)
        assert api.metrics.channels == 0


async def test_a_handshake_takes_neither_query_nor_body() -> None:
    async with open_service() as api:
        assert check_problem(await api.request("GET", "/v1/channel?a=b", headers=HANDSHAKE))["field"] == "a"
        assert check_problem(await api.request("GET", "/v1/channel", b"{}", headers=HANDSHAKE))["status"] == 400


# --- any text --------------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
OPS = st.sampled_from([*OPERATIONS_BY_OP, "authenticate"])
LIKE_CALLS = st.fixed_dictionaries(
    {"id": st.integers(-1, 5) | VALUES, "op": OPS | VALUES},
    optional={
        "group_id": st.sampled_from(["g", "", "..", "a/b"]) | VALUES,
        "body": VALUES
        | st.sampled_from(
            [
                beat_body({"generation_id": 1, "member_id": "a"}),
                join_body(""),
                join_body("", group_instance_id="one"),
                {"members": [{"member_id": "a"}]},
                {"generation_id": -1, "offsets": COMMIT},
                {"group_ids": ["g"]},
            ]
        ),
        "token": VALUES,
        "more": VALUES,
    },
)
MESSAGES = st.lists(
    st.text(max_size=40) | VALUES.map(json.dumps) | LIKE_CALLS.map(json.dumps),
    min_size=1,
    max_size=8,
)


@settings(max_examples=by_size(5, 25, 60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MESSAGES)
def test_any_text_gets_one_coded_answer(messages: list[str]) -> None:
    asyncio.run(_check_texts(messages))


async def _check_texts(messages: list[str]) -> None:
    async with channel_of() as (api, client):
        for message in messages:
            await client.socket.send_frame(message.encode(), aiohttp.WSMsgType.TEXT)
        await client.socket.send_str('{"id": "last", "op": "fetch", "group_id": "last"}')
        answers: list[dict[str, Any]] = []
        while not answers or answers[-1]["id"] != "last":
            message = json.loads(await client.socket.receive_str(timeout=30))
            if "event" not in message:
                answers.append(message)
        assert len(answers) == len(messages) + 1
        for answer in answers:
            assert answer["status"] < 500, answer
            if answer["status"] >= 400:
                check_body(answer["status"], answer["body"])
        assert api.metrics.channel_calls.total() == len(answers)


# --- the end ---------------------------------------------------------------------------------------------------------


async def test_a_stop_is_told_then_calls_are_answered_then_the_channel_closes() -> None:
    async with channel_of(parked_call_max_wait_ms=60_000) as (api, client):
        joined = await client.form("g")
        waiting = await client.send("heartbeat", "g", beat_body(joined, wait_ms=60_000))
        await client.call("fetch", "g")
        await api.http_api.channels.warn_of_drain()
        assert await client.push() == {"event": "drain"}
        refused = check_problem(await api.request("GET", "/v1/channel", headers=HANDSHAKE))
        assert refused["error_name"] == "COORDINATOR_NOT_AVAILABLE"
        await api.service.drain()
        status, problem = await client.answer(waiting)
        check_body(status, problem)
        assert (status, problem["error_name"]) == (503, "COORDINATOR_NOT_AVAILABLE")
        ending = asyncio.create_task(api.http_api.channels.close())
        assert await client.close_code() == 1012
        await ending
        await eventually(lambda: api.metrics.closed == {"drain": 1})
        assert api.metrics.channels == 0


async def test_an_unanswered_ping_ends_the_channel() -> None:
    async with open_service(channel_ping_interval_ms=100) as api:
        async with open_channel(api.http, api.port, autoping=False):
            # Nobody reads, so nobody answers the ping.
            await eventually(lambda: api.metrics.closed["unanswered_ping"] == 1)
        async with open_channel(api.http, api.port) as client:
            reading = asyncio.create_task(client.socket.receive())
            for _ in range(40):  # and not in one go, or a machine that stands still meanwhile would leave no turn
                await asyncio.sleep(0.01)
            assert not reading.done(), "a client that answers pings is left alone"
            reading.cancel()


async def test_who_does_not_read_is_closed_and_holds_no_more_than_the_limit() -> None:
    async with channel_of(channel_unsent_max_bytes=65_536) as (api, client):
        await client.form("g")
        with hanging(client):
            # What is pushed does not wait for the client; on the way are the buffers of the system.
            for number in range(200):
                reason = "x" * 200_000
                api.service.connections.event(RebalanceBegan("g", Trigger.OPERATOR, None, 1, reason, number))
                await asyncio.sleep(0)
            assert 1 < api.metrics.pushed["rebalance"] < 200
            await eventually(lambda: api.metrics.closed == {"slow_reader": 1})


async def test_a_flood_whose_answers_nobody_reads_is_not_read_either() -> None:
    async with channel_of(channel_ping_interval_ms=300) as (api, client):
        joined = await client.form("g")
        offsets = {"clicks": {str(n): {"offset": 1, "metadata": "x" * 4_000} for n in range(200)}}
        assert (await client.call("commit", "g", beat_body(joined, offsets=offsets)))[0] == 200
        with hanging(client):
            for _ in range(100):
                await client.send("fetch", "g")
            await eventually(lambda: api.metrics.closed["slow_reader"] + api.metrics.closed["unanswered_ping"] == 1)
            # Each answer has 0.8 MB; the buffers of the system take some.
            assert 1 < api.metrics.channel_calls["fetch", "NONE"] < 20
            assert api.metrics.closed.total() == 1


@contextmanager
def hanging(client: ChannelClient) -> Iterator[None]:
    """The client's program hangs. In the end its connection is cut, for nothing that it waits for would come."""
    transport = client.socket._writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    try:
        yield
    finally:
        transport.abort()


# --- who may ---------------------------------------------------------------------------------------------------------

TOKEN = "a-token"
WITH_TOKEN = SecurityPolicy(tokens=(hash_token(TOKEN),))


async def test_a_token_comes_in_the_header() -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with channel_of(policy=WITH_TOKEN, headers=headers) as (api, client):
        assert (await client.call("fetch", "g"))[0] == 200
        refused = await api.request("GET", "/v1/channel", headers=HANDSHAKE | {"Authorization": "Bearer other"})
        assert check_problem(refused)["status"] == 401


async def test_a_token_comes_as_the_first_message() -> None:
    async with channel_of(policy=WITH_TOKEN) as (_, client):
        answer = await client.refusal(json.dumps({"op": "authenticate", "token": TOKEN}))
        assert answer == {"id": None, "status": 200, "body": {}}
        assert await client.call("authenticate", token=TOKEN) == (200, {})
        assert (await client.call("fetch", "g"))[0] == 200
        assert (await client.call("authenticate", token="other"))[0] == 401
        assert await client.close_code() == 1008, "nor is there a second try later"


async def test_where_no_token_is_asked_for_any_will_do() -> None:
    async with channel_of() as (_, client):
        assert await client.call("authenticate", token="anything") == (200, {})


@pytest.mark.parametrize(
    "message",
    [
        {"id": 1, "op": "authenticate", "token": "other"},
        {"id": 1, "op": "fetch", "group_id": "g"},
        {"id": 1, "op": "dance"},
    ],
)
async def test_whose_first_message_is_no_known_token_is_shown_the_door(message: dict[str, Any]) -> None:
    async with channel_of(policy=WITH_TOKEN) as (api, client):
        await client.socket.send_str(json.dumps(message))
        await client.socket.send_str('{"id": 2, "op": "authenticate", "token": "a-token"}')
        status, problem = await client.answer(1)
        check_body(status, problem)
        assert status == (400 if message["op"] == "dance" else 401)
        assert message["op"] != "fetch" or "wants a token" in problem["detail"], "members log it, and raise it"
        assert await client.close_code() == 1008
        assert client.pushes == []
        await eventually(lambda: api.metrics.closed == {"not_authenticated": 1})


async def test_who_sends_no_token_in_time_is_shown_the_door() -> None:
    async with channel_of(policy=WITH_TOKEN, channel_authenticate_timeout_ms=100) as (api, client):
        assert await client.close_code() == 1008
        await eventually(lambda: api.metrics.closed == {"not_authenticated": 1})
        assert api.metrics.channel_calls.total() == 0


async def test_pages_of_other_origins_and_names_are_kept_out() -> None:
    async with open_service() as api:
        for header, field in (({"Origin": "http://evil.example"}, "Origin"), ({"Host": "evil.example"}, "Host")):
            problem = check_problem(await api.request("GET", "/v1/channel", headers=HANDSHAKE | header))
            assert (problem["status"], problem["field"]) == (403, field)


def test_the_openapi_document_names_every_message() -> None:
    document = openapi_document("1")
    described = document["paths"]["/v1/channel"]["get"]
    assert "200" not in described["responses"]
    assert "101" in described["responses"]
    for name in ("JoinCall", "AuthenticateCall", "ChannelAnswer", "RebalancePush", "UnloadedPush", "DrainPush"):
        assert f"`{name}`" in described["description"]
        assert name in document["components"]["schemas"]
