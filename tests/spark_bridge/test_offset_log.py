"""Spark's offset log: every shape that Spark writes is understood, and nothing else is taken for empty."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.spark_bridge.errors import BridgeError
from rallypoint.spark_bridge.offset_log import offsets_in
from rallypoint.spark_bridge.offsets import Position, StreamOffset

OURS = StreamOffset("1a2b", {("clicks", 0): Position(10, 4)}, {("clicks", 0): 3})
METADATA = json.dumps(
    {"batchWatermarkMs": 0, "conf": {"spark.sql.streaming.queryEvolution.enableSourceEvolution": "1"}}
)
OTHERS: list[Any] = [17, {"clicks": {"0": 5}}, {"logOffset": 3}, "text:with:colons", [1, 2], None, True]

offsets = st.builds(
    StreamOffset,
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
    st.dictionaries(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.integers(0, 99)),
        st.builds(Position, st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)),
        max_size=4,
    ),
)
lines = st.one_of(
    st.just("-"),
    st.just("{}"),
    st.sampled_from(OTHERS).map(json.dumps),
    offsets.map(lambda offset: json.dumps(offset.to_dict())),
)
names = st.from_regex(r"[A-Za-z0-9_]{1,8}", fullmatch=True)


def is_ours(line: str) -> bool:
    return '"lineage": ' in line and '"taken": ' in line


@st.composite
def logs(draw: st.DrawFn) -> tuple[str, dict[str, str]]:
    """A file, and the line of each source."""
    sources = draw(st.dictionaries(names, lines, min_size=1, max_size=4))
    end = draw(st.sampled_from(["", "\n"]))
    if draw(st.booleans()):
        sources = {str(place): line for place, line in enumerate(sources.values())}
        return "\n".join(["v1", METADATA, *sources.values()]) + end, sources
    return "\n".join(["v2", METADATA, *(f"{name}:{line}" for name, line in sources.items())]) + end, sources


@given(logs())
def test_what_spark_writes_is_understood(log: tuple[str, dict[str, str]]) -> None:
    text, sources = log
    ours = {name: StreamOffset.from_dict(json.loads(line)) for name, line in sources.items() if is_ours(line)}
    if ours or {"-", "{}"} & set(sources.values()):
        assert offsets_in(text) == ours
    else:
        with pytest.raises(BridgeError, match="the log of another query"):
            offsets_in(text)


@given(logs(), st.data())
def test_what_is_changed_is_understood_or_refused_and_never_empty(
    log: tuple[str, dict[str, str]], data: st.DataObject
) -> None:
    """Another version, other lines before, a line cut short, a prefix that nobody knows."""
    text, _ = log
    place = data.draw(st.integers(0, len(text)))
    put = data.draw(st.text(max_size=5) | st.sampled_from(["v3", "v2", "\n", ":", "-", "{}", "{", "0:"]))
    changed = text[:place] + put + text[place + data.draw(st.integers(0, 5)) :]
    try:
        found = offsets_in(changed)
    except BridgeError:
        return
    whole = [line for line in changed.split("\n") if is_ours(line)]
    assert len(found) == len(whole)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "begins with ''"),
        ("v1", "no metadata"),
        ("v1\n17\n-", "no metadata"),
        (f"v3\n{{}}\n{json.dumps(OURS.to_dict())}", "begins with 'v3'"),
        (f"v1\n{{}}\n0:{json.dumps(OURS.to_dict())}", "a line that is no JSON"),
        (f"v2\n{{}}\n{json.dumps(OURS.to_dict())}", "without a source's name"),
        (f"v2\n{{}}\n0:{json.dumps(OURS.to_dict())}\n0:-\n0:{json.dumps(OURS.to_dict())}", "two offsets of the source"),
        ('v1\n{}\n{"lineage": "x", "version": 2}', "which this version of the bridge cannot read"),
        ('v1\n{}\n{"lineage": "x", "version": 1}', "a damaged offset"),
        ('v1\n{}\n{"clicks":{"0":5}}', "the log of another query"),
    ],
)
def test_what_is_refused_is_said(text: str, says: str) -> None:
    with pytest.raises(BridgeError, match=says):
        offsets_in(text)


def test_a_log_of_before_there_was_metadata_is_understood() -> None:
    assert offsets_in(f"v1\n\n{json.dumps(OURS.to_dict())}") == {"0": OURS}
