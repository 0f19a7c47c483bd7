"""The lag of a group over the last hour: a sample each half minute, 32 bytes each, 4 KB for a group."""

from array import array

from rallypoint.coordinator.core.lag_trend import LagSample

INTERVAL_MS = 30_000
KEPT_MAX = 120
"""An hour."""
_FIELDS = 4


class LagSamples:
    """The samples of one group, the oldest first."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers = array("q")

    def add(self, sample: LagSample) -> None:
        """Keep the sample. One that is older than the last, as after a step of the clock, begins anew."""
        numbers = self._numbers
        if numbers and sample.sampled_ms < numbers[-_FIELDS]:
            del numbers[:]
        if len(numbers) >= KEPT_MAX * _FIELDS:
            del numbers[:_FIELDS]
        numbers.extend(_bounded(number) for number in sample)

    def since(self, at_ms: int) -> list[LagSample]:
        """The samples from then on."""
        numbers = iter(self._numbers)
        found = (LagSample(*one) for one in zip(numbers, numbers, numbers, numbers, strict=True))
        return [sample for sample in found if sample.sampled_ms >= at_ms]


def _bounded(number: int) -> int:
    """Sums of many offsets may be larger than any one."""
    return max(-(2**63), min(number, 2**63 - 1))
