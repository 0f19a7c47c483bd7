"""What a database must offer so that rows and positions go into it together. No database is named here."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from rallypoint.spark_bridge.offsets import TopicPartition


class Transaction(Protocol):
    """An open transaction. It is committed at the end of its block, and rolled back if the block raises."""

    @property
    def connection(self) -> Any:
        """The database's own connection, inside the transaction. Its user must neither commit nor roll back."""

    def guarded(self) -> AbstractContextManager[None]:
        """A block in which user code writes by `connection`.

        Raises LoadFailed at its end if the code has ended the transaction, by any means: then the positions must not be
        moved.
        """

    def positions(self, name: str) -> Mapping[TopicPartition, int]:
        """The next offset to write of each partition that the load of this name has written."""

    def move(self, name: str, tp: TopicPartition, seen: int | None, end: int) -> bool:
        """Set a position from `seen` (None: there was none) to `end`. Returns False if it has changed meanwhile."""

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
