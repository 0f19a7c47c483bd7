"""A member and a consumer at once, as observers see them."""

from rallypoint import ConsumerOptions
from rallypoint.member.core.states import State


class Silent:
    """Nothing happens to it but what a test says."""

    options = ConsumerOptions(coordinator="http://127.0.0.1:1", group_id="g", topics=("clicks",))
    state = State.FINDING
    assignment = None
    paused: frozenset[tuple[str, int]] = frozenset()
    in_hand_ms = 0.0


SILENT = Silent()
