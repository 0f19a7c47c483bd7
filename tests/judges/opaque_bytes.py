"""What members tell each other: the bytes of Kafka's clients, and the JSON of the service's API.

Bytes travel through the service as `{"base64": …}`. What an HTTP member says in JSON reaches a Kafka client as the
bytes that Kafka's consumers write: a version, then ConsumerProtocolSubscription or ConsumerProtocolAssignment.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from struct import Struct
from typing import Any

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
    if isinstance(value, Mapping) and protocol_type == CONSUMER and "topics" in value:
        subscription = {
            "topics": list(value["topics"]),
            "user_data": _user_data(value),
            "owned_partitions": _partitions(value.get("owned_partitions") or {}),
            "generation_id": value.get("generation_id", -1),
            "rack_id": value.get("rack_id"),
        }
        return _VERSION.pack(SUBSCRIPTION_VERSION) + encode(SUBSCRIPTION, SUBSCRIPTION_VERSION, subscription)
    return _plain_bytes(value)


def assignment_bytes(value: Any, protocol_type: str) -> bytes:
    """A member's assignment as a Kafka client gets it."""
    if isinstance(value, Mapping) and protocol_type == CONSUMER and "partitions" in value:
        assignment = {"assigned_partitions": _partitions(value["partitions"]), "user_data": _user_data(value)}
        return _VERSION.pack(ASSIGNMENT_VERSION) + encode(ASSIGNMENT, ASSIGNMENT_VERSION, assignment)
    return _plain_bytes(value)


def _plain_bytes(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, Mapping) and value.keys() == {"base64"}:
        return b64decode(value["base64"], validate=True)
    return json.dumps(value).encode()


def _user_data(value: Mapping[str, Any]) -> bytes | None:
    user_data = value.get("user_data")
    return None if user_data is None else _plain_bytes(user_data)


def _partitions(by_topic: Mapping[str, list[int]]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": list(numbers)} for topic, numbers in by_topic.items()]
