"""The judge of histories: it passes what is linearizable, and objects to each planted fault."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cluster_faults.histories import NEVER, History, Operation, divided, without_unseen
from tests.real.parts import require
from tests.real.porcupine import REMEDY, find_porcupine, judge

pytestmark = pytest.mark.languages


@pytest.fixture(scope="module")
def porcupine() -> Path:
    program = find_porcupine()
    require(program, "porcupine", REMEDY)
    assert program is not None
    return program


def write(value: int, call_ms: int, return_ms: int = NEVER) -> Operation:
    return Operation("m", True, value, call_ms, return_ms)


def read(value: int, call_ms: int, return_ms: int) -> Operation:
    return Operation("r", False, value, call_ms, return_ms)


SOUND: dict[str, Sequence[Operation]] = {
    "one after the other": [read(0, 0, 1), write(1, 2, 3), read(1, 4, 5), write(2, 6, 7), read(2, 8, 9)],
    "a fetch during a commit finds either": [write(1, 0, 1), write(2, 2, 9), read(1, 3, 4), read(2, 5, 6)],
    "two at once, in either order": [write(1, 0, 5), write(2, 0, 5), read(1, 6, 7)],
    "refused, and never carried out": [write(1, 0, 1), write(2, 2), read(1, 50, 51)],
    "refused, and carried out late": [write(1, 0, 1), write(2, 2), read(1, 50, 51), read(2, 60, 61)],
    "refused, carried out late, over a later one": [write(1, 0), write(2, 5, 6), read(2, 7, 8), read(1, 20, 21)],
    "tried again under the same value": [write(5, 0), write(5, 10, 11), write(6, 12, 13), read(6, 14, 15)],
}
WRONG: dict[str, Sequence[Operation]] = {
    "an acknowledged commit is lost": [write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)],
    "a fetch goes back": [write(1, 0, 1), write(2, 2, 9), read(2, 3, 4), read(1, 5, 6)],
    "a value that nobody committed": [write(1, 0, 1), read(7, 2, 3)],
    "found before it was committed": [read(1, 0, 1), write(1, 5, 6)],
    "found before a commit without an answer was called": [read(1, 0, 1), write(1, 5)],
    "a commit that was refused comes and goes": [write(1, 0, 1), write(2, 2), read(2, 3, 4), read(1, 5, 6)],
    "a late copy over an acknowledged commit": [write(5, 0, 9), write(6, 12, 13), read(6, 14, 15), read(5, 16, 17)],
    "one reader sees the old owner's": [write(1, 0, 1), write(2, 2, 3), read(2, 4, 5), read(1, 4, 5)],
}


@pytest.mark.parametrize("simpler", [False, True])
def test_it_tells_sound_histories_from_wrong_ones(porcupine: Path, tmp_path: Path, simpler: bool) -> None:
    given = [
        History(name, 0, without_unseen(operations) if simpler else operations)
        for name, operations in {**SOUND, **WRONG}.items()
    ]
    found = {one.name: one.verdict for one in judge(porcupine, given, tmp_path)}
    assert found == {**dict.fromkeys(SOUND, "linearizable"), **dict.fromkeys(WRONG, "illegal")}
    assert sorted(path.stem for path in tmp_path.glob("*.html")) == sorted(WRONG)


def test_the_parts_of_a_history_have_the_verdict_of_the_whole(porcupine: Path) -> None:
    sound = [
        one
        for value in range(1, 200)
        for one in (write(value, 10 * value, 10 * value + 2), read(value, 10 * value + 4, 10 * value + 5))
    ]
    wrong = [*sound, read(198, 5_000, 5_001)]
    for operations, expected in ((sound, {"linearizable"}), (wrong, {"linearizable", "illegal"})):
        parts = divided("h", operations, 10)
        assert len(parts) > 10
        assert {one.verdict for one in judge(porcupine, parts)} == expected
