"""The order of Spark's calls: what shows that the commit log is written asynchronously, and what does not."""

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from rallypoint.spark_bridge.source import CallOrder

A: dict[str, Any] = {"end": 1}
B: dict[str, Any] = {"end": 2}


def test_a_batch_whose_start_was_committed_is_in_order() -> None:
    order = CallOrder()
    order.planned(A)
    assert not order.is_asynchronous({}, A)
    order.planned(B)
    order.committed(A)
    assert not order.is_asynchronous(A, B)


def test_a_batch_whose_start_is_not_committed_yet_shows_it() -> None:
    order = CallOrder()
    order.planned(A)
    order.planned(B)
    assert order.is_asynchronous(A, B)


def test_a_replay_and_an_empty_batch_show_nothing() -> None:
    order = CallOrder()
    assert not order.is_asynchronous(A, B)
    order.planned(A)
    assert not order.is_asynchronous(A, A)
