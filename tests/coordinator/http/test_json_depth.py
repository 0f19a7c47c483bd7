"""How deep JSON goes, held against a plain walk through the parsed value."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.http.json_depth import is_deeper

LEAVES = st.none() | st.booleans() | st.integers() | st.text('ab[]{}\\"\n\u00fc', max_size=6)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('k[{"\\', max_size=3), inner, max_size=3),
)


def depth(value: Any) -> int:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(map(depth, inner), default=0)
    return 0


@given(VALUES, st.integers(0, 6), st.booleans(), st.booleans())
def test_it_is_what_a_walk_finds(value: Any, depth_max: int, ascii_only: bool, spaced: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only, indent=1 if spaced else None).encode()
    assert is_deeper(body, depth_max) is (depth(value) > depth_max)


@pytest.mark.parametrize("text", ['"[[[["', '{"[[[": "]{{"}', r'["\"[[[["]', r'["\\", [0]]', '["\\u005b[[[["]'])
def test_brackets_in_texts_do_not_count(text: str) -> None:
    assert not is_deeper(text.encode(), 2)


def test_many_siblings_are_not_deep() -> None:
    assert not is_deeper(b"[" + b",".join([b"{}"] * 1_000) + b"]", 2)
    assert is_deeper(b"[" + b",".join([b"{}"] * 1_000) + b"]", 1)
