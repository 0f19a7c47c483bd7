"""The network that a client's address counts for, where limits are shared by address."""

from ipaddress import IPv6Address, IPv6Network
from typing import NewType

Network = NewType("Network", str)
"""An IPv4 address, or the 64 bits of an IPv6 address that its owner was given. Only `network_of` makes one."""


def network_of(address: str) -> Network:
    """The network of an address. A text that is no address is a network of its own."""
    if ":" not in address:
        return Network(address)
    try:
        found = IPv6Address(address.partition("%")[0])
    except ValueError:
        return Network(address)
    if found.ipv4_mapped is not None:
        return Network(str(found.ipv4_mapped))
    return Network(str(IPv6Network((found, 64), strict=False)))
