"""Writes topics for the source `files`: JSON lines, as `member.sources.writer` does, and complete Parquet files."""

from pathlib import Path

import pyarrow as pa

from rallypoint.member.sources import writer
from rallypoint.member.sources.directory import NAME_DIGITS, file_name
from rallypoint.spark_bridge.sources.files_layout import files_of
from rallypoint.spark_bridge.sources.parquet_files import ParquetFiles, write_parquet


class FilesWriter(writer.FilesWriter):
    """Appends to one topic. Several writers, also in several processes, may append concurrently."""

    def append_table(self, partition: int, table: pa.Table) -> int:
        """Append a table to a partition as one Parquet file. Returns the offset of its first record.

        `table`: its columns are described in `parquet_files`.

        Readers see the whole file or nothing. Raises ValueError if the table has no rows, and SourceError if a column
        has another type.
        """
        if table.num_rows == 0:
            raise ValueError("a table without rows has no place among the offsets")
        with self.opened(partition) as folder:
            next_offset = self.place_to_append(partition, folder)[1]
            write_parquet(table, folder / f"{next_offset:0{NAME_DIGITS}d}{ParquetFiles.suffix}")
        return next_offset

    def place_to_append(self, partition: int, folder: Path) -> tuple[Path, int]:
        """The file and the offset of the next line. After a Parquet file, a new file begins."""
        files = files_of(folder.parent, partition)
        if not files or files[-1].path.suffix != ParquetFiles.suffix:
            return super().place_to_append(partition, folder)
        next_offset = files[-1].first + ParquetFiles().count(files[-1].path)
        return folder / file_name(next_offset), next_offset
