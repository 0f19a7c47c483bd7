"""What the drivers really wrote, counted against the input: lost, read twice, and why. Pure: tables in, figures out.

Nothing of the bridge's or the group's own bookkeeping is believed here: a record counts as read when a driver's output
has a row with its partition and offset.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from examples.flights.batches import COLUMNS
from examples.handover.books import Batch


@dataclass(frozen=True, slots=True)
class Tally:
    """`rows` = `distinct` + `twice` + `alien`. `twice` counts each reading after the first; of those, `unexplained` are
    not due to the killed batch, and `differing` do not say the same as the first. `alien`: rows that no record of the
    input answers to.
    """

    records: int
    rows: int
    distinct: int
    lost: int
    twice: int
    unexplained: int
    differing: int
    alien: int
    rows_by_driver: Mapping[str, int]
    lost_by_partition: Mapping[int, int]

    def problems(self) -> list[str]:
        """What must not be, one sentence each."""
        found = []
        if self.lost:
            where = ", ".join(f"{count:,} of partition {p}" for p, count in self.lost_by_partition.items())
            found.append(f"{self.lost:,} records are lost: {where}.")
        if self.unexplained:
            found.append(f"{self.unexplained:,} records were read twice though their batch was not the killed one.")
        if self.differing:
            found.append(f"{self.differing:,} records were read twice with different contents.")
        if self.alien:
            found.append(f"{self.alien:,} rows of the output belong to no record of the input.")
        return found


def tally(output: pd.DataFrame, sizes: Mapping[int, int], killed: Batch | None) -> Tally:
    """Count the rows against the input, whose partition p holds the offsets 0 to `sizes[p]` - 1.

    A record is read twice for a good reason if one reading was the killed batch's and there is one other: each batch
    may hold a record once, and so may all batches but the killed one together.
    """
    ends = output["partition"].map(dict(sizes)).fillna(0)
    known = output[(output["offset"] >= 0) & (output["offset"] < ends)]
    readings = known.groupby(["partition", "offset"]).size()
    of_killed = pd.Series(False, index=known.index)
    if killed is not None:
        of_killed = (known["driver"] == killed.driver) & (known["batch_id"] == killed.batch_id)
    distinct_by_partition = readings.groupby(level="partition").size().to_dict()
    lost = {p: size - distinct_by_partition.get(p, 0) for p, size in sizes.items()}
    return Tally(
        records=sum(sizes.values()),
        rows=len(output),
        distinct=len(readings),
        lost=sum(lost.values()),
        twice=len(known) - len(readings),
        unexplained=_surplus(known[~of_killed]) + _surplus(known[of_killed]),
        differing=len(known.drop_duplicates(list(COLUMNS))) - len(readings),
        alien=len(output) - len(known),
        rows_by_driver={str(driver): int(rows) for driver, rows in output.groupby("driver").size().items()},
        lost_by_partition={p: count for p, count in lost.items() if count},
    )


def _surplus(rows: pd.DataFrame) -> int:
    """Readings after the first, of each record."""
    return int(rows.duplicated(["partition", "offset"]).sum())


def once(output: pd.DataFrame) -> pd.DataFrame:
    """Each (partition, offset) once, which makes reading twice harmless: both readings gave the same record."""
    return output.drop_duplicates(["partition", "offset"])
