"""Service and members on hosts of their own, as namespaces are, and what a network does to them.

Nobody closes anything here: a host that is cut off says no goodbye. So the grace of a closed connection must not begin,
the session timeout decides, and what is shorter than that moves nothing.
"""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.member_process import PARTITIONS, check_nothing_left, running_group, settle
from tests.end_to_end.network import running_network
from tests.end_to_end.program_process import Line, wait_until
from tests.sizes import in_long

pytestmark = pytest.mark.slow

ALL = frozenset(range(PARTITIONS))
QUICK = ("--group-initial-rebalance-delay-ms", "300")
PINGS = ("--channel-ping-interval-ms", "600", "--connection-unreachable-timeout-ms", "2000")
"""The second for connections that nobody pings: a leader asks for topics over HTTP."""
SHORT: dict[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500, "request_timeout_ms": 1_500}
MUCH_LONGER_THAN_GRACE_S = 4.0
"""The grace of 2 s, begun when a ping is given up, would be over by then; the session is not."""
LATE_S = 0.5
"""How late a process says what it does, beyond the lateness that it finds itself by the turns of its event loop."""


def overlap_s(lost: Line, assigned: Line) -> float:
    """For how long one went on after another had begun, but for what its machine made it wait."""
    return lost.at_s - float(lost.more["late_s"]) - assigned.at_s


def test_a_line_that_loses_and_delays_packets_moves_nothing(tmp_path: Path) -> None:
    with (
        running_network(tmp_path, "a", "b") as network,
        running_group(tmp_path, ("a", "b"), *QUICK, network=network, heartbeat_interval_ms=300) as (_, members),
    ):
        marks = [len(member.lines) for member in members]
        network.spoil("loss a 0.2")
        network.spoil("delay a 0.03")
        network.spoil("loss b 0.05")
        until = time.monotonic() + 4
        while time.monotonic() < until:
            assert [member.ask("commit").what for member in members] == ["committed", "committed"]
        assert [member.changes(mark) for member, mark in zip(members, marks, strict=True)] == [[], []]
        for member in members:
            check_nothing_left(member.leave())


@pytest.mark.parametrize(("spoil", "mend"), [in_long("cut a", "mend a"), ("link a down", "link a up")])
def test_a_blip_of_a_second_moves_nothing(tmp_path: Path, spoil: str, mend: str) -> None:
    with (
        running_network(tmp_path, "a", "b") as network,
        running_group(tmp_path, ("a", "b"), *QUICK, network=network) as (_, members),
    ):
        marks = [len(member.lines) for member in members]
        network.spoil(spoil)
        members[0].tell("commit")
        time.sleep(1)
        network.spoil(mend)
        assert members[0].wait_for("committed", "refused", since=marks[0]).what == "committed"
        time.sleep(2.5)  # a grace, if one had begun
        assert [member.changes(mark) for member, mark in zip(members, marks, strict=True)] == [[], []]
        for member in members:
            check_nothing_left(member.leave())


@pytest.mark.parametrize(("spoil", "mend"), [("cut {}", "mend {}"), in_long("link {} down", "link {} up")])
def test_a_line_that_is_down_for_longer_than_pings_and_shorter_than_the_session_moves_nothing(
    tmp_path: Path, spoil: str, mend: str
) -> None:
    """The members give their connections up meanwhile. That this reaches the service late must not look like an end."""
    names = ("a", "b", "c")
    with (
        running_network(tmp_path, *names) as network,
        running_group(tmp_path, names, *QUICK, network=network, session_timeout_ms=30_000) as (service, members),
    ):
        marks = [len(member.lines) for member in members]
        for name in names:
            network.spoil(spoil.format(name))
        time.sleep(16)  # half a session and a little, in which a line is given up
        for name in names:
            network.spoil(mend.format(name))
        time.sleep(6)
        assert [member.changes(mark) for member, mark in zip(members, marks, strict=True)] == [[]] * 3
        assert service.metrics()['rallypoint_sessions_expired_total{kind="disconnected"}'] == 0
        assert [member.ask("commit").what for member in members] == ["committed"] * 3
        for member in members:
            # A ping without its pong, or the heartbeat that asks then: whichever of the two is first.
            assert "; trying again" in member.log, "the line was not given up, so this shows nothing"
            check_nothing_left(member.leave())


@pytest.mark.parametrize("rested_s", [in_long(0.0), 4.0])
def test_a_member_that_is_cut_off_lets_go_by_its_own_clock_before_another_has_its_part(
    tmp_path: Path, rested_s: float
) -> None:
    """It lives by its sync at first, and by pongs after a while."""
    options = (*QUICK, *PINGS)
    with (
        running_network(tmp_path, "a", "b") as network,
        running_group(tmp_path, ("a", "b"), *options, network=network, **SHORT) as (service, (cut_off, other)),
    ):
        time.sleep(rested_s)
        mark, mark_of_other = len(cut_off.lines), len(other.lines)
        before = other.generation_id
        cut_at_s = time.monotonic()
        network.spoil("cut a")
        lost = cut_off.wait_for("lost", since=mark)
        assigned = other.wait_for("assigned", since=mark_of_other)
        assert other.owned == ALL
        assert overlap_s(lost, assigned) < LATE_S, "two had the same partitions at the same time"
        assert assigned.at_s - cut_at_s > MUCH_LONGER_THAN_GRACE_S, "the session timeout decides, not the grace"
        assert service.metrics()['rallypoint_sessions_expired_total{kind="disconnected"}'] == 0
        network.spoil("mend a")
        assert settle([cut_off, other]) > before
        assert cut_off.changes(mark) == ["lost", "assigned"]
        assert [member.ask("commit").what for member in (cut_off, other)] == ["committed", "committed"]
        for member in (cut_off, other):
            check_nothing_left(member.leave())


@pytest.mark.parametrize("way", [in_long("mute"), "deafen"])
def test_a_line_that_passes_one_way_alone_ends_the_session_on_both_sides(tmp_path: Path, way: str) -> None:
    """Mute, it hears the service still. Deaf, its own pings keep its session until it gives the line up."""
    options = (*QUICK, "--connection-unreachable-timeout-ms", "2000")
    with (
        running_network(tmp_path, "a", "b") as network,
        running_group(tmp_path, ("a", "b"), *options, network=network, **SHORT) as (service, (half_open, other)),
    ):
        mark, mark_of_other = len(half_open.lines), len(other.lines)
        before = other.generation_id
        network.spoil(f"{way} a")
        lost = half_open.wait_for("lost", since=mark)
        assigned = other.wait_for("assigned", since=mark_of_other)
        assert other.owned == ALL
        assert overlap_s(lost, assigned) < LATE_S, "two had the same partitions at the same time"
        assert service.metrics()['rallypoint_sessions_expired_total{kind="disconnected"}'] == 0
        network.spoil("mend a")
        assert settle([half_open, other]) > before
        assert half_open.changes(mark) == ["lost", "assigned"]
        assert [member.ask("commit").what for member in (half_open, other)] == ["committed", "committed"]
        for member in (half_open, other):
            check_nothing_left(member.leave())


def test_a_host_that_vanishes_is_waited_for_as_long_as_its_session_and_leaves_nothing(tmp_path: Path) -> None:
    options = (*QUICK, *PINGS)
    with (
        running_network(tmp_path, "a", "b") as network,
        running_group(tmp_path, ("a", "b"), *options, network=network, **SHORT) as (service, (vanished, other)),
    ):
        mark = len(other.lines)
        network.spoil("cut a")
        killed_at_s = vanished.kill()
        assigned = other.wait_for("assigned", since=mark)
        assert other.owned == ALL
        assert assigned.at_s - killed_at_s > MUCH_LONGER_THAN_GRACE_S, "the session timeout decides, not the grace"
        counted = service.metrics()
        assert counted['rallypoint_channels_closed_total{reason="unanswered_ping"}'] >= 1
        wait_until(lambda: service.metrics()["rallypoint_channels"] == 1, "one channel", other.show)
        check_nothing_left(other.leave())


@pytest.mark.parametrize("waits_ms", [in_long(0), 20_000])
def test_plain_connections_of_a_host_that_vanishes_are_given_up_too(tmp_path: Path, waits_ms: int) -> None:
    """Nobody pings these. One is idle when its host goes; the other waits for a word, which is sent and never taken."""
    options = (*QUICK, "--connection-unreachable-timeout-ms", "2000")
    plain = {**SHORT, "transport": "http", "heartbeat_wait_ms": waits_ms}
    with (
        running_network(tmp_path, "a", "b") as network,
        running_group(tmp_path, ("a", "b"), *options, network=network, **plain) as (service, (vanished, other)),
    ):
        mark = len(other.lines)
        open_before = service.open_files()
        network.spoil("cut a")
        vanished.kill()
        other.wait_for("assigned", since=mark)
        assert other.owned == ALL
        wait_until(lambda: service.open_files() < open_before, "the connection to be given up", other.show)
        check_nothing_left(other.leave())
