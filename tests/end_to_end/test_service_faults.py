"""The service, killed, stopped and made to stand still under real members: nobody has to join again for it."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.member_process import MemberProcess, check_nothing_left, running_group, settle
from tests.end_to_end.service_process import ServiceProcess
from tests.sizes import in_long

pytestmark = pytest.mark.slow

QUICK = ("--group-initial-rebalance-delay-ms", "300")
NAMES = ("a", "b")
SETTLED_S = 1.0
"""Whoever joins again does so at once, and the others hear of it."""


def check_as_before(service: ServiceProcess, members: Sequence[MemberProcess], marks: Sequence[int]) -> None:
    """Since these lines nobody has got, given up or lost anything, and all can commit."""
    assert [member.ask("commit").what for member in members] == ["committed"] * len(members)
    time.sleep(SETTLED_S)
    changes = [member.changes(mark) for member, mark in zip(members, marks, strict=True)]
    assert changes == [[]] * len(members), "\n".join(member.show() for member in members)
    status, described = service.send("GET", "/v1/groups/clicks")
    assert (status, described["state"]) == (200, "Stable")
    assert described["generation_id"] == members[0].generation_id
    assert len(described["members"]) == len(members)


@pytest.mark.parametrize("way", [in_long("killed"), "stopped"])
def test_a_service_that_is_started_again_finds_its_members_where_they_were(tmp_path: Path, way: str) -> None:
    with running_group(tmp_path, NAMES, *QUICK) as (service, members):
        marks = [len(member.lines) for member in members]
        assert [member.ask("commit").what for member in members] == ["committed", "committed"]
        if way == "killed":
            service.kill()
        else:
            assert service.stop() == 0
        for member in members:
            member.tell("commit")  # while nobody is there to take it
        service.start()
        for member, mark in zip(members, marks, strict=True):
            said = [line.what for line in member.lines[mark:]]
            assert said.count("refused") == 0, member.show()
        check_as_before(service, members, marks)
        for member in members:
            check_nothing_left(member.leave())


def test_a_service_that_is_away_for_longer_than_the_grace_finds_them_too(tmp_path: Path) -> None:
    with running_group(tmp_path, NAMES, *QUICK) as (service, members):
        marks = [len(member.lines) for member in members]
        service.kill()
        time.sleep(3)
        service.start()
        check_as_before(service, members, marks)


def test_a_service_that_stands_still_for_less_than_a_session_moves_nothing(tmp_path: Path) -> None:
    with running_group(tmp_path, NAMES, *QUICK, session_timeout_ms=20_000, heartbeat_interval_ms=1_000) as (
        service,
        members,
    ):
        marks = [len(member.lines) for member in members]
        service.pause()
        for member in members:
            member.tell("commit")
        time.sleep(3)
        service.resume()
        for member, mark in zip(members, marks, strict=True):
            assert member.wait_for("committed", "refused", since=mark).what == "committed"
        check_as_before(service, members, marks)
        for member in members:
            check_nothing_left(member.leave())


def test_a_service_that_stands_still_for_longer_has_nobody_work_on_and_all_come_again(tmp_path: Path) -> None:
    """Its members cannot know whether it has given their partitions away, so each lets go by its own clock."""
    short: dict[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500, "request_timeout_ms": 2_000}
    with running_group(tmp_path, NAMES, *QUICK, **short) as (service, members):
        marks = [len(member.lines) for member in members]
        before = members[0].generation_id
        service.pause()
        for member, mark in zip(members, marks, strict=True):
            member.wait_for("lost", since=mark)
        service.resume()
        assert settle(members) > before
        for member, mark in zip(members, marks, strict=True):
            assert member.changes(mark)[:2] == ["lost", "assigned"]
            assert member.ask("commit").what == "committed"
            check_nothing_left(member.leave())
