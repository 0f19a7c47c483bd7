"""Finding assignors by name: built-in ones without metadata, installed ones by entry point, clear errors otherwise."""

import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rallypoint.assignors import registry
from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec
from rallypoint.assignors.range import RangeAssignor
from rallypoint.assignors.roundrobin import RoundRobinAssignor

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"

BUILT_IN_NAMES = (
    "cooperative-sticky",
    "metaq-consistent-hash",
    "metaq-default",
    "range",
    "rocketmq-averagely",
    "rocketmq-averagely-by-circle",
    "rocketmq-consistent-hash",
    "roundrobin",
    "sticky",
    "weighted",
)


class Everything(Assignor):
    name: ClassVar[str] = "everything"

    def assign(self, spec: GroupSpec) -> Assignment:
        return dict.fromkeys(spec.subscriptions, ())


class Demanding(Everything):
    name: ClassVar[str] = "demanding"

    def __init__(self, weight: int) -> None:
        self.weight = weight


class Exits(Everything):
    name: ClassVar[str] = "exits"

    def __init__(self) -> None:
        raise SystemExit(7)


class Abstract(Assignor):
    name: ClassVar[str] = "abstract"


class Nameless(Assignor):
    def assign(self, spec: GroupSpec) -> Assignment:
        return {}


def offer(name: str, target: str) -> EntryPoint:
    """An entry point for something in this very module, whatever pytest calls it."""
    assert __name__ in sys.modules
    return EntryPoint(name, f"{__name__}:{target}", registry.GROUP)


def test_built_in_assignors_need_no_metadata() -> None:
    assert registry.names(installed=()) == BUILT_IN_NAMES
    for name in BUILT_IN_NAMES:
        assert registry.find(name, installed=()).name == name
    assert isinstance(registry.find("range", installed=()), RangeAssignor)
    assert isinstance(registry.find("roundrobin", installed=()), RoundRobinAssignor)


def test_the_metadata_declares_what_is_built_in() -> None:
    project: dict[str, Any] = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    declared = project["entry-points"][registry.GROUP]
    assert declared == {built_in.name: built_in.value for built_in in registry.BUILT_IN}


def test_what_this_python_has_installed_is_looked_at_by_default() -> None:
    assert {"range", "roundrobin"} <= set(registry.names())
    assert isinstance(registry.find("range"), RangeAssignor)


def test_an_entry_point_adds_an_assignor() -> None:
    added = [offer("everything", "Everything")]
    assert registry.names(added) == tuple(sorted(["everything", *BUILT_IN_NAMES]))
    assert type(registry.find("everything", added)).__name__ == "Everything"
    assert registry.find("everything", added) is not registry.find("everything", added)


def test_the_same_class_declared_twice_is_one() -> None:
    assert isinstance(registry.find("range", [*registry.BUILT_IN, *registry.BUILT_IN]), RangeAssignor)
    assert registry.names(registry.BUILT_IN) == BUILT_IN_NAMES


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        registry.UnknownAssignor, match=r"'rnage'; there are: .*, everything, .*, range, .*, roundrobin, .*$"
    ):
        registry.find("rnage", [offer("everything", "Everything")])


def test_a_name_offered_for_two_classes_is_refused() -> None:
    with pytest.raises(registry.AmbiguousAssignor, match=r"'range': rallypoint\.assignors\.range:.*, .*:Everything$"):
        registry.find("range", [offer("range", "Everything")])


@pytest.mark.parametrize(
    ("name", "target", "reason"),
    [
        ("missing", "Missing", "cannot be loaded: .*Missing"),
        ("offer", "offer", "is not a class that implements"),
        ("path", "Path", "is not a class that implements"),
        ("abstract", "Abstract", "is not a class that implements"),
        ("nameless", "Nameless", "calls itself None"),
        ("other", "Everything", "calls itself 'everything'"),
        ("demanding", "Demanding", "cannot be made without arguments: .*weight"),
        ("exits", "Exits", r"cannot be made: SystemExit\(7\)"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_reason(name: str, target: str, reason: str) -> None:
    with pytest.raises(registry.UnusableAssignor, match=rf"^assignor '{name}' \(.*:{target}\) {reason}"):
        registry.find(name, [offer(name, target)])


def test_a_module_that_is_not_there_is_refused_with_its_reason() -> None:
    with pytest.raises(registry.UnusableAssignor, match="no_such_module"):
        registry.find("lost", [EntryPoint("lost", "no_such_module:Lost", registry.GROUP)])


def test_every_error_is_an_assignor_error() -> None:
    for error in (registry.UnknownAssignor, registry.AmbiguousAssignor, registry.UnusableAssignor):
        assert issubclass(error, registry.AssignorError)


class Renamed(RangeAssignor):
    """Another rule under the name of a built-in one, which it forgot to change."""


class LongName(Everything):
    name: ClassVar[str] = "x" * 300


class OddProtocol(Everything):
    protocol: ClassVar[Any] = "cooperativ"


def test_a_name_a_class_or_an_instance_is_resolved() -> None:
    assert isinstance(registry.resolve("range"), RangeAssignor)
    assert isinstance(registry.resolve(RangeAssignor), RangeAssignor)
    assert isinstance(registry.resolve(Everything), Everything)
    instance = Demanding(3)
    assert registry.resolve(instance) is instance


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (Demanding, "cannot be made without arguments; pass an instance: .*weight"),
        (Demanding(1).assign, "is no name, no subclass of rallypoint.assignors.Assignor and no instance of one"),
        (None, "is no name, no subclass"),
        (Path, "is not a class that implements"),
        (Abstract, "is not a class that implements"),
        (Nameless, "has no name, or not one of 1 to 255 characters: None"),
        (LongName(), "has no name, or not one of 1 to 255 characters"),
        (OddProtocol, 'has the protocol \'cooperativ\', which is not "eager" or "cooperative"'),
        (Renamed, "calls itself 'range', as a built-in one is called"),
        (Renamed(), "calls itself 'range', as a built-in one is called"),
    ],
)
def test_what_a_program_hands_over_in_vain_is_refused_with_its_reason(choice: Any, reason: str) -> None:
    with pytest.raises(registry.UnusableAssignor, match=f"^the assignor .*{reason}"):
        registry.resolve(choice)


def test_an_installed_one_has_terms_to_keep_too() -> None:
    with pytest.raises(registry.UnusableAssignor, match="has the protocol 'cooperativ'"):
        registry.find("everything", [offer("everything", "OddProtocol")])
