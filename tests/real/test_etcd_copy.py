"""A store goes from a file to a real etcd and back, between services at work: groups go on in their generations."""

import base64
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rallypoint.coordinator.storage.contract import REGISTRY_KEYSPACE, Write
from rallypoint.coordinator.storage.sqlite_file import Batch, SqliteFile
from tests.end_to_end.service_process import ServiceProcess
from tests.end_to_end.test_backup import make_generation, post
from tests.fakes.copied_stores import sample
from tests.formats.test_stores import rows
from tests.real.etcd import RealEtcd
from tests.real.parts import ROOT

pytestmark = [pytest.mark.etcd, pytest.mark.slow]

LEASE_TTL_MS = 6_000
HELD_LEASE_TTL_MS = 30_000
"""Of a node that a copy has to find alive, or just killed: a busy machine takes seconds to start the copy."""
OFFSETS = {"t": {"0": {"offset": 41}, "1": {"offset": 42, "metadata": "half"}}}


def copy(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-W", "error", "-m", "rallypoint.cli.main", "store", "copy", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)


@contextmanager
def serving(folder: Path, storage: str) -> Iterator[ServiceProcess]:
    """A service on the storage, which is gone at the end whatever happens."""
    folder.mkdir()
    options = ("--storage", storage, "--group-initial-rebalance-delay-ms", "0", "--shards", "5")
    service = ServiceProcess(folder, options)
    try:
        service.start()
        yield service
    finally:
        if service.process is not None:
            service.process.kill()
            service.process.communicate()


def go_on(service: ServiceProcess, member_id: str, generation_id: int) -> None:
    """The member is still in its generation, commits there, and what was committed before is there."""
    until = time.monotonic() + 30
    held = {"member_id": member_id, "generation_id": generation_id}
    while "error_name" in (beat := post(service, "g", "heartbeat", **held)):
        assert time.monotonic() < until, beat
        time.sleep(0.1)
    _, fetched = service.send("GET", "/v1/groups/g/offsets")
    assert {p: found["offset"] for p, found in fetched["offsets"]["t"].items()} == {"0": 41, "1": 42}
    assert fetched["offsets"]["t"]["1"]["metadata"] == "half"
    committed = post(service, "g", "offsets", **held, offsets=OFFSETS)
    assert {found["error_code"] for found in committed["offsets"]["t"].values()} == {0}


def topics_of(service: ServiceProcess) -> Any:
    return service.send("GET", "/v1/topics")[1]


def test_a_group_goes_on_in_etcd_and_goes_on_in_a_file_again(real_etcd: RealEtcd, tmp_path: Path) -> None:
    first, last = f"sqlite:///{tmp_path / 'first.db'}", f"sqlite:///{tmp_path / 'last.db'}"
    etcd = f"{real_etcd.url}/{uuid.uuid4()}?lease_ttl_ms={HELD_LEASE_TTL_MS}"
    with serving(tmp_path / "a", first) as service:
        service.send("PUT", "/v1/topics/t", {"partitions": 2})
        member_id, _ = make_generation(service, "g")
        assert make_generation(service, "g", member_id) == (member_id, 2)
        post(service, "g", "offsets", member_id=member_id, generation_id=2, offsets=OFFSETS)
        topics = topics_of(service)
        refused = copy(first, etcd)
        assert (refused.returncode, "is in use by process" in refused.stderr) == (1, True)
        assert service.stop() == 0
    there = copy(first, etcd)
    assert (there.returncode, there.stderr) == (0, "")
    assert "1 group, 1 member, 2 committed offsets, 1 topic" in there.stdout

    with serving(tmp_path / "b", etcd) as service:
        go_on(service, member_id, 2)
        assert topics_of(service) == topics
        assert make_generation(service, "g", member_id)[1] == 3
        for source, target in ((etcd, last), (first, etcd)):
            refused = copy("--replace", source, target)
            assert (refused.returncode, "is in use by 127.0.0.1:" in refused.stderr) == (1, True), refused
        assert not (tmp_path / "last.db").exists()
        go_on(service, member_id, 3)
        service.kill()
    refused = copy(etcd, last)
    assert (refused.returncode, "wait until the lease of one that was killed has run out" in refused.stderr) == (
        1,
        True,
    )
    until = time.monotonic() + HELD_LEASE_TTL_MS / 1000 + 60
    while (back := copy(etcd, last)).returncode != 0:
        assert "has run out" in back.stderr
        assert time.monotonic() < until
        time.sleep(5)  # each try is a process, which costs most of a second
    assert back.stderr == ""

    with serving(tmp_path / "c", last) as service:
        go_on(service, member_id, 3)
        assert topics_of(service) == topics
        assert make_generation(service, "g", member_id)[1] == 4
        assert service.stop() == 0
    again = copy(last, etcd)
    assert (again.returncode, "--replace" in again.stderr) == (1, True)
    assert copy("--replace", last, etcd).returncode == 0
    with serving(tmp_path / "d", etcd) as service:
        go_on(service, member_id, 4)


def test_a_copy_into_etcd_that_is_cut_off_is_refused_by_a_service_and_made_good(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    source = f"sqlite:///{tmp_path / 'a.db'}"
    etcd = f"{real_etcd.url}/{uuid.uuid4()}?lease_ttl_ms={LEASE_TTL_MS}"
    file = SqliteFile(tmp_path / "a.db")
    with closing(file):
        for name, values in sample(30_000, shards=5).items():
            writes = [Write(key, value) for key, value in values.items()]
            assert file.append([Batch(name, file.acquire(name), writes)]) == [None]

    ended = f"{real_etcd.url}/{uuid.uuid4()}"
    status, said = cut_off(real_etcd, source, ended, signal.SIGINT)
    assert (status, f"{ended} is an unfinished copy now" in said, "with --replace" in said) == (130, True, True), said
    # It gave its lease back, so the copy is refused at once, and for what it is.
    refused = copy(ended, f"sqlite:///{tmp_path / 'b.db'}")
    assert (refused.returncode, "the store is an unfinished copy" in refused.stderr) == (1, True), refused
    assert not (tmp_path / "b.db").exists()

    assert cut_off(real_etcd, source, etcd, signal.SIGKILL)[0] == -signal.SIGKILL
    # The service waits until the lease of the copy has run out.
    with pytest.raises(AssertionError, match="the store is an unfinished copy"), serving(tmp_path / "b", etcd):
        pass
    assert copy(source, etcd).returncode == 1
    made = copy("--replace", "--quiet", source, etcd)
    assert (made.returncode, made.stderr) == (0, "")
    assert copy(etcd, f"sqlite:///{tmp_path / 'b.db'}").returncode == 0
    assert rows(tmp_path / "b.db") == rows(tmp_path / "a.db")


def cut_off(etcd: RealEtcd, source: str, target: str, number: signal.Signals) -> tuple[int, str]:
    """Begin a copy, and send it a signal once it has begun to write: its status, and what it said."""
    command = [sys.executable, "-m", "rallypoint.cli.main", "store", "copy", "--quiet", source, target]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60
        while not is_marked(etcd, target):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    return process.returncode, said


def is_marked(etcd: RealEtcd, url: str) -> bool:
    prefix = url.partition("?")[0].rpartition("/")[2]
    key = base64.b64encode(f"{prefix}/data/{REGISTRY_KEYSPACE}/l".encode()).decode()
    return "kvs" in etcd.ask("kv/range", {"key": key})
