"""A final assignment in the words of Spark's Kafka source."""

import json

import pytest

from rallypoint.spark_bridge.assigned_options import kafka_options
from rallypoint.spark_bridge.errors import NotAssigned


def test_each_partition_of_the_assignment_has_a_start_and_no_other() -> None:
    options = kafka_options(
        [("orders", 1), ("clicks", 10), ("clicks", 2), ("clicks", 2)], {("clicks", 2): 42, ("clicks", 3): 7}
    )
    assert json.loads(options["assign"]) == {"clicks": [2, 10], "orders": [1]}
    assert json.loads(options["startingOffsets"]) == {"clicks": {"2": 42, "10": -2}, "orders": {"1": -2}}
    assert options.keys() == {"assign", "startingOffsets"}


def test_what_was_never_committed_may_start_at_its_end() -> None:
    options = kafka_options([("clicks", 0)], {}, otherwise="latest")
    assert json.loads(options["startingOffsets"]) == {"clicks": {"0": -1}}


def test_zero_is_an_offset() -> None:
    assert json.loads(kafka_options([("clicks", 0)], {("clicks", 0): 0})["startingOffsets"]) == {"clicks": {"0": 0}}


def test_an_empty_assignment_has_no_options() -> None:
    with pytest.raises(NotAssigned, match="wait for the next"):
        kafka_options([], {("clicks", 0): 1})


def test_there_are_two_ends() -> None:
    with pytest.raises(ValueError, match="earliest or latest, not 'middle'"):
        kafka_options([("clicks", 0)], {}, otherwise="middle")
