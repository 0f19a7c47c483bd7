"""How far each partition has come: handled, committed, and under which generation it may be. Nothing here waits."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from rallypoint.member.consumer.contract import TopicPartition


@dataclass(slots=True)
class Progress:
    """One partition, from its `on_assigned` until it is given up or lost; a partition that comes back begins again.

    `generation_id`: in which it came; its commits name it, so none is taken after a loss. `position`: everything below
    is handled; None while it is not known where to begin. `sought`: where the user wants it to go on, until that is
    the position. `committed`: what the service has; None for nothing. `committing`: held by whoever commits it.
    """

    topic_partition: TopicPartition
    generation_id: int
    position: int | None = None
    sought: int | None = None
    committed: int | None = None
    committing: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False, compare=False)

    @property
    def to_commit(self) -> int | None:
        """The offset to commit, at which the next owner begins; None if there is nothing to commit."""
        wanted = self.position if self.sought is None else self.sought
        return None if wanted == self.committed else wanted


def ahead(progress: Iterable[Progress]) -> dict[int, dict[TopicPartition, int]]:
    """What is to be committed, by the generation under which it may be; a commit names one."""
    by_generation: dict[int, dict[TopicPartition, int]] = {}
    for one in progress:
        if (offset := one.to_commit) is not None:
            by_generation.setdefault(one.generation_id, {})[one.topic_partition] = offset
    return by_generation
