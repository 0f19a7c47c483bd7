"""A deployment of twenty members through `rallypoint deploy` is one rebalance."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from rallypoint import BlockingGroupMember, MemberOptions
from tests.end_to_end.program_process import wait_until
from tests.end_to_end.service_process import ServiceProcess, running_service

MEMBERS = 20
RESTARTER = """\
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / "go").touch()
while not (folder / "gone").exists():
    time.sleep(0.05)
"""


def member_of(service: ServiceProcess, number: int) -> BlockingGroupMember:
    return BlockingGroupMember(
        MemberOptions(coordinator=service.url, group_id="web", topics=("clicks",), client_id=f"web-{number}")
    )


@pytest.mark.slow
def test_twenty_members_are_restarted_in_one_rebalance(tmp_path: Path) -> None:
    with running_service(tmp_path) as service, ExitStack() as running:
        assert service.send("PUT", "/v1/topics/clicks", {"partitions": 40})[0] == 200

        def is_stable() -> bool:
            group = service.send("GET", "/v1/groups/web")[1]
            return bool(group["state"] == "Stable" and len(group["members"]) == MEMBERS)

        old = [ExitStack() for _ in range(MEMBERS)]
        for number, stack in enumerate(old):
            running.enter_context(stack)
            stack.enter_context(member_of(service, number))
        wait_until(is_stable, "all members", lambda: service.log)
        before = len(service.send("GET", "/v1/groups/web/rebalances")[1]["rebalances"])
        command = [sys.executable, "-m", "rallypoint.cli.main", "deploy", "web", "--coordinator", service.url, "--"]
        command += [sys.executable, "-c", RESTARTER, str(tmp_path)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as deploy:
            wait_until((tmp_path / "go").exists, "the command", lambda: service.log)
            # One after the other, as a rolling update does it.
            for number, stack in enumerate(old):
                stack.close()
                running.enter_context(member_of(service, number))
            (tmp_path / "gone").touch()
            _, said = deploy.communicate(timeout=60)
        assert deploy.returncode == 0, said
        assert f"deployed: {MEMBERS} of {MEMBERS} members are there, after 1 rebalance\n" in said
        assert len(service.send("GET", "/v1/groups/web/rebalances")[1]["rebalances"]) == before + 1
