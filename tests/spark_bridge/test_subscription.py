"""Which topics a query reads, and which of them came later."""

import re

import pytest

from spark_bridge.errors import SourceError
from spark_bridge.options import BridgeOptions, SourceOptions
from spark_bridge.subscription import Subscription
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
    assert one.refresh()
    assert one.topics == ("clicks-a", "clicks-b")
    assert not one.refresh()
    source.counts |= {"clicks-c": 2}
    del source.counts["clicks-b"]
    assert one.refresh()
    assert one.topics == ("clicks-a", "clicks-c")
    assert [one.is_late(topic) for topic in ("clicks-a", "clicks-c")] == [False, True]


def test_while_nothing_matches_the_old_topics_stay() -> None:
    source = GrowingSource({"a": 1})
    one = subscription(source, pattern="a")
    one.refresh()
    source.counts = {}
    assert not one.refresh()
    assert one.topics == ("a",)


def test_a_pattern_that_matches_nothing_from_the_start_is_an_error() -> None:
    with pytest.raises(SourceError, match=r"no topic of the source .* matches the subscribePattern 'x\.\*'"):
        subscription(GrowingSource({"a": 1}), pattern="x.*").refresh()


def test_named_topics_stay_and_one_that_is_created_later_is_late() -> None:
    source = GrowingSource({"a": 1})
    one = subscription(source, topics=("b", "a"))
    assert not one.refresh()
    source.counts |= {"b": 1, "c": 1}
    assert not one.refresh()
    assert one.topics == ("b", "a")
    assert [one.is_late(topic) for topic in ("a", "b")] == [False, True]
