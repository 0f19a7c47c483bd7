"""Writing topics for the source `files`: JSON lines as `member.sources.writer` does, and whole Parquet files."""

from pathlib import Path

import pyarrow as pa

from rallypoint.member.sources import writer
from rallypoint.member.sources.directory import NAME_DIGITS, file_name
from rallypoint.spark_bridge.sources.files_layout import files_of
from rallypoint.spark_bridge.sources.parquet_files import ParquetFiles, write_parquet


class FilesWriter(writer.FilesWriter):
    """Appends to one topic. Several writers, also of several processes, may be at work."""

    def append_table(self, partition: int, table: pa.Table) -> int:
        """Write a Parquet file to the end of a partition; the offset of its first record is returned.

        `table` has the columns that `parquet_files` names. It appears as a whole. ValueError for one without rows,
        SourceError for a column of another type.
        """
        if table.num_rows == 0:
            raise ValueError("a table without rows has no place among the offsets")
        with self.opened(partition) as folder:
            next_offset = self.place_to_append(partition, folder)[1]
            write_parquet(table, folder / f"{next_offset:0{NAME_DIGITS}d}{ParquetFiles.suffix}")
        return next_offset

    def place_to_append(self, partition: int, folder: Path) -> tuple[Path, int]:
        """The file that the next line belongs in, and the offset that it will have: after Parquet a new one."""
        files = files_of(folder.parent, partition)
        if not files or files[-1].path.suffix != ParquetFiles.suffix:
            return super().place_to_append(partition, folder)
        next_offset = files[-1].first + ParquetFiles().count(files[-1].path)
        return folder / file_name(next_offset), next_offset
