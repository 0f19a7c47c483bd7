"""A store goes back to its backups again and again: what it has handed out once, it never hands out again."""

from pathlib import Path
from random import Random

import pytest

from rallypoint.coordinator import backups
from rallypoint.coordinator.core.records import GenerationFloorRecord, GroupRecord
from rallypoint.coordinator.storage.codec import decode, encode
from rallypoint.coordinator.storage.contract import REGISTRY_KEYSPACE
from rallypoint.coordinator.storage.restoring import EPOCH_MS
from rallypoint.coordinator.storage.sqlite_file import Batch, SqliteFile

NOW_MS = EPOCH_MS + 200_000_000_000


class Groups:
    """The generations of two groups in a store, as a service hands them out."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.db"
        self.url = f"sqlite:///{self.path}"
        self.highest_ever = {"a": 0, "b": 0}

    def make_generations(self, group_id: str, count: int) -> None:
        file = SqliteFile(self.path)
        found = [
            decode(key, value)
            for keyspace in ("s", REGISTRY_KEYSPACE)
            for key, value in file.read_page(keyspace, file.acquire(keyspace), b"", None, 99)
        ]
        floor = max((x.generation_id for x in found if isinstance(x, GenerationFloorRecord)), default=0)
        known = [x.highest_generation_id for x in found if isinstance(x, GroupRecord) and x.group_id == group_id]
        first = max(floor, *known, 0) + 1
        assert first > self.highest_ever[group_id], "handed out twice"
        highest = self.highest_ever[group_id] = first + count - 1
        record = GroupRecord(group_id, "consumer", None, highest, highest, None, 0)
        assert file.append([Batch("s", file.acquire("s"), [encode(record)])]) == [None]
        file.close()


@pytest.mark.parametrize("seed", range(8))
def test_no_generation_is_handed_out_twice_however_quick_the_rebalances_and_wherever_the_clock(
    seed: int, tmp_path: Path
) -> None:
    chance = Random(seed)
    groups = Groups(tmp_path)
    groups.make_generations("a", 3)
    made: list[Path] = []
    for turn in range(12):
        match chance.choice(("rebalances", "rebalances", "backup", "restore")) if made else "backup":
            case "rebalances":
                groups.make_generations(chance.choice("ab"), chance.randrange(1, 100))
            case "backup":
                made.append(tmp_path / f"backup-{turn}.db")
                backups.back_up(groups.url, made[-1])
            case _:
                now_ms = NOW_MS + chance.randrange(-60_000, 60_000)
                restored, _ = backups.restore(chance.choice(made), groups.url, replace=True, now_ms=now_ms)
                assert restored.unread == ""
    for group_id in "ab":
        groups.make_generations(group_id, 1)


def test_two_quick_restores_of_one_backup(tmp_path: Path) -> None:
    groups = Groups(tmp_path)
    groups.make_generations("a", 3)
    backups.back_up(groups.url, tmp_path / "backup.db")
    for later_ms in (0, 1_700, -60_000):
        backups.restore(tmp_path / "backup.db", groups.url, replace=True, now_ms=NOW_MS + later_ms)
        groups.make_generations("a", 60)
        groups.make_generations("b", 1)
