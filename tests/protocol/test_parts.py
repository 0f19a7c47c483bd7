"""What is said of many partitions, cut into parts."""

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from rallypoint.protocol.messages import CommitRequest, OffsetCommit
from rallypoint.protocol.parts import commit_bytes, parts_of

topics = st.dictionaries(
    st.text(max_size=2), st.dictionaries(st.integers(0, 20), st.integers(), max_size=8), max_size=5
)


def flat(offsets: dict[str, dict[int, int]]) -> list[tuple[str, int, int]]:
    return [(topic, number, said) for topic, numbers in offsets.items() for number, said in numbers.items()]


@given(topics, st.integers(1, 5))
def test_the_parts_are_the_whole_in_order_and_full_but_for_the_last(
    offsets: dict[str, dict[int, int]], partitions_max: int
) -> None:
    parts = [flat(part) for part in parts_of(offsets, partitions_max)]
    assert list(chain.from_iterable(parts)) == flat(offsets)
    assert parts
    assert all(len(part) == partitions_max for part in parts[:-1])
    assert len(parts[-1]) <= partitions_max
    assert parts[-1] or len(parts) == 1


commits = st.builds(
    OffsetCommit,
    offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.none() | st.integers(0, 2**31 - 1),
    metadata=st.text(max_size=60) | st.sampled_from(["\x00" * 90, "\U0001f600" * 90, '"' * 90]),
)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=40),
        st.dictionaries(st.integers(0, 2**31 - 1), commits, min_size=1, max_size=8),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 3_000),
)
def test_the_body_of_a_part_has_as_many_bytes_as_it_may_have(
    offsets: dict[str, dict[int, OffsetCommit]], bytes_max: int
) -> None:
    parts = list(parts_of(offsets, bytes_max=bytes_max, bytes_of=commit_bytes))
    assert [(topic, *entry) for part in parts for topic, said in part.items() for entry in said.items()] == [
        (topic, *entry) for topic, said in offsets.items() for entry in said.items()
    ]
    for part in parts:
        body = CommitRequest(generation_id=2**31 - 1, member_id="m" * 256, offsets=part)
        is_one = sum(map(len, part.values())) == 1
        assert is_one or len(body.model_dump_json(exclude_none=True).encode()) <= bytes_max + 1_024
