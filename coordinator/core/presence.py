"""Is there such a group, and has it members? What the calls of operators check first."""

from coordinator.core.effects import Failure
from coordinator.core.group import Group, State
from protocol.errors import ErrorCode


def check_exists(group: Group) -> Failure | None:
    """GROUP_ID_NOT_FOUND for a group that is not there; None for one that is."""
    if group.state is not State.DEAD:
        return None
    return Failure(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group.group_id!r}.", field="group_id")


def check_empty(group: Group) -> Failure | None:
    """As `check_exists`, and NON_EMPTY_GROUP for a group that is not Empty."""
    if group.state in (State.EMPTY, State.DEAD):
        return check_exists(group)
    return Failure(ErrorCode.NON_EMPTY_GROUP, f"The group is {group.state}: stop its members first.")
