"""What Kafka's consumers write is read as they meant it; other bytes are refused, whatever they are."""

from base64 import b64encode
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rallypoint.protocol.consumer_bytes import (
    partitions_of_bytes,
    read_assignment,
    read_subscription,
    write_assignment,
)
from rallypoint.protocol.messages import ConsumerAssignment, JoinProtocol, SyncAssignment
from rallypoint.protocol.opaque import OpaqueJson
from tests.judges.codec import encode
from tests.judges.opaque_bytes import ASSIGNMENT, SUBSCRIPTION
from tests.sizes import by_size

VERSIONS = [0, 1, 2, 3]
TOPICS = ("clicks", "a/b", "→", "t" * 200)


def as_json(data: bytes) -> OpaqueJson:
    return OpaqueJson.of({"base64": b64encode(data).decode()})


def partitions(chance: Random) -> dict[str, list[int]]:
    return {topic: chance.sample(range(1 << 20), chance.randint(0, 4)) for topic in chance.sample(TOPICS, 3)}


def by_topic(of: dict[str, list[int]]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": numbers} for topic, numbers in of.items()]


def bytes_or_none(chance: Random) -> bytes | None:
    return chance.choice([None, b"", chance.randbytes(9)])


def said(data: bytes | None) -> Any:
    return None if data is None else {"base64": b64encode(data).decode()}


@pytest.mark.parametrize("version", VERSIONS)
def test_subscriptions_of_every_version(version: int) -> None:
    for seed in range(by_size(20, 200)):
        chance = Random(seed)
        owned, user_data = partitions(chance), bytes_or_none(chance)
        value = {
            "topics": chance.sample(TOPICS, 2),
            "user_data": user_data,
            "owned_partitions": by_topic(owned),
            "generation_id": 7,
            "rack_id": chance.choice([None, "r"]),
        }
        read = read_subscription(as_json(bytes([0, version]) + encode(SUBSCRIPTION, version, value)))
        assert (list(read.topics), read.user_data) == (value["topics"], said(user_data))
        held = {topic: list(numbers) for topic, numbers in read.owned_partitions.items()}
        assert held == (owned if version >= 1 else {})
        assert read.generation_id == (7 if version >= 2 else -1)
        assert read.rack_id == (value["rack_id"] if version >= 3 else None)


@pytest.mark.parametrize("version", VERSIONS)
def test_assignments_of_every_version(version: int) -> None:
    chance = Random(version)
    given, user_data = partitions(chance), b"more"
    data = encode(ASSIGNMENT, version, {"assigned_partitions": by_topic(given), "user_data": user_data})
    whole = as_json(bytes([0, version]) + data)
    read = read_assignment(whole)
    assert ({t: list(n) for t, n in read.partitions.items()}, read.user_data) == (given, said(user_data))
    assert partitions_of_bytes(whole.value) == given


def test_assignments_are_written_as_kafka_writes_them() -> None:
    chance = Random(0)
    for user_data, carried in ((None, None), (b"more", said(b"more")), (b'{"a":1}', {"a": 1}), (b"", said(b""))):
        given = partitions(chance)
        data = encode(ASSIGNMENT, 0, {"assigned_partitions": by_topic(given), "user_data": user_data})
        made = ConsumerAssignment.model_validate(
            {"partitions": given, "user_data": carried, "partition_counts": {"t": 1}}
        )
        assert write_assignment(made) == as_json(b"\0\0" + data)


def test_a_later_version_is_read_as_the_last_one_that_is_known() -> None:
    data = encode(SUBSCRIPTION, 3, {"topics": ["t"], "rack_id": "r"})
    assert read_subscription(as_json(b"\0\x09" + data + b"what is new")).rack_id == "r"


def test_no_bytes_are_no_partitions_and_json_is_json() -> None:
    assert read_assignment(as_json(b"")) == ConsumerAssignment()
    assert partitions_of_bytes({"base64": ""}) == {}
    assert partitions_of_bytes({"partitions": {"t": [1]}}) is None
    assert read_assignment(OpaqueJson.of({"partitions": {"t": [1]}})).partitions == {"t": (1,)}
    with_more = OpaqueJson.of({"base64": "", "topics": ["t"]})
    assert read_subscription(with_more).topics == ("t",), "an object with more keys stands for itself"


def test_a_topic_that_is_named_twice() -> None:
    twice = [{"topic": "t", "partitions": [1]}, {"topic": "t", "partitions": [2]}]
    data = encode(ASSIGNMENT, 0, {"assigned_partitions": twice})
    assert read_assignment(as_json(b"\0\0" + data)).partitions == {"t": (1, 2)}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\0", b"\xff\xff\0\0\0\0\xff\xff\xff\xff", b"\0\0\x7f\xff\xff\xff", b"\0\0\xff\xff\xff\xff",
        b"\0\0\0\0\0\x01\0\x02a", b"\0\0\0\0\0\x01\0\x01\xff\xff\xff\xff\xff", b"\0\0\0\0\0\x01\0\0\xff\xff\xff\xff",
        b"\0\x01\0\0\0\0\xff\xff\xff\xff", b"\0\0\0\0\0\0\0\0\0\x09",
    ],
)  # fmt: skip
def test_other_bytes_are_no_subscription(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_subscription(as_json(data))


@given(st.binary(max_size=80))
def test_whatever_the_bytes_are_they_are_read_or_refused(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        try:
            read(as_json(data))
        except ValueError:
            continue


@pytest.mark.parametrize(
    "text", ["no base64", "AA", "AA=A", "AAA=\n", "Ä", 7, None, ["AA=="], {"base64": ""}], ids=repr
)
def test_bytes_that_are_none_are_refused_by_the_field(text: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        JoinProtocol.model_validate({"name": "range", "metadata": {"base64": text}})
    assert refused.value.errors()[0]["loc"] == ("metadata",)
    with pytest.raises(ValidationError) as refused:
        SyncAssignment.model_validate({"member_id": "m", "assignment": {"base64": text}})
    assert refused.value.errors()[0]["loc"] == ("assignment",)
    JoinProtocol.model_validate({"name": "range", "metadata": {"base64": text, "more": 1}})
