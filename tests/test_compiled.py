"""The list of modules that may be compiled, by the source: `tests/real/test_compiled.py` compiles them."""

import ast
import os
import runpy
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from rallypoint.coordinator.compiled import ONE_OF_THEM
from tests.compiled import ROOT, listed
from tests.real.parts import PYTHON_PATH

SAYS_WHICH = "from rallypoint.coordinator.compiled import is_compiled; print(is_compiled())"


def test_without_being_asked_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RALLYPOINT_COMPILED", raising=False)
    given: list[dict[str, Any]] = []
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=lambda **arguments: given.append(arguments)))
    runpy.run_path(str(ROOT / "setup.py"))
    assert given == [{}]


def test_each_module_of_the_list_is_there_in_order_and_none_is_what_mypyc_refuses() -> None:
    names = listed()
    assert list(names) == sorted(set(names))
    assert ONE_OF_THEM.removeprefix("rallypoint.coordinator.").replace(".", "/") in names
    found = {name: reason for name in names if (reason := why_not((ROOT / "coordinator" / f"{name}.py").read_text()))}
    assert found == {}


def why_not(text: str) -> str:
    """Why it is not to be compiled: mypyc cannot, or it would do something else; "" where it may be."""
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in functions:
        inside = list(ast.walk(function))
        if isinstance(function, ast.AsyncFunctionDef) and any(isinstance(node, ast.Yield) for node in inside):
            return f"{function.name} is an asynchronous generator"
        caught: dict[str, str] = {}
        for node in inside:
            if not (isinstance(node, ast.ExceptHandler) and node.name and node.type):
                continue
            if caught.setdefault(node.name, ast.unparse(node.type)) != ast.unparse(node.type):
                return f"in {function.name} {node.name} is an error of two types: it gets the first one's alone"
    if "singledispatch" in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}:
        return "it dispatches by type"
    if "__cause__" in {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}:
        return "it asks for the cause of an error, and what compiled code raises has none"
    return ""


def test_what_must_not_be_compiled_is_found() -> None:
    for name in ("storage/sqlite", "storage/sqlite_file"):
        assert why_not((ROOT / "coordinator" / f"{name}.py").read_text()), name
    assert why_not("@singledispatch\ndef f(of):\n pass\n")
    twice = "def f():\n try:\n  g()\n except A as e:\n  pass\n except B as e:\n  pass\n"
    assert why_not(twice)
    assert why_not(twice.replace("B as e", "B as other")) == ""


@pytest.mark.parametrize("variables", [{}, {"PYTHONPATH": PYTHON_PATH}], ids=["bare", "path"])
def test_processes_that_tests_start_run_the_package_that_was_asked_for(
    variables: dict[str, str], pytestconfig: pytest.Config
) -> None:
    said = subprocess.check_output([sys.executable, "-c", SAYS_WHICH], cwd=ROOT, env=os.environ | variables, text=True)
    assert said.strip() == str(pytestconfig.getoption("compiled"))


def test_a_run_that_asks_for_the_compiled_package_and_has_another_fails() -> None:
    here = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "pytest", "--compiled", "--collect-only", "tests/test_sizes.py"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | here, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"{ROOT / 'src' / 'rallypoint'} is not compiled: {len(listed())} modules are Python" in done.stderr
