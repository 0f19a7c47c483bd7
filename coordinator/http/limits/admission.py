"""How many connections there may be: those that have authenticated, and those that may still do so.

The two have separate limits, so strangers take no place from clients with a token. A connection counts as authenticated
from its first request to a path that is not public, if that has a known token or none is required. It does so until it
ends. A new connection is always accepted. If too many have not authenticated, the oldest of the address that has most
of them is closed. So a client that connects and sends its request at once gets in, whatever the others do.

This module only counts and chooses. Others close connections, answer, and count for metrics.
"""

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from rallypoint.coordinator.core.network import Network, network_of

Held = TypeVar("Held")

OTHER_FILES = 128
"""Open files that are no connections: the store's, listeners, and what a library opens for a moment."""
UNAUTHENTICATED_SHARE = 4
"""If open files are short, one connection in so many may be one that has not authenticated."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many there may be, for how long, and how large the head of a request. Two are settings, the others fixed."""

    connections_max: int = 50_000
    keep_alive_timeout_ms: int = 630_000
    unauthenticated_connections_max: int = 10_000
    """Beside `connections_max`: so many members may connect in the same moment, behind one proxy too."""
    request_head_timeout_ms: int = 10_000
    """Of a connection's first request from the beginning of the connection, of a later one from its first byte."""
    max_url_bytes: int = 65_536
    """Path and query: a look-up of a thousand groups, or a fetch of as many topics. Many proxies take 8 KiB."""
    max_header_bytes: int = 8_192
    """The value of a header, as common servers take it; any token. Its name may have as many, but for the first header,
    whose name is counted with its value."""
    max_head_bytes: int = 98_304
    """A head that has not ended is held, whoever sends it, in twice its bytes. 32 KiB are for headers beside the
    longest target."""
    headers_max: int = 128
    """Far above what clients and proxies send."""

    @property
    def line_bytes(self) -> int:
        """The length at which the parser gives up on a request's target. The API refuses what is above `max_url_bytes`;
        this is higher, and never the same as the parser's other limit, for its errors differ by the number alone.
        """
        return max(self.max_url_bytes, self.max_header_bytes) + 1


class Unauthenticated(Generic[Held]):
    """What has come and has not authenticated, by network, in the order of its coming. Each look and change: O(1)."""

    def __init__(self) -> None:
        self._network_of: dict[Held, Network] = {}
        self._held_by: dict[Network, dict[Held, None]] = {}
        self._networks_with: list[dict[Network, None]] = [{}]
        """At each number the networks that have so many; the last is not empty, unless it is the first."""

    def __len__(self) -> int:
        return len(self._network_of)

    def __contains__(self, one: object) -> bool:
        return one in self._network_of

    def network_of(self, one: Held) -> Network | None:
        """None where it is not here."""
        return self._network_of.get(one)

    def add(self, one: Held, network: Network) -> None:
        """It has come, and is not here yet."""
        held = self._held_by.setdefault(network, {})
        held[one] = None
        self._network_of[one] = network
        self._move(network, len(held) - 1, len(held))

    def remove(self, one: Held) -> bool:
        """It has gone, or authenticated. False where it was not here."""
        network = self._network_of.pop(one, None)
        if network is None:
            return False
        held = self._held_by[network]
        del held[one]
        if not held:
            del self._held_by[network]
        self._move(network, len(held) + 1, len(held))
        return True

    def _move(self, network: Network, before: int, after: int) -> None:
        networks = self._networks_with
        if before:
            del networks[before][network]
        if after:
            if after == len(networks):
                networks.append({})
            networks[after][network] = None
        while len(networks) > 1 and not networks[-1]:
            networks.pop()

    def first_of_most(self) -> Held | None:
        """What came first of the network that has most; of several such, the one that came to have so many first."""
        if not self._network_of:
            return None
        network = next(iter(self._networks_with[-1]))
        return next(iter(self._held_by[network]))


class Admission(Generic[Held]):
    """The connections of an API."""

    def __init__(self, authenticated_max: int, unauthenticated_max: int) -> None:
        self.authenticated_max = authenticated_max
        self.unauthenticated_max = unauthenticated_max
        self._authenticated: set[Held] = set()
        self._unauthenticated: Unauthenticated[Held] = Unauthenticated()

    @property
    def authenticated_count(self) -> int:
        """Connections that have authenticated."""
        return len(self._authenticated)

    @property
    def unauthenticated_count(self) -> int:
        """Connections that have not."""
        return len(self._unauthenticated)

    def come(self, connection: Held, address: str) -> Held | None:
        """One more. Returns the one that makes place for it, and is to be cut; never itself, unless none may be there.

        It is not counted any more.
        """
        self._unauthenticated.add(connection, network_of(address))
        if len(self._unauthenticated) <= self.unauthenticated_max:
            return None
        first = self._unauthenticated.first_of_most()
        assert first is not None
        self._unauthenticated.remove(first)
        return first

    def admit(self, connection: object) -> bool:
        """It has authenticated. False where there is no place for one more such, and it stays what it was."""
        if connection in self._authenticated:
            return True
        if len(self._authenticated) >= self.authenticated_max or connection not in self._unauthenticated:
            return False
        held: Held = connection  # type: ignore[assignment]
        self._unauthenticated.remove(held)
        self._authenticated.add(held)
        return True

    def replace(self, connection: Held, successor: Held) -> None:
        """It goes on as another one, of the same address; among those that have not authenticated as the newest."""
        network = self._unauthenticated.network_of(connection)
        if network is not None:
            self._unauthenticated.remove(connection)
            self._unauthenticated.add(successor, network)
        elif connection in self._authenticated:
            self._authenticated.remove(connection)
            self._authenticated.add(successor)

    def go(self, connection: Held) -> None:
        """It has ended."""
        if not self._unauthenticated.remove(connection):
            self._authenticated.discard(connection)


def limits_within(limits: ConnectionLimits, files_max: int) -> ConnectionLimits:
    """The limits, lowered to what a process with so many open files can keep; some files are for other things."""
    places = files_max - reserved_files(files_max)
    wanted = limits.connections_max + limits.unauthenticated_connections_max
    if wanted <= places:
        return limits
    unauthenticated = min(limits.unauthenticated_connections_max, max(1, places // UNAUTHENTICATED_SHARE))
    authenticated = min(limits.connections_max, max(1, places - unauthenticated))
    return replace(limits, connections_max=authenticated, unauthenticated_connections_max=unauthenticated)


def reserved_files(files_max: int) -> int:
    """Open files that no connection is to keep; of few, half of them."""
    return min(OTHER_FILES, files_max // 2)


def last_file(files_max: int) -> int:
    """The number of an open file from which on the process is about to have too many: files get the lowest free."""
    return files_max - reserved_files(files_max) // 4
