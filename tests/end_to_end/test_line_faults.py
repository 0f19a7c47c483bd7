"""Real members behind a proxy that is the network's worse days: connections held up, lost, reset and closed.

The service advertises the proxy's address, so everything that its members send goes through it.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.faulty_line import FaultyLine, running_line
from tests.end_to_end.member_process import MemberProcess, check_nothing_left, running_group
from tests.end_to_end.program_process import wait_until
from tests.end_to_end.service_process import ServiceProcess

pytestmark = pytest.mark.slow

QUICK = ("--group-initial-rebalance-delay-ms", "300")
PINGS = ("--channel-ping-interval-ms", "600")
NAMES = ("a", "b")
GRACE_S = 2.0
"""Of a connection that was closed. Who joins again does so at once, and the others hear of it."""


@contextmanager
def group_behind(
    line: FaultyLine, folder: Path, *service_options: str, **member_options: Any
) -> Iterator[tuple[ServiceProcess, list[MemberProcess]]]:
    """A settled group whose members reach the service by that line alone."""
    options = (*QUICK, "--advertised-url", line.url, *service_options)
    with running_group(
        folder,
        NAMES,
        *options,
        coordinator=line.url,
        on_start=lambda service: line.lead_to(service.port),
        **member_options,
    ) as running:
        yield running


def check_nothing_moved(members: Sequence[MemberProcess], marks: Sequence[int], wait_s: float = 0.5) -> None:
    """Since these lines, and after so much longer; and all can commit."""
    assert [member.ask("commit").what for member in members] == ["committed"] * len(members)
    time.sleep(wait_s)
    changes = [member.changes(mark) for member, mark in zip(members, marks, strict=True)]
    assert changes == [[]] * len(members), "\n".join(member.show() for member in members)


@pytest.mark.parametrize("way", ["reset", "close"])
def test_connections_that_end_in_between_are_made_again_at_once_and_nothing_moves(tmp_path: Path, way: str) -> None:
    """As when a proxy is started again: all of them end, and all come back."""
    with running_line() as line, group_behind(line, tmp_path) as (service, members):
        marks = [len(member.lines) for member in members]
        for _ in range(3):
            ended = line.reset() if way == "reset" else line.close()
            assert ended >= 2
            wait_until(lambda: service.metrics()["rallypoint_channels"] == 2, "two channels", members[0].show)
        check_nothing_moved(members, marks, GRACE_S + 0.5)
        for member in members:
            check_nothing_left(member.leave())


def test_a_line_that_is_down_for_a_second_and_slow_afterwards_moves_nothing(tmp_path: Path) -> None:
    with running_line() as line, group_behind(line, tmp_path, *PINGS) as (_, members):
        marks = [len(member.lines) for member in members]
        line.hold()
        for member in members:
            member.tell("commit")
        time.sleep(1)
        line.delay(0.1)
        line.let_go()
        for member, mark in zip(members, marks, strict=True):
            assert member.wait_for("committed", "refused", since=mark).what == "committed"
        check_nothing_moved(members, marks)
        line.delay(0)
        for member in members:
            check_nothing_left(member.leave())


def test_connections_of_which_neither_side_hears_any_more_are_found_by_both(tmp_path: Path) -> None:
    """As when a box in between forgets them: nothing comes, not even an end, and nobody is told."""
    patience = {"session_timeout_ms": 15_000, "heartbeat_interval_ms": 500, "request_timeout_ms": 1_500}
    with running_line() as line, group_behind(line, tmp_path, *PINGS, **patience) as (service, members):
        marks = [len(member.lines) for member in members]
        before = line.connection_count
        assert line.lose() >= 2
        wait_until(lambda: line.connection_count >= before + 2, "new connections of both", members[0].show)
        wait_until(lambda: unanswered_pings(service) >= 2, "the service to give up the old ones", members[0].show)
        check_nothing_moved(members, marks)
        wait_until(lambda: service.metrics()["rallypoint_channels"] == 2, "two channels", members[0].show)
        for member in members:
            check_nothing_left(member.leave())
        line.reset_lost()  # the leader asked for topics over HTTP: an idle connection, which nobody pings


def unanswered_pings(service: ServiceProcess) -> float:
    return service.metrics().get('rallypoint_channels_closed_total{reason="unanswered_ping"}', 0)
