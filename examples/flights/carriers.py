"""The table of carriers: flights and mean arrival delay. One function makes it, from the file or from the output.

A flight that was cancelled or diverted has no arrival delay: it counts as a flight, and not in the mean.
"""

from dataclasses import dataclass
from typing import Any

import pandas as pd


@dataclass(frozen=True, slots=True)
class Carrier:
    """`delay_sum` in minutes over the `arrived` flights. Delays are whole minutes, so sums are exact in any order."""

    carrier: str
    flights: int
    arrived: int
    delay_sum: int

    @property
    def mean_delay(self) -> float | None:
        """In minutes; None if no flight arrived."""
        return self.delay_sum / self.arrived if self.arrived else None

    def to_json(self) -> dict[str, Any]:
        """As the report shows it."""
        return {
            "carrier": self.carrier,
            "flights": self.flights,
            "arrived": self.arrived,
            "mean_delay": self.mean_delay,
        }


def by_carrier(flights: pd.DataFrame) -> tuple[Carrier, ...]:
    """From the columns `carrier` and `arr_delay`, in order of the carriers' codes."""
    delays = flights.groupby("carrier", sort=True, dropna=False)["arr_delay"].agg(["size", "count", "sum"])
    return tuple(
        Carrier(str(carrier), int(row["size"]), int(row["count"]), int(row["sum"]))
        for carrier, row in delays.iterrows()
    )
