"""What a database must offer so that rows and positions go into it together. No database is named here."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from spark_bridge.offsets import TopicPartition


class Transaction(Protocol):
    """One that is open. It is committed where its block ends, and rolled back where the block raises."""

    @property
    def connection(self) -> Any:
        """The database's own connection, inside the transaction. Whoever gets it must not commit, nor roll back."""

    def positions(self, name: str) -> Mapping[TopicPartition, int]:
        """The next offset to write of each partition that the load of this name has written."""

    def move(self, name: str, tp: TopicPartition, seen: int | None, end: int) -> bool:
        """Set a position that stood at `seen` (None: there was none). False where it stands elsewhere by now."""

    def forget(self, name: str, topic: str) -> int:
        """Remove all positions of a topic; how many there were."""

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Add rows to a table, as fast as this database takes them."""


class Database(Protocol):
    """Opens transactions. It may be called by one batch after another, from any thread."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open one on a fresh connection; the table of positions is there, or made."""

    def is_transient(self, error: BaseException) -> bool:
        """Whether the same batch may get through at another try: a lost connection, a lock, a deadlock."""
