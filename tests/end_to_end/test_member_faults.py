"""Real members, killed and made to stand still: what is theirs moves when it must, and not before.

Which of two ways a member goes is told apart by the system: a process that is gone has its connections closed, and its
partitions move after the grace; one that stands still keeps them open, and the session timeout alone decides.
"""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.member_process import PARTITIONS, check_nothing_left, running_group, settle
from tests.end_to_end.program_process import wait_until
from tests.end_to_end.service_process import ServiceProcess

pytestmark = pytest.mark.slow

ALL = frozenset(range(PARTITIONS))
QUICK = ("--group-initial-rebalance-delay-ms", "300")
"""It is for the first members of an empty group; nothing that is tested here waits for it."""
PATIENT = ("--group-initial-rebalance-delay-ms", "2000")
"""Two processes that start together join the same generation."""
SHORT: dict[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
"""Sessions that a test can wait for, and in which a busy machine lets every process run."""


def test_a_killed_process_is_replaced_after_its_grace_by_default_settings(tmp_path: Path) -> None:
    with running_group(tmp_path, ("killed", "other"), *QUICK) as (service, (killed, other)):
        mark = len(other.lines)
        killed_at_s = killed.kill()
        revoked = other.wait_for("revoked", since=mark)
        assigned = other.wait_for("assigned", since=mark)
        assert other.changes(mark) == ["revoked", "assigned"]
        assert other.owned == ALL
        assert revoked.at_s - killed_at_s > 1.9, "the grace is 2 s: a process that restarts is to find its place"
        assert assigned.at_s - killed_at_s < 40, "the session of 45 s was waited for"
        assert service.metrics()['rallypoint_sessions_expired_total{kind="disconnected"}'] == 1
        assert other.ask("commit").what == "committed"
        check_nothing_left(other.leave())


def test_a_process_that_stands_still_for_less_than_its_session_loses_nothing(tmp_path: Path) -> None:
    with running_group(tmp_path, ("paused", "other"), *QUICK) as (_, members):
        paused, other = members
        marks = [len(member.lines) for member in members]
        held = paused.owned
        paused.pause()
        time.sleep(3)  # longer than the grace, which is for connections that are closed
        assert other.ask("commit").what == "committed"
        paused.resume()
        assert paused.ask("commit").what == "committed"
        assert paused.owned == held
        assert [member.changes(mark) for member, mark in zip(members, marks, strict=True)] == [[], []]
        for member in members:
            check_nothing_left(member.leave())


def test_a_process_that_stands_still_for_longer_learns_that_it_has_lost_and_comes_again(tmp_path: Path) -> None:
    with running_group(tmp_path, ("paused", "other"), *QUICK, **SHORT) as (_, (paused, other)):
        mark, mark_of_other = len(paused.lines), len(other.lines)
        before = paused.generation_id
        paused.pause()
        other.wait_for("assigned", since=mark_of_other)
        assert other.owned == ALL
        assert other.ask("commit").what == "committed"
        paused.tell("commit")  # in hand when it wakes, before it knows anything
        paused.resume()
        refused = paused.wait_for("committed", "refused", since=mark)
        assert refused.what == "refused", "somebody else has what this commit is about"
        assert refused.more["generation_id"] == before
        assert settle([paused, other]) > before
        assert paused.changes(mark) == ["lost", "assigned"]
        assert [member.ask("commit").what for member in (paused, other)] == ["committed", "committed"]
        for member in (paused, other):
            check_nothing_left(member.leave())


def test_a_connection_that_the_service_cut_for_silence_is_made_again_and_nothing_moves(tmp_path: Path) -> None:
    """Standing still for longer than a ping may take, and for less than the session."""
    pings = ("--channel-ping-interval-ms", "600")
    with running_group(tmp_path, ("paused", "other"), *QUICK, *pings) as (service, members):
        paused = members[0]
        marks = [len(member.lines) for member in members]
        paused.pause()
        wait_until(lambda: unanswered_pings(service) > 0, "the ping to be given up", paused.show)
        time.sleep(2.5)  # longer than a grace
        paused.resume()
        assert paused.ask("commit").what == "committed"
        assert [member.changes(mark) for member, mark in zip(members, marks, strict=True)] == [[], []]
        wait_until(lambda: service.metrics()["rallypoint_channels"] == 2, "two channels", paused.show)
        for member in members:
            check_nothing_left(member.leave())


def unanswered_pings(service: ServiceProcess) -> float:
    return service.metrics().get('rallypoint_channels_closed_total{reason="unanswered_ping"}', 0)


def test_a_static_member_that_is_killed_and_started_again_finds_its_partitions(tmp_path: Path) -> None:
    with running_group(tmp_path, ("again", "other"), *PATIENT, static=True) as (_, (again, other)):
        held, generation, mark_of_other = again.owned, again.generation_id, len(other.lines)
        again.kill()
        time.sleep(2.5)  # longer than the grace, which static members have not
        mark = len(again.lines)
        again.start()
        assigned = again.wait_for("assigned", since=mark)
        assert frozenset(assigned.more["partitions"]) == held
        assert assigned.more["generation_id"] == generation
        assert again.ask("commit").what == "committed"
        assert other.changes(mark_of_other) == []
        for member in (again, other):
            check_nothing_left(member.leave())
