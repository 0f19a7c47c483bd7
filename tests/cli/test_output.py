"""How answers are shown: nothing that a terminal obeys, tables that fit, and the same rows in every form."""

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.cli.look.conditions import Condition, above, condition
from rallypoint.cli.output.columns import COLOURS, Column, names, number, since, text, word
from rallypoint.cli.output.numbers import numbers_text
from rallypoint.cli.output.table import Table, paragraph
from rallypoint.cli.output.terminal import Progress
from rallypoint.cli.output.text import counted, cut, escaped, list_text, padded, shown, unescaped, width
from rallypoint.cli.output.times import ago, duration, duration_ms, instant, instant_ms
from rallypoint.cli.output.view import Form, View
from rallypoint.cli.output.writing import FORMS, lines_of

NOW_MS = 1_764_000_000_000
HOSTILE = "a\x1b]0;owned\x07\u202eb\x9b31m\nc\r\ud800"


def form(name: str = "table", columns_max: int | None = None, *, colour: bool = False) -> Form:
    return Form(name, columns_max, colour, NOW_MS)


# --- text of strangers


def test_what_a_terminal_obeys_is_escaped() -> None:
    assert shown(HOSTILE) == r"a\x1b]0;owned\x07\u202eb\x9b31m\x0ac\x0d\ud800"
    assert shown("grün-群") == "grün-群"


@given(st.text())
def test_every_text_is_shown_on_one_line_and_found_again(given_text: str) -> None:
    assert shown(given_text).isprintable()
    assert unescaped(escaped(given_text)) == given_text


@pytest.mark.parametrize("wrong", ["\\", "\\q", "\\x1", "\\u12", "\\x--"])
def test_a_backslash_that_begins_nothing_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="backslash"):
        unescaped(wrong)


def test_columns_of_a_terminal_are_counted() -> None:
    assert (width("abc"), width("群群"), width("e\u0301")) == (3, 4, 1)
    assert (cut("abcdef", 4), cut("群群群", 4), cut("abc", 3)) == ("abc…", "群…", "abc")
    assert (padded("群", 4), padded("7", 3, right=True)) == ("群  ", "  7")
    assert list_text(["a", "b", "c"], 2) == "a, b and 1 more"
    assert (counted(1, "member"), counted(1_200, "member")) == ("1 member", "1,200 members")
    assert numbers_text([0, 1, 2, 5]) == "0-2 5"


# --- times


@pytest.mark.parametrize(
    ("ms", "said"),
    [(0, "0 ms"), (80, "80 ms"), (3_200, "3.2 s"), (5_000, "5 s"), (65_000, "1 min 5 s"), (7_800_000, "2 h 10 min"),
     (7_200_000, "2 h"), (180_000_000, "2 d 2 h")],
)  # fmt: skip
def test_a_duration_has_two_units_at_most(ms: int, said: str) -> None:
    assert duration(ms) == said


def test_an_instant_is_told_from_now() -> None:
    assert [ago(NOW_MS - ms, NOW_MS) for ms in (-2_000, 500, 59_000, 3_600_000, 200_000_000)] == [
        "now", "now", "59 s ago", "1 h ago", "2 d ago",
    ]  # fmt: skip
    assert ago(NOW_MS + 120_000, NOW_MS) == "in 2 min"
    assert instant(NOW_MS) == "2025-11-24T16:00:00Z"


def test_durations_and_instants_are_read() -> None:
    assert [duration_ms(one) for one in ("5m", "90s", "1h30m", "250ms", "2 h 10 min")] == [
        300_000, 90_000, 5_400_000, 250, 7_800_000,
    ]  # fmt: skip
    assert instant_ms("2025-11-24T16:00:00Z", 0) == NOW_MS
    assert instant_ms("-2h", NOW_MS) == NOW_MS - 7_200_000
    for wrong in ("5", "m", "5x", "5m!", ""):
        with pytest.raises(ValueError, match="is no duration"):
            duration_ms(wrong)
    with pytest.raises(ValueError, match="is no time"):
        instant_ms("noon", NOW_MS)


# --- tables

COLUMNS: tuple[Column, ...] = (
    text("group_id", "GROUP"),
    word("status", "STATUS", colours=COLOURS),
    number("lag", "LAG"),
    since("at_ms", "COMMITTED", rank=1),
    names("topics", "TOPICS", rank=2),
    number("generation", "GENERATION", wide=True),
)
ROWS: list[dict[str, Any]] = [
    {"group_id": "etl", "status": "OK", "lag": 0, "at_ms": NOW_MS - 3_000, "topics": ["clicks"], "generation": 3},
    {"group_id": HOSTILE, "status": "ERR", "lag": 1_234_567, "at_ms": None, "topics": [], "generation": 12},
]


def test_a_table_for_people() -> None:
    assert list(lines_of(View(COLUMNS, ROWS, "group_id"), form())) == [
        "GROUP                                           STATUS        LAG  COMMITTED  TOPICS",
        "etl                                             OK              0    3 s ago  clicks",
        r"a\x1b]0;owned\x07\u202eb\x9b31m\x0ac\x0d\ud800  ERR     1,234,567          -  -",
    ]


@pytest.mark.parametrize("columns_max", range(24, 100, 7))
def test_a_table_fits_the_terminal(columns_max: int) -> None:
    lines = list(lines_of(View(COLUMNS, ROWS, "group_id"), form(columns_max=columns_max)))
    assert all(width(line) <= max(columns_max, 31) for line in lines)
    assert "1,234,567" in lines[2]
    assert ("TOPICS" in lines[0]) <= ("COMMITTED" in lines[0])


def test_colour_is_never_alone() -> None:
    lines = list(lines_of(View(COLUMNS, ROWS, "group_id"), form(colour=True)))
    assert "\x1b[32mOK" in lines[1]
    assert lines[2].count("\x1b[") == 2
    assert not any("\x1b" in line for line in lines_of(View(COLUMNS, ROWS, "group_id"), form()))


def test_later_rows_keep_the_layout_of_the_first() -> None:
    table = Table(COLUMNS[:1], [{"group_id": "ab"}], NOW_MS, columns_max=40)
    assert list(table.lines([{"group_id": "abcdef"}], colour=False)) == ["abcd…"]


def test_a_paragraph_is_broken_between_words() -> None:
    assert paragraph("one two three four", 11, "  ") == ["one two", "  three", "  four"]
    assert paragraph("one two three four", None) == ["one two three four"]


# --- the other forms


@pytest.mark.parametrize("name", FORMS)
def test_no_form_lets_an_escape_through(name: str) -> None:
    lines = list(lines_of(View(COLUMNS, ROWS, "group_id"), form(name)))
    assert len(lines) >= 2
    assert all(line.isprintable() for line in lines)


def test_rows_as_json_and_as_names() -> None:
    assert json.loads("\n".join(lines_of(View(COLUMNS, ROWS, "group_id"), form("json")))) == ROWS
    assert json.loads("\n".join(lines_of(View(COLUMNS, [], "group_id"), form("json")))) == []
    assert [json.loads(line) for line in lines_of(View(COLUMNS, ROWS, "group_id"), form("jsonl"))] == ROWS
    assert list(lines_of(View(COLUMNS, ROWS, "group_id"), form("name"))) == ["etl", shown(HOSTILE)]
    document = View(COLUMNS, ROWS, "group_id", document={"a": 1})
    assert json.loads("\n".join(lines_of(document, form("json")))) == {"a": 1}


def test_rows_as_csv() -> None:
    found = list(csv.DictReader(io.StringIO("\n".join(lines_of(View(COLUMNS, ROWS, "group_id"), form("csv"))))))
    assert found[0] == {
        "group_id": "etl", "status": "OK", "lag": "0", "at_ms": str(NOW_MS - 3_000), "topics": "clicks",
        "generation": "3",
    }  # fmt: skip
    assert found[1]["at_ms"] == ""


def test_wide_has_every_column() -> None:
    assert "GENERATION" in next(iter(lines_of(View(COLUMNS, ROWS, "group_id"), form("wide", 20))))


def test_rows_are_taken_as_they_are_printed() -> None:
    taken = 0

    def rows() -> Any:
        nonlocal taken
        for at in range(100_000):
            taken += 1
            yield {"group_id": f"g{at}"}

    lines = lines_of(View(COLUMNS[:1], rows(), "group_id"), form())
    assert next(lines) == "GROUP"
    assert taken == 1_000


# --- the rest


def test_conditions_are_read() -> None:
    assert condition(">= 10") == Condition(">=", 10)
    assert [condition(">10").holds(value) for value in (10, 11)] == [False, True]
    assert (above(">10"), above(">=10")) == (10, 9)
    for wrong in ("10", "> x", "=>3"):
        with pytest.raises(Exception, match="is no condition"):
            condition(wrong)
    for wrong in ("<3", ">=0"):
        with pytest.raises(Exception, match=r"must begin|holds for every group"):
            above(wrong)


def test_progress_is_for_terminals_alone() -> None:
    file = io.StringIO()
    with Progress(file) as progress:
        progress.say("half", at_once=True)
    assert file.getvalue() == ""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    with Progress(screen) as progress:
        progress.say("half \x1b[2J", at_once=True)
    assert screen.getvalue() == "\r\x1b[Khalf \\x1b[2J\r\x1b[K"
