"""Tests on the compiled package: `make test COMPILED=1`. Which package it is, the header of the run says.

Compiled classes take no attributes but their own, no values of other types than they say, and no subclass that is not
compiled; compiled functions do not see what is patched in their modules. A test that cannot do without has the marker
`pure` with its reason, and is skipped on the compiled package alone.
"""

import ast
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import rallypoint
from rallypoint.coordinator.compiled import is_compiled

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(rallypoint.__path__[0])


def listed() -> tuple[str, ...]:
    """The modules of `rallypoint.coordinator` that setup.py would have compiled."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED":
            names: tuple[str, ...] = ast.literal_eval(node.value)
            return names
    raise AssertionError("setup.py has no list COMPILED")


def left_pure(package: Path) -> list[str]:
    """Those of them that are Python in this package."""
    return [
        name
        for name in listed()
        if not any((package / "coordinator" / f"{name}{suffix}").exists() for suffix in EXTENSION_SUFFIXES)
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --compiled."""
    parser.addoption(
        "--compiled", action="store_true", help="fail unless `rallypoint` has all modules of setup.py's list compiled"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to test another package than was asked for."""
    if config.getoption("compiled") and (pure := left_pure(PACKAGE)):
        raise pytest.UsageError(f"{PACKAGE} is not compiled: {len(pure)} modules are Python, among them {pure[0]}")


def pytest_report_header() -> str:
    """Say which package is tested."""
    return f"rallypoint: {'compiled' if is_compiled() else 'pure Python'}, {PACKAGE}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot work on the compiled package, and there alone."""
    for item in items:
        if (marker := item.get_closest_marker("pure")) is not None:
            (reason,) = marker.args
            if is_compiled():
                item.add_marker(pytest.mark.skip(reason=f"on Python alone: {reason}"))
