"""What a consumer subscribes to, read from the metadata of its join. The rest of a group's metadata is opaque."""

from pydantic import ValidationError

from rallypoint.protocol.messages import ConsumerSubscription
from rallypoint.protocol.opaque import OpaqueJson

CONSUMER = "consumer"
"""The protocol type whose subscriptions the coordinator reads."""


def topics_of(protocol_type: str | None, metadata: OpaqueJson) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None where it is of another type or cannot be read."""
    if protocol_type != CONSUMER:
        return None
    try:
        return frozenset(ConsumerSubscription.model_validate_json(metadata.text).topics)
    except ValidationError:
        return None
