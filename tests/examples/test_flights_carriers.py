"""The carriers' table."""

import pandas as pd

from examples.flights.carriers import Carrier, by_carrier
from examples.flights.dataset import read_flights


def test_the_table_of_the_file_has_the_known_figures() -> None:
    """Counts and means that other tools give for the same data set."""
    table = {one.carrier: one for one in by_carrier(read_flights())}
    assert len(table) == 16
    assert sum(one.flights for one in table.values()) == 336_776
    assert sum(one.arrived for one in table.values()) == 336_776 - 9_430
    known = {"UA": (58_665, 3.558), "B6": (54_635, 9.458), "EV": (54_173, 15.796), "AS": (714, -9.931)}
    assert {code: (one.flights, round(one.mean_delay or 0, 3)) for code, one in table.items() if code in known} == known


def test_a_flight_without_a_delay_counts_but_is_not_in_the_mean() -> None:
    flights = pd.DataFrame({"carrier": ["UA", "UA", "AA", "UA"], "arr_delay": [10.0, None, None, -4.0]})
    assert by_carrier(flights) == (Carrier("AA", 1, 0, 0), Carrier("UA", 3, 2, 6))
    assert [one.mean_delay for one in by_carrier(flights)] == [None, 3.0]


def test_one_minute_more_makes_another_table() -> None:
    flights = pd.DataFrame({"carrier": ["UA"] * 1000, "arr_delay": [1.0] * 1000})
    other = flights.copy()
    other.loc[7, "arr_delay"] = 2.0
    assert by_carrier(flights) != by_carrier(other)
