"""Any node tells the events of all: where a reader goes on at another node, and what nodes that come and go cause."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rallypoint.coordinator.core.commands import Trigger
from rallypoint.coordinator.core.effects import GroupCreated, RebalanceBegan
from rallypoint.coordinator.http.events.positions import Position, decode_cursor, encode_positions
from rallypoint.coordinator.http.events.stream import StreamLimits
from rallypoint.protocol.operations import EVENTS
from tests.coordinator.http.problem_checks import check_documented, check_problem
from tests.fakes.cluster_api import Nodes, opened
from tests.fakes.event_reader import EventReader, Told, read_events

QUIET = StreamLimits(events_heartbeat_interval_ms=100)


@asynccontextmanager
async def reading(nodes: Nodes, node_id: str, query: str = "", cursor: str = "") -> AsyncIterator[EventReader]:
    client = nodes.clients[node_id]
    headers = {"Last-Event-ID": cursor} if cursor else None
    async with read_events(client.http, f"http://{node_id}", query, headers=headers) as reader:
        yield reader


def tell(nodes: Nodes, node_id: str, *names: str) -> None:
    for name in names:
        nodes.feeds[node_id].event(GroupCreated(name))


async def told_groups(reader: EventReader, count: int) -> list[str]:
    """So many events, all of them of groups."""
    found = [await next_of(reader) for _ in range(count)]
    assert {one.kind for one in found} <= {"group_created"}, found
    return [one.data["group_id"] for one in found]


async def next_of(reader: EventReader) -> Told:
    told = await reader.next()
    assert told is not None
    return told


async def nothing_more(reader: EventReader) -> None:
    with pytest.raises(TimeoutError):
        await reader.next(0.4)


async def until_connected(nodes: Nodes, node_id: str, count: int) -> None:
    async with asyncio.timeout(30):
        while nodes.clients[node_id].metrics.streams != count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_any_node_tells_the_events_of_all() -> None:
    async with opened() as nodes:
        ids = [await nodes.start() for _ in range(3)]
        async with reading(nodes, ids[0]) as first, reading(nodes, ids[2]) as third:
            assert first.nodes == third.nodes == sorted(ids)
            for number, node_id in enumerate(ids):
                tell(nodes, node_id, f"g{number}")
            for reader in (first, third):
                assert sorted(await told_groups(reader, 3)) == ["g0", "g1", "g2"]
            assert first.cursor == third.cursor
            found = decode_cursor(first.cursor)
            assert found == {node_id: Position(f"life{number + 1}", 1) for number, node_id in enumerate(ids)}
            assert nodes.clients[ids[0]].metrics.peer_streams == 2
            assert nodes.clients[ids[1]].metrics.streams == 2
        for node_id in ids:
            await until_connected(nodes, node_id, 0)
        assert [client.metrics.peer_streams for client in nodes.clients.values()] == [0, 0, 0]


@pytest.mark.parametrize("asked", [1, 2])
async def test_all_that_any_node_keeps_is_told_from_the_oldest_on(asked: int) -> None:
    """They are more than one chunk. The third node has kept none of them."""
    async with opened() as nodes:
        ids = [await nodes.start(kept_max=1_000) for _ in range(3)]
        kept = sorted(f"g{number}" for number in range(1_200))
        for node_id, names in zip(ids, (kept[:600], kept[600:]), strict=False):
            tell(nodes, node_id, *names)
        async with reading(nodes, ids[asked], "?cursor=oldest") as reader:
            assert sorted(await told_groups(reader, len(kept))) == kept
            assert reader.caught_up == 0
            await nothing_more(reader)
            assert reader.caught_up == 1
            tell(nodes, ids[0], "later")
            assert await told_groups(reader, 1) == ["later"]
            await nothing_more(reader)
            assert reader.caught_up == 1


async def test_a_reader_goes_on_at_another_node_and_misses_nothing() -> None:
    async with opened() as nodes:
        ids = [await nodes.start() for _ in range(3)]
        async with reading(nodes, ids[0]) as reader:
            tell(nodes, ids[1], "a")
            assert await told_groups(reader, 1) == ["a"]
            cursor = reader.cursor
        for node_id, name in zip(ids, "bcd", strict=True):
            tell(nodes, node_id, name)
        async with reading(nodes, ids[2], cursor=cursor) as reader:
            assert reader.cursor == cursor
            assert sorted(await told_groups(reader, 3)) == ["b", "c", "d"]
        async with reading(nodes, ids[1], f"?cursor={cursor}") as reader:
            assert sorted(await told_groups(reader, 3)) == ["b", "c", "d"]
            await nothing_more(reader)


async def test_what_happened_before_is_in_the_order_of_time() -> None:
    async with opened() as nodes:
        ids = [await nodes.start() for _ in range(3)]
        async with reading(nodes, ids[0]) as reader:
            cursor = reader.cursor
        names = [f"g{number:03}" for number in range(300)]
        for number, name in enumerate(names):
            nodes.cluster.clock.move(1)
            tell(nodes, ids[number * 7 % 3], name)
        for node_id in ids:
            async with reading(nodes, node_id, cursor=cursor) as reader:
                assert await told_groups(reader, 300) == names


async def test_the_filter_is_that_of_every_node() -> None:
    async with opened() as nodes:
        ids = [await nodes.start() for _ in range(2)]
        async with reading(nodes, ids[0], "?group_id=a&group_id=b&prefix=x%26&kinds=group_created") as reader:
            for node_id in ids:
                tell(nodes, node_id, "a", "c", "x&y")
                nodes.feeds[node_id].event(RebalanceBegan("a", Trigger.MEMBER_LEFT, "m", 1, "", 1))
            assert sorted(await told_groups(reader, 4)) == ["a", "a", "x&y", "x&y"]
            await nothing_more(reader)


async def test_the_cursor_of_a_reader_without_events_grows() -> None:
    async with opened() as nodes:
        ids = [await nodes.start(stream_limits=QUIET) for _ in range(2)]
        async with reading(nodes, ids[0], "?prefix=x") as reader:
            for node_id in ids:
                tell(nodes, node_id, "a", "b")
            wanted = {ids[0]: Position("life1", 2), ids[1]: Position("life2", 2)}
            async with asyncio.timeout(30):
                while decode_cursor(reader.cursor) != wanted:
                    with pytest.raises(TimeoutError):
                        await reader.next(0.1)


async def test_node_only_is_the_answering_nodes_own_stream() -> None:
    async with opened() as nodes:
        ids = [await nodes.start() for _ in range(2)]
        async with reading(nodes, ids[0], "?node_only=true") as reader:
            tell(nodes, ids[1], "theirs")
            tell(nodes, ids[0], "ours")
            assert await told_groups(reader, 1) == ["ours"]
            assert reader.cursor == "life1-1"
        both = encode_positions({ids[0]: Position("life1", 0), ids[1]: Position("life2", 0)})
        async with reading(nodes, ids[0], "?node_only=true", both) as reader:
            assert await told_groups(reader, 1) == ["ours"]
        async with reading(nodes, ids[0], cursor="life1-0") as reader:
            gap = await next_of(reader)
            assert (gap.kind, gap.data["reason"], gap.data["node_id"]) == ("gap", "not_in_cursor", ids[1])
            assert await told_groups(reader, 1) == ["ours"]


async def test_a_node_that_joins_is_followed_from_its_beginning() -> None:
    async with opened() as nodes:
        first = await nodes.start()
        async with reading(nodes, first) as reader:
            assert reader.nodes == [first]
            cursor = reader.cursor
            joined = await nodes.start()
            tell(nodes, joined, "a")
            told = await next_of(reader)
            assert (told.kind, told.data["node_id"]) == ("node_followed", joined)
            assert await told_groups(reader, 1) == ["a"]
        async with reading(nodes, joined, cursor=cursor) as reader:
            assert await told_groups(reader, 1) == ["a"]


async def test_a_node_that_stops_and_starts_again_loses_nothing() -> None:
    async with opened() as nodes:
        first, second = [await nodes.start() for _ in range(2)]
        async with reading(nodes, first) as reader:
            tell(nodes, second, "last")
            nodes.feeds[second].close()
            assert await told_groups(reader, 1) == ["last"]
            told = await next_of(reader)
            assert (told.kind, told.data["node_id"], told.data["reason"]) == ("node_lost", second, "stopped")
            cursor = reader.cursor
            await nodes.stop(second)
            await nothing_more(reader)
            assert await nodes.start(node_id=second) == second
            told = await next_of(reader)
            assert (told.kind, told.data["node_id"]) == ("node_followed", second)
            tell(nodes, second, "new")
            assert await told_groups(reader, 1) == ["new"]
        async with reading(nodes, first, cursor=cursor) as reader:
            assert await told_groups(reader, 1) == ["new"]
        assert not nodes.clients[first].metrics.gaps


async def test_a_node_that_is_killed_is_named_and_its_last_events_may_be_missing() -> None:
    async with opened() as nodes:
        first, second, third = [await nodes.start() for _ in range(3)]
        async with reading(nodes, first) as reader:
            before = reader.cursor
            await nodes.stacks.pop(second).aclose()
            told = await next_of(reader)
            assert (told.kind, told.data["node_id"], told.data["reason"]) == ("node_lost", second, "unreachable")
            tell(nodes, third, "goes on")
            assert await told_groups(reader, 1) == ["goes on"]
            await nodes.cluster[second].cut_short()
            told = await next_of(reader)
            assert (told.kind, told.data["node_id"], told.data["reason"]) == ("node_lost", second, "gone")
            gap = await next_of(reader)
            assert (gap.kind, gap.data["node_id"], gap.data["reason"]) == ("gap", second, "node_gone")
            after = reader.cursor
        # The gap is told to each reader once, at whichever node.
        async with reading(nodes, third, cursor=before) as reader:
            gap = await next_of(reader)
            assert (gap.kind, gap.data["node_id"], gap.data["reason"]) == ("gap", second, "node_gone")
            assert await told_groups(reader, 1) == ["goes on"]
        async with reading(nodes, third, cursor=after) as reader:
            await nothing_more(reader)
        assert nodes.clients[third].metrics.gaps == {"node_gone": 1}


async def test_a_node_that_comes_back_in_another_life_is_followed_from_the_beginning_of_that() -> None:
    async with opened() as nodes:
        first, second = [await nodes.start() for _ in range(2)]
        async with reading(nodes, first) as reader:
            cursor = reader.cursor
            await nodes.stacks.pop(second).aclose()
            await nodes.cluster[second].cut_short()
            await nodes.start(node_id=second)
            tell(nodes, second, "new")
        async with reading(nodes, first, cursor=cursor) as reader:
            gap = await next_of(reader)
            assert (gap.kind, gap.data["node_id"], gap.data["reason"]) == ("gap", second, "restarted")
            assert await told_groups(reader, 1) == ["new"]


async def test_of_a_node_that_cannot_be_reached_nothing_is_lost_if_it_answers_again() -> None:
    async with opened() as nodes:
        first = await nodes.start(token="rp_peer", timeout_ms=300)
        second = await nodes.start()
        async with reading(nodes, first) as reader:
            tell(nodes, second, "a")
            assert await told_groups(reader, 1) == ["a"]
            for connection in list(nodes.peers[first]._streaming.connector._acquired):  # type: ignore[union-attr]
                connection.transport.abort()
            tell(nodes, second, "b")
            kinds = [(await next_of(reader)).kind for _ in range(3)]
            assert kinds == ["node_lost", "node_followed", "group_created"]
        assert not nodes.clients[first].metrics.gaps


async def test_the_events_of_a_node_that_could_not_be_asked_at_first_begin_with_a_gap(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with opened() as nodes:
        first, second = await nodes.start(accepted="rp_other"), await nodes.start()
        async with reading(nodes, second) as reader:
            assert reader.nodes == [second]
            told = await next_of(reader)
            assert (told.kind, told.data["node_id"], told.data["reason"]) == ("node_lost", first, "unreachable")
            assert "cluster_token_file" in told.data["detail"]
            assert f"{first}=?" in reader.cursor
            tell(nodes, second, "own")
            assert await told_groups(reader, 1) == ["own"]
            assert reader.caught_up == 1
            cursor = reader.cursor
            await nodes.stacks.pop(first).aclose()
            await nodes.cluster[first].cut_short()
            await nodes.start(node_id=first)
            tell(nodes, first, "a")
            told = await next_of(reader)
            assert (told.kind, told.data["node_id"]) == ("node_followed", first)
            gap = await next_of(reader)
            assert (gap.kind, gap.data["node_id"], gap.data["reason"]) == ("gap", first, "node_unreachable")
        async with reading(nodes, first, cursor=cursor) as reader:
            gap = await next_of(reader)
            assert (gap.kind, gap.data["node_id"], gap.data["reason"]) == ("gap", first, "node_unreachable")
    assert caplog.text.count("cannot be asked: it accepts neither token nor certificate") == 1


async def test_what_another_node_has_dropped_is_a_gap_of_that_node() -> None:
    async with opened() as nodes:
        first, second = await nodes.start(), await nodes.start(kept_max=2)
        async with reading(nodes, first) as reader:
            cursor = reader.cursor
        tell(nodes, second, *"abcd")
        tell(nodes, first, "ours")
        async with reading(nodes, first, cursor=cursor) as reader:
            found = [await next_of(reader) for _ in range(2)]
            [gap] = [one for one in found if one.kind == "gap"]
            assert (gap.data["node_id"], gap.data["reason"]) == (second, "cursor_too_old")
            assert [one.data["group_id"] for one in found if one.kind != "gap"] == ["ours"]


async def test_a_slow_reader_is_told_of_which_node_it_has_lost_events() -> None:
    count = 6_000
    async with opened() as nodes:
        first, second = await nodes.start(kept_max=50), await nodes.start(kept_max=50)
        async with reading(nodes, first) as reader:
            for number in range(count):
                for node_id in (first, second):
                    nodes.feeds[node_id].event(
                        RebalanceBegan("g", Trigger.MEMBER_LEFT, node_id, number, "x" * 1_000, 1)
                    )
                if number % 50 == 0:
                    await asyncio.sleep(0)
            accounted = {first: 0, second: 0}
            while set(accounted.values()) != {count}:
                told = await next_of(reader)
                if told.kind == "gap":
                    assert told.data["reason"] == "slow_reader"
                    accounted[told.data["node_id"]] += told.data["lost_count"]
                else:
                    node_id = told.data["member_id"]
                    assert told.data["generation_id"] == accounted[node_id], "neither told nor said to be lost"
                    accounted[node_id] += 1
            assert nodes.clients[first].metrics.gaps["slow_reader"]


async def test_streams_of_nodes_have_places_of_their_own() -> None:
    limits = StreamLimits(event_streams_max=1)
    async with opened() as nodes:
        ids = [await nodes.start(stream_limits=limits) for _ in range(3)]
        async with reading(nodes, ids[0]) as a, reading(nodes, ids[1]) as b, reading(nodes, ids[2]) as c:
            assert [reader.nodes for reader in (a, b, c)] == [sorted(ids)] * 3
            for query in ("", "?node_only=true"):
                problem = check_problem(await nodes.clients[ids[0]].request("GET", f"/v1/events{query}"))
                assert (problem["status"], problem["limit_name"]) == (429, "event_streams_max")
                check_documented(EVENTS, problem)


async def test_a_stream_ends_whole_when_its_own_node_stops() -> None:
    async with opened() as nodes:
        first, second = await nodes.start(), await nodes.start()
        async with reading(nodes, first) as reader:
            tell(nodes, first, "last")
            nodes.feeds[first].close()
            assert await told_groups(reader, 1) == ["last"]
            assert await reader.next() is None
            cursor = reader.cursor
        await until_connected(nodes, second, 0)
        tell(nodes, second, "later")
        await nodes.stop(first)
        async with reading(nodes, second, cursor=cursor) as reader:
            assert await told_groups(reader, 1) == ["later"]
        await nodes.start(node_id=first)
        tell(nodes, first, "new")
        async with reading(nodes, first, cursor=cursor) as reader:
            assert sorted(await told_groups(reader, 2)) == ["later", "new"]


async def test_head_follows_nobody() -> None:
    async with opened() as nodes:
        first, second = await nodes.start(), await nodes.start()
        answer = await nodes.clients[first].request("HEAD", "/v1/events")
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
        assert [nodes.clients[one].metrics.streams for one in (first, second)] == [0, 0]


async def test_a_cursor_that_no_node_has_given_is_refused_or_told() -> None:
    async with opened() as nodes:
        first, second = await nodes.start(), await nodes.start()
        ahead = encode_positions({first: Position("life1", 9)})
        problem = check_problem(await nodes.clients[first].request("GET", f"/v1/events?cursor={ahead}"))
        assert (problem["status"], problem["field"]) == (400, "cursor")
        ahead = encode_positions({first: Position("life1", 0), second: Position("life2", 9)})
        async with reading(nodes, first, cursor=ahead) as reader:
            gap = await next_of(reader)
            assert (gap.kind, gap.data["node_id"], gap.data["reason"]) == ("gap", second, "cursor_too_old")
