"""The picture of a run as SVG: which node coordinated which shard, over time, and what was done. Pure.

It stands alone: no script, no font and no file from elsewhere. It takes the reader's light or dark colours.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from examples.cluster.pauses import Span

WIDTH, LEFT, RIGHT = 960, 64, 24
ROW, BAR = 10, 8
TOP = 88
LABEL_ROW = 16
LABEL_WIDTH_PER_CHARACTER = 6.6
NAMED_EVERY = 5
"""Of so many shards one has its number beside it."""

STYLE = """
  svg { color-scheme: light dark }
  text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2430 }
  .title { font-size: 17px; font-weight: 600 }
  .faint { fill: #6b7280 }
  .ground { fill: #ffffff }
  .grid { stroke: #e3e6eb }
  .node0 { fill: #2563a8 }
  .node1 { fill: #f0a13a }
  .node2 { fill: #7fb58a }
  .event { stroke: #6b7280; stroke-dasharray: 2 3 }
  .alarm { stroke: #c2352b; stroke-dasharray: none }
  .alarm-text { fill: #c2352b; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e8eaee }
    .faint { fill: #9aa3b0 }
    .ground { fill: #14171d }
    .grid { stroke: #2b303a }
    .node0 { fill: #4f8fd6 }
    .node1 { fill: #f4b964 }
    .node2 { fill: #8fcf9c }
    .event { stroke: #9aa3b0 }
    .alarm { stroke: #ff7a6b }
    .alarm-text { fill: #ff7a6b }
  }
"""
"""Without variables: programs that draw SVG outside a browser do not know them, and draw black."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was done; an `alarm` stands out."""

    at_ms: int
    text: str
    alarm: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """All that the picture shows, from `from_ms` to `end_ms`. nodes: in the order of the colours, three at the most."""

    spans: Sequence[Span]
    events: Sequence[Event]
    nodes: Sequence[str]
    shards: int
    from_ms: int
    end_ms: int
    summary: str

    def x(self, at_ms: float) -> float:
        """The x coordinate of a time. Earlier times are placed at the left edge."""
        per_ms = (WIDTH - LEFT - RIGHT) / max(self.end_ms - self.from_ms, 1)
        return round(LEFT + max(at_ms - self.from_ms, 0) * per_ms, 1)


def draw(picture: Picture) -> str:
    """The SVG document."""
    rows = _label_rows(picture)
    top = TOP + (max(rows, default=-1) + 1) * LABEL_ROW + 8
    bottom = top + picture.shards * ROW
    height = bottom + 36
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' role="img" aria-labelledby="title summary">',
        '<title id="title">Which node coordinated which shard</title>',
        f'<desc id="summary">{escape(picture.summary)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="{LEFT}" y="30">Which node coordinated which shard</text>',
        f'<text class="faint" x="{LEFT}" y="50">{escape(picture.summary)}</text>',
        *_legend(picture),
        *_grid(picture, top, bottom),
        *_row_names(picture, top),
        *(_bar(picture, span, top) for span in picture.spans if span.end_ms > picture.from_ms),
        *_marks(picture, rows, bottom),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend(picture: Picture) -> Iterable[str]:
    x = float(LEFT)
    for number, node_id in enumerate(picture.nodes):
        text = f"node {node_id}"
        yield f'<rect class="node{number}" x="{x:.1f}" y="62" width="18" height="12" rx="2"/>'
        yield f'<text x="{x + 24:.1f}" y="72">{escape(text)}</text>'
        x += 48 + len(text) * LABEL_WIDTH_PER_CHARACTER
    yield f'<text class="faint" x="{x:.1f}" y="72">empty: no node</text>'


def _label_start(picture: Picture, event: Event) -> float:
    """Right of its line, or where there is no room left of it, as far left as needed."""
    return min(picture.x(event.at_ms) + 4, WIDTH - RIGHT - len(event.text) * LABEL_WIDTH_PER_CHARACTER)


def _label_rows(picture: Picture) -> list[int]:
    """For each event the row of its label, so that none covers another."""
    ends: list[float] = []
    rows = []
    for event in picture.events:
        start = _label_start(picture, event)
        row = next((number for number, end in enumerate(ends) if end <= start), len(ends))
        if row == len(ends):
            ends.append(0.0)
        ends[row] = start + len(event.text) * LABEL_WIDTH_PER_CHARACTER + 10
        rows.append(row)
    return rows


def _marks(picture: Picture, rows: Sequence[int], bottom: int) -> Iterable[str]:
    for event, row in zip(picture.events, rows, strict=True):
        x, y = picture.x(event.at_ms), TOP + row * LABEL_ROW
        kind, text_kind = (" alarm", ' class="alarm-text"') if event.alarm else ("", ' class="faint"')
        yield f'<line class="event{kind}" x1="{x}" y1="{y}" x2="{x}" y2="{bottom}"/>'
        yield f'<text{text_kind} x="{_label_start(picture, event):.1f}" y="{y + 11}">{escape(event.text)}</text>'


def _grid(picture: Picture, top: int, bottom: int) -> Iterable[str]:
    length_ms = picture.end_ms - picture.from_ms
    step_ms = next((step for step in (1_000, 2_000, 5_000, 10_000, 20_000, 30_000) if length_ms / step <= 12), 60_000)
    for at_ms in range(0, length_ms + 1, step_ms):
        x = picture.x(picture.from_ms + at_ms)
        yield f'<line class="grid" x1="{x}" y1="{top}" x2="{x}" y2="{bottom}"/>'
        yield f'<text class="faint" x="{x}" y="{bottom + 18}" text-anchor="middle">{at_ms // 1000} s</text>'


def _row_names(picture: Picture, top: int) -> Iterable[str]:
    for shard in range(0, picture.shards, NAMED_EVERY):
        y = top + shard * ROW + ROW
        yield f'<text class="faint" x="{LEFT - 10}" y="{y}" text-anchor="end">{shard}</text>'


def _bar(picture: Picture, span: Span, top: int) -> str:
    x, end = picture.x(span.start_ms), picture.x(span.end_ms)
    y = top + span.shard * ROW + (ROW - BAR) / 2
    start_s, end_s = ((at_ms - picture.from_ms) / 1000 for at_ms in (span.start_ms, span.end_ms))
    return (
        f'<rect class="node{picture.nodes.index(span.node_id)}" x="{x}" y="{y}" width="{max(end - x - 0.4, 0.4):.1f}"'
        f' height="{BAR}"><title>shard {span.shard}: node {escape(span.node_id)},'
        f" {start_s:.1f} to {end_s:.1f} s</title></rect>"
    )
