"""The text: which lines there are, which words a line has, and how the lines become a topic. No Spark, no service."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from rallypoint.spark import FilesWriter, Record

TOPIC = "lines"
DOCUMENTS = Path(__file__).resolve().parents[2]
LINES_MIN = 200
"""With fewer, the batches are too small for one to be caught in flight."""


class NoText(Exception):  # noqa: N818
    """The text is one sentence that says which file, and why."""


def find_documents() -> list[Path]:
    """The documents of this clone: README.md, and all of docs."""
    return [DOCUMENTS / "README.md", *sorted((DOCUMENTS / "docs").rglob("*.md"))]


def read_lines(paths: Iterable[Path]) -> list[str]:
    """The lines of these UTF-8 files, one file after the other. Raises NoText, also where there are too few."""
    lines: list[str] = []
    for path in paths:
        try:
            lines += path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise NoText(
                f"{path} cannot be read as text: {getattr(error, 'strerror', None) or 'not UTF-8'}."
            ) from error
    if len(lines) < LINES_MIN:
        raise NoText(f"The text has {len(lines)} lines; give at least {LINES_MIN}.")
    return lines


def words_of(line: str) -> Iterator[str]:
    """The runs of letters, in lower case: what the driver's `regexp_extract_all` finds with `\\p{L}+`."""
    for is_word, letters in groupby(line, str.isalpha):
        if is_word:
            yield "".join(letters).lower()


def count_words(lines: Iterable[str]) -> Counter[str]:
    """How often each word occurs: what the drivers' table must say at the end."""
    return Counter(word for line in lines for word in words_of(line))


def write_lines(writer: FilesWriter, lines: Sequence[str], partitions: int) -> None:
    """Append lines to the topic, a line a record without a key, so round the partitions in turn."""
    for partition in range(partitions):
        writer.append(partition, [Record(value=line.encode()) for line in lines[partition::partitions]])
