"""What is a client's frame, and what is none."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.coordinator.http.channel.frames import UNIT_BYTES, BrokenFrame, FrameRate, Frames, Head, head_of
from tests.fakes.raw_channel import MASK, frame

BROKEN = [
    (frame(b"a", mask=b""), "a client masks its frames"),
    (frame(b"", 0x8A, mask=b""), "a client masks its frames"),
    (frame(b"a", 0xC1), "no extension was agreed on"),
    (frame(b"a", 0xA1), "no extension was agreed on"),
    (frame(b"a", 0x91), "no extension was agreed on"),
    (frame(b"a", 0xC9), "no extension was agreed on"),
    *((frame(b"", 0x80 | opcode), f"there is no opcode {opcode}") for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)),
    (frame(b"", 0x09), "a control frame is not fragmented"),
    (frame(b"", 0x08), "a control frame is not fragmented"),
    (frame(b"a" * 126, 0x89), "a control frame has 125 bytes at most"),
    (frame(b"a" * 70_000, 0x88), "a control frame has 125 bytes at most"),
    (frame(b"a", 0x80), "there is no message to continue"),
    (frame(b"a", 0x00), "there is no message to continue"),
    (frame(b"", 0x01) + frame(b"a"), "a message in fragments is to be ended first"),
    (frame(b"a", 0x01) + frame(b"a", 0x02), "a message in fragments is to be ended first"),
    (b"\x81\xfe\x00\x05" + MASK + b"abcde", "a length is written in as few bytes as it needs"),
    (b"\x81\xff" + (5).to_bytes(8) + MASK + b"abcde", "a length is written in as few bytes as it needs"),
    (b"\x81\xff" + (2**63).to_bytes(8) + MASK, "a length has 63 bits"),
]


@pytest.mark.parametrize(("data", "why"), BROKEN)
def test_what_is_no_frame_is_told_why(data: bytes, why: str) -> None:
    frames = Frames(lambda _: True)
    at, _ = frames.cut(data, 0, 100)
    assert frames.broken is not None
    assert frames.broken.detail.startswith(why)
    assert at in (0, len(frame(b"", 0x01)), len(frame(b"a", 0x01))), "the broken one was passed"


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65_535, 65_536])
def test_a_head_says_what_a_frame_is_once_its_length_is_there(length: int) -> None:
    whole = frame(b"a" * length)
    end = 2 if length < 126 else 4 if length < 65_536 else 10
    for size in range(end):
        assert head_of(whole[:size], 0, within_message=False) is None
    assert head_of(b"xx" + whole[:end], 2, within_message=False) == Head(0x81, length, len(whole))


VALID = st.sampled_from([
    frame(b""), frame(b"a" * 200), frame(b"a" * 7_000), frame(b"", 0x89), frame(b"a", 0x8A), frame(b"b" * 2_000, 0x82),
    frame(b"a", 0x01) + frame(b"", 0x89) + frame(b"", 0x00) + frame(b"b" * 5_000, 0x80),
])  # fmt: skip
ANY = st.one_of(VALID, st.sampled_from([data for data, _ in BROKEN]), st.binary(max_size=20))


def outcome_of(chunks: list[bytes], units: int) -> tuple[list[Head], BrokenFrame | None, bytes]:
    """Heads that were seen, why it ended, and the bytes that were passed."""
    heads: list[Head] = []
    frames = Frames(lambda head: not heads.append(head))  # type: ignore[func-returns-value]
    rest, passed = b"", b""
    for chunk in chunks:
        rest += chunk
        while frames.broken is None:
            seen = len(heads)
            at, left = frames.cut(rest, 0, units)
            weight = [1 + head.length // UNIT_BYTES for head in heads[seen:]]
            assert units - left == sum(weight)
            assert sum(weight[:-1]) < units, "it went on with nothing left"
            passed, rest = passed + rest[:at], rest[at:]
            if left > 0 or not rest:
                break
    return heads, frames.broken, passed


@given(st.lists(ANY, min_size=1, max_size=6), st.lists(st.integers(0, 30_000), max_size=6), st.integers(1, 40))
def test_however_it_is_cut_and_shared_out_the_same_frames_are_found(
    sent: list[bytes], places: list[int], units: int
) -> None:
    stream = b"".join(sent)
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    chunks = [stream[begin:end] for begin, end in pairwise(edges)]
    assert outcome_of(chunks, units) == outcome_of([stream], 10**9)


def test_what_is_not_admitted_is_not_passed() -> None:
    frames = Frames(lambda head: head.opcode == 0x1)
    one = frame(b"one")
    assert frames.cut(one + frame(b"", 0x89) + one, 0, 9) == (len(one), 8)
    assert frames.is_refused


def test_frames_are_counted_by_the_second() -> None:
    rate = FrameRate(2)
    assert [rate.has_room(now_s) for now_s in (5.0, 5.1, 5.2, 5.9, 6.0, 6.5, 6.9, 7.0)] == [
        True, True, False, False, True, True, False, True,
    ]  # fmt: skip
