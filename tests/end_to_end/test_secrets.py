"""Whatever a service with a token, its members and the command leave behind or show, the token is not in it."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from rallypoint.coordinator.access.tokens import hash_token
from tests.end_to_end.service_process import ServiceProcess

KNOWN, UNKNOWN = "marked-known-Qm9zdG9u", "marked-unknown-TGVpcHppZw"
MARKS = re.compile(rb"marked-(?:known|unknown)")
POLICY = '[[allow]]\nwho = ["token:etl"]\nmay = ["join", "describe"]\non = ["group:clicks*", "topic:clicks*"]\n'

MEMBER = """
import logging, sys
from rallypoint import BlockingGroupMember, MemberOptions, TokenFile
logging.basicConfig(level=logging.DEBUG)
options = MemberOptions(coordinator=sys.argv[1], group_id=sys.argv[2], topics=("clicks",), token=TokenFile(sys.argv[3]))
print(options)
with BlockingGroupMember(options) as member:
    member.wait_assigned(60_000)
    print("assigned", flush=True)
    sys.stdin.readline()
"""


@dataclass(frozen=True)
class Left:
    """folder: of the service. texts: what programs said and showed, by name."""

    folder: Path
    texts: dict[str, str]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    folder, secret = tmp_path_factory.mktemp("service"), tmp_path_factory.mktemp("secret")
    for name, token in (("known", KNOWN), ("unknown", UNKNOWN)):
        (secret / name).write_text(token)
    (secret / "tokens").write_text(f"etl {hash_token(KNOWN)}\n")
    (folder / "access.toml").write_text(POLICY)
    options = (
        *("--token-file", str(secret / "tokens"), "--access", str(folder / "access.toml")),
        *("--audit-log", str(folder / "audit.log"), "--log-level", "debug"),
        *("--group-initial-rebalance-delay-ms", "0"),
    )
    process, texts = ServiceProcess(folder, options=options, is_forked=False), {}
    process.start()
    try:
        command = [sys.executable, "-c", MEMBER, process.url, "clicks", str(secret / "known")]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as member:
            assert member.stdout is not None
            shown = [member.stdout.readline(), member.stdout.readline()]
            assert shown[-1] == "assigned\n"
            assert process.process is not None
            texts["processes"] = "".join(command_line(pid) for pid in (member.pid, process.process.pid))
            texts["answers"] = "".join(
                answer_to(process.url + path, token)
                for token in (KNOWN, UNKNOWN)
                for path in ("/v1/groups/clicks", "/v1/groups/orders", "/v1/groups?nonsense=1", "/v1/x", "/metrics")
            )
            texts["command"] = of_command(process.url, secret / "known") + of_command(process.url, secret / "unknown")
            rest, errors = member.communicate("\n", timeout=60)
        texts["member"] = "".join(shown) + rest + errors
        refused = subprocess.run(
            [sys.executable, "-c", MEMBER, process.url, "clicks", str(secret / "unknown")],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        texts["refused member"] = refused.stdout + refused.stderr
    finally:
        process.stop()
    return Left(folder, texts)


def command_line(pid: int) -> str:
    """What the process list shows of it."""
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def answer_to(url: str, token: str) -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return f"{answer.status} {answer.headers}{answer.read().decode()}\n"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.headers}{error.read().decode()}\n"


def of_command(url: str, token: Path) -> str:
    """Its output, with a request in the form of curl, too."""
    environment = {**os.environ, "RALLYPOINT_TOKEN": token.read_text(), "RALLYPOINT_COORDINATOR": url}
    said = ""
    for more in ((), ("--curl",)):
        done = subprocess.run(
            [sys.executable, "-m", "rallypoint.cli.main", "describe", "clicks", *more],
            capture_output=True, text=True, timeout=60, check=False, env=environment,
        )  # fmt: skip
        said += done.stdout + done.stderr
    return said


def test_no_token_is_in_what_is_left_or_shown(left: Left) -> None:
    found = [str(path) for path in left.folder.rglob("*") if path.is_file() and MARKS.search(path.read_bytes())]
    found += [name for name, text in left.texts.items() if MARKS.search(text.encode())]
    assert found == []


def test_the_places_where_a_token_could_be_are_looked_at(left: Left) -> None:
    """Or the test before would pass on nothing."""
    assert {path.name for path in left.folder.iterdir()} >= {"rallypoint.db", "service.log", "audit.log"}
    assert "DEBUG" in (left.folder / "service.log").read_text().upper()
    outcomes = {json.loads(line)["outcome"] for line in (left.folder / "audit.log").read_text().splitlines()}
    assert outcomes == {"SASL_AUTHENTICATION_FAILED", "GROUP_AUTHORIZATION_FAILED"}
    texts = left.texts
    assert "rallypoint.cli.main serve" in texts["processes"]
    assert "DEBUG" in texts["member"]
    assert "NotAuthenticated" in texts["refused member"]
    assert texts["answers"].count("401 ") >= 5
    assert texts["command"].count("Authorization: Bearer $RALLYPOINT_TOKEN") == 2
    assert "does not know this token" in texts["command"]
