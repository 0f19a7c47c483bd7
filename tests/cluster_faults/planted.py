"""Nodes without a fence: a copy of the packages in which the protection of a shard's epoch is taken out.

It shows that the judges object. A run with it has to fail.
"""

import shutil
from pathlib import Path
from typing import NamedTuple

from tests.real.parts import ROOT

PACKAGES = ("protocol", "assignors", "coordinator", "member", "spark_bridge", "cli")


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
    shutil.copytree(ROOT / "src", to / "src", symlinks=True)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, to / package, ignore=shutil.ignore_patterns("__pycache__"))
    for plant in NO_FENCE:
        file = to / plant.file
        text = file.read_text("utf-8")
        if text.count(plant.old) != 1:
            raise ValueError(f"what is to be replaced does not stand in {plant.file} once: {plant.old!r}")
        file.write_text(text.replace(plant.old, plant.new), "utf-8")
    return to
