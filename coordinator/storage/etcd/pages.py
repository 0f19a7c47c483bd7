"""How many rows a page of a read asks for, and where the next one begins."""

from collections.abc import Sequence

from rallypoint.coordinator.storage.etcd.client import KeyRange, KeyValue
from rallypoint.coordinator.storage.etcd.keys import end_of_prefix

ROWS_FIRST = 100
ROWS_MAX = 500
PAGE_BYTES = 4 * 1024 * 1024
"""About what a page may have. etcd limits a page by its rows alone, so their size is judged by the page before."""


class PageSize:
    """The rows of the next page."""

    def __init__(self) -> None:
        self.rows = ROWS_FIRST

    def saw(self, pairs: Sequence[KeyValue]) -> None:
        """A page that came."""
        if pairs:
            row_bytes = sum(len(pair.key) + len(pair.value) for pair in pairs) / len(pairs)
            self.rows = max(1, min(ROWS_MAX, int(PAGE_BYTES / row_bytes)))

    def is_too_large(self) -> bool:
        """A page was too large to be answered. False where it cannot be made smaller."""
        self.rows //= 4
        return self.rows > 0


def after(prefix: bytes, key: bytes | None) -> KeyRange:
    """The keys that begin so, behind the given one."""
    return KeyRange(prefix if key is None else key + b"\0", end_of_prefix(prefix))
