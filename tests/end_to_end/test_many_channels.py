"""Members by the hundred and thousand, each on a channel of its own: quiet groups stay quiet, whatever comes.

`bench.residents` is they, in a process of its own. What it costs, and ten thousand of them, is for
`python -m bench --only channels-held`.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.program_process import ProgramProcess
from tests.end_to_end.service_process import ServiceProcess, nothing_left_behind, running_service
from tests.sizes import in_long

pytestmark = pytest.mark.slow

OPTIONS = ("--group-initial-rebalance-delay-ms", "0")
FORMING_SECONDS = 120.0


@contextmanager
def running_residents(service: ServiceProcess, members: int, group_size: int) -> Iterator[ProgramProcess]:
    """They have formed their groups, and are gone at the end."""
    arguments = ("--port", str(service.port), "--members", str(members), "--group-size", str(group_size))
    residents = ProgramProcess(service.folder, "residents", "bench.residents", arguments)
    try:
        residents.start()
        residents.wait_for("settled", seconds=FORMING_SECONDS)
        ask(residents, "begin")
        yield residents
    finally:
        residents.make_sure_it_is_gone()


def ask(residents: ProgramProcess, command: str) -> dict[str, Any]:
    """Send a command; what its answer says."""
    mark = len(residents.lines)
    residents.tell(command)
    return residents.wait_for("begun" if command == "begin" else command, since=mark).more


def generations(service: ServiceProcess) -> dict[str, float]:
    """Of every group."""
    counted = service.metrics()
    return {name: value for name, value in counted.items() if name.startswith("rallypoint_group_generation")}


def check_quiet(residents: ProgramProcess, members: int, *, lost: int = 0) -> None:
    """Nothing was wrong or unanswered, all are connected, and each has had at least one good heartbeat."""
    said = ask(residents, "report")
    assert (said["wrong"], said["unanswered"], said["lost"]) == (0, 0, lost), said
    assert said["connected"] == members
    assert said["heartbeats"] >= members, said


@pytest.mark.parametrize("way", ["killed", in_long("stopped")])
def test_nobody_rebalances_when_the_service_is_started_again_under_two_hundred_channels(
    tmp_path: Path, way: str
) -> None:
    with (
        running_service(tmp_path, *OPTIONS) as service,
        nothing_left_behind(service),
        running_residents(service, 200, 100) as residents,
    ):
        before = generations(service)
        assert len(before) == 2
        mark = len(residents.lines)
        if way == "killed":
            service.kill()
        else:
            assert service.stop() == 0
        service.start()
        residents.wait_for("back", since=mark)
        time.sleep(2.5)  # longer than the grace
        check_quiet(residents, 200, lost=200)
        assert generations(service) == before
        assert sum(rebalances(service).values()) == 0
        assert service.metrics()["rallypoint_channels"] == 200
        residents.end("end")


def rebalances(service: ServiceProcess) -> dict[str, float]:
    """Begun since the service was started, by trigger."""
    counted = service.metrics()
    return {name: value for name, value in counted.items() if name.startswith("rallypoint_rebalances_total")}


def test_a_thousand_channels_are_held_and_every_heartbeat_is_answered(tmp_path: Path) -> None:
    with (
        running_service(tmp_path, *OPTIONS) as service,
        nothing_left_behind(service),
        running_residents(service, 1_000, 100) as residents,
    ):
        before = generations(service), rebalances(service)
        assert len(before[0]) == 10
        assert service.metrics()["rallypoint_channels"] == 1_000
        time.sleep(4)  # longer than a heartbeat's interval
        check_quiet(residents, 1_000)
        assert (generations(service), rebalances(service)) == before
        counted = service.metrics()
        assert counted["rallypoint_channels"] == 1_000
        assert not [name for name in counted if name.startswith("rallypoint_sessions_expired_total") and counted[name]]
        residents.end("end")
