"""Which topics a query reads, and which of them came later."""

import re

import pytest

from rallypoint.spark_bridge.errors import SourceError
from rallypoint.spark_bridge.options import BridgeOptions, SourceOptions
from rallypoint.spark_bridge.subscription import Subscription
from tests.spark_bridge.test_leader_duties import GrowingSource


def subscription(source: GrowingSource, *, topics: tuple[str, ...] = (), pattern: str = "") -> Subscription:
    options = BridgeOptions(
        coordinators=("http://model",),
        group_id="g",
        source=SourceOptions("model", topics),
        topic_pattern=re.compile(pattern) if pattern else None,
    )
    return Subscription(options, source)


def test_what_matches_wholly_is_read_and_what_comes_later_from_its_beginning() -> None:
    source = GrowingSource({"clicks-b": 1, "clicks-a": 1, "old-clicks-a": 1})
    one = subscription(source, pattern="clicks-.")
    one.begin()
    assert one.topics == ("clicks-a", "clicks-b")
    source.counts |= {"clicks-c": 2}
    del source.counts["clicks-b"]
    assert one.partition_counts(None) == {"clicks-a": 1, "clicks-c": 2}
    assert one.topics == ("clicks-a", "clicks-c")
    assert [one.is_late(topic) for topic in ("clicks-a", "clicks-c")] == [False, True]


def test_while_nothing_matches_the_old_topics_stay() -> None:
    source = GrowingSource({"a": 1})
    one = subscription(source, pattern="a")
    one.begin()
    source.counts = {"b": 1}
    assert one.partition_counts(None) == {"a": 0}
    assert one.topics == ("a",)


def test_the_leader_counts_what_others_subscribe_to_without_reading_it() -> None:
    source = GrowingSource({"a": 1, "b": 3})
    one = subscription(source, pattern="a")
    one.begin()
    assert one.partition_counts(frozenset({"a", "b", "gone"})) == {"a": 1, "b": 3}
    assert one.topics == ("a",)


def test_a_pattern_that_matches_nothing_from_the_start_is_an_error() -> None:
    with pytest.raises(SourceError, match=r"no topic of the source .* matches the subscribePattern 'x\.\*'"):
        subscription(GrowingSource({"a": 1}), pattern="x.*").begin()


def test_a_misspelt_topic_is_an_error_where_there_is_no_other_and_else_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = GrowingSource({"clicks": 1, "orders": 1})
    with pytest.raises(SourceError, match=r"has no topic 'clikcs' \(did you mean 'clicks'\?\); create one before"):
        subscription(source, topics=("clikcs",)).begin()
    with pytest.raises(SourceError, match=r"has no topic 'clikcs' \(did you mean 'clicks'\?\), 'zzz'; create one"):
        subscription(source, topics=("clikcs", "zzz")).begin()
    assert caplog.text == ""
    subscription(source, topics=("orders", "clikcs")).begin()
    assert "has no topic 'clikcs' (did you mean 'clicks'?); it is read once it is created" in caplog.text


def test_a_missing_topic_is_said_again_ever_more_rarely_until_it_is_created(caplog: pytest.LogCaptureFixture) -> None:
    source = GrowingSource({"orders": 1})
    one = subscription(source, topics=("orders", "clicks", "views"))
    one.begin()
    source.counts["views"] = 1
    said = []
    for _ in range(8):
        caplog.clear()
        one.look_for_missing()
        said.append("has no topic 'clicks'; it is read once" in caplog.text)
    assert said == [True, True, False, True, False, False, False, True]
    source.counts["clicks"] = 1
    one.look_for_missing()
    assert one.missing == ()


def test_a_look_that_fails_is_said_and_another_one_follows(caplog: pytest.LogCaptureFixture) -> None:
    source = GrowingSource({"orders": 1})
    one = subscription(source, topics=("orders", "clicks"))
    one.begin()
    caplog.clear()
    source.breaks = SourceError("Topic authorization failed")
    for _ in range(3):
        one.look_for_missing()
    assert (
        caplog.messages
        == ["the source 'model' cannot be asked for the missing topic 'clicks': Topic authorization failed"] * 2
    )
    source.breaks = None
    source.counts["clicks"] = 1
    one.look_for_missing()
    assert one.missing == ()


def test_named_topics_stay_and_one_that_is_created_later_is_late() -> None:
    source = GrowingSource({"a": 1})
    one = subscription(source, topics=("b", "a"))
    one.begin()
    source.counts |= {"b": 1, "c": 1}
    assert one.partition_counts(frozenset({"a", "b"})) == {"a": 1, "b": 1}
    assert one.topics == ("b", "a")
    assert [one.is_late(topic) for topic in ("a", "b")] == [False, True]
