"""The account itself: what it must not let pass."""

from pathlib import Path

import pytest

from tests.spark_bridge.ledger import Ledger, LedgerFiles, append_rows, value_of

ENDS = {("clicks", 0): 2, ("clicks", 1): 1}
ALL = [("clicks", 0, 0), ("clicks", 0, 1), ("clicks", 1, 0)]


def test_a_replay_of_a_batch_is_the_same_batch() -> None:
    ledger = Ledger()
    ledger.note("one", 0, ALL[:2])
    ledger.note("one", 0, ALL)
    ledger.check(ENDS)
    assert ledger.in_batch("one", 0) == ledger.by("one") == set(ALL)
    assert ledger.partitions == {"one": {0, 1}}


def test_what_is_lost_from_nowhere_or_twice_is_named() -> None:
    ledger = Ledger()
    ledger.note("one", 0, ALL[:2])
    with pytest.raises(AssertionError, match=r"lost: \[\('clicks', 1, 0\)\]"):
        ledger.check(ENDS)
    ledger.note("two", 0, ALL[1:])
    with pytest.raises(AssertionError, match=r"1 in more than one batch: .*\('one', 0\), \('two', 0\)"):
        ledger.check(ENDS)
    ledger.check(ENDS, twice={ALL[1]})
    with pytest.raises(AssertionError, match=r"1 in one batch alone: \[\('clicks', 1, 0\)\]"):
        ledger.check(ENDS, twice=set(ALL[1:]))
    with pytest.raises(AssertionError, match=r"from nowhere: \[\('clicks', 0, 1\)\]"):
        ledger.check({("clicks", 0): 1, ("clicks", 1): 1})


def test_a_later_batch_of_the_same_driver_is_another() -> None:
    ledger = Ledger()
    ledger.note("one", 0, ALL)
    ledger.note("one", 1, ALL[:1])
    assert ledger.twice() == {ALL[0]}


def test_files_of_several_drivers_are_one_ledger_and_records_hold_what_their_place_says(tmp_path: Path) -> None:
    append_rows(tmp_path / "one.ledger", 0, [(place, value_of(*place[1:])) for place in ALL[:2]])
    append_rows(tmp_path / "two.ledger", 3, [(place, value_of(*place[1:])) for place in ALL[1:]])
    files = LedgerFiles(tmp_path)
    files.read().check(ENDS, twice={ALL[1]})
    assert files.ledger.written[ALL[1]] == {("one", 0), ("two", 3)}
    append_rows(tmp_path / "one.ledger", 1, [(ALL[0], value_of(0, 0))])
    with (tmp_path / "one.ledger").open("a") as half:
        half.write('{"batch": 1, "pl')
    files.read().check(ENDS, twice=set(ALL[:2]))
    append_rows(tmp_path / "two.ledger", 4, [(ALL[2], value_of(0, 1))])
    with pytest.raises(AssertionError, match=r"two wrote .*'value': '0-1'"):
        files.read()
