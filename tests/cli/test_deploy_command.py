"""`rallypoint deploy`: whatever its command does, the freeze ends, and the command's status is handed on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rallypoint import BlockingGroupMember, MemberOptions
from rallypoint.cli.calls.failures import Unreachable
from rallypoint.cli.contexts.connection import client_of
from rallypoint.cli.main import main, make_parser
from rallypoint.cli.until.deploy import Deploy, missing_text
from tests.cli.groups_of_a_service import stable
from tests.end_to_end.service_process import running_service
from tests.fakes.real_api import RealApi

Captured = pytest.CaptureFixture[str]


def is_frozen(api: RealApi) -> bool:
    return bool(api.call("GET", "/v1/groups/web").json["frozen_until_ms"])


def deploying(*words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "rallypoint.cli.main", "deploy", "web", "--", *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)


def test_the_status_of_a_command_that_fails_is_handed_on(api: RealApi, capsys: Captured) -> None:
    stable(api, "web")
    assert main(["deploy", "web", "--", "sh", "-c", "exit 7"]) == 7
    assert "froze group web with 1 member" in (said := capsys.readouterr().err)
    assert "ended the freeze" in said
    assert not is_frozen(api)
    assert main(["deploy", "web", "--", "sh", "-c", "kill -9 $$"]) == 137
    assert main(["deploy", "web", "--", "/no/such/program"]) == 127
    assert not is_frozen(api)


def test_a_group_that_cannot_be_frozen_has_no_command_run(api: RealApi, capsys: Captured, tmp_path: Path) -> None:
    assert main(["deploy", "none", "--", "touch", str(tmp_path / "x")]) == 1
    stable(api, "web")
    assert main(["deploy", "web", "--timeout", "10h", "--", "touch", str(tmp_path / "x")]) == 1
    assert main(["deploy", "web", "--coordinator", "http://127.0.0.1:1", "--", "touch", str(tmp_path / "x")]) == 3
    assert not (tmp_path / "x").exists()
    assert not is_frozen(api)


def test_a_freeze_that_is_refused_leaves_somebody_else_s(api: RealApi, capsys: Captured) -> None:
    stable(api, "web")
    assert main(["freeze", "web", "--reason", "night shift"]) == 0
    capsys.readouterr()
    assert main(["deploy", "web", "--timeout", "10h", "--", "true"]) == 1
    assert "ended the freeze" not in capsys.readouterr().err
    assert is_frozen(api)


def test_the_freeze_lasts_until_the_command_has_ended(api: RealApi, capsys: Captured, tmp_path: Path) -> None:
    stable(api, "web")
    seen = f"{sys.executable} -m rallypoint.cli.main describe web > {tmp_path}/seen"
    assert main(["deploy", "web", "--until", "command", "--reason", "release 7", "--", "sh", "-c", seen]) == 0
    assert "release 7" in (tmp_path / "seen").read_text()
    assert "deployed: 1 of 1 member are there, after 0 rebalances" in capsys.readouterr().err
    assert not is_frozen(api)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_and_the_freeze(api: RealApi, tmp_path: Path, number: int, status: int) -> None:
    stable(api, "web")
    words = [
        sys.executable,
        "-m",
        "rallypoint.cli.main",
        "deploy",
        "web",
        "--",
        "sh",
        "-c",
        f"touch {tmp_path}/x; exec sleep 60",
    ]
    with subprocess.Popen(
        words, env=dict(os.environ), stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "x").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert is_frozen(api)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        _, said = process.communicate(timeout=120)
    assert process.returncode == status
    assert "ended the freeze" in said
    assert not is_frozen(api)


def test_ctrl_c_while_members_are_waited_for_ends_the_freeze(api: RealApi) -> None:
    stable(api, "web")
    words = [sys.executable, "-m", "rallypoint.cli.main", "deploy", "web", "--", "true"]
    with subprocess.Popen(
        words, env=dict(os.environ), stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 60
        while not is_frozen(api) and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.5)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "ended the freeze" in said
    assert not is_frozen(api)


def test_without_members_there_is_nothing_to_freeze(api: RealApi, capsys: Captured) -> None:
    member_id = stable(api, "web")
    assert main(["kick", "web", member_id, "--execute"]) == 0
    assert main(["deploy", "web", "--", "true"]) == 0
    assert "has no members: the command runs without a freeze" in capsys.readouterr().err


def test_whom_a_freeze_waits_for_is_named() -> None:
    assert missing_text({"freeze_missing": ["a\x1b", "b"], "freeze_missing_count": 4}) == "a\\x1b, b (4 members) are"
    assert missing_text({"freeze_missing": [], "freeze_missing_count": 0}) == "the last one is"


@pytest.mark.slow
def test_members_that_are_missing_when_the_time_is_over_end_it_with_5(tmp_path: Path, capsys: Captured) -> None:
    with running_service(tmp_path, "--group-initial-rebalance-delay-ms", "0") as service:
        assert service.send("PUT", "/v1/topics/clicks", {"partitions": 2})[0] == 200
        options = MemberOptions(coordinator=service.url, group_id="web", topics=("clicks",), client_id="etl")
        with BlockingGroupMember(options) as member:
            member.wait_assigned()
            words = ["deploy", "web", "--coordinator", service.url, "--timeout", "1500ms", "--", "true"]
            assert main(words) == 5
            assert "The time is over, and etl (1 member) is not back." in capsys.readouterr().err


def deploy_of(api: RealApi, *flags: str) -> Deploy:
    words = ["deploy", "web", "--coordinator", api.url, *flags, "--", "true"]
    given = make_parser(words).parse_args(words)
    return Deploy(client_of(given, {}), given)


def members(*names: str, rebalance_id: int = 1) -> dict[str, object]:
    return {"members": [{"member_id": name} for name in names], "rebalance_id": rebalance_id}


def test_a_freeze_that_somebody_else_ends_early_is_no_deployment(api: RealApi, capsys: Captured) -> None:
    before = members("a-1", "b-1")
    assert deploy_of(api)._ended(before, members("a-2", "b-1", rebalance_id=2)) == 5
    assert "ended before 1 member had gone and come back; 2 of 2 members are there" in capsys.readouterr().err
    assert deploy_of(api)._ended(before, members("a-2")) == 5
    assert "Members are missing: 1 of 2 members" in capsys.readouterr().err
    assert deploy_of(api, "--until", "command")._ended(before, members("a-1")) == 0
    assert deploy_of(api, "--until", "present")._ended(before, members("a-2", "b-1")) == 0
    assert deploy_of(api)._ended(before, members("a-2", "b-2", rebalance_id=2)) == 0
    assert "deployed: 2 of 2 members are there, after 1 rebalance" in capsys.readouterr().err


def test_a_service_that_never_answers_again_is_not_waited_for_for_ever(api: RealApi) -> None:
    """The time of the freeze was over for longer than anybody waits."""
    deploying_to_nobody = deploy_of(api, "--coordinator", "http://127.0.0.1:1")
    deploying_to_nobody._ends_at_s = time.monotonic() - 3_600
    with pytest.raises(Unreachable):
        deploying_to_nobody._back()
