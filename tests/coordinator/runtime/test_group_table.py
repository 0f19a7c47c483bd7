"""The list of groups: sorted, filtered and summed at the service, page by page, without holding others up."""

import asyncio
import itertools
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rallypoint.coordinator.core.effects import GroupChanged, GroupSummary, OffsetsCommitted, OffsetsLoaded
from rallypoint.coordinator.core.group_order import BadCursor, GroupOrder
from rallypoint.coordinator.core.records import TopicRecord
from rallypoint.coordinator.core.topics import Registry
from rallypoint.coordinator.http.cluster.group_lists import join_pages
from rallypoint.coordinator.runtime.group_table import GroupTable
from rallypoint.coordinator.runtime.view import GroupView
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.service_harness import ServiceHarness, code, commit
from tests.sizes import by_size

SORTS = ("group_id", "lag", "member_count", "state", "status", "last_commit", "last_rebalance")
STATES = ("Empty", "Stable", "PreparingRebalance", "CompletingRebalance")
NOW = 1_700_000_000_000


def view_of(*, ends: dict[int, int]) -> GroupView:
    registry = Registry(topics={"t": TopicRecord("t", 100_000, 1, ends)})
    return GroupView(lambda: registry, lambda: NOW)


def add(view: GroupView, group_id: str, *, lag: int | None = None, commit_at_ms: int = NOW, **summary: Any) -> None:
    made = GroupSummary(group_id, "Stable", "consumer", 1, 1)
    view.event(GroupChanged(replace(made, **summary)))
    if lag is not None:
        view.event(OffsetsCommitted(group_id, (("t", 0, 1_000 - lag),), commit_at_ms))


async def page_of(view: GroupView, **asked: Any) -> admin.ListGroupsAnswer:
    request = admin.ListGroupsRequest(**asked)
    order = GroupOrder(request.sort, descending=request.descending)
    after = None if request.cursor is None else order.read_cursor(request.cursor)
    return await GroupTable(view, lambda group_id: 0).page(request, order, after)


GROUPS = st.dictionaries(
    st.text("aB\0é€😀", max_size=4),
    st.tuples(
        st.none() | st.integers(0, 3),
        st.integers(0, 2),
        st.sampled_from(STATES),
        st.none() | st.integers(1, 3),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    max_size=12,
)


@settings(max_examples=by_size(20, 100))
@given(GROUPS, st.sampled_from(SORTS), st.booleans(), st.integers(1, 5))
def test_the_pages_of_all_nodes_together_are_the_whole_list_in_order(
    groups: dict[str, Any], sort: str, descending: bool, limit: int
) -> None:
    views = [view_of(ends={0: 1_000}) for _ in range(3)]
    for group_id, (lag, members, state, rebalanced, commit_at, node) in groups.items():
        summary = {"member_count": members, "state": state, "last_rebalance_at_ms": rebalanced}
        add(views[node], group_id, lag=lag, commit_at_ms=commit_at, **summary)

    async def walk() -> list[admin.GroupListing]:
        found: list[admin.GroupListing] = []
        cursor: str | None = None
        for _ in range(len(groups) + 1):
            asked: dict[str, Any] = {"sort": sort, "descending": descending, "limit": limit, "cursor": cursor}
            pages = {
                f"n{node}": (await page_of(view, **asked)).model_copy(update={"listed_shards": (node,)})
                for node, view in enumerate(views)
            }
            joined = join_pages(pages, ["n0", "n1", "n2"], limit, GroupOrder(sort, descending=descending))
            assert isinstance(joined, admin.ListGroupsAnswer)
            assert len(joined.groups) <= limit
            found += joined.groups
            cursor = joined.next_cursor
            if cursor is None:
                return found
        raise AssertionError("the pages do not end")

    found = asyncio.run(walk())
    assert sorted(row.group_id for row in found) == sorted(groups)
    assert found == sorted(found, key=plain_key(sort, descending))


def plain_key(sort: str, descending: bool) -> Any:
    """The order as one would write it down for a list of rows."""

    def value(row: admin.GroupListing) -> Any:
        known = {
            "lag": row.lag, "member_count": row.member_count, "status": ("OK", "WARN", "ERR").index(row.status or "OK"),
            "state": ("Empty", "Stable", "CompletingRebalance", "PreparingRebalance").index(row.state),
            "last_commit": row.last_commit_at_ms, "last_rebalance": row.last_rebalance_at_ms,
        }[sort]  # fmt: skip
        unknown = known is None or (sort == "status" and row.status is None)
        return -1 if unknown else known

    if sort == "group_id":
        return lambda row: (
            [(-ord(letter) if descending else ord(letter)) for letter in row.group_id] + ([1] if descending else [])
        )
    return lambda row: (-value(row) if descending else value(row), row.group_id)


async def test_each_filter_and_all_together() -> None:
    view = view_of(ends={0: 1_000})
    add(view, "Orders-1", lag=5, state="Stable", member_count=3, frozen_until_ms=9)
    add(view, "orders-2", lag=0, state="Empty")
    add(view, "clicks", lag=None, subscriptions=frozenset({frozenset({"u", "v"}), frozenset({"w"})}))

    async def ids(**asked: Any) -> list[str]:
        return [row.group_id for row in (await page_of(view, **asked)).groups]

    assert await ids() == ["Orders-1", "clicks", "orders-2"]
    assert await ids(search="ORDERS") == ["Orders-1", "orders-2"]
    assert await ids(search="ORDERS", prefix="o") == ["orders-2"]
    assert await ids(topic="t") == ["Orders-1", "orders-2"]
    assert await ids(topic="w") == ["clicks"]
    assert await ids(topic="x") == []
    assert await ids(lag_above=0) == ["Orders-1"]
    assert await ids(lag_above=5) == []
    assert await ids(frozen=True) == ["Orders-1"]
    assert await ids(frozen=False) == ["clicks", "orders-2"]
    assert await ids(status="ok") == ["Orders-1", "orders-2"]
    assert await ids(status="ERR") == []
    assert await ids(state="stable", search="1", topic="t", lag_above=4, frozen=True, status="ok") == ["Orders-1"]


async def test_totals_are_of_all_that_match_whatever_the_page() -> None:
    view = view_of(ends={0: 1_000})
    for number in range(10):
        add(view, f"g{number}", lag=number, member_count=2)
    add(view, "other", state="Empty", member_count=0)
    answer = await page_of(view, prefix="g", limit=3, totals=True)
    assert len(answer.groups) == 3
    assert answer.totals == admin.GroupTotals(
        group_count=11, matching_count=10, by_state={"Stable": 10}, by_status={"OK": 10}, lag=45, member_count=20
    )
    assert (await page_of(view)).totals is None


async def test_a_row_says_what_the_group_reads_and_how_far_it_is() -> None:
    view = view_of(ends={0: 1_000, 1: 50})
    many = frozenset(f"s{number:02}" for number in range(12))
    add(view, "g", subscriptions=frozenset({many}), rebalance_id=4, last_rebalance_at_ms=77)
    view.event(OffsetsCommitted("g", (("t", 0, 990), ("t", 1, 60), ("t", 2, 5)), 99))
    [row] = (await page_of(view)).groups
    assert (row.lag, row.status, row.committed_partition_count, row.last_commit_at_ms) == (10, "OK", 3, 99)
    assert (row.topics, row.topic_count) == (tuple(sorted(many)[:10]), 13)
    assert (row.rebalance_id, row.last_rebalance_at_ms) == (4, 77)


@pytest.mark.parametrize("cursor", ["!", "", "eA", "bnVsbA", "W1tb" * 512, GroupOrder("state").cursor_of((1, "g"))])
async def test_a_cursor_of_another_list_is_refused(cursor: str) -> None:
    harness = await ServiceHarness().start()
    refused = await harness.service.list_groups(admin.ListGroupsRequest(sort="lag", cursor=cursor))
    assert code(refused) is ErrorCode.INVALID_REQUEST
    with pytest.raises(BadCursor):
        GroupOrder("lag").read_cursor(cursor)


async def test_what_is_awaited_shows_in_the_row() -> None:
    harness = await ServiceHarness().start()
    ids = await harness.form("g", "a", "b", "c")
    left = m.LeaveRequest(members=(m.LeaveMember(member_id=ids["a"]),))
    await harness.now("g", left)
    answer = await harness.service.list_groups(admin.ListGroupsRequest())
    assert isinstance(answer, admin.ListGroupsAnswer)
    [row] = answer.groups
    assert (row.state, row.awaited_count, row.rebalance_id) == ("PreparingRebalance", 2, 2)


async def test_after_a_restart_the_time_of_the_last_commit_is_known() -> None:
    before = await ServiceHarness().start()
    await before.now("g", commit(5))
    at_ms = before.clock.now_ms()
    await before.service.drain()
    after = await ServiceHarness(before.contents, clock=before.clock).start()
    answer = await after.service.list_groups(admin.ListGroupsRequest())
    assert isinstance(answer, admin.ListGroupsAnswer)
    assert [row.last_commit_at_ms for row in answer.groups] == [at_ms]


async def test_no_turn_is_long_with_many_groups_and_one_of_many_partitions() -> None:
    """Between two slices a look at so many partitions, or groups, is all that may happen."""
    groups, partitions = by_size(2_000, 10_000), by_size(20_000, 200_000)
    view = view_of(ends=dict.fromkeys(range(partitions), 1_000))
    for number in range(groups):
        add(view, f"g{number}", lag=number % 10)
    add(view, "wide")
    view.event(OffsetsLoaded("wide", tuple(("t", number, 1, NOW) for number in range(partitions))))
    asking = asyncio.create_task(page_of(view, sort="status", descending=True, totals=True, limit=10))
    turns = 0
    longest_s = 0.0
    while not asking.done():
        began_s = time.perf_counter()
        await asyncio.sleep(0)
        longest_s = max(longest_s, time.perf_counter() - began_s)
        turns += 1
    answer = await asking
    assert turns >= partitions // 4_000 + groups // 1_000
    assert answer.totals is not None
    assert answer.totals.matching_count == groups + 1
    print(f"{turns} turns, the longest {longest_s * 1000:.1f} ms")  # shown with -s; a busy machine may take any time


def test_every_sort_has_its_order() -> None:
    rows = [
        admin.GroupListing(group_id=group_id, state="Stable", protocol_type="", member_count=1, generation_id=1)
        for group_id in ("b", "a")
    ]
    for sort, descending in itertools.product(SORTS, (False, True)):
        order = GroupOrder(sort, descending=descending)
        for row in rows:
            place = order.place_of(row)
            assert order.read_cursor(order.cursor_of(place)) == place
