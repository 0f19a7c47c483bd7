"""The cursor of a cluster's stream, from where each node's events go on, and in which order they are told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.coordinator.http.events.order import HOLD_MS, Head, Order, Waits
from rallypoint.coordinator.http.events.positions import (
    FROM_NOW,
    FROM_OLDEST,
    JOINED,
    POSITIONS_MAX,
    UNKNOWN,
    AskAgain,
    Beginning,
    Position,
    Resumed,
    Start,
    beginning_of,
    decode_cursor,
    encode_position,
    encode_positions,
    own_start,
    position_unreached,
    resumed_at,
    start_of,
)

LIVES = st.text("0123456789abcdefz", min_size=1, max_size=32)
POSITIONS = st.builds(Position, LIVES, st.integers(0, 10**18 - 1), st.booleans()) | st.just(UNKNOWN)
NODE_IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


# --- the cursor


@given(st.dictionaries(NODE_IDS, POSITIONS, min_size=1, max_size=5))
def test_a_cursor_says_what_was_put_into_it(positions: dict[str, Position]) -> None:
    cursor = encode_positions(positions)
    assert decode_cursor(cursor) == positions
    assert not set(cursor) & set("%&+# \n\r\0"), "what a URL or a line of the stream does not hold"


def test_what_a_cursor_looks_like() -> None:
    positions = {"b:8000": Position("5f0c", 7), "a:8000": Position("77ab", 0, is_over=True), "c/d": UNKNOWN}
    assert encode_positions(positions) == "a:8000=77ab-0!,b:8000=5f0c-7,c~2fd=?"
    assert decode_cursor(encode_position("5f0c", 7)) == Position("5f0c", 7)


@pytest.mark.parametrize(
    "text",
    ["", "a", "a=", "a=b", "=b-1", "a=b-01", "a=b-1,", ",a=b-1", "a=b-1,a=c-2", "a~2g=b-1", "a~ff=b-1", "a=?!", "b-1!"],
)
def test_what_is_no_cursor(text: str) -> None:
    assert decode_cursor(text) is None


def test_a_cursor_has_no_more_entries_than_it_may() -> None:
    over = {f"a{number}": Position("x", 1, is_over=True) for number in range(POSITIONS_MAX)}
    runs = {f"b{number}": Position("x", 1) for number in range(10)}
    found = decode_cursor(encode_positions(over | runs))
    assert isinstance(found, dict)
    assert len(found) == POSITIONS_MAX
    assert runs.items() <= found.items()


# --- where events go on


def test_without_a_cursor_everything_is_from_now_on() -> None:
    assert beginning_of(None, ("a", "b"), ("a", "x")) == Beginning({"a": FROM_NOW, "b": FROM_NOW}, {}, ())


def test_of_each_node_that_runs_the_events_go_on_behind_its_entry() -> None:
    cursor = {"a": Position("x", 5), "b": Position("y", 6, is_over=True), "c": UNKNOWN}
    found = beginning_of(cursor, ("a", "b", "c", "d"), ("a", "x"))
    assert found.starts == {
        "a": Start(Position("x", 5)),
        "b": Start(Position("y", 6, is_over=True)),
        "c": Start(gap="node_unreachable"),
        "d": JOINED,
    }
    assert (found.positions, found.gone) == ({}, ())


def test_a_node_that_is_gone_is_named_once() -> None:
    cursor = {"a": Position("x", 5), "b": Position("y", 6), "c": Position("z", 1, is_over=True), "d": UNKNOWN}
    found = beginning_of(cursor, ("a",), ("a", "x"))
    assert found.gone == ("b", "d")
    assert found.positions == {"b": Position("y", 6, is_over=True), "c": Position("z", 1, is_over=True)}
    cursor = {"a": Position("x", 5), **found.positions}
    assert beginning_of(cursor, ("a",), ("a", "x")).gone == ()


def test_a_cursor_of_one_node_is_good_for_that_node() -> None:
    unnamed = Start(gap="not_in_cursor")
    found = beginning_of(Position("x", 5), ("a", "b"), ("a", "x"))
    assert found.starts == {"a": Start(Position("x", 5)), "b": unnamed}
    found = beginning_of(Position("other", 5), ("a", "b"), ("a", "x"))
    assert found.starts == {"a": unnamed, "b": unnamed}


@pytest.mark.parametrize(
    ("start", "life", "number", "expected"),
    [
        (FROM_NOW, "x", 7, Resumed(Position("x", 7), None)),
        (FROM_OLDEST, "x", 3, Resumed(Position("x", 3), None)),
        (JOINED, "x", 7, AskAgain(Position("x", 0), None)),
        (JOINED, "x", 0, Resumed(Position("x", 0), None)),
        (Start(Position("x", 7)), "x", 7, Resumed(Position("x", 7), None)),
        (Start(Position("x", 7, is_over=True)), "x", 7, Resumed(Position("x", 7), None)),
        (Start(Position("x", 7)), "y", 9, AskAgain(Position("y", 0), "restarted")),
        (Start(Position("x", 7)), "y", 0, AskAgain(Position("y", 0), "restarted")),
        (Start(Position("x", 7, is_over=True)), "y", 0, AskAgain(Position("y", 0), None)),
        (Start(Position("x", 7, is_over=True)), "y", 9, AskAgain(Position("y", 0), None)),
        (Start(Position("y", 0), gap="restarted"), "y", 0, Resumed(Position("y", 0), "restarted")),
        (Start(gap="node_unreachable"), "y", 9, Resumed(Position("y", 9), "node_unreachable")),
    ],
)
def test_how_a_node_is_gone_on_with(start: Start, life: str, number: int, expected: object) -> None:
    assert resumed_at(start, life, number) == expected


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (FROM_NOW, (None, None)),
        (JOINED, (0, None)),
        (Start(Position("x", 7)), (7, None)),
        (Start(Position("y", 7)), (0, "restarted")),
        (Start(Position("y", 7, is_over=True)), (0, None)),
        (Start(gap="not_in_cursor"), (None, "not_in_cursor")),
        (FROM_OLDEST, (3, None)),
    ],
)
def test_how_the_answering_node_goes_on_with_its_own(start: Start, expected: object) -> None:
    assert own_start(start, "x", 3) == expected


def test_what_the_cursor_says_of_a_node_that_cannot_be_asked() -> None:
    assert position_unreached(FROM_NOW) == UNKNOWN
    assert position_unreached(JOINED) is None
    assert position_unreached(start_of(Position("x", 7))) == Position("x", 7)


# --- the order


def head(at_ms: int, shard: int = 0) -> Head:
    return Head(at_ms, shard)


NOBODY: frozenset[str] = frozenset()


def test_of_what_is_there_the_oldest_goes_first() -> None:
    order = Order([None] * 4)
    assert order.choose({"a": head(7), "b": head(5), "c": None}, NOBODY, 0) == "b"
    assert order.choose({"a": head(5), "b": head(5)}, NOBODY, 0) == "a"
    assert order.choose({"a": head(5), "b": Head(None, None)}, NOBODY, 0) == "b"
    assert order.choose({"a": None, "b": None}, NOBODY, 0) == Waits(None)


def test_a_node_that_tells_what_happened_before_is_waited_for() -> None:
    order = Order(["a", "b"])
    assert order.choose({"a": head(7), "b": None}, frozenset({"b"}), 0) == Waits(None)
    assert order.choose({"a": head(7), "b": head(8, 1)}, frozenset({"b"}), 0) == "a"


def test_the_first_event_of_a_shards_new_owner_waits_for_those_of_the_former_one() -> None:
    order = Order(["a", "b"])
    moved = {"a": None, "b": head(5, 0)}
    assert order.choose(moved, NOBODY, 1_000) == Waits(1_000 + HOLD_MS)
    # By a clock that is ahead, what the former owner told is later, and goes first all the same.
    assert order.choose(moved | {"a": head(9, 0)}, NOBODY, 1_100) == "a"
    order.told("a", head(9, 0))
    assert order.choose(moved, NOBODY, 1_100) == Waits(1_000 + HOLD_MS)
    assert order.choose(moved, NOBODY, 1_000 + HOLD_MS) == "b"
    order.told("b", head(5, 0))
    assert order.choose(moved | {"b": head(6, 0)}, NOBODY, 2_000) == "b"


def test_nobody_waits_for_a_former_owner_that_is_not_followed() -> None:
    order = Order(["gone", None])
    assert order.choose({"b": head(5, 0)}, NOBODY, 0) == "b"
    assert order.choose({"b": head(5, 1)}, NOBODY, 0) == "b"


def test_while_one_is_held_the_others_go_on() -> None:
    order = Order(["a", "a", "c"])
    assert order.choose({"a": None, "b": head(1, 0), "c": head(9, 2)}, NOBODY, 0) == "c"
