"""What the members of the benchmarks decide without the network."""

import json

from bench.crowd import assign_partitions, is_rebalancing
from bench.line import Answer


def test_every_member_gets_partitions_of_its_own() -> None:
    shared = assign_partitions(["b", "a"])
    assert shared == {"b": {"partitions": {"bench": [0, 1, 2, 3]}}, "a": {"partitions": {"bench": [4, 5, 6, 7]}}}


def test_only_a_rebalance_sends_a_member_back_to_join() -> None:
    def answer(code: int, *, retriable: bool) -> Answer:
        return Answer(409, json.dumps({"error_code": code, "retriable": retriable}).encode())

    assert is_rebalancing(answer(27, retriable=True))
    assert not is_rebalancing(answer(27, retriable=False))
    assert not is_rebalancing(answer(22, retriable=True))
    assert not is_rebalancing(Answer(200, b"{}"))
