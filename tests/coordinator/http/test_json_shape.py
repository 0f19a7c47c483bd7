"""How deep JSON goes and of how many parts it is, held against a plain walk through the parsed value."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.coordinator.http.requests.json_shape import Excess, excess

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


def parts(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(parts, value.values()))
    return 1 + sum(map(parts, value)) if isinstance(value, list) else 0


MANY = 10**9


def is_deeper(body: bytes, depth_max: int) -> bool:
    return excess(body, depth_max, MANY) is Excess.DEPTH


@given(VALUES, st.integers(0, 6), st.booleans(), st.booleans(), st.sampled_from((1, 2, 3, 7, 32_768)))
def test_it_is_what_a_walk_finds(value: Any, limit: int, ascii_only: bool, spaced: bool, chunk_bytes: int) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only, indent=1 if spaced else None).encode()
    assert (excess(body, limit, MANY, chunk_bytes) is Excess.DEPTH) is (depth(value) > limit)
    assert (excess(body, MANY, limit, chunk_bytes) is Excess.PARTS) is (parts(value) > limit)


def test_what_is_over_both_limits_is_looked_at_no_further_than_the_first() -> None:
    assert excess(b'[[[{"a":1}]]]', 1, 1) is Excess.PARTS
    assert excess(b"[" * 10_000_000, 32, 75_000) is not None
    assert excess(b'{"a":"' + b'\\"' * 50_000 + b'[[["}', 1, 2) is None


@pytest.mark.parametrize("text", ['"[[[["', '{"[[[": "]{{"}', r'["\"[[[["]', r'["\\", [0]]', '["\\u005b[[[["]'])
def test_brackets_in_texts_do_not_count(text: str) -> None:
    assert not is_deeper(text.encode(), 2)


def test_many_siblings_are_not_deep() -> None:
    assert not is_deeper(b"[" + b",".join([b"{}"] * 1_000) + b"]", 2)
    assert is_deeper(b"[" + b",".join([b"{}"] * 1_000) + b"]", 1)
