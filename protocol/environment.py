"""The variables of the environment that programs of ours read: their prefix, and those that are a member's."""

ENV_PREFIX = "RALLYPOINT_"

MEMBER_OPTIONS_FROM_ENVIRONMENT = (
    "coordinator",
    "group_id",
    "client_id",
    "group_instance_id",
    "token",
    "rack_id",
    "ca",
    "certificate",
    "key",
)
"""The options of a member that may stand there, as the prefix and the name in capitals. A service beside members may
find them in its own environment, and they mean nothing to it.
"""

COMMAND_OPTIONS_FROM_ENVIRONMENT = ("context",)
"""The options of the command that may stand there besides, by the same rule."""
