"""What the feed keeps, in which order, and that nothing is lost without a word."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.coordinator.core.effects import (
    Event,
    GroupChanged,
    GroupCreated,
    GroupRemoved,
    GroupSummary,
    OffsetsCommitted,
    OffsetsReset,
    Removal,
)
from rallypoint.coordinator.runtime.events.feed import EventFeed, FeedReader
from tests.fakes.manual_clock import settle


def feed_of(kept_max: int = 10) -> EventFeed:
    return EventFeed("life", kept_max, lambda: 7)


def commit(partitions: int = 1) -> OffsetsCommitted:
    return OffsetsCommitted("g", tuple(("t", partition, 5) for partition in range(partitions)), 1)


def all_of(reader: FeedReader) -> list[int]:
    numbers = []
    while (kept := reader.take()) is not None:
        assert kept.at_ms == 7
        numbers.append(kept.number)
    return numbers


def test_events_are_numbered_together_and_read_in_order() -> None:
    feed = feed_of()
    changes, both = feed.read(commits=False), feed.read(commits=True)
    for event in (GroupCreated("g"), commit(), commit(), GroupRemoved("g", Removal.DELETED), commit()):
        feed.event(event)
    assert all_of(changes) == [1, 4]
    assert all_of(both) == [1, 2, 3, 4, 5]
    assert changes.number == both.number == 5, "the cursor passes what is not for this reader"
    assert all_of(feed.read(commits=False, after=1)) == [4]
    assert all_of(feed.read(commits=True, after=3)) == [4, 5]
    assert all_of(feed.read(commits=True)) == []


def test_commits_do_not_push_out_what_everyone_wants() -> None:
    feed = feed_of(kept_max=2)
    feed.event(GroupCreated("g"))
    for _ in range(100):
        feed.event(commit())
    assert all_of(feed.read(commits=False, after=0)) == [1]
    with_commits = feed.read(commits=True, after=0)
    assert with_commits.lost_count == 1, "how many were gone before it came nobody knows"
    with_commits.skip()
    assert (all_of(with_commits), with_commits.number) == ([], 101)


def test_a_group_that_is_gone_is_told_once() -> None:
    feed = feed_of()
    reader = feed.read(commits=True)
    feed.event(GroupRemoved("g", Removal.DELETED))
    feed.event(GroupChanged(GroupSummary("g", "Dead", "", 0, 0)))
    assert all_of(reader) == [1]
    assert isinstance(feed.changes.at(0).event, GroupRemoved)


def test_a_reader_that_is_overtaken_is_told_how_much_it_lost() -> None:
    feed = feed_of(kept_max=3)
    reader = feed.read(commits=False)
    for _ in range(3):
        feed.event(GroupCreated("g"))
    assert (reader.lost_count, reader.unread_count) == (0, 3)
    for _ in range(4):
        feed.event(GroupCreated("g"))
    assert (reader.lost_count, reader.unread_count) == (4, 7)
    with pytest.raises(AssertionError):
        reader.take()
    reader.skip()
    feed.event(GroupCreated("g"))
    assert all_of(reader) == [8]


def test_many_partitions_weigh_more_and_what_outweighs_the_ring_is_not_kept() -> None:
    feed = feed_of(kept_max=10)
    for _ in range(4):
        feed.event(commit(20))
    reader = feed.read(commits=True, after=2)
    assert all_of(reader) == [3, 4]
    feed.event(commit(1_000))
    assert (reader.lost_count, feed.commits.gone) == (1, 5)
    reader.skip()
    feed.event(commit(1))
    assert all_of(reader) == [6]
    feed.event(OffsetsReset("g", "latest", tuple(("t", partition, 5) for partition in range(90)), 1))
    feed.event(GroupCreated("g"))
    assert feed.changes.gone == 1


async def test_who_waits_is_woken_by_what_it_reads_alone() -> None:
    feed = feed_of()
    changes, both = feed.read(commits=False), feed.read(commits=True)
    waiting = [asyncio.create_task(reader.wait()) for reader in (changes, both)]
    await settle()
    feed.event(commit())
    await settle()
    assert [task.done() for task in waiting] == [False, True]
    feed.event(GroupCreated("g"))
    await settle()
    assert waiting[0].done()
    assert all_of(changes) == [2]
    stopped = asyncio.create_task(changes.wait())
    await settle()
    stopped.cancel()
    await settle()
    assert not feed.changes.waiting, "who went away is not waited for"
    last = asyncio.create_task(changes.wait())
    await settle()
    feed.close()
    await settle()
    assert last.done()


@given(
    st.lists(st.sampled_from(["change", "commit", "big commit", "read", "take one"]), max_size=60),
    st.integers(1, 6),
    st.booleans(),
)
def test_every_event_is_read_once_or_counted_as_lost(actions: list[str], kept_max: int, commits: bool) -> None:
    """Against a list of everything that ever happened."""
    feed = feed_of(kept_max)
    reader = feed.read(commits=commits)
    wanted: list[int] = []
    seen: list[int] = []
    lost = 0
    for action in [*actions, "read"]:
        if action in {"read", "take one"}:
            if reader.lost_count:
                missed = [number for number in wanted if number not in seen][lost:]
                lost += len(missed)
                assert reader.unread_count == len(missed)
                reader.skip()
            seen += all_of(reader) if action == "read" else [k.number for k in [reader.take()] if k is not None]
        else:
            event: Event = GroupCreated("g") if action == "change" else commit(35 if "big" in action else 1)
            feed.event(event)
            if commits or action == "change":
                wanted.append(feed.last_number)
    assert seen == sorted(seen)
    assert len(seen) + lost == len(wanted)
    assert set(seen) <= set(wanted)
