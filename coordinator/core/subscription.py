"""Reading a member's subscription, as far as the coordinator needs it: which topics it is for."""

from pydantic import ValidationError

from coordinator.core.group import CONSUMER
from protocol.messages import ConsumerSubscription
from protocol.opaque import OpaqueJson


def topics_of(protocol_type: str | None, metadata: OpaqueJson) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None where it is of another type or cannot be read."""
    if protocol_type != CONSUMER:
        return None
    try:
        return frozenset(ConsumerSubscription.model_validate_json(metadata.text).topics)
    except ValidationError:
        return None
