"""What members tell each other: the bytes of Kafka's clients, and the JSON of the service's API.

Bytes travel through the service as `{"base64": …}`. What an HTTP member says in JSON reaches a Kafka client as the
bytes that Kafka's consumers write: a version, then ConsumerProtocolSubscription or ConsumerProtocolAssignment. What is
neither reaches it as one of nothing, as leaders over HTTP take it: one faulty member must not stop every leader.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any

from rallypoint.protocol.messages import ConsumerAssignment, ConsumerSubscription
from rallypoint.protocol.opaque_bytes import bytes_of, stands_for_bytes
from tests.judges.codec import encode
from tests.judges.headers import MESSAGES

CONSUMER = "consumer"
"""The protocol type of Kafka's consumers: what they tell each other has a form that is known."""
SUBSCRIPTION, ASSIGNMENT = MESSAGES["ConsumerProtocolSubscription"], MESSAGES["ConsumerProtocolAssignment"]
_VERSION = Struct(">h")
SUBSCRIPTION_VERSION = SUBSCRIPTION.versions[-1]
ASSIGNMENT_VERSION = ASSIGNMENT.versions[-1]


def json_of_bytes(data: bytes | None) -> Any:
    """As the service carries it. No bytes are null, which is what it has where nothing was said."""
    return {"base64": b64encode(data).decode()} if data else None


def subscription_bytes(value: Any, protocol_type: str) -> bytes:
    """A member's metadata as a Kafka client gets it."""
    if protocol_type != CONSUMER or value is None or stands_for_bytes(value):
        return _plain_bytes(value)
    try:
        told = ConsumerSubscription.model_validate(value)
        user_data = _user_data(told.user_data)
    except ValueError:
        told, user_data = ConsumerSubscription(topics=()), None
    subscription = {
        "topics": list(told.topics),
        "user_data": user_data,
        "owned_partitions": _partitions(told.owned_partitions),
        "generation_id": told.generation_id,
        "rack_id": told.rack_id,
    }
    return _VERSION.pack(SUBSCRIPTION_VERSION) + encode(SUBSCRIPTION, SUBSCRIPTION_VERSION, subscription)


def assignment_bytes(value: Any, protocol_type: str) -> bytes:
    """A member's assignment as a Kafka client gets it."""
    if protocol_type != CONSUMER or value is None or stands_for_bytes(value):
        return _plain_bytes(value)
    try:
        given = ConsumerAssignment.model_validate(value)
        user_data = _user_data(given.user_data)
    except ValueError:
        given, user_data = ConsumerAssignment(), None
    assignment = {"assigned_partitions": _partitions(given.partitions), "user_data": user_data}
    return _VERSION.pack(ASSIGNMENT_VERSION) + encode(ASSIGNMENT, ASSIGNMENT_VERSION, assignment)


def _plain_bytes(value: Any) -> bytes:
    """Errors: ValueError where it stands for bytes that do not decode."""
    if value is None:
        return b""
    data = bytes_of(value)
    return json.dumps(value).encode() if data is None else data


def _user_data(value: Any) -> bytes | None:
    return None if value is None else _plain_bytes(value)


def _partitions(by_topic: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": list(numbers)} for topic, numbers in by_topic.items()]
