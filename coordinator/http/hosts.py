"""Host names and addresses as text. No name is ever looked up.

The settings check theirs with it, so nothing of HTTP is imported here.
"""

import ipaddress
import re

ANY_HOST = "*"
"""In place of a name: whatever the service is called."""

_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/?#@]+)(?::(?P<port>\d{0,5}))?")
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")


def host_of_authority(authority: str) -> str | None:
    """The host of `host`, `host:port` or `[address]:port`, in lower case and without a final dot; None if malformed."""
    match = _AUTHORITY.fullmatch(authority)
    return match["host"].lower().rstrip(".") if match else None


def is_host_name(name: str) -> bool:
    """Whether a client can call a service so: ASCII letters, digits, `.`, `-`, `_`, or an IPv6 address in brackets."""
    if name.startswith("[") and name.endswith("]"):
        try:
            return ipaddress.IPv6Address(name[1:-1]).scope_id is None
        except ValueError:
            return False
    return _NAME.fullmatch(name) is not None


def is_loopback(host: str) -> bool:
    """Whether only this machine can be meant: `localhost`, 127.0.0.0/8, ::1 (with or without brackets)."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
