"""The event stream: what it tells, where it goes on, how it is bounded, and how it ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.core.commands import Trigger
from rallypoint.coordinator.core.effects import (
    Event,
    GroupChanged,
    GroupCreated,
    GroupFrozen,
    GroupRemoved,
    GroupSummary,
    GroupThawed,
    GroupUnloaded,
    JoinPhaseEnded,
    MemberReplaced,
    MembersRemoved,
    OffsetsCommitted,
    OffsetsLoaded,
    OffsetsRemoved,
    OffsetsReset,
    PartitionsMoved,
    RebalanceBegan,
    RebalanceHeld,
    Removal,
    SessionExpired,
    SyncPhaseEnded,
)
from rallypoint.coordinator.core.moves import Move, OwnerNames
from rallypoint.coordinator.http.events.codec import KINDS, KINDS_ASKED_FOR, data_of, group_id_of, kind_of
from rallypoint.coordinator.http.events.stream import SCAN_MAX, StreamLimits
from rallypoint.coordinator.http.reference.openapi import openapi_document
from rallypoint.coordinator.http.security import SecurityPolicy
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.coordinator.runtime.events.feed import EventFeed
from rallypoint.protocol.operations import EVENTS
from tests.coordinator.http.problem_checks import check_documented, check_problem
from tests.fakes.api_server import ApiClient, open_api
from tests.fakes.event_reader import EventReader, read_events
from tests.fakes.fake_service import FakeService
from tests.fakes.manual_clock import HastyClock

NOW_MS = 1_700_000_000_000

TOLD: list[tuple[Event, dict[str, Any]]] = [
    (GroupCreated("g"), {}),
    (
        GroupChanged(GroupSummary("g", "Stable", "consumer", 2, 7, frozenset({frozenset({"t"})}))),
        {
            "state": "Stable",
            "protocol_type": "consumer",
            "member_count": 2,
            "generation_id": 7,
            "frozen_until_ms": None,
            "held_count": 0,
            "rebalance_id": 0,
            "last_rebalance_at_ms": None,
            "protocol_name": "",
        },
    ),
    (GroupRemoved("g", Removal.EXPIRED), {"cause": "expired"}),
    (GroupUnloaded("g"), {"url": None}),
    (GroupUnloaded("g", "http://b"), {"url": "http://b"}),
    (
        MemberReplaced("g", "one", "one-1", "one-2"),
        {"group_instance_id": "one", "old_member_id": "one-1", "member_id": "one-2"},
    ),
    (
        RebalanceBegan("g", Trigger.MEMBER_LEFT, None, 7, "line\nbreak é", 9, 60_000),
        {
            "trigger": "member_left",
            "member_id": None,
            "generation_id": 7,
            "reason": "line\nbreak é",
            "rebalance_id": 9,
            "rejoin_within_ms": 60_000,
        },
    ),
    (
        RebalanceHeld("g", Trigger.MEMBER_LEFT, "a", "left: a", 60),
        {"trigger": "member_left", "member_id": "a", "reason": "left: a", "until_ms": 60},
    ),
    (GroupFrozen("g", 60, "deploy"), {"until_ms": 60, "reason": "deploy", "freeze_until": "time"}),
    (GroupThawed("g", lifted=True), {"lifted": True, "members_came": False}),
    (
        MembersRemoved("g", Trigger.MEMBER_REMOVED, ("a", "b"), 2, "hung"),
        {"trigger": "member_removed", "member_ids": ["a", "b"], "member_count": 2, "reason": "hung"},
    ),
    (
        JoinPhaseEnded("g", 8, 120, 2, 9),
        {"generation_id": 8, "duration_ms": 120, "member_count": 2, "rebalance_id": 9},
    ),
    (
        SyncPhaseEnded("g", 8, 7, 9, 4),
        {"generation_id": 8, "duration_ms": 7, "rebalance_id": 9, "partitions_moved": 4},
    ),
    (
        PartitionsMoved(
            "g", 8, 9, (Move("t", (1, 4), OwnerNames("a-1", None, "a", "h"), OwnerNames("b-1", "i", "b", "h")),), 2
        ),
        {
            "generation_id": 8,
            "rebalance_id": 9,
            "moves": [
                {
                    "topic": "t",
                    "partition": partition,
                    "from_member_id": "a-1",
                    "from_client_id": "a",
                    "to_member_id": "b-1",
                    "to_client_id": "b",
                }
                for partition in (1, 4)
            ],
            "move_count": 2,
        },
    ),
    (SessionExpired("g", "a", pending=True), {"member_id": "a", "pending": True, "disconnected": False}),
    (
        OffsetsCommitted("g", (("t", 0, 5), ("t", 1, 6), ("u", 0, 7)), 9),
        {"offsets": {"t": {"0": {"offset": 5}, "1": {"offset": 6}}, "u": {"0": {"offset": 7}}}, "commit_at_ms": 9},
    ),
    (
        OffsetsLoaded("g", (("t", 0, 5, 9),), 2, 3),
        {"offsets": {"t": {"0": {"offset": 5, "commit_at_ms": 9}}}, "part": 2, "parts": 3},
    ),
    (OffsetsRemoved("g", (("t", 0), ("t", 3)), Removal.DELETED), {"partitions": {"t": [0, 3]}, "cause": "deleted"}),
    (
        OffsetsReset("g", "latest", (("t", 0, 5),), 9),
        {"to": "latest", "offsets": {"t": {"0": {"offset": 5}}}, "commit_at_ms": 9},
    ),
]


def feed_of(kept_max: int = 100, life: str = "life") -> EventFeed:
    return EventFeed(life, kept_max, lambda: NOW_MS)


@asynccontextmanager
async def api_of(feed: EventFeed, clock: Clock | None = None, **limits: int) -> AsyncIterator[ApiClient]:
    async with open_api(FakeService(), feed=feed, stream_limits=StreamLimits(**limits), clock=clock) as api:
        try:
            yield api
        finally:
            feed.close()


def reading(api: ApiClient, query: str = "", **headers: str) -> Any:
    return read_events(
        api.http,
        f"http://127.0.0.1:{api.port}",
        query,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def test_every_event_of_the_rules_is_told_with_all_its_fields() -> None:
    """A new event needs a line in TOLD, and a row in docs/events.md."""
    assert {type(event) for event, _ in TOLD} == set(KINDS.values())
    for event, expected in TOLD:
        data = data_of(event, NOW_MS)
        assert json.loads(json.dumps(data)) == {
            "kind": kind_of(event),
            "at_ms": NOW_MS,
            "group_id": group_id_of(event),
        } | json.loads(json.dumps(expected))
        assert group_id_of(event) == "g"
        assert is_dataclass(event)
        given = {field.name for field in fields(event)} - {"summary"}
        assert given <= data.keys()
    assert {"offsets_committed", "offsets_loaded"} == KINDS_ASKED_FOR


async def test_events_come_in_order_with_their_cursor() -> None:
    feed = feed_of()
    feed.event(GroupCreated("before"))
    async with api_of(feed) as api, reading(api) as reader:
        assert (reader.cursor, reader.retry_ms) == ("life-1", 2000)
        for event, _ in TOLD:
            feed.event(event)
        told = [await reader.next() for event, _ in TOLD if kind_of(event) not in KINDS_ASKED_FOR]
        assert [(one.kind, one.data) for one in told if one] == [
            (kind_of(event), json.loads(json.dumps(data_of(event, NOW_MS))))
            for event, _ in TOLD
            if kind_of(event) not in KINDS_ASKED_FOR
        ]
        numbers = [number for number, (event, _) in enumerate(TOLD, 2) if kind_of(event) not in KINDS_ASKED_FOR]
        assert [one.cursor for one in told if one] == [f"life-{number}" for number in numbers]
        assert api.metrics.answered == [("events", "NONE")]
        assert api.metrics.streams == 1
        assert reader.answer.headers["Cache-Control"] == "no-store"
    await gone(api)


async def gone(api: ApiClient) -> None:
    async with asyncio.timeout(30):
        while api.metrics.streams:  # noqa: ASYNC110 - a figure is no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["created a", "created ab", "created c"]),
        ("?group_id=a", ["created a"]),
        ("?group_id=a&group_id=c", ["created a", "created c"]),
        ("?prefix=a", ["created a", "created ab"]),
        ("?prefix=ab&group_id=c", ["created ab", "created c"]),
        ("?prefix=", ["created a", "created ab", "created c"]),
        ("?kinds=offsets_committed", ["committed ab"]),
        ("?kinds=offsets_committed,group_created&prefix=ab", ["created ab", "committed ab"]),
        ("?kinds=group_removed", []),
    ],
)
async def test_filters(query: str, expected: list[str]) -> None:
    feed = feed_of()
    async with api_of(feed, events_heartbeat_interval_ms=20) as api, reading(api, query) as reader:
        feed.event(GroupCreated("a"))
        feed.event(GroupCreated("ab"))
        feed.event(OffsetsCommitted("ab", (("t", 0, 1),), 1))
        feed.event(GroupCreated("c"))
        found = [await reader.next() for _ in expected]
        assert [f"{one.kind.split('_')[1]} {one.data['group_id']}" for one in found if one] == expected
        with pytest.raises(TimeoutError):
            await reader.next(0.1)
        # A busy machine may take longer for the next heartbeat. Nothing else comes before it.
        while not reader.heartbeats:
            with pytest.raises(TimeoutError):
                await reader.next(0.1)
        # The cursor passes what was left out, and also commits that were not asked for.
        assert reader.cursor == "life-4"


async def test_what_is_not_wanted_keeps_no_heartbeat_back() -> None:
    feed = feed_of()

    async def happen() -> None:
        while True:
            feed.event(GroupCreated("other"))
            await asyncio.sleep(0.005)

    async with api_of(feed, events_heartbeat_interval_ms=50) as api, reading(api, "?group_id=quiet") as reader:
        happening = asyncio.create_task(happen())
        try:
            async with asyncio.timeout(30):
                while reader.heartbeats < 3:
                    with pytest.raises(TimeoutError):
                        await reader.next(0.1)
        finally:
            happening.cancel()
        assert int(reader.cursor.removeprefix("life-")) > 1, "it says how far it has come"


@pytest.mark.parametrize("how", ["header", "query", "both"])
async def test_who_comes_back_with_its_cursor_loses_nothing(how: str) -> None:
    feed = feed_of()
    async with api_of(feed) as api:
        async with reading(api) as reader:
            feed.event(GroupCreated("a"))
            assert await reader.next()
            cursor = reader.cursor
        for name in "bcd":
            feed.event(GroupCreated(name))
        query = f"?cursor={'life-0' if how == 'both' else cursor}" if how != "header" else ""
        headers = {"Last_Event_ID": cursor} if how != "query" else {}
        async with reading(api, query, **headers) as reader:
            assert reader.cursor == cursor
            told = await reader.until("group_created", group_id="d")
            assert [one.data["group_id"] for one in told] == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("cursor", "reason"), [("life-1", "cursor_too_old"), ("past-1", "restarted"), ("past-9", "restarted")]
)
async def test_a_cursor_that_cannot_be_gone_on_from_gets_one_gap_and_then_what_comes(cursor: str, reason: str) -> None:
    feed = feed_of(kept_max=2)
    for name in "abcd":
        feed.event(GroupCreated(name))
    async with api_of(feed) as api, reading(api, f"?cursor={cursor}") as reader:
        told = await reader.next()
        assert told is not None
        assert (told.kind, told.cursor) == ("gap", "life-4")
        assert told.data.pop("action").startswith("List the groups again")
        assert told.data == {"kind": "gap", "reason": reason, "lost_count": None, "cursor": "life-4"}
        feed.event(GroupCreated("e"))
        told = await reader.next()
        assert told is not None
        assert (told.kind, told.data["group_id"]) == ("group_created", "e")
    assert api.metrics.lost == 0, "it was not slow"


@pytest.mark.parametrize("cursor", ["life-2", "oldest"])
async def test_the_oldest_cursor_that_is_whole_gets_no_gap(cursor: str) -> None:
    feed = feed_of(kept_max=2)
    for name in "abcd":
        feed.event(GroupCreated(name))
    async with api_of(feed) as api, reading(api, f"?cursor={cursor}") as reader:
        assert [one.kind for one in await reader.until("group_created", group_id="d")] == ["group_created"] * 2


@pytest.mark.parametrize("query", ["", "&node_only=true"])
async def test_a_stream_says_once_that_all_that_was_kept_is_told(query: str) -> None:
    feed = feed_of(kept_max=2 * SCAN_MAX)
    names = [f"g{number}" for number in range(SCAN_MAX + 10)]
    for name in names:
        feed.event(GroupCreated(name))
    async with api_of(feed) as api, reading(api, f"?cursor=oldest{query}") as reader:
        await reader.until("group_created", group_id=names[-1])
        assert reader.caught_up == 0
        for name in ("a", "b"):
            feed.event(GroupCreated(name))
            await reader.until("group_created", group_id=name)
            assert reader.caught_up == 1


@pytest.mark.parametrize(
    ("query", "header", "field"),
    [
        ("?cursor=", "", "cursor"),
        ("?cursor=7", "", "cursor"),
        ("?cursor=life-", "", "cursor"),
        ("?cursor=life-01", "", "cursor"),
        ("?cursor=life-%D9%A1", "", "cursor"),
        ("?cursor=life-1", "", "cursor"),
        ("?cursor=life-0", "x", "Last-Event-ID"),
        ("", "life-1", "Last-Event-ID"),
        ("?kinds=", "", "kinds"),
        ("?kinds=group_created,opened", "", "kinds"),
        ("?kind=group_created", "", "kind"),
        ("?kinds=group_created&kinds=group_removed", "", "kinds"),
        ("?group_id=" + "x" * 256, "", "group_id"),
        ("?prefix=a&prefix=b", "", "prefix"),
        ("?limit=1", "", "limit"),
    ],
)
async def test_a_wrong_question_is_refused_by_its_field(query: str, header: str, field: str) -> None:
    async with api_of(feed_of()) as api:
        headers = {"Last-Event-ID": header} if header else None
        problem = check_problem(await api.request("GET", f"/v1/events{query}", headers=headers))
        assert (problem["status"], problem["field"]) == (400, field)
        check_documented(EVENTS, problem)
        assert api.metrics.streams == 0


async def test_one_stream_too_many_is_refused_and_the_next_one_is_not() -> None:
    async with api_of(feed_of(), event_streams_max=1) as api:
        async with reading(api):
            answer = await api.request("GET", "/v1/events")
            problem = check_problem(answer)
            assert (problem["status"], problem["error_name"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
            assert (problem["limit_name"], problem["limit"]) == ("event_streams_max", 1)
            check_documented(EVENTS, problem)
        await gone(api)
        async with reading(api) as reader:
            assert reader.cursor == "life-0"


async def test_streams_that_begin_at_once_are_counted_one_by_one() -> None:
    async with api_of(feed_of(), event_streams_max=2) as api:
        url = f"http://127.0.0.1:{api.port}/v1/events"
        answers = await asyncio.gather(*(api.http.get(url) for _ in range(6)))
        assert sorted(answer.status for answer in answers) == [200, 200, 429, 429, 429, 429]
        assert api.metrics.streams == 2
        for answer in answers:
            answer.close()
        await gone(api)


@pytest.mark.parametrize("phase", ["starting", "loading", "draining", "stopped"])
async def test_no_stream_before_groups_are_served_nor_after(phase: str) -> None:
    async with open_api(FakeService(phase=phase)) as api:
        problem = check_problem(await api.request("GET", "/v1/events"))
        assert problem["status"] == 503
        check_documented(EVENTS, problem)


async def test_a_stream_ends_whole_when_the_feed_does() -> None:
    feed = feed_of()
    async with api_of(feed) as api, reading(api) as reader:
        feed.event(GroupCreated("a"))
        feed.close()
        told = await reader.next()
        assert told is not None
        assert told.data["group_id"] == "a"
        assert await reader.next() is None
        problem = check_problem(await api.request("GET", "/v1/events"))
        assert problem["error_name"] == "COORDINATOR_NOT_AVAILABLE"


async def test_host_origin_and_token_are_asked_for_as_everywhere() -> None:
    policy = SecurityPolicy(origins=frozenset({"https://console.example.org"}), tokens=(hash_token("secret"),))
    feed = feed_of()
    async with open_api(FakeService(), policy=policy, feed=feed) as api:
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": "Bearer secret", "Host": "evil.example.org"}, 403),
            ({"Authorization": "Bearer secret", "Origin": "https://evil.example.org"}, 403),
        ):
            problem = check_problem(await api.request("GET", "/v1/events", headers=headers))
            assert problem["status"] == status
            check_documented(EVENTS, problem)
        page = {"Authorization": "Bearer secret", "Origin": "https://console.example.org"}
        async with reading(api, **page) as reader:
            assert reader.answer.headers["Access-Control-Allow-Origin"] == "https://console.example.org"
            feed.event(GroupCreated("a"))
            assert await reader.next()
        feed.close()


async def test_a_page_of_an_allowed_origin_may_send_its_cursor() -> None:
    policy = SecurityPolicy(origins=frozenset({"https://console.example.org"}))
    async with open_api(FakeService(), policy=policy) as api:
        asked = {
            "Origin": "https://console.example.org",
            "Access-Control-Request-Method": "GET",
            "Access-Control-Request-Headers": "last-event-id",
        }
        answer = await api.request("OPTIONS", "/v1/events", headers=asked)
        assert (answer.status, "Last-Event-ID" in answer.headers["Access-Control-Allow-Headers"]) == (204, True)


async def test_head_is_answered_without_a_stream() -> None:
    async with api_of(feed_of(), event_streams_max=1) as api:
        for _ in range(3):
            answer = await api.request("HEAD", "/v1/events")
            assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
        assert api.metrics.streams == 0


async def flood(feed: EventFeed, count: int) -> None:
    """More than a connection's buffers hold."""
    for number in range(count):
        feed.event(RebalanceBegan("g", Trigger.MEMBER_LEFT, "m", number, "x" * 1_000, 1))
        if number % 100 == 0:
            await asyncio.sleep(0)


async def test_a_slow_reader_is_told_how_much_it_lost_and_goes_on() -> None:
    feed = feed_of(kept_max=50)
    async with api_of(feed) as api, reading(api) as reader:
        await flood(feed, 20_000)
        told_count = lost_count = 0
        while told_count + lost_count < 20_000:
            told = await reader.next()
            assert told is not None
            if told.kind == "gap":
                assert told.data["reason"] == "slow_reader"
                lost_count += told.data["lost_count"]
            else:
                assert told.data["generation_id"] == told_count + lost_count, "neither told nor said to be lost"
                told_count += 1
            assert told.cursor == f"life-{told_count + lost_count}"
        assert told_count
        assert api.metrics.lost == lost_count > 0
        feed.event(GroupCreated("after"))
        assert [one.data["group_id"] for one in await reader.until("group_created")] == ["after"]


async def test_a_reader_that_takes_nothing_is_cut_off_and_its_place_is_free() -> None:
    feed, clock = feed_of(kept_max=100_000), HastyClock()
    async with api_of(feed, clock, event_streams_max=1, events_write_timeout_ms=100) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port, limit=1)
        writer.write(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await writer.drain()
        assert (await reader.readexactly(15)).startswith(b"HTTP/1.1 200")
        await flood(feed, 15_000)
        clock.move(99)
        await asyncio.sleep(0.2)
        assert api.metrics.streams == 1, "a millisecond of the service's time is left"
        clock.move(1)
        await gone(api)
        assert 0 < api.metrics.lost < 15_000
        async with reading(api, "?cursor=life-0") as again:
            assert len(await take(again, 500)) == 500
        writer.close()


async def take(reader: EventReader, count: int) -> list[str]:
    found = []
    for _ in range(count):
        told = await reader.next()
        assert told is not None
        found.append(told.kind)
    return found


async def test_a_client_that_hangs_up_frees_its_place() -> None:
    feed = feed_of()
    async with api_of(feed, event_streams_max=1) as api:
        for _ in range(3):
            async with reading(api):
                pass
            await gone(api)
        assert not feed.changes.waiting


def test_the_stream_is_described() -> None:
    described = openapi_document("0")["paths"]["/v1/events"]["get"]
    assert list(described["responses"]["200"]["content"]) == ["text/event-stream"]
    for kind in KINDS:
        assert kind in described["responses"]["200"]["description"]
    names = {parameter["name"] for parameter in described["parameters"]}
    assert names == {"group_id", "prefix", "kinds", "cursor", "node_only", "Last-Event-ID"}
    assert "429" in described["responses"]
