"""What users import: each name is there, and costs nothing before it is asked for."""

import subprocess
import sys
from importlib import import_module

import pytest

import rallypoint

LAZY = ("rallypoint", "rallypoint.sources", "rallypoint.spark", "rallypoint.testing")


@pytest.mark.parametrize("face", LAZY)
def test_every_name_is_there_and_stays(face: str) -> None:
    module = import_module(face)
    assert sorted(set(module.__all__)) == sorted(module.__all__) == dir(module)
    for name in module.__all__:
        assert getattr(module, name) is vars(module)[name]


def test_the_names_are_those_of_the_table() -> None:
    for face in LAZY:
        module = import_module(face)
        assert sorted(" ".join(module._HOMES.values()).split()) == sorted(module.__all__)


def test_the_example_of_the_package_makes_a_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[rallypoint.BlockingConsumer[object]] = []
    monkeypatch.setattr(rallypoint, "run", started.append)
    assert rallypoint.__doc__ is not None
    code = [
        line.removeprefix("    ") for line in rallypoint.__doc__.splitlines() if line.startswith("    ") or not line
    ]
    names: dict[str, object] = {}
    exec("\n".join(code), names)
    assert [type(consumer) for consumer in started] == [names["BlockingConsumer"]]


def test_a_name_that_is_not_there_is_refused_as_of_any_module() -> None:
    with pytest.raises(AttributeError, match=r"module 'rallypoint' has no attribute 'Member'"):
        import_module("rallypoint").Member  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Member'"):
        from rallypoint import Member  # type: ignore[attr-defined]  # noqa: F401, PLC0415


def test_the_public_modules_alone_import_nothing_else() -> None:
    program = (
        f"import sys, {', '.join(LAZY)}\n"
        "print(sorted(n for n in sys.modules if n.startswith(('rallypoint.', 'aiohttp', 'pydantic', 'pyspark'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{sorted([*LAZY[1:], 'rallypoint._lazy'])}\n"
