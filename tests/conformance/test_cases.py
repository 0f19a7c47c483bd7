"""Where the rules are, and that each has its tests: the table in the core's `DESIGN.md`, and the numbered cases.

The cases are those of the conformance table that the tests were written from; their names begin with the number.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "coordinator" / "core"
HERE = Path(__file__).parent
ROUTING = ROOT / "tests" / "protocol" / "test_group_hash.py"
CASES = 56
WITH_A_CLOCK_OF_THEIR_OWN = re.compile(
    r"^import (time|random)\b|asyncio\.sleep\(\s*0?\.[0-9]|time\.sleep", re.MULTILINE
)


def rows() -> list[tuple[str, list[str], list[str]]]:
    """Rule, files, tests."""
    text = (CORE / "DESIGN.md").read_text().partition("## Where each rule is")[2].partition("\n## ")[0]
    found = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    table = [(rule, re.findall("`([^`]+)`", files), re.findall("`([^`]+)`", tests)) for rule, files, tests in found]
    return [row for row in table if row[1]]


def path_of(name: str, harness: Path) -> Path:
    return ROOT / name if "/" in name else harness / name


@pytest.mark.parametrize(("rule", "files", "tests"), rows(), ids=[row[0] for row in rows()])
def test_a_rule_is_where_the_table_says_and_is_tried_there(rule: str, files: list[str], tests: list[str]) -> None:
    assert all(path_of(name, CORE).exists() for name in files), f"{rule}: no such file"
    assert tests, f"{rule}: nothing tries it"
    assert all(path_of(name, HERE).exists() for name in tests), f"{rule}: no such test"


def named_rules() -> list[tuple[str, str, str, str, str]]:
    """Rule, file, function, test file, test."""
    text = (CORE / "DESIGN.md").read_text().partition("## Twelve rules of Kafka, by name")[2].partition("\n## ")[0]
    return re.findall(
        r"^\| \*\*(.+?)\*\*[^|]+ \| `([\w./]+)`: `([\w.]+)` \| `([\w./]+)`: `(\w+)` \|$", text, re.MULTILINE
    )


def defined_in(path: Path) -> set[str]:
    """The functions and classes of a file, and the methods with the name of their class before them."""
    found = set[str]()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{x.name}" for x in node.body if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return found


def test_there_are_twelve_rules_by_name() -> None:
    assert len({rule for rule, *_ in named_rules()}) == 12


@pytest.mark.parametrize(
    ("rule", "file", "function", "test_file", "test"), named_rules(), ids=[row[0] for row in named_rules()]
)
def test_a_rule_by_name_has_its_function_and_its_test(
    rule: str, file: str, function: str, test_file: str, test: str
) -> None:
    assert function in defined_in(path_of(file, CORE)), f"{rule}: {file} has no {function}"
    assert test in defined_in(path_of(test_file, HERE)), f"{rule}: {test_file} has no {test}"


def test_every_file_of_the_core_has_its_place_in_the_table() -> None:
    named = {name for _, files, _ in rows() for name in files if "/" not in name}
    assert named == {path.name for path in CORE.glob("*.py")} - {"__init__.py"}


def test_each_numbered_case_has_its_test() -> None:
    names = re.findall(r"def (test_\w+)", "\n".join(path.read_text() for path in (*HERE.glob("test_*.py"), ROUTING)))
    numbers = {int(number) for name in names for number in re.findall(r"_c(\d\d)(?=_)", name)}
    assert numbers == set(range(1, CASES + 1))


def test_the_cases_take_no_real_time() -> None:
    for path in HERE.glob("*.py"):
        if path != Path(__file__):
            assert not WITH_A_CLOCK_OF_THEIR_OWN.search(path.read_text()), path.name
