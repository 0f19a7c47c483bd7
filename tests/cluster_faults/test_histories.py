"""The histories that porcupine gets: made of books, made simpler, and divided."""

import pytest

from examples.cluster.books import Assigned, Commit, Entry, Fetch
from tests.cluster_faults.histories import (
    NEVER,
    History,
    Operation,
    divided,
    histories_of,
    operations_of,
    without_unseen,
)
from tests.cluster_faults.planted import NO_FENCE, Plant
from tests.cluster_faults.registers import why_refused
from tests.real.parts import ROOT


def commit(value: int, began_ms: int, ended_ms: int, error: str | None = None, partition: int = 0) -> Commit:
    return Commit("g", "m", began_ms, ended_ms, {partition: value}, error)


def write(value: int, call_ms: int, return_ms: int = NEVER) -> Operation:
    return Operation("m", True, value, call_ms, return_ms)


def read(value: int, call_ms: int, return_ms: int) -> Operation:
    return Operation("r", False, value, call_ms, return_ms)


def test_a_commit_writes_its_places_and_a_fetch_reads_all_of_its_group() -> None:
    entries: list[Entry] = [
        Assigned("g", "m", 1, 1, (0, 1)),
        commit(5, 10, 12),
        commit(6, 20, 20, "no answer"),
        commit(7, 1, 2, partition=1),
        Fetch("g", "r", 13, 14, {0: 5}),
        Fetch("another", "r", 13, 14, {0: 9}),
    ]
    assert operations_of(entries) == {
        ("g", 0): [write(5, 10, 13), read(5, 13, 15), write(6, 20)],
        ("g", 1): [write(7, 1, 3), read(0, 13, 15)],
    }


def test_a_commit_of_which_nobody_knows_is_left_out_if_it_was_not_seen_and_ends_when_it_was() -> None:
    seen, unseen, again = write(1, 0), write(2, 0), write(3, 0)
    operations = [seen, unseen, again, write(3, 5, 6), read(1, 7, 9), read(1, 8, 8)]
    assert without_unseen(operations) == [seen._replace(return_ms=8), again, *operations[3:]]


def test_a_value_that_is_seen_before_it_is_committed_stays_for_the_judge() -> None:
    operations = [read(1, 0, 2), write(1, 5)]
    assert without_unseen(operations) == operations


def test_a_history_is_divided_where_nothing_is_under_way_and_its_value_is_clear() -> None:
    operations = [
        write(1, 0, 5),
        read(1, 6, 7),
        write(2, 10, 20),  # together with the next: nobody knows which was last
        write(3, 12, 14),
        read(2, 30, 31),
        write(4, 40, 41),
        read(4, 50, 51),
    ]
    assert divided("h", operations, 1) == [
        History("h.0", 0, operations[:1]),
        History("h.1", 1, operations[1:2]),
        History("h.2", 1, operations[2:6]),
        History("h.3", 4, operations[6:]),
    ]


def test_a_history_with_a_commit_that_never_ended_is_not_divided_after_it() -> None:
    operations = [write(1, 0, 1), write(2, 5), read(2, 6, 7), read(1, 8, 9)]
    assert [len(part.operations) for part in divided("h", operations, 1)] == [1, 3]


def test_short_histories_stay_whole() -> None:
    assert [history.name for history in histories_of([commit(1, 0, 1), commit(2, 3, 4)])] == ["g.0"]


@pytest.mark.parametrize("plant", NO_FENCE, ids=lambda plant: str(plant.file))
def test_what_the_run_without_a_fence_replaces_stands_in_the_code_once(plant: Plant) -> None:
    assert (ROOT / plant.file).read_text().count(plant.old) == 1


@pytest.mark.parametrize(
    ("status", "error_name", "expected"),
    [
        (200, "NONE", None),
        (200, "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
        (503, "", "status 503"),
        (0, "", "no answer"),
    ],
)
def test_only_an_acknowledged_commit_counts(status: int, error_name: str, expected: str | None) -> None:
    answer = {"offsets": {"registers": {"0": {"error_name": error_name}}}}
    assert why_refused(status, answer) == expected
