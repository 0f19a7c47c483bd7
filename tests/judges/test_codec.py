"""The codec without Kafka's classes: what it refuses, and that no bytes can harm it."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judges.codec import CodecError, decode, encode
from tests.judges.headers import (
    APIS,
    MESSAGES,
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from tests.judges.random_messages import random_value
from tests.judges.schema import Message, read_message, read_versions, snake_case

HEARTBEAT = MESSAGES["HeartbeatRequest"]
FLEXIBLE = 4
VERSIONS = [(message, version) for message in MESSAGES.values() for version in message.versions]
PLAIN: dict[str, Any] = {"group_id": "g", "generation_id": 7, "member_id": "m"}


@pytest.mark.parametrize(
    ("text", "versions"), [("none", []), ("3", [3]), ("2-4", [2, 3, 4]), ("0+", list(range(32768)))]
)
def test_versions(text: str, versions: list[int]) -> None:
    assert list(read_versions(text)) == versions


@pytest.mark.parametrize(
    ("kafka_name", "name"),
    [("GroupInstanceId", "group_instance_id"), ("Name", "name"), ("ThrottleTimeMs", "throttle_time_ms")],
)
def test_names(kafka_name: str, name: str) -> None:
    assert snake_case(kafka_name) == name


def test_the_two_forms_by_hand() -> None:
    """Lengths of two bytes and no tagged fields; lengths of one byte that are one more, and the count of tags."""
    assert encode(HEARTBEAT, 0, PLAIN) == b"\0\x01g\0\0\0\x07\0\x01m"
    assert encode(HEARTBEAT, 3, PLAIN) == b"\0\x01g\0\0\0\x07\0\x01m\xff\xff"
    assert encode(HEARTBEAT, FLEXIBLE, PLAIN) == b"\x02g\0\0\0\x07\x02m\0\0"


def test_what_is_not_said_has_its_default() -> None:
    assert decode(HEARTBEAT, FLEXIBLE, encode(HEARTBEAT, FLEXIBLE, {})) == {
        "group_id": "", "generation_id": 0, "member_id": "", "group_instance_id": None
    }  # fmt: skip


def test_defaults_are_nobody_elses() -> None:
    message = MESSAGES["ListGroupsResponse"]
    decode(message, 0, b"\0\0\0\0\0\0")["groups"].append({})
    assert decode(message, 0, b"\0\0\0\0\0\0")["groups"] == []


@pytest.mark.parametrize(
    ("version", "changed"),
    [
        (FLEXIBLE, {"group_id": None}),
        (FLEXIBLE, {"group_id": b"g"}),
        (FLEXIBLE, {"group_id": "\ud800"}),
        (FLEXIBLE, {"group_id": "g" * 32768}),
        (FLEXIBLE, {"generation_id": 1 << 31}),
        (FLEXIBLE, {"generation_id": True}),
        (FLEXIBLE, {"generation_id": "7"}),
        (FLEXIBLE, {"generation": 7}),
        (2, {"group_instance_id": "i"}),
        (5, {}),
        (-1, {}),
    ],
    ids=str,
)
def test_a_value_that_a_version_cannot_say_is_refused(version: int, changed: dict[str, Any]) -> None:
    with pytest.raises(CodecError):
        encode(HEARTBEAT, version, PLAIN | changed)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DescribeGroupsRequest", {"groups": "abc"}),
        ("DescribeGroupsRequest", {"groups": None}),
        ("DescribeGroupsRequest", {"include_authorized_operations": 1}),
        ("JoinGroupRequest", {"protocols": [{"name": "range", "metadata": "text"}]}),
        ("JoinGroupRequest", {"protocols": ["range"]}),
        ("MetadataRequest", {"topics": [{"topic_id": "text", "name": "t"}]}),
    ],
)
def test_wrong_types_are_refused(name: str, value: dict[str, Any]) -> None:
    message = MESSAGES[name]
    with pytest.raises(CodecError):
        encode(message, message.versions[-1], value)


def test_an_ignorable_field_is_left_out_of_a_version_that_lacks_it() -> None:
    value = {"error_code": 3, "throttle_time_ms": 5}
    message = MESSAGES["HeartbeatResponse"]
    assert encode(message, 0, value) == b"\0\x03"
    assert encode(message, 1, value) == b"\0\0\0\x05\0\x03"


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (0, b""),
        (0, b"\0\x01g\0\0\0\x07\0\x02m"),
        (0, b"\0\x01g\0\0\0\x07\0\x01mm"),
        (0, b"\xff\xff\0\0\0\x07\0\x01m"),
        (0, b"\0\x01\xff\0\0\0\x07\0\x01m"),
        (FLEXIBLE, b"\0\0\0\0\x07\x02m\0\0"),
        (FLEXIBLE, b"\x82\x80\x80\x80\x80\0g\0\0\0\x07\x02m\0\0"),
        (FLEXIBLE, b"\xff\xff\xff\xff\x1fg\0\0\0\x07\x02m\0\0"),
        (FLEXIBLE, b"\x02g\0\0\0\x07\x02m\0\x01"),
    ],
    ids=[
        "nothing",
        "too-few",
        "too-many",
        "null",
        "not-utf8",
        "flexible-null",
        "long-varint",
        "large-varint",
        "no-tag",
    ],
)
def test_wrong_bytes_are_refused(version: int, data: bytes) -> None:
    with pytest.raises(CodecError):
        decode(HEARTBEAT, version, data)


def test_a_string_as_long_as_it_may_be_is_read_again() -> None:
    longest = {"group_id": "g" * 32767}
    for version in HEARTBEAT.versions:
        assert decode(HEARTBEAT, version, encode(HEARTBEAT, version, longest))["group_id"] == longest["group_id"]
    too_long = b"\x81\x80\x02" + b"g" * 32768 + b"\0\0\0\x07\x02m\0\0"
    with pytest.raises(CodecError, match="32768"):
        decode(HEARTBEAT, FLEXIBLE, too_long)


def test_unknown_tagged_fields_are_skipped() -> None:
    data = b"\x02g\0\0\0\x07\x02m\0" + b"\x02\x05\x03abc\x80\x01\0"
    assert decode(HEARTBEAT, FLEXIBLE, data) == PLAIN | {"group_instance_id": None}


def test_tagged_fields_are_written_in_the_order_of_their_tags_and_only_if_they_differ() -> None:
    message = MESSAGES["ApiVersionsResponse"]
    plain = encode(message, 3, {})
    assert plain == b"\0\0\x01\0\0\0\0\0"
    assert encode(message, 3, {"zk_migration_ready": True, "finalized_features_epoch": -1}) == (
        plain[:-1] + b"\x01\x03\x01\x01"
    )
    both = encode(message, 3, {"zk_migration_ready": True, "finalized_features_epoch": 2})
    assert both == plain[:-1] + b"\x02\x01\x08\0\0\0\0\0\0\0\x02\x03\x01\x01"
    assert decode(message, 3, both)["finalized_features_epoch"] == 2
    with pytest.raises(CodecError, match="1 bytes too many"):
        decode(message, 3, plain[:-1] + b"\x01\x03\x02\x01\x01")


def test_no_array_is_made_that_the_bytes_cannot_hold() -> None:
    with pytest.raises(CodecError, match="1073741823 elements wanted"):
        decode(MESSAGES["DescribeGroupsRequest"], 0, b"\x3f\xff\xff\xff")


def test_a_type_that_the_codec_does_not_know_is_refused_when_the_definition_is_read() -> None:
    fields = [{"name": "Rate", "type": "float64", "versions": "0+"}]
    with pytest.raises(ValueError, match="float64"):
        read_message("Quota", {"type": "data", "validVersions": "0", "flexibleVersions": "none", "fields": fields})


@pytest.mark.parametrize("message", MESSAGES.values(), ids=lambda message: message.name)
def test_what_is_written_is_read_again(message: Message) -> None:
    for version in message.versions:
        value = random_value(message, version, Random(f"{message.name} {version}"))
        data = encode(message, version, value)
        assert decode(message, version, data) == value
        for length in range(min(len(data), 60)):
            with pytest.raises(CodecError):
                decode(message, version, data[:length])


@given(st.sampled_from(VERSIONS), st.binary(max_size=60))
def test_whatever_the_bytes_are_they_are_read_or_refused(of: tuple[Message, int], data: bytes) -> None:
    try:
        value = decode(*of, data)
    except CodecError:
        return
    assert decode(*of, encode(*of, value)) == value


@pytest.mark.parametrize("client_id", ["a client", None])
@pytest.mark.parametrize("key", APIS)
def test_a_request_and_its_answer_come_back_with_their_headers(key: int, client_id: str | None) -> None:
    api = APIS[key]
    for version in api.request.versions:
        header = RequestHeader(key, version, 99, client_id)
        asked = random_value(api.request, version, Random(version))
        assert decode_request(encode_request(header, asked)) == (header, asked)
        answer = random_value(api.response, version, Random(version))
        assert decode_response(header, encode_response(header, answer)) == answer
        with pytest.raises(CodecError, match="answer to request 99"):
            decode_response(header._replace(correlation_id=98), encode_response(header, answer))


@pytest.mark.parametrize("data", [b"", b"\0\x0c\0", b"\x7f\0\0\0\0\0\0\0\0\0", b"\0\x0c\0\x63\0\0\0\0\xff\xff"])
def test_a_request_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        decode_request(data)
