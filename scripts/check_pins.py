"""Check that what is installed is what constraints.txt names, and that nothing comes from an address.

    python scripts/check_pins.py

Exit status: 0 it is; 1 it is not, with a line for each distribution or line.

Whether a version has a known weakness is not checked: that takes a list of today, which no package brings along.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_PINNED = frozenset({"rallypoint", "pip", "setuptools", "wheel"})
"""The project itself, and what a virtual environment begins with."""

_PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)")
_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+(\[[A-Za-z0-9,._-]+\])?[^@/]*")


def name_of(text: str) -> str:
    """A distribution's name in the one form in which names are compared."""
    return re.sub(r"[-_.]+", "-", text).lower()


def read_pins(lines: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """The version of each name, and a sentence for each line that pins none."""
    pins, problems = {}, []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if (pin := _PIN.fullmatch(text)) is None:
            problems.append(f"constraints.txt:{number}: {text!r} is not of the form name==version.")
        else:
            pins[name_of(pin[1])] = pin[2]
    return pins, problems


def differences(pins: Mapping[str, str], installed: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A sentence for each distribution that is not as it is pinned."""
    for name, version in sorted(installed):
        if name in NOT_PINNED:
            continue
        if name not in pins:
            yield (
                f"{name} {version} is installed, and constraints.txt does not name it: uninstall it, or name it in"
                " pyproject.toml and run `make constraints`."
            )
        elif pins[name] != version:
            yield f"{name} {version} is installed, and constraints.txt names {pins[name]}: run `make setup`."


def addresses(project: Mapping[str, object]) -> Iterator[str]:
    """A sentence for each dependency of pyproject.toml that comes from an address or a path."""
    optional = project.get("optional-dependencies", {})
    wanted = [project.get("dependencies", []), *(optional.values() if isinstance(optional, dict) else ())]
    for text in (one for part in wanted if isinstance(part, list) for one in part):
        if not _REQUIREMENT.fullmatch(text):
            yield f"pyproject.toml: {text!r} comes from an address; name a version of an index."


def main() -> int:
    """The command."""
    pins, problems = read_pins((ROOT / "constraints.txt").read_text().splitlines())
    installed = {(name_of(one.metadata["Name"]), one.version) for one in distributions()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    problems += [*differences(pins, installed), *addresses(project)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
