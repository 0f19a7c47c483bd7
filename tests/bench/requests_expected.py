"""How many requests members that stay have answered in a time, whatever the moments at which they begin."""

from bench.metrics import LoadResult
from bench.residents import PING_INTERVAL_S

HEARTBEAT_INTERVAL_S = 3.0


def requests_expected(found: LoadResult, speakers: int) -> tuple[float, float]:
    """The least and the most in the time that was measured, if nothing is later than a heartbeat's interval.

    Of those that speak, a heartbeat each interval, one more or less by where the time begins, and one that is late. Of
    the others a ping each interval; a ping counts one interval after it was sent, and the first is sent within one.
    """
    resting = found.members - speakers
    heartbeats, pings = found.seconds / HEARTBEAT_INTERVAL_S, found.seconds / PING_INTERVAL_S
    least = speakers * (heartbeats - 2) + resting * max(0, int(pings - 1))
    return least, speakers * (heartbeats + 2) + resting * (pings + 2)
