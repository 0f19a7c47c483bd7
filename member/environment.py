"""Options from the environment, for what differs from one process to the next and not from one program to the next.

Nothing reads the environment unasked: a program says that it wants this.
"""

import os
from collections.abc import Mapping
from typing import Any, TypeVar

from rallypoint.member.options import MemberOptions
from rallypoint.protocol.environment import ENV_PREFIX, MEMBER_OPTIONS_FROM_ENVIRONMENT

O = TypeVar("O", bound=MemberOptions)  # noqa: E741 - the options' own type


def options_from_environment(kind: type[O], *, environment: Mapping[str, str] = os.environ, **options: Any) -> O:
    """Make options from the environment and from `options`, which take precedence.

    The variables are `RALLYPOINT_COORDINATOR`, with commas between several URLs, `RALLYPOINT_GROUP_ID`, `_CLIENT_ID`,
    `_GROUP_INSTANCE_ID`, `_TOKEN`, `_RACK_ID`, and the paths `_CA`, `_CERTIFICATE` and `_KEY`. Raises ValueError for
    what is not usable, and for a variable that is set but empty, as when a manifest names a field that does not exist.

    Args:
        kind: `MemberOptions` or `ConsumerOptions`.
        environment: For tests: the variables.
        options: The options that the environment does not decide.
    """
    found: dict[str, Any] = {}
    for name in MEMBER_OPTIONS_FROM_ENVIRONMENT:
        variable = ENV_PREFIX + name.upper()
        if name in options or variable not in environment:
            continue
        value = environment[variable].strip()
        if not value:
            raise ValueError(f"{variable} is there, but empty")
        found[name] = value
    if "coordinator" not in found and "coordinator" not in options:
        raise ValueError(f"coordinator: give it, or set {ENV_PREFIX}COORDINATOR")
    if "group_id" not in found and "group_id" not in options:
        raise ValueError(f"group_id: give it, or set {ENV_PREFIX}GROUP_ID")
    return kind(**options, **found)
