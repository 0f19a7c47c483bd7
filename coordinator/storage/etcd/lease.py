"""When the lease of a node holds: a rule without a clock, a thread or a wire. Whoever renews the lease feeds it.

The *deadline* of a lease is the instant at which this renewal was sent, and the granted time, less a margin. etcd
counts the same time from when it gets the renewal, which is later, and looks for leases that have run out every half
second, which is later still. A new leader of etcd gives every lease its whole time again. So the deadline here is
before the end there as long as the two clocks run at speeds that differ by less than the margin: a twentieth. Clocks of
machines differ by less than a thousandth while NTP slews them, and by less than a ten-thousandth otherwise. What is
left of the margin covers the time between a look at the deadline and the instant at which an answer leaves the process.
"""

from dataclasses import dataclass

TTL_MIN_MS = 2_000
TTL_DEFAULT_MS = 6_000
TTL_MAX_MS = 3_600_000

MARGIN_DIVISOR = 20
CALL_TIMEOUT_MAX_MS = 1_000


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease that etcd has granted. sent_at_ms: when the last renewal was sent that etcd answered."""

    lease: int
    sent_at_ms: int
    deadline_ms: int


class LeaseRule:
    """What is known of a node's lease. One at a time; every time is of one clock, in milliseconds.

    `held` is replaced as a whole: a reader in another thread sees one lease, with its own deadline.
    """

    def __init__(self, ttl_ms: int) -> None:
        self.ttl_ms = ttl_ms
        self.held: HeldLease | None = None
        self.lost_count = 0
        self._sent_at_ms = 0

    @property
    def ttl_s(self) -> int:
        """What etcd is asked for; it counts whole seconds."""
        return -(-self.ttl_ms // 1000)

    @property
    def renew_interval_ms(self) -> int:
        """From one renewal to the next, so that two may fail before the lease runs out."""
        return self.ttl_ms // 3

    @property
    def call_timeout_ms(self) -> int:
        """How long a renewal may take before another server is asked."""
        return min(self.ttl_ms // 6, CALL_TIMEOUT_MAX_MS)

    @property
    def retry_interval_ms(self) -> int:
        """From a renewal that failed to the next one."""
        return self.ttl_ms // 24

    def granted(self, lease: int, ttl_s: int, sent_at_ms: int) -> None:
        """The lease is granted; it was asked for at this instant."""
        self.held = HeldLease(lease, sent_at_ms, self._deadline_ms(ttl_s, sent_at_ms))
        self._sent_at_ms = sent_at_ms

    def answered(self, lease: int, ttl_s: int, sent_at_ms: int) -> bool:
        """A renewal of the lease that was sent at this instant is answered. False: the lease is lost."""
        if self.held is None or self.held.lease != lease:
            return False
        if ttl_s <= 0:
            self.lost(lease)
            return False
        self._sent_at_ms = sent_at_ms
        self.held = HeldLease(lease, sent_at_ms, self._deadline_ms(ttl_s, sent_at_ms))
        return True

    def lost(self, lease: int) -> None:
        """Do without the lease: etcd has said that it does not have it."""
        if self.held is not None and self.held.lease == lease:
            self.held = None
            self.lost_count += 1

    def given_up(self) -> None:
        """The node itself ends its lease, and has none."""
        self.held = None

    def is_live(self, lease: int, now_ms: int) -> bool:
        """Whether this very lease cannot have run out yet."""
        held = self.held
        return held is not None and held.lease == lease and now_ms < held.deadline_ms

    def age_ms(self, now_ms: int) -> int:
        """Since the last renewal that succeeded was sent, of this lease or the one before."""
        return now_ms - self._sent_at_ms

    def remaining_ms(self, now_ms: int) -> int:
        """Until the deadline; 0 or less once it has passed, or without a lease."""
        held = self.held
        return 0 if held is None else held.deadline_ms - now_ms

    @staticmethod
    def _deadline_ms(ttl_s: int, sent_at_ms: int) -> int:
        return sent_at_ms + ttl_s * 1000 - ttl_s * 1000 // MARGIN_DIVISOR
