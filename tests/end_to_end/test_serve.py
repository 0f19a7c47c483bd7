"""The service as a process: its one line, a group over plain HTTP, how it refuses to start, how it stops."""

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rallypoint.protocol import operations
from tests.coordinator.http.problem_checks import check_documented, check_problem
from tests.end_to_end.service_process import ServiceProcess, running_service
from tests.fakes.api_server import Answer

QUICK = ("--group-initial-rebalance-delay-ms", "200", "--group-min-session-timeout-ms", "1000")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service"), *QUICK) as process:
        yield process


def serve(*flags: str) -> "subprocess.CompletedProcess[str]":
    """Run the command until it gives up by itself."""
    command = [sys.executable, "-m", "rallypoint.cli.main", "serve", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def join_body(member_id: str, **more: Any) -> dict[str, Any]:
    return {
        "member_id": member_id,
        "client_id": "etl",
        "protocol_type": "consumer",
        "session_timeout_ms": 30000,
        "rebalance_timeout_ms": 30000,
        "protocols": [{"name": "range", "metadata": {"topics": ["clicks"]}}],
    } | more


def test_a_group_of_two_members_forms_shares_and_commits(service: ServiceProcess) -> None:
    group = "/v1/groups/two"
    ids = []
    for _ in range(2):
        status, problem = service.send("POST", f"{group}/join", join_body(""))
        assert (status, problem["error_name"]) == (409, "MEMBER_ID_REQUIRED")
        ids.append(problem["member_id"])
    with ThreadPoolExecutor(2) as threads:
        joins = [threads.submit(service.send, "POST", f"{group}/join", join_body(member_id)) for member_id in ids]
        joined = {join.result()[1]["member_id"]: join.result()[1] for join in joins}
        assert set(joined) == set(ids)
        leader = next(answer["leader"] for answer in joined.values())
        follower = next(member_id for member_id in ids if member_id != leader)
        assert {member["member_id"] for member in joined[leader]["members"]} == set(ids)
        assert joined[follower]["members"] == []
        sync = {"generation_id": 1, "protocol_type": "consumer", "protocol_name": "range"}
        waiting = threads.submit(service.send, "POST", f"{group}/sync", sync | {"member_id": follower})
        shares = {leader: {"partitions": {"clicks": [0, 1]}}, follower: {"partitions": {"clicks": [2]}}}
        assignments = [{"member_id": member_id, "assignment": share} for member_id, share in shares.items()]
        status, answer = service.send("POST", f"{group}/sync", sync | {"member_id": leader, "assignments": assignments})
        assert (status, answer["assignment"]) == (200, shares[leader])
        assert waiting.result() == (200, answer | {"assignment": shares[follower]})
    beat = {"generation_id": 1, "member_id": follower}
    assert service.send("POST", f"{group}/heartbeat", beat) == (200, {})
    status, answer = service.send(
        "POST", f"{group}/offsets", beat | {"offsets": {"clicks": {"2": {"offset": 42, "metadata": "so far"}}}}
    )
    assert (status, answer) == (200, {"offsets": {"clicks": {"2": {"error_code": 0, "error_name": "NONE"}}}})
    status, answer = service.send("GET", f"{group}/offsets?topic=clicks")
    assert (status, answer["offsets"]["clicks"]["2"]["offset"]) == (200, 42)
    status, described = service.send("GET", group)
    assert (status, described["state"], len(described["members"])) == (200, "Stable", 2)
    status, answer = service.send("POST", f"{group}/leave", {"members": [{"member_id": leader}]})
    assert (status, answer["members"][0]["error_name"]) == (200, "NONE")
    status, problem = service.send("POST", f"{group}/heartbeat", beat)
    assert (status, problem["error_name"], problem["retriable"]) == (409, "REBALANCE_IN_PROGRESS", True)


def test_what_the_rules_refuse_is_documented(service: ServiceProcess) -> None:
    member = {"generation_id": 1, "member_id": "nobody"}
    for operation, path, body in (
        (operations.JOIN, "/v1/groups/no/join", join_body("nobody")),
        (operations.JOIN, "/v1/groups//join", join_body("")),
        (operations.JOIN, "/v1/groups/no/join", join_body("", session_timeout_ms=1)),
        (operations.JOIN, "/v1/groups/no/join", join_body("", protocols=[])),
        (operations.SYNC, "/v1/groups/no/sync", member),
        (operations.HEARTBEAT, "/v1/groups/no/heartbeat", member),
        (operations.LEAVE, "/v1/groups//leave", {"members": [{"member_id": "a"}]}),
        (operations.COMMIT, "/v1/groups/no/offsets", member | {"offsets": {}}),
        (operations.DESCRIBE, "/v1/groups/never", None),
        (operations.DELETE_GROUP, "/v1/groups/never", None),
        (operations.DELETE_OFFSETS, "/v1/groups/never/offsets?topic=t", None),
        (operations.RESET_OFFSETS, "/v1/groups/never/offsets/reset", {"to": "earliest"}),
        (operations.RESET_OFFSETS, "/v1/groups/never/offsets/reset", {"to": "shift"}),
        (operations.DELETE_TOPIC, "/v1/topics/never", None),
    ):
        status, problem = service.send(operation.method, path, body)
        assert 400 <= status < 500, (path, problem)
        answer = Answer(status, {"Content-Type": "application/problem+json"}, json.dumps(problem).encode())
        check_documented(operation, check_problem(answer))


def test_the_pages_of_a_running_service(service: ServiceProcess) -> None:
    status, ready = service.send("GET", "/readyz")
    assert (status, ready["status"], ready["shards"]["Failed"], ready["unavailable_shards"]) == (200, "ok", 0, [])
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    assert "rallypoint_ready 1.0" in page
    assert 'rallypoint_requests_total{operation="probe",outcome="NONE"}' in page


def test_a_stop_answers_those_who_wait_and_ends_with_0(tmp_path: Path) -> None:
    with running_service(tmp_path, "--group-initial-rebalance-delay-ms", "60000") as service:
        waiting = threading.Event()
        answers: list[tuple[int, Any]] = []

        def join() -> None:
            waiting.set()
            answers.append(service.send("POST", "/v1/groups/g/join", join_body("", group_instance_id="one")))

        thread = threading.Thread(target=join)
        thread.start()
        waiting.wait()
        while service.send("GET", "/v1/groups/g")[0] != 200:
            pass
        assert service.stop() == 0
        thread.join(10)
        assert len(answers) == 1
        status, problem = answers[0]
        assert (status, problem["error_name"]) == (503, "COORDINATOR_NOT_AVAILABLE")
        assert "rallypoint: stopped [" in service.log.splitlines()[-1]
        assert "Traceback" not in service.log


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = serve("--storage", "memory:", "--port", str(taken.getsockname()[1]))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("rallypoint: The port ")
    assert ended.stderr.count("\n") == 1


def test_a_store_in_use_is_one_sentence(service: ServiceProcess) -> None:
    ended = serve("--port", "0", "--storage", f"sqlite:///{service.folder / 'rallypoint.db'}")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "is in use by" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_missing_folder_is_one_sentence(tmp_path: Path) -> None:
    ended = serve("--port", "0", "--storage", f"sqlite:///{tmp_path / 'none' / 'rallypoint.db'}")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "does not exist" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_an_open_address_needs_a_token_or_a_word() -> None:
    ended = serve("--port", "0", "--storage", "memory:", "--host", "0.0.0.0")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--insecure" in ended.stderr


def test_port_0_is_printed_and_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rallypoint.cli.main", "serve", "--port", "0", "--storage", "memory:"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        url = line.removeprefix("listening on ").strip()
        assert url.startswith("http://127.0.0.1:")
        head = b"POST /v1/groups/g/join HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) as connection:
            # A body that never comes holds the stop for a moment, in which the second signal falls.
            connection.sendall(head + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 100 "), "now it waits for the body"
            process.send_signal(signal.SIGTERM)
            while "rallypoint: stopping" not in (tmp_path / "log").read_text():
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 1
        assert process.stdout.read() == "", "there is one line on standard output"
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
