"""`rallypoint backup` beside a service at work, and `rallypoint restore`: what comes back, and what never does."""

import re
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rallypoint import BlockingGroupMember, MemberOptions
from tests.end_to_end.program_process import wait_until
from tests.end_to_end.service_process import ServiceProcess, running_service

BOTH = ("0", "1")


def rallypoint(service: ServiceProcess, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """The command, on the service's store."""
    storage = f"sqlite:///{service.folder / 'rallypoint.db'}"
    command = [sys.executable, "-m", "rallypoint.cli.main", *map(str, arguments), "--storage", storage]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def post(service: ServiceProcess, group_id: str, what: str, **body: Any) -> dict[str, Any]:
    _, answer = service.send("POST", f"/v1/groups/{group_id}/{what}", body)
    return dict(answer)


class Load:
    """Commits the same number to two partitions at once, over and over."""

    def __init__(self, service: ServiceProcess) -> None:
        self.acknowledged = 0
        self._service = service
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            offsets = {"t": {partition: {"offset": self.acknowledged + 1} for partition in BOTH}}
            answer = post(self._service, "load", "offsets", generation_id=-1, offsets=offsets)
            assert [answer["offsets"]["t"][partition]["error_code"] for partition in BOTH] == [0, 0]
            self.acknowledged += 1

    def wait_for(self, more: int) -> None:
        until = self.acknowledged + more
        while self.acknowledged < until:
            assert self._thread.is_alive()
            self._is_over.wait(0.005)

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


def join(service: ServiceProcess, group_id: str, member_id: str) -> dict[str, Any]:
    return post(
        service, group_id, "join", member_id=member_id, protocol_type="consumer", session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000, protocols=[{"name": "range", "metadata": {"topics": ["t"]}}],
    )  # fmt: skip


def make_generation(service: ServiceProcess, group_id: str, member_id: str = "") -> tuple[str, int]:
    """The only member of the group begins a round, and gets its part: its id, and the generation."""
    member_id = member_id or join(service, group_id, "")["member_id"]
    generation_id = join(service, group_id, member_id)["generation_id"]
    synced = post(
        service, group_id, "sync", member_id=member_id, generation_id=generation_id, protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": member_id, "assignment": {"partitions": {"t": [0, 1]}}}],
    )  # fmt: skip
    assert synced["assignment"] == {"partitions": {"t": [0, 1]}}
    return member_id, generation_id


def generation_of(member: BlockingGroupMember) -> int:
    held = member.assignment
    return -1 if held is None else held.generation_id


@pytest.mark.timeout(180)
def test_offsets_go_back_and_generations_do_not(tmp_path: Path) -> None:
    backup = tmp_path / "backup.db"
    (tmp_path / "service").mkdir()
    with (
        running_service(tmp_path / "service", "--group-initial-rebalance-delay-ms", "0") as service,
        ExitStack() as running,
    ):
        member_id, generation_id = make_generation(service, "known")
        assert generation_id == 1
        options = MemberOptions(coordinator=service.url, group_id="members", topics=("t",))
        member = running.enter_context(BlockingGroupMember(options, partition_counts={"t": 2}))
        assert member.wait_assigned().generation_id == 1
        load = Load(service)
        load.wait_for(20)
        before = load.acknowledged
        made = rallypoint(service, "backup", backup)
        load.wait_for(20)
        load.end()
        assert (made.returncode, made.stderr) == (0, "")
        assert re.fullmatch(rf"backed up sqlite:///\S+ to {backup}, \d+ bytes\n", made.stdout)
        again = rallypoint(service, "backup", backup)
        assert (again.returncode, again.stdout) == (1, "")
        assert again.stderr == f"rallypoint: No backup is made: {backup} is there already; a backup replaces nothing.\n"

        _, generation_id = make_generation(service, "known", member_id)
        stranger_id, of_unknown = make_generation(service, "unknown")
        assert (generation_id, of_unknown) == (2, 1)
        for force in ((), ("--force",)):
            refused = rallypoint(service, "restore", backup, *force)
            assert refused.returncode == 1
            assert "is in use by process" in refused.stderr
        assert service.send("GET", "/readyz")[0] == 200

        service.kill()
        refused = rallypoint(service, "restore", backup)
        assert (refused.returncode, "--force replaces it" in refused.stderr) == (1, True)
        restored = rallypoint(service, "restore", backup, "--force")
        assert (restored.returncode, restored.stderr) == (0, "")
        assert ": 3 groups, 2 committed offsets\n" in restored.stdout
        assert "offsets were committed since then are read again" in restored.stdout
        found = re.search(r"in generations above (\d+)\.\n", restored.stdout)
        assert found
        assert "The replaced store was read" in restored.stdout
        floor = int(found[1])

        service.start()
        _, fetched = service.send("GET", "/v1/groups/load/offsets")
        first, second = (fetched["offsets"]["t"][partition]["offset"] for partition in BOTH)
        assert first == second, "a commit is there as a whole, or not"
        assert before <= first < load.acknowledged
        for name, who, generation in (("known", member_id, generation_id), ("unknown", stranger_id, of_unknown)):
            stale = {"member_id": who, "generation_id": generation}
            assert post(service, name, "heartbeat", **stale)["error_name"] == "UNKNOWN_MEMBER_ID"
            assert post(service, name, "offsets", **stale, offsets={"t": {"0": {"offset": 9}}})["error_code"] != 0
            assert make_generation(service, name)[1] > floor > generation
        described = service.send("GET", "/v1/groups/known/rebalances")[1]["rebalances"]
        assert [x["trigger"] for x in described] == ["member_joined", "store_restored", "member_joined"]
        came_back = wait_until(
            lambda: generation_of(member) > floor, "the member to come back", lambda: service.log, 90
        )
        assert came_back
        assert member.assignment is not None
        assert len(member.assignment.partitions) == 2
        running.close()
        assert service.stop() == 0
        assert "made with cp" not in service.log
