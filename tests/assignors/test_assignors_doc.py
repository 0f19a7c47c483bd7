"""docs/assignors.md: its pictures are true, and its example works as an installed distribution."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rallypoint.assignors import registry
from rallypoint.assignors.contract import Assignment, GroupSpec, MemberSubscription
from rallypoint.assignors.measure import measure
from rallypoint.assignors.placement.replicas import place, place_simply
from tests.assignors.groups import owning
from tests.assignors.owners_picture import picture
from tests.fakes.fake_coordinator import FakeCoordinator, running_in_thread
from tests.real.parts import PYTHON_PATH

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "assignors.md").read_text(encoding="utf-8")

USE = """
from rallypoint.assignors import registry
from rallypoint.assignors.contract import GroupSpec, MemberSubscription

print(registry.names())
spec = GroupSpec({"t0": 2, "t1": 1}, {
    "b": MemberSubscription(("t0", "t1")), "a": MemberSubscription(("t0",)), "c": MemberSubscription(("t1",)),
})
print(sorted(registry.find("standby").assign(spec).items()))
"""


def block(language: str) -> str:
    """The one code block of this language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", DOC, flags=re.MULTILINE | re.DOTALL)
    assert isinstance(found, str)
    return found


def drawn(picture: str) -> dict[str, list[str]]:
    rows = [line.replace("|", " ").split() for line in block(f"text {picture}").splitlines()]
    return {member: partitions for member, *partitions in rows}


def named(given: Assignment) -> dict[str, list[str]]:
    return {member: [f"{topic}-{partition}" for topic, partition in share] for member, share in given.items()}


BOTH = MemberSubscription(("t0", "t1"))
EXAMPLE = GroupSpec({"t0": 3, "t1": 3}, {"c0": BOTH, "c1": BOTH})


@pytest.mark.parametrize("name", [built_in.name for built_in in registry.BUILT_IN])
def test_the_pictures_are_true(name: str) -> None:
    assert drawn(name) == named(registry.find(name).assign(EXAMPLE))


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_the_pictures_of_a_third_that_joins_are_true(name: str) -> None:
    assignor = registry.find(name)
    before = assignor.assign(EXAMPLE)
    joined = GroupSpec(EXAMPLE.partitions_per_topic, {**EXAMPLE.subscriptions, "c2": BOTH})
    first = assignor.assign(owning(joined, before, 1))
    assert drawn(f"{name}, c2 joins") == named(first)
    second = assignor.assign(owning(joined, first, 2))
    assert drawn("sticky, c2 joins") == named(second)
    for other in ("range", "roundrobin"):
        moved = registry.find(other).assign(joined)
        assert measure(owning(joined, registry.find(other).assign(EXAMPLE), 1), moved).moved == 4
    left = assignor.assign(owning(EXAMPLE, second, 3))
    assert measure(owning(EXAMPLE, second, 3), left).moved == 0


def test_the_picture_of_every_assignor_is_true() -> None:
    assert block("text every assignor").rstrip("\n") == picture()


def test_every_assignor_has_its_place_in_the_table() -> None:
    table = DOC[DOC.index("\n| | where it comes from") : DOC.index("## One group")]
    for name in registry.names(installed=()):
        assert f"`{name}`" in table or f"`{name.partition('-')[0]}-…`" in table


def test_the_picture_of_weights_is_true() -> None:
    topics, said = ("t0", "t1"), json.loads(block("json"))
    spec = GroupSpec(
        {"t0": 3, "t1": 3}, {"c0": MemberSubscription(topics), "c1": MemberSubscription(topics, user_data=said)}
    )
    assert drawn("weights") == named(registry.find("weighted").assign(spec))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where the example is installed: laid out as an installer would, the module and metadata with the entry point."""
    (tmp_path / "standby.py").write_text(block("python"), encoding="utf-8")
    declared = tomllib.loads(block("toml"))["project"]["entry-points"]
    metadata = tmp_path / "standby-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: standby\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in declared.items()]
    (metadata / "entry_points.txt").write_text("".join(lines), encoding="utf-8")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([PYTHON_PATH, str(tmp_path)])}


def printed(environment: dict[str, str], *arguments: str) -> str:
    """What a Python there prints, if nothing goes wrong."""
    command = [sys.executable, "-W", "error", *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stderr == ""
    return ran.stdout


def test_the_example_works_once_its_distribution_is_installed(environment: dict[str, str]) -> None:
    assert printed(environment, "-c", USE).splitlines() == [
        repr(tuple(sorted([*(built_in.name for built_in in registry.BUILT_IN), "standby"]))),
        "[('a', (('t0', 0), ('t0', 1))), ('b', (('t1', 0),)), ('c', ())]",
    ]


def test_the_example_can_be_tried_without_a_service(environment: dict[str, str]) -> None:
    prompt, expected = block("text try").split("\n", 1)
    words = prompt.split()
    assert words[:3] == ["$", "rallypoint", "assign"]
    assert printed(environment, "-m", "rallypoint.cli.main", *words[2:]) == expected


def test_a_program_may_hand_the_example_over_without_an_installation(environment: dict[str, str]) -> None:
    fake = FakeCoordinator({"clicks": 2})
    with running_in_thread(fake):
        code = block("python members").replace("http://127.0.0.1:8000", fake.url)
        assert printed(environment, "-c", code) == "[('clicks', 0), ('clicks', 1)] {'stands_by': False}\n"


def test_the_example_passes_the_check_and_the_check_finds_a_fault_in_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    check = block("python check")
    (tmp_path / "test_standby.py").write_text(check, encoding="utf-8")
    assert printed(environment, "-c", "import test_standby; test_standby.test_standby()") == ""
    (tmp_path / "standby.py").write_text(block("python").replace("+= tuple(", "= tuple("), encoding="utf-8")
    command = [sys.executable, "-c", "import test_standby; test_standby.test_standby()"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "AssignorFault: the assignor 'standby' is at fault: it gives" in ran.stderr


def rows(name: str) -> dict[str, list[str]]:
    """A picture whose rows begin with a name; two spaces end it."""
    return {
        head: cells.split() for head, cells in (line.split("  ", 1) for line in map(wide, block(name).splitlines()))
    }


def wide(line: str) -> str:
    """The longest name of a picture has a single space behind it."""
    return line.replace("with racks ", "with racks  ")


def test_the_picture_of_racks_is_true() -> None:
    drawn = rows("text racks")
    assert drawn[""] == ["t-0", "t-1", "t-2", "t-3"]
    members = {name: MemberSubscription(("t",), rack_id=rack) for name, rack in [("a", "x"), ("b", "y")]}
    for row, replica_racks in [("with racks", {"t": [[rack] for rack in drawn["replicas"]]}), ("without", {})]:
        given = registry.find("range").assign(GroupSpec({"t": 4}, members, replica_racks))
        owner = {n: member for member, share in given.items() for _, n in share}
        assert drawn[row] == [owner[n] for n in range(4)]


def test_the_picture_of_replicas_is_true() -> None:
    drawn = rows("text replicas")
    assert drawn["partition"] == [str(n) for n in range(6)]
    for row, rule in [("place", place), ("place_simply", place_simply)]:
        assert drawn[row] == ["".join(map(str, nodes)) for nodes in rule([1, 2, 3], 6, 2).values()]


def test_the_example_of_partitions_is_true() -> None:
    exec(compile(block("python partitions"), "docs/assignors.md", "exec"), {})
