"""Which engine a URL means."""

from pathlib import Path

import pytest

from rallypoint.coordinator.storage.contract import BatchLimits, StorageUnavailable
from rallypoint.coordinator.storage.engines import StorageUrlInvalid, check_url, open_store
from rallypoint.coordinator.storage.memory import MemoryStore
from rallypoint.coordinator.storage.sqlite import SqliteStore


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("memory:", None),
        ("sqlite:///rallypoint.db", Path("rallypoint.db")),
        ("sqlite:////data/x.db", Path("/data/x.db")),
        ("sqlite:///data/a%20b ü.db", Path("data/a%20b ü.db")),
    ],
)
def test_a_url_names_a_file_or_memory(url: str, path: Path | None) -> None:
    assert check_url(url) == path


@pytest.mark.parametrize(
    "url",
    [
        "",
        "sqlite://x.db",
        "sqlite:x.db",
        "sqlite:///",
        "sqlite:///folder/",
        "memory://",
        "x.db",
    ],
)
async def test_any_other_url_is_refused_saying_what_to_use(url: str) -> None:
    with pytest.raises(StorageUrlInvalid, match="use sqlite:///"):
        await open_store(url)


async def test_an_etcd_needs_the_id_of_the_node() -> None:
    with pytest.raises(StorageUnavailable, match="has no id"):
        await open_store("etcd://127.0.0.1:2379")


async def test_the_url_opens_its_engine(tmp_path: Path) -> None:
    limits = BatchLimits(writes_max=127, bytes_max=1_500_000)
    memory = await open_store("memory:", limits)
    sqlite = await open_store(f"sqlite:///{tmp_path}/x.db", limits)
    assert isinstance(memory, MemoryStore)
    assert isinstance(sqlite, SqliteStore)
    assert memory.limits == sqlite.limits == limits
    await memory.close()
    await sqlite.close()
    assert (tmp_path / "x.db").exists()
