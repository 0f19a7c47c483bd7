"""Any node lists the groups of all: pages are joined without a loss or a double, and what is missing is named."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.coordinator.access.principals import ANYBODY, Caller
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.http.access.control import AccessControl
from rallypoint.coordinator.http.cluster.group_lists import GroupLists, join_pages
from rallypoint.coordinator.http.cluster.peers import PeerClient, Unanswered
from rallypoint.coordinator.runtime.contract import NodeAddress
from rallypoint.coordinator.runtime.event_loop.clock import SystemClock
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.group_hash import shard_of_group
from tests.fakes.cluster_api import Nodes, opened
from tests.fakes.cluster_harness import SHARDS

NODES = ("n1", "n2", "n3")
IDS = st.text("abc", min_size=1, max_size=3)


def listing(group_id: str, generation_id: int = 1) -> admin.GroupListing:
    return admin.GroupListing(
        group_id=group_id, state="Stable", protocol_type="consumer", member_count=1, generation_id=generation_id
    )


def damaged(group_id: str) -> admin.DamagedGroup:
    return admin.DamagedGroup(group_id=group_id, error_code=15, error_name="COORDINATOR_NOT_AVAILABLE", detail="No.")


def page(
    groups: Sequence[str] = (), shards: Sequence[int] = (), next_cursor: str | None = None, **more: Any
) -> admin.ListGroupsAnswer:
    groups_listed = tuple(map(listing, groups))
    return admin.ListGroupsAnswer(groups=groups_listed, listed_shards=tuple(shards), next_cursor=next_cursor, **more)


def joined(pages: dict[str, Any], owners: Sequence[str | None], limit: int = 10) -> admin.ListGroupsAnswer:
    answer = join_pages(pages, owners, limit)
    assert isinstance(answer, admin.ListGroupsAnswer), answer
    return answer


def ids(answer: admin.ListGroupsAnswer) -> list[str]:
    return [group.group_id for group in answer.groups]


# --- joining pages


@given(
    st.dictionaries(IDS, st.sets(st.sampled_from(NODES), min_size=1)),
    st.dictionaries(IDS, st.sampled_from(NODES)),
    st.integers(1, 4),
)
def test_walking_the_pages_gives_each_group_once(
    groups: dict[str, set[str]], broken: dict[str, str], limit: int
) -> None:
    """Each node lists as it does alone; a group that moves meanwhile is listed by several."""
    found: list[str] = []
    shut_off: list[str] = []
    cursor: str | None = None
    for _ in range(len(groups) + len(broken) + 1):
        pages = {node: alone(node, groups, broken, cursor, limit) for node in NODES}
        answer = joined(pages, NODES, limit)
        assert len(answer.groups) <= limit
        assert len(answer.damaged_groups) <= limit
        assert answer.unavailable_shards == ()
        found += ids(answer)
        shut_off += [group.group_id for group in answer.damaged_groups]
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert cursor is None, "the pages do not end"
    assert found == sorted(groups.keys() - broken.keys())
    assert shut_off == sorted(broken)


def alone(
    node: str, groups: dict[str, set[str]], broken: dict[str, str], cursor: str | None, limit: int
) -> admin.ListGroupsAnswer:
    mine = sorted(one for one, nodes in groups.items() if node in nodes and (cursor is None or one > cursor))
    shut = sorted(one for one, owner in broken.items() if owner == node and (cursor is None or one > cursor))
    upto = None
    for found in (mine, shut):
        within = [one for one in found if upto is None or one <= upto]
        upto = within[limit - 1] if len(within) > limit else upto
    return page(
        [one for one in mine if upto is None or one <= upto],
        [NODES.index(node)],
        upto,
        damaged_groups=tuple(damaged(one) for one in shut if upto is None or one <= upto),
    )


def test_of_a_group_on_two_pages_the_later_generation_counts() -> None:
    older, newer = page((), [0]), page((), [0, 1])
    older = older.model_copy(update={"groups": (listing("g", 3),)})
    newer = newer.model_copy(update={"groups": (listing("g", 4),)})
    for pages in ({"n1": older, "n2": newer}, {"n1": newer, "n2": older}):
        assert joined(pages, ("n2", "n2")).groups == (listing("g", 4),)


def test_what_no_page_has_is_named_with_its_reason() -> None:
    loading = admin.UnavailableShard(
        shard=4, error_code=14, error_name="COORDINATOR_LOAD_IN_PROGRESS", detail="It is being loaded."
    )
    pages = {
        "n1": page(["a"], [0]),
        "n2": Unanswered("it gave no answer within 2000 ms"),
        "n3": page((), (), unavailable_shards=(loading,)),
    }
    answer = joined(pages, ("n1", "n2", None, "n3", "n3"))
    assert ids(answer) == ["a"]
    assert [(one.shard, one.error_name, one.detail) for one in answer.unavailable_shards] == [
        (
            1,
            "COORDINATOR_NOT_AVAILABLE",
            "Shard 1 is coordinated by node 'n2', which cannot be asked: it gave no answer within 2000 ms.",
        ),
        (2, "COORDINATOR_NOT_AVAILABLE", "No node coordinates shard 2 now; try again."),
        (3, "COORDINATOR_LOAD_IN_PROGRESS", "Node 'n3' takes shard 3 over at this moment; try again."),
        (4, "COORDINATOR_LOAD_IN_PROGRESS", "It is being loaded."),
    ]


def test_where_no_node_lists_anything_the_list_is_refused() -> None:
    answer = join_pages({"n1": page(), "n2": Unanswered("it refuses: No")}, (None, "n2"), 10)
    assert isinstance(answer, Failure)
    assert answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


# --- over HTTP


def listed(answer: Any) -> list[str]:
    return [group["group_id"] for group in answer["groups"]]


async def test_any_node_lists_the_groups_of_all() -> None:
    async with opened() as nodes:
        node_ids = [await nodes.start() for _ in NODES]
        group_ids = await nodes.form(20)
        for node_id in node_ids:
            answer = await nodes.ask(node_id)
            assert listed(answer) == group_ids
            assert (answer["next_cursor"], answer["unavailable_shards"], answer["listed_shards"]) == (None, [], None)
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            answer = await nodes.ask(node_ids[0], f"?limit=3&prefix=group-&state=stable&cursor={cursor}")
            assert len(answer["groups"]) <= 3
            found += listed(answer)
            cursor = answer["next_cursor"]
        assert found == group_ids
        assert listed(await nodes.ask(node_ids[0], "?prefix=group-1%31")) == ["group-11"]
        assert listed(await nodes.ask(node_ids[0], "?state=empty")) == []


async def test_an_order_and_its_cursor_hold_over_all_nodes() -> None:
    async with opened() as nodes:
        node_ids = [await nodes.start() for _ in NODES]
        group_ids = await nodes.form(20)
        for query in ("sort=group_id&descending=true", "sort=last_rebalance", "sort=state&descending=true"):
            found: list[str] = []
            cursor = ""
            for turn in range(8):
                behind = f"&cursor={cursor}" if cursor else ""
                answer = await nodes.ask(node_ids[turn % 3], f"?{query}&limit=3&totals=true{behind}")
                assert answer["totals"]["group_count"] == answer["totals"]["matching_count"] == 20
                assert answer["totals"]["by_state"] == {"Stable": 20}
                found += listed(answer)
                cursor = answer["next_cursor"]
                if cursor is None:
                    break
            assert sorted(found) == group_ids
            if query.startswith("sort=group_id"):
                assert found == group_ids[::-1]
        filtered = await nodes.ask(node_ids[1], "?search=P-1&totals=true&limit=2")
        assert filtered["totals"]["matching_count"] == len([one for one in group_ids if "p-1" in one])


async def test_a_node_lists_its_own_groups_if_asked_to() -> None:
    async with opened() as nodes:
        node_ids = [await nodes.start() for _ in NODES]
        group_ids = await nodes.form(20)
        found = []
        for node_id in node_ids:
            answer = await nodes.ask(node_id, "?node_only=true")
            assert set(answer["listed_shards"]) == nodes.shards_of(node_id)
            assert {shard_of_group(one, SHARDS) for one in listed(answer)} <= nodes.shards_of(node_id)
            found += listed(answer)
        assert sorted(found) == group_ids
        assert listed(await nodes.ask(node_ids[0], "?node_only=false")) == group_ids
        refused = await nodes.clients[node_ids[0]].request("GET", "/v1/groups?node_only=yes")
        assert (refused.status, refused.json["field"]) == (400, "node_only")


async def test_shards_of_a_node_that_is_silent_are_named(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as nodes:
        first = await nodes.start()
        second = await nodes.start()
        group_ids = await nodes.form(20)
        await nodes.stacks.pop(second).aclose()
        theirs = nodes.shards_of(second)
        with caplog.at_level(logging.INFO, "rallypoint.http"):
            for _ in range(2):
                answer = await nodes.ask(first)
                assert listed(answer) == [one for one in group_ids if shard_of_group(one, SHARDS) not in theirs]
                assert {one["shard"] for one in answer["unavailable_shards"]} == theirs
                for one in answer["unavailable_shards"]:
                    assert f"coordinated by node {second!r}, which cannot be asked: " in one["detail"]
        assert len([line for line in caplog.messages if "cannot be asked" in line]) == 1


async def test_a_node_that_takes_too_long_is_not_waited_for() -> None:
    hangs = asyncio.Event()

    async def hang(request: web.BaseRequest) -> web.StreamResponse:
        hangs.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    runner = web.ServerRunner(web.Server(hang), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with PeerClient(SystemClock(), timeout_ms=50) as peers:
            peer = NodeAddress("n2", f"http://127.0.0.1:{runner.addresses[0][1]}")
            answer = await peers.list_groups(peer, admin.ListGroupsRequest(node_only=True))
    finally:
        await runner.cleanup()
    assert hangs.is_set()
    assert answer == Unanswered("it gave no answer within 50 ms")


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, b"<html>", "it answers HTTP 200 with something that is no list of groups"),
        (302, b"", "it answers HTTP 302 with something that is no list of groups"),
        (200, b'{"groups": []}', "its list does not say which shards it is of"),
    ],
)
async def test_what_is_no_page_of_a_node_is_no_answer(status: int, body: bytes, why: str) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers={"Location": "/elsewhere"})

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with PeerClient(SystemClock()) as peers:
            peer = NodeAddress("n2", f"http://127.0.0.1:{runner.addresses[0][1]}")
            assert await peers.list_groups(peer, admin.ListGroupsRequest(node_only=True)) == Unanswered(why)
    finally:
        await runner.cleanup()


async def test_a_node_presents_its_token_to_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as nodes:
        first = await nodes.start(token="rp_peer", accepted="rp_peer")
        second = await nodes.start(accepted="rp_peer")
        group_ids = await nodes.form(8)
        assert listed(await nodes.ask(first, token="rp_peer")) == group_ids
        answer = await nodes.ask(second, token="rp_peer")
        details = {one["detail"].partition(": ")[2] for one in answer["unavailable_shards"]}
        assert details == {
            "it accepts neither token nor certificate of this node; set cluster_token_file to a token that it accepts."
        }
        assert {one["shard"] for one in answer["unavailable_shards"]} == nodes.shards_of(first)
        assert "cluster_token_file" in caplog.text
        assert "rp_peer" not in caplog.text


class MovingPeers(PeerClient):
    """Between the page of the first node and that of the second, the first one hands everything over."""

    def __init__(self, nodes: Nodes, first: str, *, loads: bool) -> None:
        super().__init__(nodes.cluster.clock)
        self.nodes = nodes
        self.first = first
        self.loads = loads

    async def list_groups(
        self, peer: NodeAddress, request: admin.ListGroupsRequest, caller: Caller = ANYBODY
    ) -> admin.ListGroupsAnswer | Unanswered:
        cluster = self.nodes.cluster
        if not self.loads:
            cluster.contents.run_out(self.first)
        elif cluster[self.first].shards:
            draining = asyncio.create_task(cluster[self.first].member.drain())
            await cluster.clock.run(1_000)
            await draining
        answer = await cluster[peer.node_id].service.list_groups(request)
        assert isinstance(answer, admin.ListGroupsAnswer)
        return answer


async def test_a_group_that_moves_while_the_nodes_are_asked_is_listed_once() -> None:
    async with opened() as nodes:
        first, second = await nodes.start(), await nodes.start()
        group_ids = await nodes.form(12)
        assert nodes.shards_of(first)
        asking = nodes.cluster[first]
        lists = GroupLists(asking.service, asking.member, MovingPeers(nodes, first, loads=True))
        answer = await lists.list_groups(admin.ListGroupsRequest(), AccessControl().anybody)
        assert isinstance(answer, admin.ListGroupsAnswer)
        assert nodes.shards_of(second) == set(range(SHARDS))
        assert ids(answer) == group_ids
        assert answer.unavailable_shards == ()


async def test_groups_that_leave_a_node_before_it_is_asked_are_named_as_missing() -> None:
    async with opened() as nodes:
        first, second, third = await nodes.start(), await nodes.start(), await nodes.start()
        group_ids = await nodes.form(20)
        lost = nodes.shards_of(second)
        asking = nodes.cluster[first]
        lists = GroupLists(asking.service, asking.member, MovingPeers(nodes, second, loads=False))
        answer = await lists.list_groups(admin.ListGroupsRequest(), AccessControl().anybody)
        assert isinstance(answer, admin.ListGroupsAnswer)
        assert {one.shard for one in answer.unavailable_shards} == lost
        assert set(ids(answer)) == {one for one in group_ids if shard_of_group(one, SHARDS) not in lost}
        assert third in nodes.clients


async def test_a_node_past_the_deadline_of_its_lease_lists_nothing_of_its_own() -> None:
    async with opened() as nodes:
        first, second = await nodes.start(), await nodes.start()
        group_ids = await nodes.form(12)
        nodes.cluster[first].store.is_past_deadline = True
        ours = nodes.shards_of(first)
        answer = await nodes.ask(second)
        assert listed(answer) == [one for one in group_ids if shard_of_group(one, SHARDS) not in ours]
        assert {one["shard"] for one in answer["unavailable_shards"]} == ours
        assert all("cannot tell whether it still coordinates" in one["detail"] for one in answer["unavailable_shards"])
        nodes.cluster[first].store.is_past_deadline = False
        assert listed(await nodes.ask(second)) == group_ids
