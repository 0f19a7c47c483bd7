"""Who owns what, and who would, is the same of a group whose members speak in the bytes of Kafka's consumers."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from struct import pack

import pytest

from rallypoint.assignors import registry
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.runtime.assignments.partition_owners import OwnerIndex, index_of
from rallypoint.coordinator.runtime.assignments.preview import preview
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson

SHARES: Mapping[str, Mapping[str, Sequence[int]]] = {"a": {"clicks": [0, 2], "orders": [7]}, "b": {"clicks": [1]}}
TOPICS = ("clicks", "orders")
REGISTERED = {"clicks": 4, "orders": 8}


def text(value: str) -> bytes:
    return pack(">h", len(value.encode())) + value.encode()


def subscription() -> bytes:
    """Of version 3: the topics, no user data, nothing owned, no generation, no rack."""
    topics = b"".join(text(topic) for topic in TOPICS)
    return pack(">hi", 3, len(TOPICS)) + topics + pack(">iiih", -1, 0, -1, -1)


def assignment(share: Mapping[str, Sequence[int]]) -> bytes:
    """Of version 0: the partitions by topic, and no user data."""
    parts = [text(topic) + pack(f">i{len(of)}i", len(of), *of) for topic, of in share.items()]
    return pack(">hi", 0, len(parts)) + b"".join(parts) + pack(">i", -1)


def as_bytes(data: bytes) -> OpaqueJson:
    return OpaqueJson.of({"base64": b64encode(data).decode()})


def group(*, in_bytes: bool) -> admin.DescribeAnswer:
    return admin.DescribeAnswer(
        group_id="g",
        state="Stable",
        protocol_type="consumer",
        protocol_name="range",
        generation_id=3,
        leader="a",
        members=tuple(
            admin.DescribedMember(
                member_id=name,
                group_instance_id=None,
                client_id="c",
                host="h",
                session_timeout_ms=1,
                rebalance_timeout_ms=1,
                metadata=as_bytes(subscription()) if in_bytes else OpaqueJson.of({"topics": list(TOPICS)}),
                assignment=(
                    as_bytes(assignment(share))
                    if in_bytes
                    else OpaqueJson.of({"partitions": {topic: list(of) for topic, of in share.items()}})
                ),
            )
            for name, share in SHARES.items()
        ),
        offsets={},
    )


@pytest.mark.parametrize("in_bytes", [True, False])
def test_the_owner_of_a_partition(in_bytes: bool) -> None:
    index = index_of(group(in_bytes=in_bytes))
    assert isinstance(index, OwnerIndex)
    for name, share in SHARES.items():
        for topic, numbers in share.items():
            for number in numbers:
                found = index.find(topic, number)
                assert found is not None
                assert found.member_id == name
    assert index.find("clicks", 3) is None


def test_a_preview_is_that_of_the_same_group_in_json() -> None:
    request = admin.PreviewRequest.model_validate({"leave": ("b",)})
    answers = [
        preview(group(in_bytes=in_bytes), request, REGISTERED, {}, registry.find, 10_000) for in_bytes in (True, False)
    ]
    assert isinstance(answers[0], admin.PreviewAnswer)
    assert answers[0] == answers[1]
    (stays,) = (member for member in answers[0].members if member.member_id == "a")
    assert (stays.before, stays.after_count) == ({"clicks": (0, 2), "orders": (7,)}, 12)


def test_bytes_that_are_no_assignment_are_said_to_be_none() -> None:
    described = group(in_bytes=True)
    broken = described.members[0].model_copy(update={"assignment": as_bytes(b"\0")})
    made = index_of(described.model_copy(update={"members": (broken,)}))
    assert isinstance(made, Failure)
    assert made.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
