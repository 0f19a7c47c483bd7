"""What the drivers left behind: a folder of Parquet files for each micro-batch.

Output is whatever a reader of a batch's folder would see: its files, also those of a batch whose driver died before it
was complete; not what stands under `_temporary`, which Spark moves into place when a batch ends and which readers skip.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from examples.handover.books import Batch, BatchProgress, Layout, read_progress

COLUMNS = ("partition", "offset", "carrier", "arr_delay")
PREFIX = "batch-"
FINISHED_TASKS = "_temporary/*/task_*"
"""Where Spark keeps the output of the tasks of a batch until the last of them has ended."""


@dataclass(frozen=True, slots=True)
class FlightsLayout(Layout):
    """What stands where in the demo's folder."""

    @property
    def output(self) -> Path:
        """What the drivers write."""
        return self.root / "delays"

    def batch(self, batch: Batch) -> Path:
        """The output of one batch."""
        return self.output / batch.driver / f"{PREFIX}{batch.batch_id:04}"


def look_at_batches(layout: FlightsLayout, driver: str) -> BatchProgress:
    """By Spark's books and the folder of the newest batch."""
    seen = read_progress(layout.checkpoint(driver))
    if seen.last is None:
        return seen
    folder = layout.batch(Batch(driver, seen.last))
    # Spark moves the tasks' files into place one by one, and writes _SUCCESS last. Between the two it is neither.
    is_moved = any(folder.glob("*.parquet"))
    writing = any(folder.glob(FINISHED_TASKS)) and not is_moved
    return replace(seen, writing=writing, written=(folder / "_SUCCESS").is_file())


def read_output(layout: FlightsLayout) -> pd.DataFrame:
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


def count_unseen(layout: FlightsLayout, batch: Batch) -> int:
    """Rows in files that a killed batch had finished under `_temporary`: written, but seen by no reader."""
    files = layout.batch(batch).glob(f"{FINISHED_TASKS}/*.parquet")
    return sum(pq.read_metadata(path).num_rows for path in files)
