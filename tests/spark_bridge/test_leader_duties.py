"""What the leader notices and reports, turn by turn, and what the service is sent."""

from collections.abc import Iterable, Mapping

import pytest

from rallypoint import Assignment
from rallypoint.spark_bridge.coordinator_calls import NotAnswered
from rallypoint.spark_bridge.leader import LeaderDuties
from rallypoint.spark_bridge.membership import Membership
from rallypoint.spark_bridge.options import BridgeOptions, SourceOptions
from rallypoint.spark_bridge.subscription import Subscription
from tests.spark_bridge.group_model import CountedSource, World
from tests.spark_bridge.spark_run import wait_until
from tests.spark_bridge.test_bridge_membership import FakeMember, make


class GrowingSource(CountedSource):
    """A model source whose topics the test grows."""

    def __init__(self, counts: dict[str, int]) -> None:
        super().__init__(World(16))
        self.counts = counts
        self.breaks: Exception | None = None

    def topics(self) -> frozenset[str]:
        return frozenset(self.counts)

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        if self.breaks is not None:
            raise self.breaks
        return {topic: self.counts[topic] for topic in topics if topic in self.counts}


class Ledger:
    """Keeps what is reported, or refuses it."""

    def __init__(self) -> None:
        self.puts: list[tuple[str, int, int]] = []
        self.refusals: dict[str, NotAnswered] = {}

    def put(self, topic: str, partitions: int, end_offsets: Mapping[int, int]) -> None:
        if topic in self.refusals:
            raise self.refusals[topic]
        self.puts.append((topic, partitions, sum(end_offsets.values())))


class Fixture:
    """Duties with a clock in the test's hand."""

    def __init__(self, counts: dict[str, int], *, report: bool = True, missing: str | None = None) -> None:
        self.now_ms = 0.0
        self.source = GrowingSource(counts)
        self.ledger = Ledger()
        self.membership: Membership
        self.member: FakeMember
        self.membership, self.member = make()
        options = BridgeOptions(
            coordinators=("http://model",),
            group_id="g",
            source=SourceOptions("model", (*counts, *([missing] if missing else []))),
            report_end_offsets=report,
        )
        self.subscription = Subscription(options, self.source)
        self.subscription.begin()
        self.duties = LeaderDuties(options, self.source, self.ledger, self.subscription, now_ms=lambda: self.now_ms)

    def lead(self, leader: bool = True) -> None:
        self.member.assignment = Assignment(3, "m", leader, "range", frozenset())

    def turn(self, after_ms: float) -> None:
        self.now_ms += after_ms
        self.duties.run_once(self.membership)


def test_only_the_leader_acts() -> None:
    fixture = Fixture({"clicks": 4})
    fixture.turn(60_000)
    fixture.lead(leader=False)
    fixture.turn(60_000)
    assert fixture.member.calls == []
    assert fixture.ledger.puts == []


def test_every_member_looks_for_a_missing_topic_as_often_as_for_growth() -> None:
    fixture = Fixture({"clicks": 4}, missing="orders")
    fixture.source.counts["orders"] = 1
    missing = []
    for after_ms in (29_999, 1):
        fixture.turn(after_ms)
        missing.append(fixture.subscription.missing)
    assert missing == [("orders",), ()]
    assert fixture.ledger.puts == []


def test_ends_are_reported_before_joining_and_then_at_the_interval() -> None:
    fixture = Fixture({"clicks": 2})
    fixture.source._world.ends[:2] = [5, 6]
    fixture.duties.register_topics()
    fixture.lead()
    fixture.turn(9_999)
    fixture.source._world.ends[0] = 50
    fixture.turn(1)
    assert fixture.ledger.puts == [("clicks", 2, 11), ("clicks", 2, 56)]


def test_a_topic_that_is_refused_keeps_back_no_other_and_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    """As where the service has it with more partitions, or a token is replaced between two reports."""
    fixture = Fixture({"clicks": 2, "orders": 1})
    fixture.ledger.refusals["clicks"] = NotAnswered("it would shrink", final=True)
    fixture.duties.register_topics()
    fixture.lead()
    for _ in range(3):
        fixture.turn(10_000)
    assert [topic for topic, _, _ in fixture.ledger.puts] == ["orders"] * 4
    assert [message.partition(": the coordinator does not take where ")[2] for message in caplog.messages] == [
        "clicks ends, so lag is unknown there: it would shrink"
    ]
    fixture.ledger.refusals.clear()
    fixture.turn(10_000)
    assert [topic for topic, _, _ in fixture.ledger.puts][4:] == ["clicks", "orders"]
    fixture.ledger.refusals["clicks"] = NotAnswered("it would shrink", final=True)
    fixture.turn(10_000)
    assert len(caplog.messages) == 2


def test_where_nobody_answers_the_topics_are_told_later() -> None:
    fixture = Fixture({"clicks": 2})
    fixture.ledger.refusals["clicks"] = NotAnswered("nobody there", final=False)
    fixture.duties.register_topics()
    fixture.lead()
    with pytest.raises(NotAnswered, match="nobody there"):
        fixture.turn(10_000)
    fixture.ledger.refusals.clear()
    fixture.turn(10_000)
    assert len(fixture.ledger.puts) == 1


def test_that_nobody_answers_is_logged_from_the_second_report_in_a_row_on(caplog: pytest.LogCaptureFixture) -> None:
    """The loss of a node may last as long as one, and the member logs it."""
    fixture = Fixture({"clicks": 2})
    fixture.lead()
    logged = []
    for answers in (False, True, False, False, False):
        fixture.ledger.refusals = {} if answers else {"clicks": NotAnswered("nobody there", final=False)}
        for after_ms in (9_000, 1_000):
            fixture.now_ms += after_ms
            fixture.duties.run_and_log(fixture.membership)
        logged.append(len(caplog.messages))
    assert logged == [0, 0, 0, 1, 2]
    assert caplog.messages[-1] == "group g: the leader's duties failed: nobody there"


def test_nothing_is_reported_where_that_is_switched_off() -> None:
    fixture = Fixture({"clicks": 2}, report=False)
    fixture.duties.register_topics()
    fixture.lead()
    fixture.turn(10_000)
    assert fixture.ledger.puts == []


def test_the_duties_go_on_after_a_failure_that_nobody_foresaw(caplog: pytest.LogCaptureFixture) -> None:
    fixture = Fixture({"clicks": 2})
    fixture.lead()
    fixture.source.breaks = KeyError("nobody thought of this")
    fixture.now_ms = 10_000
    fixture.duties.start(fixture.membership)
    try:
        wait_until(lambda: "the leader's duties: a run failed" in caplog.text, "a word about it")
        fixture.source.breaks = None
        fixture.now_ms = 20_000
        wait_until(lambda: bool(fixture.ledger.puts), "the next report")
    finally:
        fixture.duties.stop()
