"""How far each partition has come: handled, committed, and under which generation it may be. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from member.consumer.contract import TopicPartition


@dataclass(slots=True)
class Progress:
    """One partition, from its `on_assigned` until it is given up or lost; a partition that comes back begins anew.

    `generation_id`: in which it came; its commits name it, so none is taken after a loss. `position`: everything below
    is handled; None while it is not known where to begin. `committed`: what the service has; None for nothing.
    """

    topic_partition: TopicPartition
    generation_id: int
    position: int | None = None
    committed: int | None = None

    @property
    def is_ahead(self) -> bool:
        """Whether there is something to commit."""
        return self.position is not None and self.position != self.committed


def ahead(progress: Iterable[Progress]) -> dict[int, dict[TopicPartition, int]]:
    """What is to be committed, by the generation under which it may be; a commit names one."""
    by_generation: dict[int, dict[TopicPartition, int]] = {}
    for one in progress:
        if one.is_ahead:
            assert one.position is not None
            by_generation.setdefault(one.generation_id, {})[one.topic_partition] = one.position
    return by_generation


def note_committed(progress: Mapping[TopicPartition, Progress], offsets: Mapping[TopicPartition, int]) -> None:
    """The service has these. A partition that went meanwhile is nobody's concern here."""
    for topic_partition, offset in offsets.items():
        if (one := progress.get(topic_partition)) is not None:
            one.committed = offset
