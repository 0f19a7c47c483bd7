"""Single situations of the planner, on the model of group_model.py; crashes are in test_planner_crashes.py."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from rallypoint import Assignment
from rallypoint.member.errors import CoordinatorUnavailable
from rallypoint.spark_bridge.control import Answer, ControlDirectory, Question, ReaderControl, Request
from rallypoint.spark_bridge.errors import DataLost, NotAssigned, QueryFenced, QueryRefused, SourceError
from rallypoint.spark_bridge.offsets import INITIAL, StreamOffset, TopicPartition, ranges_between
from rallypoint.spark_bridge.options import LATEST, BridgeOptions, SourceOptions, StartingOffsets
from rallypoint.spark_bridge.plan import CommitOutcome, Committed
from rallypoint.spark_bridge.planner import Planner
from rallypoint.spark_bridge.subscription import Subscription
from tests.spark_bridge.group_model import TOPIC, Checkpoint, CountedSource, ModelMembership, Query, World


class Unreachable(ModelMembership):
    """A place whose coordinator is away while the test says so."""

    away = False
    is_heard = True

    def lasts(self, assignment: Assignment) -> bool:
        return self.is_heard and super().lasts(assignment)

    def commit(self, offsets: Mapping[TopicPartition, Committed], assignment: Assignment) -> CommitOutcome:
        return CommitOutcome.LATER if self.away else super().commit(offsets, assignment)

    def committed(self) -> dict[TopicPartition, Committed]:
        if self.away:
            raise CoordinatorUnavailable("nobody answers")
        return super().committed()


class Nowhere(ModelMembership):
    """A place that never gets an assignment."""

    def assignment(self, wait_ms: int, *, newer_than: int, interrupted: Callable[[], bool]) -> Assignment | None:
        return None


def planner(
    world: World,
    membership: ModelMembership | None = None,
    *,
    options: BridgeOptions | None = None,
    control: ReaderControl | None = None,
    now_ms: Callable[[], float] = lambda: 0.0,
    source: CountedSource | None = None,
    subscription: Subscription | None = None,
    at_begin: Callable[[str], None] = lambda checkpoint_id: None,
    at_first_batch: Callable[[], None] = lambda: None,
) -> Planner:
    source = source or CountedSource(world)
    return Planner(
        options or world.options,
        source,
        membership or ModelMembership(world, "q"),
        control or ReaderControl(None, "r"),
        subscription=subscription or Subscription(options or world.options, source),
        draw_checkpoint_id=world.draw_checkpoint_id,
        at_begin=at_begin,
        at_first_batch=at_first_batch,
        now_ms=now_ms,
    )


def ends(offset: Mapping[str, Any]) -> dict[str, int]:
    return {partition: entry["end"] for partition, entry in offset["partitions"][TOPIC].items()}


def write_all(world: World) -> None:
    """As if a batch had written every record."""
    for partition in world.written:
        for batches in partition:
            batches.add(("c", 0))


def full_world() -> World:
    world = World(2)
    world.produce(0, 10)
    world.produce(1, 20)
    return world


def test_a_limit_is_kept_and_the_same_offset_comes_back_when_nothing_is_new() -> None:
    world = full_world()
    one = planner(world)
    offset = one.latest_offset(INITIAL, 9)
    assert ends(offset) == {"0": 3, "1": 6}
    for partition, end in ((0, 3), (1, 6)):
        for batches in world.written[partition][:end]:
            batches.add(("c", 0))
    assert sum(ends(one.latest_offset(offset, None)).values()) == 30
    world.ends = [3, 6]
    assert one.latest_offset(offset, None) is offset


def test_an_idle_query_commits_nothing() -> None:
    world = World(2)
    membership = ModelMembership(world, "q")
    one = planner(world, membership)
    one.latest_offset(INITIAL, None)
    calls: list[object] = []
    membership.commit = lambda offsets, assignment: calls.append(offsets) or CommitOutcome.STORED  # type: ignore[method-assign, func-returns-value]
    one.latest_offset(INITIAL, None)
    assert calls == [{}]


def test_a_partition_that_was_added_later_starts_at_its_earliest_record() -> None:
    world = World(2, starting=LATEST)
    world.produce(0, 5)
    world.produce(1, 5)
    write_all(world)
    one = planner(world)
    one.latest_offset(INITIAL, None)
    world.ends.append(0)
    world.written.append([])
    world.produce(2, 4)
    world.group.remove("q-1")
    offset = one.latest_offset(INITIAL, None)
    assert offset["taken"] == {TOPIC: {"0": 5, "1": 5, "2": 0}}
    assert ends(offset) == {"0": 5, "1": 5, "2": 4}


def test_an_available_now_run_ends_at_what_there_was_when_it_began() -> None:
    world = full_world()
    one = planner(world)
    one.prepare_available_now()
    world.produce(0, 100)
    assert ends(one.latest_offset(INITIAL, None)) == {"0": 10, "1": 20}


def test_without_an_assignment_there_is_nothing_new_but_an_available_now_run_fails() -> None:
    world = full_world()
    start = dict(INITIAL)
    assert planner(world, Nowhere(world, "q")).latest_offset(start, None) is start
    run = planner(world, Nowhere(world, "q"))
    run.prepare_available_now()
    with pytest.raises(NotAssigned, match="assigned nothing within 360000 ms"):
        run.latest_offset(start, None)


def test_without_a_coordinator_the_query_idles_but_an_available_now_run_fails(caplog: pytest.LogCaptureFixture) -> None:
    world = full_world()
    membership = Unreachable(world, "q")
    one = planner(world, membership)
    start = dict(INITIAL)
    membership.away = True
    assert one.latest_offset(start, None) is start
    assert "what is complete is committed later: COORDINATOR_NOT_AVAILABLE (15): nobody answers" in caplog.text
    membership.away = False
    assert ends(one.latest_offset(start, None)) == {"0": 10, "1": 20}
    run = planner(world, Unreachable(world, "run"))
    run.prepare_available_now()
    world.group.remove("q-1")
    Unreachable.away = True
    try:
        with pytest.raises(CoordinatorUnavailable):
            run.latest_offset(start, None)
    finally:
        Unreachable.away = False


def test_a_run_that_cannot_commit_hears_that_it_is_to_stop(tmp_path: Path) -> None:
    world, directory, calls = full_world(), ControlDirectory(tmp_path), []

    class AskedMeanwhile(Unreachable):
        def committed(self) -> dict[TopicPartition, Committed]:
            calls.append("committed")
            directory.ask("r", Request("stop"))
            raise CoordinatorUnavailable("nobody answers")

    run = planner(world, AskedMeanwhile(world, "q"), control=ReaderControl(str(tmp_path), "r"))
    run.prepare_available_now()
    start = dict(INITIAL)
    assert run.latest_offset(start, None) is start
    assert calls == ["committed"]
    assert run.latest_offset(start, None) is start
    answer = directory.answer("r")
    assert answer is not None
    assert not answer.committed


def test_records_that_are_gone_end_the_query_or_are_skipped() -> None:
    world = full_world()
    strict = planner(world)
    offset = strict.latest_offset(INITIAL, None)
    write_all(world)
    world.ends = [4, 20]
    with pytest.raises(DataLost, match="clicks-0 must continue at 10, but holds the offsets 0 to 4"):
        strict.latest_offset(offset, None)
    world = full_world()
    lenient = replace(world.options, source=SourceOptions("model", (TOPIC,), fail_on_data_loss=False))
    one = planner(world, options=lenient)
    offset = one.latest_offset(INITIAL, None)
    write_all(world)
    world.ends = [4, 20]
    again = one.latest_offset(offset, None)
    assert again["taken"] == {TOPIC: {"0": 0}}
    assert ends(again) == {"0": 4, "1": 20}


def test_a_refusal_fails_the_query_and_commits_nothing(tmp_path: Path) -> None:
    world = full_world()
    one = planner(world, control=ReaderControl(str(tmp_path), "r"))
    offset = one.latest_offset(INITIAL, None)
    ControlDirectory(tmp_path).ask("r", Request("refuse", "it keeps state"))
    with pytest.raises(QueryRefused, match=r"^it keeps state$"):
        one.latest_offset(offset, None)
    assert {entry.offset for entry in world.group.committed.values()} == {0}


def test_a_stop_commits_leaves_and_answers(tmp_path: Path) -> None:
    world = full_world()
    directory = ControlDirectory(tmp_path)
    one = planner(world, control=ReaderControl(str(tmp_path), "r"))
    offset = one.latest_offset(INITIAL, None)
    write_all(world)
    directory.ask("r", Request("stop"))
    assert one.latest_offset(offset, None) is offset
    assert directory.answer("r") == Answer(committed=True)
    assert [world.group.committed[TOPIC, p].offset for p in (0, 1)] == [10, 20]
    assert world.group.members == {}
    world.produce(0, 5)
    assert one.latest_offset(offset, None) is offset


def test_a_stop_without_an_assignment_says_that_it_could_not_commit(tmp_path: Path) -> None:
    world = full_world()
    directory = ControlDirectory(tmp_path)
    one = planner(world, control=ReaderControl(str(tmp_path), "r"))
    offset = one.latest_offset(INITIAL, None)
    world.group.remove("q-1")
    directory.ask("r", Request("stop"))
    one.latest_offset(offset, None)
    answer = directory.answer("r")
    assert answer is not None
    assert not answer.committed
    assert {entry.offset for entry in world.group.committed.values()} == {0}


def test_the_first_batch_that_is_complete_is_told_once() -> None:
    world, told = full_world(), list[int]()
    one = planner(world, at_first_batch=lambda: told.append(1))
    offset = one.latest_offset(INITIAL, 5)
    assert told == []
    write_all(world)
    for _ in range(3):
        offset = one.latest_offset(offset, 5)
        assert told == [1]


def test_a_query_that_withdraws_asks_for_its_end(tmp_path: Path) -> None:
    one = planner(full_world(), control=ReaderControl(str(tmp_path), "r"))
    offset = one.latest_offset(INITIAL, None)
    one.withdraw("it is asynchronous")
    assert one.latest_offset(offset, None) is offset
    assert ControlDirectory(tmp_path).questions() == [Question("r", "stop", "it is asynchronous")]


def test_closing_commits_nothing() -> None:
    world = full_world()
    one = planner(world)
    one.latest_offset(INITIAL, None)
    one.close()
    assert {entry.offset for entry in world.group.committed.values()} == {0}
    assert world.group.members == {}


@pytest.mark.parametrize(("took_ms", "warns"), [(239_999, False), (240_000, True)])
def test_a_batch_near_the_rebalance_timeout_is_warned_of(
    took_ms: float, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    world = full_world()
    one = planner(world, now_ms=lambda: now[0])
    offset = one.latest_offset(INITIAL, None)
    write_all(world)
    now[0] += took_ms
    with caplog.at_level(logging.WARNING):
        one.latest_offset(offset, None)
        now[0] += 10 * took_ms
        one.latest_offset(offset, None)
    assert caplog.text.count("of the 300000 ms that the group waits for it") == int(warns)


def test_the_report_says_where_the_query_stands() -> None:
    world = full_world()
    one = planner(world)
    one.latest_offset(INITIAL, 9)
    report = one.report()
    assert report["end_offsets"] == {TOPIC: {"0": 10, "1": 20}}
    assert report["rallypoint"]["lag"] == 21
    assert report["rallypoint"]["generation_id"] == 1
    assert report["rallypoint"]["reader_id"] == "r"


@pytest.mark.parametrize("cooperative", [True, False])
@pytest.mark.parametrize("limit", [None, 3])
def test_two_sources_of_one_available_now_query_share_their_group(
    tmp_path: Path, cooperative: bool, limit: int | None
) -> None:
    """Spark asks one after the other, runs a batch if one of them has something new, and ends the run if none has."""
    world = World(3, cooperative=cooperative)
    sources = [Query(world, n, Checkpoint(n), limit, ReaderControl(str(tmp_path), n)) for n in ("one", "two")]
    for partition in range(3):
        world.produce(partition, 10)
    for source in sources:
        source.planner.prepare_available_now()
    batches = 0
    while sum(source.trigger() for source in sources):
        batches += 1
        assert batches < 50
    assert all(len(records) == 1 for partition in world.written for records in partition)
    assert all(source.membership.member.owned for source in sources)


def test_a_sibling_is_waited_for_no_longer_than_anybody_else(tmp_path: Path) -> None:
    world = full_world()
    now = [0.0]
    run = planner(world, Nowhere(world, "q"), control=ReaderControl(str(tmp_path), "r"), now_ms=lambda: now[0])
    ReaderControl(str(tmp_path), "sibling").enter("g")
    ReaderControl(str(tmp_path), "stranger").enter("other")
    run.prepare_available_now()
    offset: Mapping[str, Any] = INITIAL
    for turn in range(1, 4):
        following = run.latest_offset(offset, None)
        assert following["turn"] == turn
        assert ranges_between(StreamOffset.from_dict(offset), StreamOffset.from_dict(following)) == []
        offset = following
    now[0] = 360_000.0
    with pytest.raises(NotAssigned):
        run.latest_offset(offset, None)
    run.close()
    assert not ReaderControl(str(tmp_path), "sibling").has_siblings("g")


def test_two_queries_share_and_hand_over_through_the_model() -> None:
    """The model itself: without it doing what a group does, the crash tests would prove nothing."""
    world = full_world()
    one, two = (Query(world, name, Checkpoint(name), None) for name in ("a", "b"))
    assert one.trigger()
    waiting = []
    for query in (two, one):
        query.trigger()
        waiting.append(world.group.preparing)
    assert waiting == [True, False]
    assert [len(member.owned) for member in world.group.members.values()] == [1, 1]


def test_what_is_not_wanted_back_is_read_on_while_the_group_rebalances() -> None:
    """A third of three, then a third member that dallies: nobody waits for it."""
    world = World(3, cooperative=True)
    one = Query(world, "a", Checkpoint("a"), None)
    for partition in range(3):
        world.produce(partition, 5)
    assert one.trigger()
    two = Query(world, "b", Checkpoint("b"), None)
    two.trigger()
    assert one.membership.revocation == frozenset({(TOPIC, 1)})
    for partition in range(3):
        world.produce(partition, 5)
    assert one.trigger()
    assert one.planner.report()["rallypoint"]["assigned"] == {TOPIC: [0, 2]}
    assert world.group.committed[TOPIC, 1].offset == 5
    assert world.group.committed[TOPIC, 0].offset == 5
    two.trigger()
    assert two.membership.member.owned == {(TOPIC, 1)}
    one.trigger()
    two.trigger()
    assert [len(batches) for batches in world.written[1]] == [1] * 10
    assert one.planner.report()["rallypoint"]["revocations"] == 1


def test_a_query_reads_on_without_a_coordinator_while_it_has_its_partitions() -> None:
    world = full_world()
    membership = Unreachable(world, "q")
    one = planner(world, membership)
    offset = one.latest_offset(INITIAL, 9)
    write_all(world)
    membership.away = True
    following = one.latest_offset(offset, 9)
    assert sum(ends(following).values()) == 18
    assert one.report()["rallypoint"]["commit_error"] == "the coordinator takes no commits"
    world.group.remove("q-1")
    assert one.latest_offset(following, None) is following
    membership.away = False
    last = one.latest_offset(following, None)
    assert sum(ends(last).values()) == 30
    assert one.report()["rallypoint"]["commit_error"] == ""
    assert sum(entry.offset for entry in world.group.committed.values()) == 18


def test_without_a_coordinator_a_query_reads_no_further_than_its_session() -> None:
    """Also if the member still has the assignment, for a revocation of it waits."""
    world = full_world()
    membership = Unreachable(world, "q")
    one = planner(world, membership)
    offset = one.latest_offset(INITIAL, 9)
    write_all(world)
    membership.away, membership.is_heard = True, False
    assert one.latest_offset(offset, 9) is offset
    membership.is_heard = True
    assert sum(ends(one.latest_offset(offset, 9)).values()) == 18


def test_of_two_drivers_on_one_checkpoint_the_older_stops_with_a_sentence() -> None:
    now = [0.0]
    world = World(2, cooperative=True)
    world.now_ms = lambda: now[0]
    checkpoint = Checkpoint("c")
    first = Query(world, "first", checkpoint, None)
    world.produce(0, 5)
    world.produce(1, 5)
    first.trigger()
    second = Query(world, "second", checkpoint, None)
    second.trigger()
    first.trigger()
    second.trigger()
    assert second.membership.member.owned == {(TOPIC, 1)}
    start = checkpoint.offset(0)
    first.planner.latest_offset(start, None)
    now[0] += 5_000
    with pytest.raises(QueryFenced, match=r"another query uses this query's checkpoint since generation 2"):
        first.planner.latest_offset(start, None)
    now[0] += 5_000
    assert second.planner.latest_offset(start, None) is start


class Timed(CountedSource):
    """A source in which a time is an offset, and later times have no record."""

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        ends = self.latest(list(times_ms))
        return {tp: min(time_ms, ends[tp]) for tp, time_ms in times_ms.items()}


@pytest.mark.parametrize("strategy", ["error", "latest"])
def test_a_time_without_a_record_ends_the_query_or_starts_at_the_end(strategy: Literal["error", "latest"]) -> None:
    world = full_world()
    write_all(world)
    starting = StartingOffsets(timestamps_ms={(TOPIC, 0): 15, (TOPIC, 1): 15}, too_young=strategy)
    one = planner(world, options=replace(world.options, starting=starting), source=Timed(world))
    if strategy == "error":
        with pytest.raises(SourceError, match=r"no record is as young as the time to start at: clicks-0 at 15; set"):
            one.latest_offset(INITIAL, None)
    else:
        assert one.latest_offset(INITIAL, None)["taken"] == {TOPIC: {"0": 10, "1": 15}}


def test_a_topic_that_came_later_is_read_from_its_earliest_record() -> None:
    world = World(2, starting=LATEST)
    world.produce(0, 5)
    write_all(world)
    counts = {TOPIC: 0, "orders": 2}
    source = CountedSource(world)
    source.partitions = lambda topics: {topic: 2 for topic in topics if counts[topic]}  # type: ignore[method-assign]
    both = replace(world.options, source=SourceOptions("model", (TOPIC, "orders")))
    subscription = Subscription(both, source)
    subscription.begin()
    counts[TOPIC] = 2
    one = planner(world, source=source, subscription=subscription)
    assert one.latest_offset(INITIAL, None)["taken"] == {TOPIC: {"0": 0, "1": 0}}


def test_a_topic_that_is_missing_is_shown_and_keeps_no_other_back() -> None:
    """Whoever plans asks nothing about it, which may be refused, or take as long as a broker is waited for."""
    now = [0.0]
    world = full_world()
    source = CountedSource(world)
    refused: set[str] = set()

    def partitions(topics: Iterable[str]) -> dict[str, int]:
        if refused & set(topics):
            raise SourceError("Topic authorization failed")
        return {topic: 2 for topic in topics if topic == TOPIC}

    source.partitions = partitions  # type: ignore[method-assign]
    both = replace(world.options, source=SourceOptions("model", (TOPIC, "clikcs")), partition_check_interval_ms=30_000)
    subscription = Subscription(both, source)
    subscription.begin()
    one = planner(world, options=both, source=source, subscription=subscription, now_ms=lambda: now[0])
    refused.add("clikcs")
    offset = one.latest_offset(INITIAL, None)
    for _ in range(2):
        write_all(world)
        world.produce(0, 1)
        now[0] += 30_000
        following = one.latest_offset(offset, None)
        assert following is not offset
        offset = following
    assert one.report()["rallypoint"]["missing_topics"] == ["clikcs"]


def test_a_batch_waits_for_enough_offsets_but_not_for_ever() -> None:
    now = [0.0]
    world = full_world()
    options = replace(world.options, max_trigger_delay_ms=60_000)
    one = planner(world, options=options, now_ms=lambda: now[0])
    offset = one.latest_offset(INITIAL, None, 30)
    write_all(world)
    world.produce(0, 29)
    now[0] += 59_999
    assert one.latest_offset(offset, None, 30) is offset
    assert one.report()["rallypoint"]["lag"] == 29
    now[0] += 1
    following = one.latest_offset(offset, None, 30)
    assert sum(ends(following).values()) == 59
    write_all(world)
    world.produce(1, 30)
    assert sum(ends(one.latest_offset(following, None, 30)).values()) == 89


def test_a_first_batch_waits_too_but_an_available_now_run_does_not() -> None:
    now = [5.0]
    world = full_world()
    one = planner(world, now_ms=lambda: now[0])
    start = dict(INITIAL)
    assert one.latest_offset(start, None, 31) is start
    now[0] += world.options.max_trigger_delay_ms
    assert sum(ends(one.latest_offset(start, None, 31)).values()) == 30
    run = planner(full_world())
    run.prepare_available_now()
    assert sum(ends(run.latest_offset(start, None, 31)).values()) == 30


def test_an_available_now_run_does_not_take_the_first_empty_assignment_for_its_share() -> None:
    world = World(2, cooperative=True)
    one = Query(world, "a", Checkpoint("a"), None)
    one.trigger()
    world.produce(1, 5)
    run = planner(world, ModelMembership(world, "b"))
    run.prepare_available_now()
    with pytest.raises(NotAssigned):
        run.latest_offset(INITIAL, None)
    one.trigger()
    assert ends(run.latest_offset(INITIAL, None)) == {"1": 5}


def test_the_group_is_joined_once_the_checkpoint_has_told_its_id() -> None:
    world = full_world()
    begun: list[str] = []
    one = planner(world, at_begin=begun.append)
    assert begun == []
    offset = one.latest_offset(INITIAL, None)
    again = planner(world, at_begin=begun.append)
    write_all(world)
    again.latest_offset(offset, None)
    again.latest_offset(offset, None)
    assert begun == ["checkpoint-1", "checkpoint-1"]


class Shrinking(CountedSource):
    """A source that has lost all but the first so many partitions."""

    left = 2

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: self.left for topic in topics if self.left}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        if any(partition >= self.left for _, partition in wanted):
            raise SourceError("no such partition")
        return super().latest(wanted)


@pytest.mark.parametrize("before", [True, False])
def test_partitions_that_are_gone_end_the_query_or_are_left_out(before: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Noticed when they are taken, or later when they are read on."""
    for fails in (True, False):
        world = full_world()
        options = replace(world.options, source=SourceOptions("model", (TOPIC,), fail_on_data_loss=fails))
        source = Shrinking(world)
        one = planner(world, options=options, source=source)
        start: Mapping[str, Any] = INITIAL
        if not before:
            start = one.latest_offset(INITIAL, 6)
            write_all(world)
        source.left = 1
        if fails:
            with pytest.raises(DataLost, match=r"the source has no partition clicks-1 any more.*failOnDataLoss=false"):
                one.latest_offset(start, None)
        else:
            assert ends(one.latest_offset(start, None)) == {"0": 10}
            assert "continues without clicks-1, which no longer exist" in caplog.text


def test_an_error_of_the_source_about_what_it_has_is_raised() -> None:
    world = full_world()
    source = Shrinking(world)
    one = planner(world, source=source)
    offset = one.latest_offset(INITIAL, 6)
    write_all(world)
    source.latest = lambda partitions: refuse()  # type: ignore[method-assign]
    with pytest.raises(SourceError, match="does not answer"):
        one.latest_offset(offset, None)


def refuse() -> dict[TopicPartition, int]:
    raise SourceError("it does not answer")
