"""Converts the bridge's options to the member's, and the member's errors to the bridge's option names.

A member checks its options when it is created, after the query has started. So the bridge creates them once when it
parses its own options, by the same function: what is accepted then is accepted later.
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
    "ca": "ca",
    "certificate": "certificate",
    "key": "key",
    "rack_id": "rackId",
    "call_timeout_ms": "sessionTimeoutMs",
}
"""From the member's names to the bridge's."""


def member_options(given: Mapping[str, Any], *, name_from: str = "groupInstanceId") -> MemberOptions:
    """Create the member's options. Raises OptionError with the bridge's name of the option.

    `given`: the options by the member's names, of which only those in `SPELLING` are allowed.
    `name_from`: the bridge's option that determines the name of a static member.
    """
    spelling = {**SPELLING, "group_instance_id": name_from}
    assert given.keys() <= spelling.keys()
    try:
        return MemberOptions(**given)
    except ValueError as error:
        name, _, problem = str(error).partition(": ")
        raise OptionError(spelling[name], problem) from error
