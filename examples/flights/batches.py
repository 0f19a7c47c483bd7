"""What the drivers left behind: a folder of Parquet files for each micro-batch, and Spark's own books of a query.

Output is whatever a reader of a batch's folder would see: its files, also those of a batch whose driver died before it
was complete; not what stands under `_temporary`, which Spark moves into place when a batch ends and which readers skip.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ("partition", "offset", "carrier", "arr_delay")
PREFIX = "batch-"
FINISHED_TASKS = "_temporary/*/task_*"
"""Where Spark keeps the output of the tasks of a batch until the last of them has ended."""


class Batch(NamedTuple):
    """One micro-batch of one driver."""

    driver: str
    batch_id: int

    def __str__(self) -> str:
        return f"batch {self.batch_id} of driver {self.driver}"


@dataclass(frozen=True, slots=True)
class BatchesSeen:
    """How far a driver is. `last`: the newest batch that Spark has planned, None before the first; it is either
    `in_flight` or complete. `writing`: some of its tasks have
    ended. `written`: its output is in place.
    """

    complete: int = 0
    last: int | None = None
    in_flight: bool = False
    writing: bool = False
    written: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """What stands where in the demo's folder."""

    root: Path

    @property
    def topics(self) -> Path:
        """The directory of the `files` source."""
        return self.root / "topics"

    @property
    def output(self) -> Path:
        """What the drivers write."""
        return self.root / "delays"

    def batch(self, batch: Batch) -> Path:
        """The output of one batch."""
        return self.output / batch.driver / f"{PREFIX}{batch.batch_id:04}"

    def checkpoint(self, driver: str) -> Path:
        """Spark's own books of a driver's query."""
        return self.root / "checkpoints" / driver

    def log(self, name: str) -> Path:
        """What a program printed."""
        return self.root / "logs" / f"{name}.log"


def look_at_batches(layout: Layout, driver: str) -> BatchesSeen:
    """By Spark's books (`offsets`: planned, `commits`: complete) and the folder of the newest batch."""
    planned = _numbers(layout.checkpoint(driver) / "offsets")
    complete = _numbers(layout.checkpoint(driver) / "commits")
    if not planned:
        return BatchesSeen()
    last = max(planned)
    folder = layout.batch(Batch(driver, last))
    return BatchesSeen(
        complete=len(complete),
        last=last,
        in_flight=last not in complete,
        writing=any(folder.glob(FINISHED_TASKS)),
        written=(folder / "_SUCCESS").is_file(),
    )


def _numbers(folder: Path) -> set[int]:
    return {int(path.name) for path in folder.glob("[0-9]*") if path.name.isdecimal()}


def read_output(layout: Layout) -> pd.DataFrame:
    """Every row that every driver wrote: `driver`, `batch_id`, and COLUMNS."""
    tables = []
    for folder in sorted(layout.output.glob(f"*/{PREFIX}*")):
        files = sorted(folder.glob("*.parquet"))
        if files:
            rows = pa.concat_tables(pq.read_table(path, columns=list(COLUMNS)) for path in files).to_pandas()
            batch_id = int(folder.name.removeprefix(PREFIX))
            tables.append(rows.assign(driver=folder.parent.name, batch_id=batch_id))
    if not tables:
        return pd.DataFrame({name: [] for name in (*COLUMNS, "driver", "batch_id")})
    return pd.concat(tables, ignore_index=True)


def count_unseen(layout: Layout, batch: Batch) -> int:
    """Rows in files that a killed batch had finished under `_temporary`: written, but seen by no reader."""
    files = layout.batch(batch).glob(f"{FINISHED_TASKS}/*.parquet")
    return sum(pq.read_metadata(path).num_rows for path in files)
