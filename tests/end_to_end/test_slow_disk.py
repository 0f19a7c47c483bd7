"""A disk whose syncs are slow, or hang: calls are answered, a stop ends in time, and what was acknowledged is there."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rallypoint.coordinator.main import REST_SECONDS
from tests.end_to_end.service_process import ServiceProcess
from tests.real.parts import require, require_program

SOURCE = Path(__file__).with_name("slow_sync.c")
DRAIN_SECONDS = 1.0
HANGS_MS = 60_000
SLACK_SECONDS = 15.0
"""For a busy machine, to send a signal and to see a process end; it is far from what a sync hangs for."""


class SlowDisk:
    """Under a service: how long each sync takes."""

    def __init__(self, folder: Path) -> None:
        self._wanted = folder / "sync_ms"
        library = folder / "slow_sync.so"
        compiler = require_program("cc", "sudo apt-get install --no-install-recommends gcc libc6-dev")
        command = [str(compiler), "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self.environment = {"LD_PRELOAD": str(library), "SLOW_SYNC_MS": str(self._wanted)}

    def take_ms(self, milliseconds: int) -> None:
        """For each sync from now on, and for one that is under way."""
        self._wanted.write_text(str(milliseconds))


@pytest.fixture
def disk(tmp_path: Path) -> SlowDisk:
    require(sys.platform == "linux", "Linux", "the slow disk is preloaded as glibc's functions")
    return SlowDisk(tmp_path)


@pytest.fixture
def service(tmp_path: Path, disk: SlowDisk) -> Iterator[ServiceProcess]:
    options = ("--drain-timeout-ms", str(round(DRAIN_SECONDS * 1000)), "--storage-append-timeout-ms", "3000")
    process = ServiceProcess(tmp_path, options, environment=disk.environment)
    process.start()
    yield process
    if process.process is not None:
        process.kill()


def commit(service: ServiceProcess, group_id: str, offset: int) -> tuple[int, Any]:
    body = {"generation_id": -1, "offsets": {"clicks": {"0": {"offset": offset}}}}
    return service.send("POST", f"/v1/groups/{group_id}/offsets", body)


def committed(service: ServiceProcess, group_id: str) -> int | None:
    status, answer = service.send("GET", f"/v1/groups/{group_id}/offsets")
    assert status == 200, answer
    found = answer["offsets"].get("clicks", {}).get("0")
    return None if found is None else int(found["offset"])


def stop_in_time(service: ServiceProcess) -> int:
    began = time.monotonic()
    code = service.stop()
    assert time.monotonic() - began < DRAIN_SECONDS + REST_SECONDS + SLACK_SECONDS
    return code


def test_a_stop_ends_in_time_though_a_sync_hangs(service: ServiceProcess, disk: SlowDisk) -> None:
    assert commit(service, "g", 1)[0] == 200
    disk.take_ms(HANGS_MS)
    status, problem = commit(service, "g", 2)
    assert (status, problem["error_name"]) == (503, "COORDINATOR_NOT_AVAILABLE")
    assert problem["setting"] == "storage_append_timeout_ms"
    assert service.metrics()["rallypoint_append_age_seconds"] >= 3
    assert stop_in_time(service) == 1
    assert "ending as it is" in service.log
    disk.take_ms(0)
    service.start()
    assert committed(service, "g") in (1, 2), "the second was not acknowledged, and may be stored"


def test_a_stop_ends_in_time_with_slow_syncs_and_nothing_acknowledged_is_lost(
    service: ServiceProcess, disk: SlowDisk
) -> None:
    disk.take_ms(200)
    acknowledged: dict[str, int] = {}

    def write(group_id: str) -> None:
        for offset in range(100):
            try:
                status, _ = commit(service, group_id, offset)
            except OSError:
                return
            if status == 200:
                acknowledged[group_id] = offset

    threads = [threading.Thread(target=write, args=(f"g{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    give_up_at = time.monotonic() + 60
    while len(acknowledged) < len(threads) and time.monotonic() < give_up_at:
        time.sleep(0.05)
    stop_in_time(service)
    for thread in threads:
        thread.join()
    assert len(acknowledged) == len(threads)
    disk.take_ms(0)
    service.start()
    for group_id, offset in acknowledged.items():
        stands = committed(service, group_id)
        assert stands is not None
        assert stands >= offset
