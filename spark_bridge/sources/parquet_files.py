"""Records as rows of Parquet files, for the source `files`: written once and complete, and fast to read.

The columns are `key` and `value` (bytes or text), `timestamp` (a timestamp, or integer milliseconds since 1970) and
`headers` (a list of `key` and `value`). Each may be absent; others are ignored. A file never changes, so a writer
renames it to its final name when it is complete.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rallypoint.spark_bridge.errors import SourceError
from rallypoint.spark_bridge.sources.contract import BATCH_RECORDS_MAX, HEADERS_TYPE

TIME = pa.timestamp("us", tz="UTC")
COLUMNS = {"key": pa.binary(), "value": pa.binary(), "timestamp": TIME, "headers": HEADERS_TYPE}


class ParquetFiles:
    """The Parquet format. Counts come from the files' footers and are cached."""

    suffix = ".parquet"

    def __init__(self) -> None:
        self._counted: dict[Path, int] = {}

    def count(self, path: Path) -> int:
        """The number of rows of a file."""
        if path not in self._counted:
            with _opened(path) as file:
                self._counted[path] = file.metadata.num_rows
        return self._counted[path]

    def contents(self, path: Path, first: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """See `files_layout.FileFormat`. Reads only the row groups with these records."""
        with _opened(path) as file:
            for group in range(file.metadata.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                low, high = max(start - first, 0), min(stop - first, rows)
                if low < high:
                    yield from _batches(file, group, path, low, high)
                first += rows


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a file that appears when it is complete. Raises SourceError if a column could not be read again."""
    for name in COLUMNS.keys() & set(table.column_names):
        _cast(table.column(name), name, path)
    partial = path.with_name(f"{path.name}.partial")
    pq.write_table(table, partial)
    partial.replace(path)


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise SourceError(f"{path} is no Parquet file, or not a whole one: {error}") from error


def _batches(file: pq.ParquetFile, group: int, path: Path, low: int, high: int) -> Iterator[pa.RecordBatch]:
    wanted = [name for name in COLUMNS if name in file.schema_arrow.names]
    first = 0
    for batch in file.iter_batches(BATCH_RECORDS_MAX, row_groups=[group], columns=wanted):
        start, stop = max(low - first, 0), min(high - first, batch.num_rows)
        if start < stop:
            yield _to_contents(batch.slice(start, stop - start), path)
        first += batch.num_rows


def _to_contents(batch: pa.RecordBatch, path: Path) -> pa.RecordBatch:
    found = set(batch.schema.names)
    columns = {
        name: _cast(batch.column(name), name, path) if name in found else pa.nulls(batch.num_rows, dtype)
        for name, dtype in COLUMNS.items()
    }
    return pa.RecordBatch.from_pydict(columns)


def _cast(column: pa.Array, name: str, path: Path) -> pa.Array:
    dtype = column.type
    try:
        if name == "timestamp":
            if pa.types.is_integer(dtype):
                return column.cast(pa.timestamp("ms", tz="UTC")).cast(TIME)
            if not pa.types.is_timestamp(dtype):
                raise pa.ArrowInvalid("neither a timestamp nor a whole number of milliseconds")
        elif name in {"key", "value"} and not (_is_text(dtype) or pa.types.is_null(dtype)):
            raise pa.ArrowInvalid("neither bytes nor text")
        return column.cast(COLUMNS[name])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(f"{path}: the column {name} of type {dtype} cannot be read: {error}") from error


def _is_text(dtype: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(dtype)
        or types.is_large_binary(dtype)
        or types.is_fixed_size_binary(dtype)
        or types.is_string(dtype)
        or types.is_large_string(dtype)
    )
