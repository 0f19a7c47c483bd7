"""How long the refusal of an unknown token waits, once many have come from its address. Pure.

An address may fail `AT_ONCE_MAX` times at once, and `PER_SECOND` times a second from then on; what is beyond waits for
its turn, up to `WAIT_MAX_MS`. Only refusals wait. Nobody asks here about a token that is known, so whoever has one is
answered at once, whatever others behind the same address do.
"""

from typing import Final

from rallypoint.coordinator.core.network import Network

AT_ONCE_MAX: Final = 50
"""Many members behind one proxy may hold a token that has just run out."""
PER_SECOND: Final = 5
WAIT_MAX_MS: Final = 5_000
NETWORKS_MAX: Final = 10_000
"""Addresses that are remembered. One more takes the place of the one that has failed least lately."""


class FailedAttempts:
    """What has failed, by network. Times are those of one clock, which does not go back."""

    def __init__(self) -> None:
        self._even_ms: dict[Network, int] = {}
        """When all that has failed will have been made up for. In the order of the last failures."""

    def __len__(self) -> int:
        return len(self._even_ms)

    def add(self, network: Network, now_ms: int) -> int:
        """One more has failed. Returns how many milliseconds its refusal waits."""
        even_ms = max(self._even_ms.pop(network, 0), now_ms) + 1_000 // PER_SECOND
        late_ms = min(max(0, even_ms - now_ms - AT_ONCE_MAX * 1_000 // PER_SECOND), WAIT_MAX_MS)
        # What waits longest is no worse than the rest: nobody is made to pay for more than that.
        even_ms = min(even_ms, now_ms + AT_ONCE_MAX * 1_000 // PER_SECOND + WAIT_MAX_MS)
        if len(self._even_ms) >= NETWORKS_MAX:
            del self._even_ms[next(iter(self._even_ms))]
        self._even_ms[network] = even_ms
        return late_ms
