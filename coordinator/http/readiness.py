"""Whether groups are served, in the words of a refusal."""

from coordinator.core.effects import Failure
from protocol.errors import ErrorCode

READY = "ready"
"""The phase in which groups are served."""


def why_not_ready(phase: str) -> Failure | None:
    """What to answer while groups are not served: not while they load, nor once the service stops."""
    if phase == READY:
        return None
    if phase in {"starting", "loading"}:
        return Failure(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The service is loading its groups.")
    return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The service is {phase}.")
