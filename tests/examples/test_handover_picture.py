"""The SVG: well-formed, complete, to scale, and nothing from elsewhere in it."""

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from examples.handover.ownership import GroupSnapshot, Span
from examples.handover.picture import LEFT, RIGHT, STYLE, WIDTH, BatchBar, Event, Picture, draw
from examples.handover.terminal import View, draw_timeline

SVG = "{http://www.w3.org/2000/svg}"

SPANS = (
    Span(0, "A", 10_000, 100_000),
    Span(1, "A", 10_000, 30_000),
    Span(1, "B", 40_000, 60_000),
    Span(1, "B", 60_000, 70_000, alive=False),
    Span(1, "A", 70_000, 100_000),
)
EVENTS = (
    Event(10_000, "A owns 2"),
    Event(11_000, "a second mark beside it"),
    Event(60_000, "B is killed", alarm=True),
    Event(99_500, "a label at the end that has no room to its right"),
)


def picture(summary: str = "all read") -> Picture:
    """A small run of 100 seconds."""
    return Picture(
        topic="flights",
        spans=SPANS,
        snapshots=[
            GroupSnapshot(20_000, committed=0),
            GroupSnapshot(50_000, committed=600),
            GroupSnapshot(90_000, committed=1000),
        ],
        events=EVENTS,
        drivers=("A", "B"),
        partitions=2,
        records=1000,
        end_ms=100_000,
        summary=summary,
    )


def bars(root: ElementTree.Element) -> list[ElementTree.Element]:
    """The rectangles that stand for a span: those with words."""
    return [one for one in root.iter(f"{SVG}rect") if one.find(f"{SVG}title") is not None]


def test_it_is_well_formed_with_one_bar_for_each_span() -> None:
    root = ElementTree.fromstring(draw(picture()))
    assert root.tag == f"{SVG}svg"
    assert [one.get("class") for one in bars(root)] == ["owner0", "owner0", "owner1", "dead", "owner0"]


def test_bars_are_to_scale() -> None:
    root = ElementTree.fromstring(draw(picture()))
    per_ms = (WIDTH - LEFT - RIGHT) / 100_000
    for bar, span in zip(bars(root), SPANS, strict=True):
        assert abs(float(bar.get("x", "")) - (LEFT + span.start_ms * per_ms)) < 0.1
        assert abs(float(bar.get("width", "")) + 1 - (span.end_ms - span.start_ms) * per_ms) < 0.2


def test_every_event_is_named_and_no_label_covers_another_or_leaves_the_picture() -> None:
    root = ElementTree.fromstring(draw(picture()))
    labels = {one.text: one for one in root.iter(f"{SVG}text")}
    places = []
    for event in EVENTS:
        label = labels[event.text]
        start = float(label.get("x", ""))
        end = start + len(event.text) * 6.6
        assert end <= WIDTH - RIGHT + 0.1
        places.append((float(label.get("y", "")), start, end))
    for number, (y, start, end) in enumerate(places):
        for other_y, other_start, other_end in places[number + 1 :]:
            assert y != other_y or end <= other_start or other_end <= start


def test_the_curve_begins_at_all_records_and_ends_at_none() -> None:
    root = ElementTree.fromstring(draw(picture()))
    curve = root.find(f".//{SVG}polyline")
    assert curve is not None
    corners = [tuple(map(float, corner.split(","))) for corner in curve.get("points", "").split()]
    assert corners == sorted(corners, key=lambda corner: corner[0])
    heights = [y for _, y in corners]
    assert heights == sorted(heights)
    assert heights[-1] - heights[0] == 90


def test_it_stands_alone() -> None:
    text = draw(picture())
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<script|@import|<image|@font-face|href", text)
    assert "prefers-color-scheme: dark" in text
    assert "var(" not in text, "only browsers know variables"
    assert text.index("prefers-color-scheme") > text.index(".area"), "who does not know the question has light colours"


@pytest.mark.parametrize("page", ["demo-ownership.svg", "spark-handover.svg"])
def test_the_pictures_in_the_docs_are_drawn_so(page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    assert f"<style>{STYLE}</style>" in text
    root = ElementTree.fromstring(text)
    assert {one.text for one in root.iter(f"{SVG}text") if str(one.get("class")).startswith("letter")} == {"A", "B"}


def test_a_driver_has_its_letter_beside_its_colour() -> None:
    root = ElementTree.fromstring(draw(picture()))
    letters = [(one.get("class"), one.text) for one in root.iter(f"{SVG}text") if "letter" in str(one.get("class"))]
    alive = [("letter0", "A") if span.owner == "A" else ("letter1", "B") for span in SPANS if span.alive]
    assert letters == [("letter0", "A"), ("letter1", "B"), *alive]
    narrow = replace(picture(), spans=[Span(0, "A", 0, 100)])
    assert draw(narrow).count('class="letter') == 2, "no letter where it has no room"


def test_the_terminal_has_letters_in_its_colours() -> None:
    view = View(100_000, 1000, 600, 3, SPANS, 2, ("A", "B"), (1, 1))
    console = Console(width=56, color_system=None, file=StringIO(), force_terminal=True)
    console.print(draw_timeline(view, 56))
    assert isinstance(console.file, StringIO)
    rows = console.file.getvalue().splitlines()
    assert [set(row[4:].strip()) for row in rows[:2]] == [{"·", "A"}, {"·", "A", "B", "×"}]
    assert "AA driver A" in rows[3]
    assert "BB driver B" in rows[3]


def test_words_are_escaped() -> None:
    root = ElementTree.fromstring(draw(picture(summary="a < b & c")))
    assert "a < b & c" in [one.text for one in root.iter(f"{SVG}text")]


def test_batches_stand_in_a_row_for_each_driver_and_one_cut_short_stands_out() -> None:
    batches = [BatchBar("A", 0, 10_000, 12_000, 50), BatchBar("B", 0, 50_000, 60_000, 7, complete=False)]
    root = ElementTree.fromstring(draw(replace(picture(), batches=batches)))
    found = bars(root)[len(SPANS) :]
    assert [one.get("class") for one in found] == ["owner0", "dead"]
    assert found[0].get("y") != found[1].get("y")
    words = [one.findtext(f"{SVG}title") for one in found]
    assert words == [
        "batch 0 of driver A, 50 records, 10.0 to 12.0 s",
        "batch 0 of driver B, 7 records, cut short, 50.0 to 60.0 s",
    ]
    assert "the topic flights" in str(root.findtext(f"{SVG}title"))


def test_what_is_before_the_picture_begins_is_left_out() -> None:
    root = ElementTree.fromstring(draw(replace(picture(), from_ms=10_500)))
    first = bars(root)[0]
    assert float(first.get("x", "")) == LEFT
    per_ms = (WIDTH - LEFT - RIGHT) / 89_500
    assert abs(float(first.get("width", "")) + 1 - 89_500 * per_ms) < 0.2
    words = [one.text for one in root.iter(f"{SVG}text")]
    assert "A owns 2" not in words
    assert "a second mark beside it" in words
    assert [word for word in words if word and word.endswith(" s")] == [f"{at} s" for at in range(20, 101, 10)]
