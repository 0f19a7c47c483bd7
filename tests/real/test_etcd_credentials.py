"""A node at work while etcd's users change under it: what it answers, what its readiness says, and how it goes on."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.service_process import ServiceProcess
from tests.end_to_end.test_backup import make_generation, post
from tests.real.etcd import RealEtcd, running_etcd

pytestmark = [pytest.mark.etcd, pytest.mark.slow]

SENTENCE = "etcd refuses the user or the password"
WITHIN_SECONDS = 60.0
REFUSALS = {"COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"}
"""A group of which a write failed is loaded again before anything else is answered from it."""


def wait_for(what: str, look: Callable[[], Any]) -> Any:
    """What `look` returns, once that is true."""
    until = time.monotonic() + WITHIN_SECONDS
    while not (found := look()):
        assert time.monotonic() < until, f"{what} did not come"
        time.sleep(0.2)
    return found


def is_refused(service: ServiceProcess, member: dict[str, Any]) -> bool:
    """Whether commit and heartbeat are refused. Any answer that is neither good nor a coded refusal fails."""
    commit = {**member, "offsets": {"t": {"0": {"offset": 9}}}}
    refused = []
    for action, body in (("offsets", commit), ("heartbeat", member)):
        status, answer = service.send("POST", f"/v1/groups/g/{action}", body)
        assert status in {200, 503}, answer
        if status != 200:
            assert (answer["error_name"] in REFUSALS, answer["retriable"]) == (True, True), answer
            assert answer["detail"], answer
        refused.append(status != 200)
    return all(refused)


def readiness(service: ServiceProcess) -> tuple[int, str]:
    status, answer = service.send("GET", "/readyz")
    return status, str(answer)


def refused_then_well(service: ServiceProcess, member: dict[str, Any], correct: Callable[[], None]) -> None:
    """The credentials have just become wrong; `correct` makes them good again, and nobody restarts the node."""
    wait_for(SENTENCE, lambda: (found := readiness(service))[0] == 503 and SENTENCE in found[1])
    # Until its lease's deadline a node answers what needs no write; from then on, nothing from memory.
    wait_for("the refusal", lambda: is_refused(service, member))
    assert service.send("GET", "/healthz")[0] == 200
    correct()
    wait_for("readiness", lambda: readiness(service)[0] == 200)
    wait_for("the member's heartbeat", lambda: "error_name" not in post(service, "g", "heartbeat", **member))
    last = {**member, "offsets": {"t": {"0": {"offset": 8}}}}
    wait_for("the commit", lambda: "error_name" not in post(service, "g", "offsets", **last))
    _, fetched = service.send("GET", "/v1/groups/g/offsets")
    assert fetched["offsets"]["t"]["0"]["offset"] == 8, "the last that was said counts"


def correct_file(password: Path) -> None:
    password.write_text("second\n")


def as_root(etcd: RealEtcd) -> None:
    """A fresh token of the operator: changes of users end the older ones."""
    etcd.token = ""
    etcd.token = etcd.ask("auth/authenticate", {"name": "root", "password": "root"})["token"]


def test_a_node_outlives_a_changed_password_and_a_removed_user(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("first\n")
    with running_etcd(tmp_path) as etcd:
        etcd.require_users("rally", "first", "own/")
        as_root(etcd)
        storage = f"{etcd.url}/own?user=rally&password_file={password}&lease_ttl_ms=3000"
        options = ("--storage", storage, "--group-initial-rebalance-delay-ms", "0", "--shards", "2")
        service = ServiceProcess(tmp_path, options)
        try:
            service.start()
            wait_for("readiness", lambda: readiness(service)[0] == 200)
            service.send("PUT", "/v1/topics/t", {"partitions": 1})
            member_id, generation_id = make_generation(service, "g")
            member = {"member_id": member_id, "generation_id": generation_id}

            etcd.ask("auth/user/changepw", {"name": "rally", "password": "second"})
            refused_then_well(service, member, lambda: correct_file(password))

            as_root(etcd)
            etcd.ask("auth/user/delete", {"name": "rally"})

            def bring_back() -> None:
                etcd.ask("auth/user/add", {"name": "rally", "password": "second"})
                as_root(etcd)
                etcd.ask("auth/user/grant", {"user": "rally", "role": "nodes"})

            refused_then_well(service, member, bring_back)
            assert service.stop() == 0
            assert "second" not in service.log
            assert "Traceback" not in service.log
        finally:
            if service.process is not None:
                service.kill()
