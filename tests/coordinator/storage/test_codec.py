"""Records to keys and values and back: any id, any opaque value; and what is damaged is refused by name."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.storage.codec import RUNNING_TIME_KEY, decode, encode, group_prefix
from rallypoint.coordinator.storage.contract import KEY_BYTES_MAX, StoredDataInvalid
from rallypoint.protocol.limits import ID_LENGTH_MAX, MEMBER_ID_LENGTH_MAX
from rallypoint.protocol.opaque import OpaqueJson

AWKWARD = ["", "/", "%", "%2F", "a/b%c", "\0", "\x7f", "..", "😀", "grüppe", "h", "m/1/2"]

ids = st.one_of(st.sampled_from(AWKWARD), st.text(max_size=20))
numbers = st.integers(min_value=-(2**63), max_value=2**63 - 1)
counts = st.integers(min_value=0, max_value=2**31 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
opaques: st.SearchStrategy[OpaqueJson] = json_values.map(OpaqueJson.of)


def or_none(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


groups = st.builds(
    r.GroupRecord,
    group_id=ids,
    protocol_type=or_none(ids),
    protocol_name=or_none(ids),
    generation_id=counts,
    highest_generation_id=counts,
    leader=or_none(ids),
    state_at_ms=numbers,
    partition_counts=st.dictionaries(ids, counts, max_size=3),
)
members = st.builds(
    r.MemberRecord,
    group_id=ids,
    member_id=ids,
    generation_id=counts,
    seniority=counts,
    group_instance_id=or_none(ids),
    client_id=ids,
    host=ids,
    session_timeout_ms=counts,
    rebalance_timeout_ms=counts,
    disconnect_grace_ms=or_none(counts),
    metadata=opaques,
    assignment=opaques,
    request_id=or_none(ids),
)
gone = st.builds(r.MemberGone, group_id=ids, member_id=ids, generation_id=counts)
offsets = st.builds(
    r.OffsetRecord,
    group_id=ids,
    topic=ids,
    partition=counts,
    offset=numbers,
    leader_epoch=or_none(numbers),
    metadata=st.text(max_size=20),
    commit_at_ms=numbers,
)
topics = st.builds(
    r.TopicRecord,
    topic=ids,
    partitions=counts,
    version=counts,
    end_offsets=st.dictionaries(counts, numbers, max_size=3),
    replica_racks=st.lists(st.lists(ids, max_size=3).map(tuple), max_size=3).map(tuple),
)
causes = st.builds(
    r.Cause,
    trigger=ids,
    reason=st.text(max_size=20),
    member_id=or_none(ids),
    client_id=or_none(ids),
    host=or_none(ids),
    at_ms=numbers,
)
rebalances = st.builds(
    r.RebalanceRecord,
    group_id=ids,
    rebalance_id=counts,
    previous_generation_id=counts,
    began_at_ms=numbers,
    cause=causes,
    generation_id=or_none(counts),
    join_phase_ms=or_none(numbers),
    sync_phase_ms=or_none(numbers),
    member_count=or_none(counts),
    partitions_moved=or_none(counts),
    outcome=st.sampled_from(r.Outcome),
    further=st.lists(causes, max_size=3).map(tuple),
    further_count=counts,
)
holds = st.builds(
    r.HoldRecord,
    group_id=ids,
    frozen_until_ms=or_none(numbers),
    freeze_reason=or_none(st.text(max_size=20)),
    cooldown_ms=or_none(counts),
)
registries = st.builds(r.RegistryRecord, version=counts)
deletions = st.builds(r.DeletionsRecord, group_id=ids, version=counts)
deleted_topics = st.builds(r.DeletedTopicRecord, topic=ids, version=counts)
layouts = st.builds(r.LayoutRecord, shards=counts)
running_times = st.builds(
    r.RunningTimeRecord,
    ran_until_ms=numbers,
    pauses=st.lists(st.builds(r.Pause, numbers, numbers), min_size=1, max_size=3).map(tuple),
)
records = st.one_of(
    groups,
    members,
    gone,
    offsets,
    rebalances,
    holds,
    deletions,
    deleted_topics,
    topics,
    registries,
    layouts,
    running_times,
)


@given(records)
def test_what_is_written_is_what_is_read(record: r.Record) -> None:
    key, value = encode(record)
    assert value is not None
    assert decode(key, value) == record


@given(records, records)
def test_two_records_share_a_key_only_if_they_are_of_the_same_thing(one: r.Record, other: r.Record) -> None:
    if encode(one).key == encode(other).key:
        names = {"group_id", "member_id", "topic", "partition", "rebalance_id"}
        same = [[getattr(record, name, None) for name in sorted(names)] for record in (one, other)]
        assert {type(one), type(other)} <= {r.MemberRecord, r.MemberGone} or type(one) is type(other)
        assert same[0] == same[1]


@given(ids, ids, members)
@example("a", "a/h", None)
def test_a_groups_prefix_covers_its_keys_and_no_others(group_id: str, other_id: str, member: Any) -> None:
    header = encode(r.GroupForgotten(group_id)).key
    offset = encode(r.OffsetForgotten(group_id, other_id, 0)).key
    assert header.startswith(group_prefix(group_id))
    assert offset.startswith(group_prefix(group_id))
    if other_id != group_id:
        assert not encode(r.GroupForgotten(other_id)).key.startswith(group_prefix(group_id))
    if member is not None:
        assert encode(r.GroupForgotten(member.group_id)).key < encode(member).key, "a header comes before members"


@pytest.mark.parametrize(
    ("record", "gone"),
    [
        (r.GroupRecord("a/b", None, None, 0, 0, None, 0), r.GroupForgotten("a/b")),
        (r.OffsetRecord("g", "t%", 3, 1, None, "", 0), r.OffsetForgotten("g", "t%", 3)),
        (r.TopicRecord("t", 1, 1), r.TopicForgotten("t")),
        (r.MemberGone("g", "m", 4), r.MemberForgotten("g", "m", 4)),
        (
            r.RebalanceRecord("g/", 12, 0, 5, r.Cause("operator", "why", None, None, None, 5)),
            r.RebalanceForgotten("g/", 12),
        ),
        (r.HoldRecord("g%", 5, None, None), r.HoldForgotten("g%")),
        (r.DeletionsRecord("g%", 5), r.DeletionsForgotten("g%")),
        (r.DeletedTopicRecord("a/b", 5), r.DeletedTopicForgotten("a/b")),
        (
            r.MemberRecord("g", "m", 4, 0, None, "c", "h", 1, 1, None, OpaqueJson("1"), OpaqueJson("2")),
            r.MemberForgotten("g", "m", 4),
        ),
    ],
)
def test_forgetting_deletes_the_key_of_the_record(record: r.Record, gone: r.Record) -> None:
    assert encode(gone) == (encode(record).key, None)


@pytest.mark.parametrize("char", ["😀", "/", "%", "\0", "ü"])
def test_the_longest_ids_of_the_wire_fit_in_a_key(char: str) -> None:
    group_id, member_id = char * ID_LENGTH_MAX, char * MEMBER_ID_LENGTH_MAX
    assert len(encode(r.MemberForgotten(group_id, member_id, 2**31 - 1)).key) <= KEY_BYTES_MAX
    assert len(encode(r.OffsetForgotten(group_id, group_id, 2**31 - 1)).key) <= KEY_BYTES_MAX


@pytest.mark.parametrize("pauses", ["[]", "7", "null", "[[1]]", "[[1,2,3]]", "[[1,true]]", "[[1,null]]", "[{}]"])
def test_pauses_are_pairs_of_numbers_one_at_least(pauses: str) -> None:
    value = f'{{"v":1,"ran_until_ms":5,"pauses":{pauses}}}'.encode()
    with pytest.raises(StoredDataInvalid, match=r"\$\.pauses"):
        decode(RUNNING_TIME_KEY, value)


def test_keys_are_readable() -> None:
    assert encode(r.OffsetForgotten("clicks", "orders", 3)).key == b"g/clicks/o/orders/3"
    assert encode(r.GroupForgotten("a/b ü")).key == "g/a%2Fb ü/h".encode()
    assert encode(r.RegistryRecord(7)) == (b"r", b'{"v":1,"version":7}')


GOOD = {"v": 1, "offset": 1, "leader_epoch": None, "metadata": "", "commit_at_ms": 2}
CAUSE = {"trigger": "", "reason": "", "member_id": None, "client_id": None, "host": None, "at_ms": 1}
REBALANCE = {"v": 1, "previous_generation_id": 0, "began_at_ms": 1, "cause": CAUSE, "generation_id": None}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != name}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"g/a/o/t/1", json.dumps({**GOOD, "v": 2}), r"\$\.v`"),
        (b"g/a/o/t/1", json.dumps(without("v")), "`v`"),
        (b"g/a/o/t/1", json.dumps({**GOOD, "v": True}), r"\$\.v`"),
        (b"g/a/o/t/1", json.dumps(without("offset")), "missing required field `offset`"),
        (b"g/a/o/t/1", json.dumps({**GOOD, "offset": "1"}), "offset"),
        (b"g/a/o/t/1", json.dumps({**GOOD, "offset": None}), r"got `null` - at `\$\.offset`"),
        (b"g/a/o/t/1", json.dumps({**GOOD, "offset": True}), "offset"),
        (b"g/a/o/t/1", json.dumps({**GOOD, "metadata": 1}), "metadata"),
        (b"g/a/o/t/1", json.dumps({**GOOD, "more": 1}), "more"),
        (b"g/a/o/t/1", json.dumps(GOOD)[:-1], "g/a/o/t/1"),
        (b"g/a/o/t/1", "[1]", "Expected `object`"),
        (b"g/a/o/t/1", "[" * 100_000, "g/a/o/t/1"),
        (b"g/a/o/t/1", b"\xff\xfe", "g/a/o/t/1"),
        (b"g/a/o/t/01", json.dumps(GOOD), "no number"),
        (b"g/a/o/t/-1", json.dumps(GOOD), "no number"),
        (b"g/a%2f/o/t/1", json.dumps(GOOD), "not how an id is written"),
        (b"g/a/x", json.dumps(GOOD), "no record has such a key"),
        (b"g/a/m/x/1", json.dumps({"v": 1, "gone": False}), "gone is not true"),
        (b"g/a/m/x/1", json.dumps({"v": 1, "gone": True, "seniority": 1}), "seniority"),
        (b"", json.dumps(GOOD), "no record has such a key"),
        (b"t/a", json.dumps({"v": 1, "partitions": 1, "version": 1, "end_offsets": {"x": 1}}), "end_offsets"),
        (b"t/a", json.dumps({"v": 1, "partitions": 1, "version": 1, "end_offsets": {"01": 1}}), "end_offsets"),
        (b"t/a", json.dumps({"v": 1, "partitions": 1, "version": 1, "end_offsets": {"-1": 1}}), "end_offsets"),
        (b"g/a/o/t/1", json.dumps({**GOOD, "offset": 2**63}), "offset"),
        (b"g/a/o/t/1", json.dumps({**GOOD, "metadata": "\ud800"}), "surrogate"),
        (b"g/\xed\xa0\x80/o/t/1", json.dumps(GOOD), "surrogate|utf-8"),
        (b"g/a/r/1", json.dumps({**REBALANCE, "cause": {**CAUSE, "more": 1}}), "more"),
        (b"g/a/r/1", json.dumps({**REBALANCE, "cause": {**CAUSE, "at_ms": 2**63}}), "cause.at_ms"),
        (b"g/a/r/1", json.dumps({**REBALANCE, "outcome": "won"}), "outcome"),
        (b"p", json.dumps({"v": 1, "ran_until_ms": 1, "pauses": [[1, 2**63]]}), "pauses"),
        (b"t/a", json.dumps({"v": 1, "partitions": 1, "version": 1, "end_offsets": [1]}), "end_offsets"),
    ],
)
def test_what_is_damaged_or_newer_is_refused_naming_the_key(key: bytes, value: str | bytes, reason: str) -> None:
    raw = value if isinstance(value, bytes) else value.encode()
    with pytest.raises(StoredDataInvalid, match=reason) as caught:
        decode(key, raw)
    assert repr(key) in str(caught.value)


@given(st.binary(max_size=40), st.binary(max_size=60))
def test_whatever_bytes_are_stored_the_refusal_is_a_coded_one(key: bytes, value: bytes) -> None:
    with pytest.raises(StoredDataInvalid) as caught:
        decode(key, value)
    assert repr(key) in str(caught.value)


@given(ids, ids, counts, numbers, or_none(counts), ids, numbers)
def test_an_offset_looks_as_the_json_encoder_writes_it(
    group_id: str, topic: str, partition: int, offset: int, leader_epoch: int | None, metadata: str, at_ms: int
) -> None:
    record = r.OffsetRecord(group_id, topic, partition, offset, leader_epoch, metadata, at_ms)
    fields = {"v": 1, "offset": offset, "leader_epoch": leader_epoch, "metadata": metadata, "commit_at_ms": at_ms}
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    assert encode(record).value == text.encode("utf-8", "surrogatepass")
