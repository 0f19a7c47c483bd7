"""The interface of a database that can store rows and positions in one transaction."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from rallypoint.spark_bridge.offsets import TopicPartition


class Transaction(Protocol):
    """An open transaction. It is committed at the end of its block, and rolled back if the block raises."""

    @property
    def connection(self) -> Any:
        """The driver's connection, inside the transaction. Its user must neither commit nor roll back."""

    def guarded(self) -> AbstractContextManager[None]:
        """A block in which user code writes with `connection`.

        Raises LoadFailed at its end if the code has ended the transaction, because the positions must not be moved
        then.
        """

    def positions(self, name: str) -> Mapping[TopicPartition, int]:
        """The next offset to write of each partition that the load `name` has written."""

    def move(self, name: str, tp: TopicPartition, seen: int | None, end: int) -> bool:
        """Compare and set a position: from `seen` (None if there was none) to `end`.

        Returns False if it is no longer `seen`.
        """

    def forget(self, name: str, topic: str) -> int:
        """Delete all positions of a topic. Returns how many there were."""

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Insert rows into a table in the fastest way of this database."""


class Database(Protocol):
    """Opens transactions. It is called for one batch after another, from any thread."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open a transaction on a new connection. Creates the table of positions if it does not exist."""

    def is_transient(self, error: BaseException) -> bool:
        """Whether the same batch may succeed if it is tried again: a lost connection, a lock, a deadlock."""
