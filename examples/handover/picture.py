"""The picture of a run as SVG: who owned which partition, the drivers' batches, how many records were left. Pure.

It stands alone: no script, no font and no file from elsewhere. It takes the reader's light or dark colours, and tells
the drivers apart by lightness and by their letters, too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from examples.handover.ownership import GroupSnapshot, Span

WIDTH = 960
LEFT, RIGHT = 64, 24
ROW, BAR = 22, 14
LEFT_PANEL_HEIGHT = 90
LABEL_ROW = 16
LABEL_WIDTH_PER_CHARACTER = 6.6
LETTER_BAR = 14
"""A bar is as wide as that, at least, to have its driver's letter in it."""

STYLE = """
  svg { color-scheme: light dark }
  text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2430 }
  .title { font-size: 17px; font-weight: 600 }
  .faint { fill: #6b7280 }
  .number { font-variant-numeric: tabular-nums }
  .ground { fill: #ffffff }
  .grid { stroke: #e3e6eb }
  .owner0 { fill: #2563a8 }
  .owner1 { fill: #f0a13a }
  .letter0 { fill: #ffffff; font-size: 11px; font-weight: 600 }
  .letter1 { fill: #1f2430; font-size: 11px; font-weight: 600 }
  .dead { fill: url(#dead) }
  .hatch { stroke: #c2352b; stroke-width: 2 }
  .event { stroke: #6b7280; stroke-dasharray: 2 3 }
  .alarm { stroke: #c2352b; stroke-dasharray: none }
  .alarm-text { fill: #c2352b; font-weight: 600 }
  .curve { fill: none; stroke: #1f2430; stroke-width: 1.5 }
  .area { fill: #6b7280; opacity: .15 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e8eaee }
    .faint { fill: #9aa3b0 }
    .ground { fill: #14171d }
    .grid { stroke: #2b303a }
    .owner0 { fill: #4f8fd6 }
    .owner1 { fill: #f4b964 }
    .letter0, .letter1 { fill: #14171d }
    .event { stroke: #9aa3b0 }
    .hatch, .alarm { stroke: #ff7a6b }
    .alarm-text { fill: #ff7a6b }
    .curve { stroke: #e8eaee }
    .area { fill: #9aa3b0 }
  }
"""
"""Without variables: programs that draw SVG outside a browser do not know them, and draw black."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something to mark in time; an `alarm` stands out."""

    at_ms: int
    text: str
    alarm: bool = False


@dataclass(frozen=True, slots=True)
class BatchBar:
    """A micro-batch of a driver, from its plan to its end. Not `complete`: its driver died in it."""

    driver: str
    batch_id: int
    start_ms: int
    end_ms: int
    records: int
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Picture:
    """All that the picture shows, from `from_ms` to `end_ms`. `drivers`: the first two, in the order of the colours."""

    topic: str
    spans: Sequence[Span]
    snapshots: Sequence[GroupSnapshot]
    events: Sequence[Event]
    drivers: Sequence[str]
    partitions: int
    records: int
    end_ms: int
    summary: str
    batches: Sequence[BatchBar] = ()
    from_ms: int = 0


@dataclass(frozen=True, slots=True)
class Scale:
    """The x coordinate of a time. Earlier times than `from_ms` are placed there."""

    from_ms: int
    end_ms: int

    def x(self, at_ms: float) -> float:
        """In units of the picture."""
        per_ms = (WIDTH - LEFT - RIGHT) / max(self.end_ms - self.from_ms, 1)
        return round(LEFT + max(at_ms - self.from_ms, 0) * per_ms, 1)


def draw(picture: Picture) -> str:
    """The SVG document."""
    scale = Scale(picture.from_ms, picture.end_ms)
    events = [event for event in picture.events if event.at_ms >= picture.from_ms]
    labels, rows_of_labels = _labels(events, scale)
    top = 96 + rows_of_labels * LABEL_ROW
    bottom = top + picture.partitions * ROW
    panel = bottom + (len(picture.drivers) * ROW + 36 if picture.batches else 0) + 44
    height = panel + LEFT_PANEL_HEIGHT + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' role="img" aria-labelledby="title summary">',
        f'<title id="title">Who owned which partition of the topic {escape(picture.topic)}</title>',
        f'<desc id="summary">{escape(picture.summary)}</desc>',
        f"<style>{STYLE}</style>",
        '<defs><pattern id="dead" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<line class="hatch" x1="0" y1="0" x2="0" y2="6"/></pattern></defs>',
        f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="{LEFT}" y="32">Who owned which partition of {escape(picture.topic)}</text>',
        f'<text class="faint" x="{LEFT}" y="52">{escape(picture.summary)}</text>',
        *_legend(picture.drivers),
        *_grid(scale, top, panel + LEFT_PANEL_HEIGHT),
        *(_row_name(partition, top) for partition in range(picture.partitions)),
        *(_bar(span, scale, top, picture.drivers) for span in picture.spans),
        *_batches_panel(picture, scale, bottom + 36),
        *_left_panel(picture, scale, panel),
        *_marks(events, labels, scale, top, panel + LEFT_PANEL_HEIGHT),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend(drivers: Sequence[str]) -> Iterable[str]:
    x = float(LEFT)
    entries = [(f"owner{number}", f"driver {driver}") for number, driver in enumerate(drivers)]
    for number, (style, text) in enumerate([*entries, ("dead", "its owner was dead, not noticed yet")]):
        yield f'<rect class="{style}" x="{x:.1f}" y="66" width="18" height="12" rx="2"/>'
        if number < len(drivers):
            yield _letter(drivers, number, x + 9, 76)
        yield f'<text x="{x + 24:.1f}" y="76">{escape(text)}</text>'
        x += 48 + len(text) * LABEL_WIDTH_PER_CHARACTER
    yield f'<text class="faint" x="{x:.1f}" y="76">empty: between two owners</text>'


def _letter(drivers: Sequence[str], number: int, x: float, y: float) -> str:
    """The letter of a driver, for readers who cannot distinguish the colours. `x`: its centre."""
    first = escape(drivers[number][:1])
    return f'<text class="letter{number}" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{first}</text>'


def _labels(events: Sequence[Event], scale: Scale) -> tuple[list[int], int]:
    """For each event the row of its label, so that none covers another, and how many rows there are."""
    ends: list[float] = []
    rows = []
    for event in events:
        start = _label_start(event, scale)
        row = next((number for number, end in enumerate(ends) if end <= start), len(ends))
        if row == len(ends):
            ends.append(0.0)
        ends[row] = start + _label_width(event) + 10
        rows.append(row)
    return rows, len(ends)


def _label_width(event: Event) -> float:
    return len(event.text) * LABEL_WIDTH_PER_CHARACTER


def _label_start(event: Event, scale: Scale) -> float:
    """Right of its line, or where there is no room left of it, as far left as needed."""
    return min(scale.x(event.at_ms) + 4, WIDTH - RIGHT - _label_width(event))


def _marks(events: Sequence[Event], rows: Sequence[int], scale: Scale, top: int, bottom: int) -> Iterable[str]:
    for event, row in zip(events, rows, strict=True):
        x, y = scale.x(event.at_ms), 96 + row * LABEL_ROW
        kind, text_kind = (" alarm", ' class="alarm-text"') if event.alarm else ("", ' class="faint"')
        yield f'<line class="event{kind}" x1="{x}" y1="{y}" x2="{x}" y2="{bottom}"/>'
        yield f'<text{text_kind} x="{_label_start(event, scale):.1f}" y="{y + 10}">{escape(event.text)}</text>'


def _grid(scale: Scale, top: int, bottom: int) -> Iterable[str]:
    length_ms = scale.end_ms - scale.from_ms
    step_ms = next((step for step in (1_000, 2_000, 5_000, 10_000, 20_000, 30_000) if length_ms / step <= 10), 60_000)
    for at_ms in range(-(-scale.from_ms // step_ms) * step_ms, scale.end_ms + 1, step_ms):
        x = scale.x(at_ms)
        yield f'<line class="grid" x1="{x}" y1="{top}" x2="{x}" y2="{bottom}"/>'
        yield f'<text class="faint number" x="{x}" y="{bottom + 18}" text-anchor="middle">{at_ms // 1000} s</text>'


def _row_name(partition: int, top: int) -> str:
    y = top + partition * ROW + ROW / 2 + 4
    return f'<text class="faint number" x="{LEFT - 10}" y="{y}" text-anchor="end">{partition}</text>'


def _bar(span: Span, scale: Scale, top: int, drivers: Sequence[str]) -> str:
    number = drivers.index(span.owner)
    style = f"owner{number}" if span.alive else "dead"
    x, end = scale.x(span.start_ms), scale.x(span.end_ms)
    y = top + span.partition * ROW + (ROW - BAR) / 2
    words = f"partition {span.partition}: driver {span.owner}{'' if span.alive else ', dead'}"
    bar = (
        f'<rect class="{style}" x="{x}" y="{y}" width="{max(end - x - 1, 1):.1f}" height="{BAR}" rx="2">'
        f"<title>{escape(words)}, {span.start_ms / 1000:.1f} to {span.end_ms / 1000:.1f} s</title></rect>"
    )
    has_letter = span.alive and end - x - 1 >= LETTER_BAR
    return bar + (_letter(drivers, number, x + LETTER_BAR / 2, y + 11) if has_letter else "")


def _batches_panel(picture: Picture, scale: Scale, top: int) -> Iterable[str]:
    """A row for each driver, with its batches."""
    if not picture.batches:
        return
    yield f'<text class="faint" x="{LEFT}" y="{top - 4}">micro-batches, each from its plan to its end</text>'
    for number, driver in enumerate(picture.drivers):
        y = top + number * ROW
        yield f'<text class="faint" x="{LEFT - 10}" y="{y + ROW / 2 + 4}" text-anchor="end">{escape(driver)}</text>'
        for bar in picture.batches:
            if bar.driver == driver:
                yield _batch(bar, f"owner{number}", scale, y)


def _batch(bar: BatchBar, style: str, scale: Scale, top: float) -> str:
    x, end = scale.x(bar.start_ms), scale.x(bar.end_ms)
    words = (
        f"batch {bar.batch_id} of driver {bar.driver}, {bar.records:,} records{'' if bar.complete else ', cut short'}"
    )
    return (
        f'<rect class="{style if bar.complete else "dead"}" x="{x}" y="{top + (ROW - BAR) / 2}"'
        f' width="{max(end - x - 1, 2):.1f}" height="{BAR}" rx="2">'
        f"<title>{escape(words)}, {bar.start_ms / 1000:.1f} to {bar.end_ms / 1000:.1f} s</title></rect>"
    )


def _left_panel(picture: Picture, scale: Scale, top: int) -> Iterable[str]:
    """How many records the group had not committed, over time."""
    bottom = top + LEFT_PANEL_HEIGHT
    lefts = [
        (scale.from_ms, picture.records),
        *((one.at_ms, picture.records - one.committed) for one in picture.snapshots),
    ]
    corners = [lefts[0]]
    for at_ms, left in [*lefts[1:], (picture.end_ms, lefts[-1][1])]:
        corners += [(at_ms, corners[-1][1]), (at_ms, left)]
    line = " ".join(
        f"{scale.x(at_ms)},{bottom - left / max(picture.records, 1) * LEFT_PANEL_HEIGHT:.1f}"
        for at_ms, left in dict.fromkeys(corners)
    )
    most = f"{picture.records // 1000} k" if picture.records >= 10_000 else f"{picture.records:,}"
    yield f'<text class="faint" x="{LEFT}" y="{top - 8}">records not committed yet</text>'
    yield f'<text class="faint number" x="{LEFT - 10}" y="{top + 10}" text-anchor="end">{most}</text>'
    yield f'<text class="faint number" x="{LEFT - 10}" y="{bottom}" text-anchor="end">0</text>'
    yield f'<polygon class="area" points="{LEFT},{bottom} {line} {scale.x(picture.end_ms)},{bottom}"/>'
    yield f'<polyline class="curve" points="{line}"/>'
