"""Partitions that pass from one member to another, as the words of other modules."""

from typing import NamedTuple


class OwnerNames(NamedTuple):
    """A member, by all its names; it may be gone by now."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str


class Move(NamedTuple):
    """Partitions of a topic, in order, that pass from one owner to another. None: from, or to, nobody."""

    topic: str
    partitions: tuple[int, ...]
    from_owner: OwnerNames | None
    to_owner: OwnerNames | None


class Moves(NamedTuple):
    """What an assignment changes.

    lost_count: partitions that some owner of the stored assignment has no longer. One that nobody had is not among
        them; one whose owner is gone is.
    moves: of the partitions that have another owner than before. What somebody had who is gone was nobody's already.
    """

    lost_count: int
    moves: tuple[Move, ...]
