"""Whose a large request is: found where a reader of the JSON finds it, in whatever order its keys come."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rallypoint.coordinator.http.requests import speaker
from rallypoint.coordinator.http.requests.speaker import LOOK_BYTES, group_of, member_of, member_of_message
from tests.sizes import by_size

MEMBER = "a-1"
OTHERS = [{"member_id": f"other-{number:030}", "assignment": {"t": [number]}} for number in range(1_400)]

words = st.sampled_from(["member_id", "body", "group_id", "offsets", '"member_id":"b"', "\\", '\\"', "{", "]", ""])
values = st.recursive(
    words | st.integers() | st.none() | st.booleans() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


def texts_of(value: Any) -> list[bytes]:
    """The same in several ways to write it."""
    return [
        json.dumps(value).encode(),
        json.dumps(value, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass"),
        json.dumps(value, separators=(",", ":"), sort_keys=True).encode(),
    ]


def member_in(value: Any) -> str:
    found = value.get("member_id") if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def group_in(value: Any) -> str:
    found = value.get("group_id") if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


@settings(max_examples=by_size(5, 60))
@given(values)
@example({"members": [{"member_id": "b"}]})
@example({"x\\": '\\"member_id":"b"', "member_id": "a"})
@example([{"member_id": "b"}, "body", {"member_id": "c"}])
@example({"body": ["member_id", {"member_id": "c"}], "group_id": {"member_id": "d"}})
@example({"body": {"member_id": "a"}, "offsets": {"member_id": "b"}})
def test_the_member_is_the_one_that_a_reader_finds(value: Any) -> None:
    for text in texts_of(value):
        assert member_of(text) == member_in(value)
        assert group_of(text) == group_in(value)
        assert member_of_message(text) == member_in(value.get("body") if isinstance(value, dict) else None)


@settings(max_examples=by_size(5, 24))
@given(st.permutations(["member_id", "generation_id", "assignments", "protocol_name"]), values)
def test_so_it_is_behind_a_list_that_is_too_long_to_look_through(order: list[str], more: Any) -> None:
    whole = {"member_id": MEMBER, "generation_id": 1, "assignments": OTHERS, "protocol_name": more}
    body = {key: whole[key] for key in order}
    message = {"id": 1, "body": body, "group_id": "g", "op": "sync"}
    for text in texts_of(body)[:2]:
        assert len(text) > LOOK_BYTES
        assert member_of(text) == MEMBER
    for text in texts_of(message)[:2]:
        assert member_of_message(text) == MEMBER
        assert group_of(text) == "g"


@pytest.mark.parametrize("size_bytes", [LOOK_BYTES // 2, 3 * LOOK_BYTES])
def test_what_stands_in_a_text_is_no_key_wherever_the_look_ends(size_bytes: int) -> None:
    for inner in ('\\"member_id":"b",', '{"member_id":"b"},', '\\\\"}'):
        for shift in range(7):
            long = inner * (size_bytes // len(inner)) + "x" * shift
            assert member_of(json.dumps({"metadata": long}).encode()) == ""
            assert member_of(json.dumps({"metadata": long, "member_id": MEMBER}).encode()) == MEMBER
            assert member_of_message(json.dumps({"x": long, "body": {"member_id": MEMBER}}).encode()) == MEMBER


@pytest.mark.parametrize("part", ["[", "{", "}", '"', '\\"', '"a":', '{"a":', "x", '"\\', " ", f'"{"x" * 100}":'])
def test_the_look_is_short_whatever_comes(part: str) -> None:
    long = (part * (10_000_000 // len(part) + 1))[:10_000_000].encode()
    for text in (long, b'{"a":"' + long):
        ahead, behind = list(speaker._tokens(text)), list(speaker._reversed_tokens(text))
        assert max(len(ahead), len(behind)) <= speaker.TOKENS_MAX
        assert all(end <= LOOK_BYTES for _, end in ahead)
        assert all(start >= len(text) - LOOK_BYTES for start, _ in behind)
