"""What a consumer subscribes to, read from the metadata of its join. The rest of a group's metadata is opaque."""

from functools import lru_cache

from rallypoint.protocol.consumer_bytes import read_subscription
from rallypoint.protocol.opaque import OpaqueJson
from rallypoint.protocol.opaque_bytes import stands_for_bytes

CONSUMER = "consumer"
"""The protocol type whose subscriptions the coordinator reads."""


def topics_of(protocol_type: str | None, metadata: OpaqueJson) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None where it is of another type or cannot be read."""
    if protocol_type != CONSUMER:
        return None
    return (_read if len(metadata.text) > READ_ONCE_CHARACTERS else _read_once)(metadata)


def _read(metadata: OpaqueJson) -> frozenset[str] | None:
    try:
        return frozenset(read_subscription(metadata).topics)
    except ValueError:
        return None


READ_ONCE_CHARACTERS = 512
"""A text of no more is remembered with its topics: of a join it is asked up to three times, and most members of a group
say the same."""
_read_once = lru_cache(maxsize=512)(_read)


def wants_the_same(protocol_type: str | None, before: OpaqueJson, after: OpaqueJson) -> bool:
    """Whether a member that comes back can go on with the assignment that it had.

    Of a consumer the topics count, its rack, and its user data where that is JSON: what it owned before it ended says
    nothing new, nor does the generation of that, nor the user data in bytes, in which Kafka's sticky assignors tell the
    same two. Of what cannot be read nothing is known to want another assignment.
    """
    if before == after or protocol_type != CONSUMER:
        return True
    try:
        old, new = read_subscription(before), read_subscription(after)
    except ValueError:
        return True
    if (frozenset(old.topics), old.rack_id) != (frozenset(new.topics), new.rack_id):
        return False
    return old.user_data == new.user_data or stands_for_bytes(old.user_data) or stands_for_bytes(new.user_data)
