"""Real processes, real SQLite, SIGKILL: what was acknowledged is there, and nobody has to join again."""

import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from rallypoint import BlockingGroupMember, MemberOptions
from tests.end_to_end.service_process import ServiceProcess, running_service

QUICK = ("--group-initial-rebalance-delay-ms", "300")


def member_of(service: ServiceProcess, name: str, **options: Any) -> BlockingGroupMember:
    return BlockingGroupMember(
        MemberOptions(
            coordinator=service.url,
            group_id="clicks",
            topics=("clicks",),
            client_id=name,
            session_timeout_ms=10_000,
            heartbeat_wait_ms=2_000,
            **options,
        )
    )


@pytest.mark.slow
def test_acknowledged_commits_and_assignments_survive_kill_9_and_nobody_rejoins(tmp_path: Path) -> None:
    with running_service(tmp_path, *QUICK) as service:
        assert service.send("PUT", "/v1/topics/clicks", {"partitions": 4})[0] == 200
        members = [member_of(service, name) for name in ("one", "two")]
        for member in members:
            member.start()
        held = settle(members)
        acknowledged: dict[str, int] = {}

        def commit_until(member: BlockingGroupMember, stop: threading.Event) -> None:
            partition = min(held[member].partitions)
            offset = 0
            while not stop.is_set():
                offset += 1
                member.commit({partition: offset})
                acknowledged[str(partition)] = offset

        stop = threading.Event()
        writers = [threading.Thread(target=commit_until, args=(member, stop)) for member in members]
        for writer in writers:
            writer.start()
        time.sleep(1.0)
        before_kill = dict(acknowledged)
        service.kill()
        service.start()
        time.sleep(1.0)
        stop.set()
        for writer in writers:
            writer.join(30)
            assert not writer.is_alive()

        assert len(before_kill) == 2
        assert all(acknowledged[name] > count for name, count in before_kill.items()), "nothing went on after the kill"
        stored = members[0].committed()
        assert {str(key): offset.offset for key, offset in stored.items()} == acknowledged
        assert [member.assignment for member in members] == [held[member] for member in members]
        status, described = service.send("GET", "/v1/groups/clicks")
        assert (status, described["state"], described["generation_id"]) == (
            200,
            "Stable",
            held[members[0]].generation_id,
        )
        for member in members:
            member.leave()
        assert service.stop() == 0


def settle(members: list[BlockingGroupMember]) -> dict[BlockingGroupMember, Any]:
    """Wait until all of them are in one generation."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        held = {member: member.wait_assigned(30_000) for member in members}
        if len({assignment.generation_id for assignment in held.values()}) == 1 and all(
            not member.rebalance_pending for member in members
        ):
            return held
        time.sleep(0.1)
    raise AssertionError("the members did not come together")


MEMBER_PROGRAM = """
import sys, time
from rallypoint import BlockingGroupMember, MemberOptions
member = BlockingGroupMember(MemberOptions(coordinator=sys.argv[1], group_id="clicks", topics=("clicks",),
    client_id=sys.argv[2], session_timeout_ms=6000, heartbeat_wait_ms=2000))
member.start()
print(sorted(member.wait_assigned(30_000).partitions), flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_the_partitions_of_a_killed_member_move_to_the_one_that_lives(tmp_path: Path) -> None:
    with running_service(tmp_path, *QUICK) as service:
        service.send("PUT", "/v1/topics/clicks", {"partitions": 4})
        survivor = member_of(service, "survivor")
        survivor.start()
        alone = survivor.wait_assigned(30_000)
        assert len(alone.partitions) == 4
        other = subprocess.Popen(
            [sys.executable, "-c", MEMBER_PROGRAM, service.url, "victim"], stdout=subprocess.PIPE, text=True
        )
        assert other.stdout is not None
        try:
            assert other.stdout.readline()
            shared = survivor.wait_assigned(30_000, newer_than=alone.generation_id)
            assert len(shared.partitions) == 2
        finally:
            other.kill()
            other.wait(10)
            other.stdout.close()
        again = survivor.wait_assigned(30_000, newer_than=shared.generation_id)
        assert again.partitions == alone.partitions
        survivor.leave()
        _, described = service.send("GET", "/v1/groups/clicks")
        assert described["state"] == "Empty"


@pytest.mark.slow
def test_sigterm_answers_what_waits_and_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    join = {
        "member_id": "",
        "protocol_type": "consumer",
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
        "protocols": [{"name": "range", "metadata": {"topics": ["t"]}}],
    }
    with running_service(tmp_path, "--group-initial-rebalance-delay-ms", "60000") as service:
        _, asked = service.send("POST", "/v1/groups/g/join", join)
        answers: list[tuple[int, Any]] = []
        body = {**join, "member_id": asked["member_id"]}
        waiting = threading.Thread(target=lambda: answers.append(service.send("POST", "/v1/groups/g/join", body)))
        waiting.start()
        simple = {"generation_id": -1, "offsets": {"t": {"3": {"offset": 41, "metadata": "é"}}}}
        assert service.send("POST", "/v1/groups/h/offsets", simple)[0] == 200
        deadline = time.monotonic() + 60
        while "rallypoint_parked_calls 1" not in metrics(service) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert service.stop() == 0
        waiting.join(10)
        status, problem = answers[0]
        assert (status, problem["error_name"], problem["retriable"]) == (503, "COORDINATOR_NOT_AVAILABLE", True)
        service.start()
        assert service.send("GET", "/v1/groups/h/offsets")[1]["offsets"]["t"]["3"]["offset"] == 41


def metrics(service: ServiceProcess) -> str:
    with urllib.request.urlopen(service.url + "/metrics", timeout=10) as page:
        return str(page.read().decode())


@pytest.mark.slow
def test_a_second_service_on_the_same_store_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        store = f"sqlite:///{service.folder / 'rallypoint.db'}"
        second = subprocess.run(
            [sys.executable, "-m", "rallypoint.cli.main", "serve", "--port", "0", "--storage", store],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert second.returncode == 1
        assert "rallypoint.db" in second.stderr
        assert "Traceback" not in second.stderr
        assert service.send("GET", "/healthz")[0] == 200


@pytest.mark.slow
def test_sqlite_holds_what_is_readable_by_sqlite(tmp_path: Path) -> None:
    """After a clean stop the file is whole by SQLite's own check, and in one piece."""
    with running_service(tmp_path) as service:
        simple = {"generation_id": -1, "offsets": {"t": {str(p): {"offset": p} for p in range(100)}}}
        assert service.send("POST", "/v1/groups/h/offsets", simple)[0] == 200
        assert service.stop() == 0
        # Looked at before the file is opened: a reader makes files of its own beside it.
        assert {path.name for path in tmp_path.glob("rallypoint.db-*")} == {"rallypoint.db-lock"}
        database = sqlite3.connect(f"file:{tmp_path / 'rallypoint.db'}?mode=ro", uri=True)
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        database.close()
