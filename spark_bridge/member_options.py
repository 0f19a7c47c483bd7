"""The member's options from those of the bridge, and what the member refuses in the names that the bridge gives them.

A member checks its options when it is made, which is when a query runs. So they are made once when the bridge's own are
read, by the same function: what passes then can be made again.
"""

from collections.abc import Mapping
from typing import Any

from rallypoint import MemberOptions
from rallypoint.spark_bridge.errors import OptionError

SPELLING: Mapping[str, str] = {
    "coordinator": "coordinator",
    "group_id": "group",
    "topics": "subscribe",
    "topics_pattern": "subscribePattern",
    "metadata_max_age_ms": "partitionCheckIntervalMs",
    "client_id": "clientId",
    "group_instance_id": "groupInstanceId",
    "assignors": "assignor",
    "eager": "eager",
    "session_timeout_ms": "sessionTimeoutMs",
    "rebalance_timeout_ms": "rebalanceTimeoutMs",
    "token": "token",
    "rack_id": "rackId",
    "call_timeout_ms": "sessionTimeoutMs",
}
"""From the member's names to the bridge's."""


def member_options(given: Mapping[str, Any], *, name_from: str = "groupInstanceId") -> MemberOptions:
    """The member's options, of which only those in `SPELLING` may be given. `name_from`: the option that says how a
    static member is called. Raises OptionError.
    """
    spelling = {**SPELLING, "group_instance_id": name_from}
    assert given.keys() <= spelling.keys()
    try:
        return MemberOptions(**given)
    except ValueError as error:
        name, _, problem = str(error).partition(": ")
        raise OptionError(spelling[name], problem) from error
