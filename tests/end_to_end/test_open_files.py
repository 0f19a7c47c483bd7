"""A process that may open few files keeps its service, and says what it cannot keep."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.end_to_end.service_process import ServiceProcess

FILES_MAX = 128
STRANGERS = 400
TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """One that may open `FILES_MAX` files."""
    service = ServiceProcess(tmp_path, files_max=FILES_MAX)
    service.start()
    yield service
    assert service.stop() == 0


def used_seconds(service: ServiceProcess) -> float:
    """Time of the processor that the process has had."""
    assert service.process is not None
    fields = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def test_connections_are_lowered_to_the_limit_of_open_files(service: ServiceProcess) -> None:
    counted = service.metrics()
    kept = [counted[f'rallypoint_connections_max{{state="{state}"}}'] for state in ("authenticated", "unauthenticated")]
    assert kept == [48, 16]
    assert "48 connections are taken, and 16 more" in service.log
    assert f"may have {FILES_MAX} open files" in service.log


def test_at_the_limit_of_open_files_it_answers_says_so_and_does_not_spin(service: ServiceProcess) -> None:
    with ExitStack() as stack:
        service.pause()  # so that all of them wait to be taken at the same time
        for _ in range(STRANGERS):
            line = stack.enter_context(socket.socket())
            line.setblocking(False)
            line.connect_ex(("127.0.0.1", service.port))
        service.resume()
        for _ in range(5):
            assert service.send("GET", "/v1/groups")[0] == 200
        before = used_seconds(service)
        time.sleep(1)
        assert used_seconds(service) - before < 0.5, "it spins"
        counted = service.metrics()
        assert counted['rallypoint_connections_cut_total{reason="made_place"}'] > 0
        assert counted['rallypoint_connections_cut_total{reason="open_files"}'] == 0, "the limits were low enough"
        assert service.open_files() < FILES_MAX - 16
    status, _ = service.send("PUT", "/v1/topics/t", {"partitions": 3})
    assert status == 200, "the store has its files"
    assert "Traceback" not in service.log
