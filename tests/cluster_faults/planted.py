"""Nodes without a fence: a copy of the packages in which the protection of a shard's epoch is taken out.

It shows that the judges object. A run with it has to fail.
"""

from pathlib import Path
from typing import NamedTuple

from tests.fakes.changed_code import change, copy_code

COPIED = ("src", "protocol", "assignors", "coordinator", "member", "spark_bridge", "cli")


class Plant(NamedTuple):
    """What is replaced in a file, where it stands exactly once."""

    file: str
    old: str
    new: str


NO_FENCE = (
    # A transaction goes in whoever owns the shard.
    Plant(
        "coordinator/storage/etcd/fence.py",
        "        return ModEquals(self._owner, self.epoch), ModEquals(self._head, self.head_revision)\n",
        "        return ()\n",
    ),
    # The lease has no deadline.
    Plant(
        "coordinator/storage/etcd/lease.py",
        "        return held is not None and held.lease == lease and now_ms < held.deadline_ms\n",
        "        return True\n",
    ),
    # Nothing that is heard of another owner counts.
    Plant(
        "coordinator/storage/etcd/keyspace.py",
        "        if self._lost_by is None:\n            self._lost_by = reason\n",
        "        return\n",
    ),
    Plant(
        "coordinator/core/cluster/decide.py",
        "    steps: list[Step] = [Drop(name) for name in _lost(here, view)]\n",
        "    steps: list[Step] = []\n",
    ),
)


def copy_without_fence(to: Path) -> Path:
    """Make the copy; the folder that takes the place of the checkout."""
    copy_code(to, COPIED)
    for plant in NO_FENCE:
        change(to / plant.file, plant.old, plant.new)
    return to
