"""The service on a disk that fails, and on files that somebody takes away: what it says, and how it goes on."""

import errno
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.service_process import ServiceProcess
from tests.fakes.faulty_disk import DiskCall, FaultyDisk, environment_of
from tests.sizes import in_long

pytestmark = pytest.mark.slow

READ_ONLY = (DiskCall.OPEN, DiskCall.WRITE, DiskCall.TRUNCATE, DiskCall.UNLINK)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """On a disk whose plan is that of the fixture `disk`."""
    (tmp_path / "service").mkdir()
    process = ServiceProcess(
        tmp_path / "service",
        ("--drain-timeout-ms", "1000"),
        environment=environment_of(tmp_path, tmp_path / "service" / "rallypoint.db"),
    )
    yield process
    if process.process is not None:
        process.kill()


@pytest.fixture
def disk(tmp_path: Path, service: ServiceProcess) -> FaultyDisk:
    return FaultyDisk(tmp_path / "plan")


def commit(service: ServiceProcess, offset: int) -> int:
    body = {"generation_id": -1, "offsets": {"t": {"0": {"offset": offset}}}}
    status, _ = service.send("POST", "/v1/groups/g/offsets", body)
    return status


def committed(service: ServiceProcess) -> int:
    _, answer = service.send("GET", "/v1/groups/g/offsets")
    return int(answer["offsets"]["t"]["0"]["offset"])


def why_not_ready(service: ServiceProcess) -> str | None:
    status, answer = service.send("GET", "/readyz")
    return None if status == 200 else str(answer["detail"])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.05)


def refused_start(service: ServiceProcess) -> str:
    """What a start says that ends by itself, with status 1 and no trace of the code."""
    store = f"sqlite:///{service.folder / 'rallypoint.db'}"
    command = [sys.executable, "-m", "rallypoint.cli.main", "serve", "--port", "0", "--storage", store]
    done = subprocess.run(
        command, env=dict(service.environment), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("is_new", [True, False])
def test_a_start_on_a_full_disk_is_a_sentence(service: ServiceProcess, disk: FaultyDisk, is_new: bool) -> None:
    if not is_new:
        service.start()
        assert service.stop() == 0
    disk.fail(DiskCall.WRITE, errno.ENOSPC)
    said = refused_start(service)
    assert "rallypoint.db" in said
    assert "No space left on device" in said or "disk is full" in said
    disk.heal()
    service.start()
    assert service.stop() == 0


def test_a_disk_that_is_read_only_for_a_while_is_written_again_by_itself(
    service: ServiceProcess, disk: FaultyDisk
) -> None:
    service.start()
    assert commit(service, 1) == 200
    assert why_not_ready(service) is None
    for call in READ_ONLY:
        disk.fail(call, errno.EROFS)
    assert commit(service, 2) == 503
    until(lambda: "read-only" in str(why_not_ready(service)))
    assert service.metrics()["rallypoint_storage_writable"] == 0
    disk.heal()
    until(lambda: why_not_ready(service) is None)
    until(lambda: commit(service, 3) == 200)
    assert committed(service) == 3
    assert service.stop() == 0
    service.start()
    assert committed(service) == 3
    assert "Traceback" not in service.log, service.log


def test_a_stop_on_a_read_only_disk_ends_well_and_loses_nothing(service: ServiceProcess, disk: FaultyDisk) -> None:
    service.start()
    assert commit(service, 1) == 200
    for call in READ_ONLY:
        disk.fail(call, errno.EROFS)
    assert service.stop() == 0
    disk.heal()
    service.start()
    assert committed(service) == 1
    assert "Traceback" not in service.log, service.log


def test_a_stop_on_a_disk_that_hangs_ends_at_its_deadline_and_loses_nothing(
    service: ServiceProcess, disk: FaultyDisk
) -> None:
    service.start()
    assert commit(service, 1) == 200
    disk.delay(DiskCall.SYNC, 60_000)
    disk.delay(DiskCall.WRITE, 60_000)
    assert service.stop() == 1, "the stop says that it was cut short"
    disk.heal()
    service.start()
    assert committed(service) == 1
    assert "Traceback" not in service.log, service.log


@pytest.mark.parametrize("harm", ["deleted", "renamed", in_long("linked")])
def test_nothing_is_acknowledged_into_a_file_that_is_not_in_its_place(service: ServiceProcess, harm: str) -> None:
    service.start()
    assert commit(service, 1) == 200
    path = service.folder / "rallypoint.db"
    if harm == "deleted":
        path.unlink()
    elif harm == "renamed":
        path.rename(path.with_name("away.db"))
    else:
        path.with_name("other.db").hardlink_to(path)
    assert commit(service, 2) == 503
    assert "the file is not in its place, or not as it was" in str(why_not_ready(service))
    assert service.stop() == 0
    said = refused_start(service)
    if harm == "deleted":
        assert "is missing, but its log rallypoint.db-wal is there" in said
        return
    if harm == "renamed":
        assert "rallypoint.db is missing" in said
        path.with_name("away.db").rename(path)
    else:
        assert "has 2 hard links" in said
        path.with_name("other.db").unlink()
    service.start()
    assert committed(service) == 1
    assert service.stop() == 0


def test_a_store_that_somebody_has_changed_is_a_sentence(service: ServiceProcess) -> None:
    service.start()
    assert service.stop() == 0
    database = sqlite3.connect(service.folder / "rallypoint.db")
    with database:
        database.execute("DELETE FROM last_commit")
    database.close()
    assert "the table last_commit has not its one row with a number" in refused_start(service)
