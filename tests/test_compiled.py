"""The list of modules that may be compiled, by the source: `tests/real/test_compiled.py` compiles them."""

import ast
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rallypoint.coordinator.compiled import ONE_OF_THEM, is_compiled

ROOT = Path(__file__).resolve().parents[1]


def run_setup(monkeypatch: pytest.MonkeyPatch) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """What setup.py gives to setuptools, and its names."""
    given: list[dict[str, Any]] = []
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=lambda **arguments: given.append(arguments)))
    names = runpy.run_path(str(ROOT / "setup.py"))
    return given[0], names


def test_without_being_asked_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RALLYPOINT_COMPILED", raising=False)
    given, _ = run_setup(monkeypatch)
    assert given == {}
    assert not is_compiled()


def test_each_module_of_the_list_is_there_in_order_and_none_is_what_mypyc_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RALLYPOINT_COMPILED", raising=False)
    _, names = run_setup(monkeypatch)
    listed = names["COMPILED"]
    assert list(listed) == sorted(set(listed))
    assert ONE_OF_THEM.removeprefix("rallypoint.coordinator.").replace(".", "/") in listed
    refused = {name for name in listed if refuses((ROOT / "coordinator" / f"{name}.py").read_text("utf-8"))}
    assert refused == set()


def refuses(text: str) -> bool:
    """Whether mypyc cannot compile it: it has an asynchronous generator, or dispatches by type."""
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)]
    generates = any(isinstance(inner, ast.Yield) for function in functions for inner in ast.walk(function))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return generates or "singledispatch" in names


def test_what_it_refuses_is_found() -> None:
    for name in ("core/apply", "storage/sqlite"):
        assert refuses((ROOT / "coordinator" / f"{name}.py").read_text("utf-8"))
