"""The arrows of the house hold: .importlinter's contracts, and which libraries a room may import.

A contract that cannot break protects nothing, so each is shown a wrong import in a copy of the tree and must name it.
"""

import ast
import configparser
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.real.parts import ROOT

PACKAGES = ("protocol", "assignors", "coordinator", "member", "spark_bridge", "cli")

# Third-party libraries by room; the longest name that fits a module counts. pydantic comes with the words on the wire,
# so every room may use it; yarl's URLs are part of aiohttp's interface. What is not named here is imported nowhere.
LIBRARIES: dict[str, frozenset[str]] = {
    "protocol": frozenset(),
    "assignors": frozenset(),
    "coordinator": frozenset(),
    "coordinator.http": frozenset({"aiohttp", "yarl"}),
    "coordinator.metrics": frozenset({"prometheus_client"}),
    "coordinator.settings": frozenset({"pydantic_settings"}),
    "coordinator.main": frozenset({"aiohttp", "uvloop"}),
    "member": frozenset({"aiohttp", "yarl"}),
    "member.metrics": frozenset({"prometheus_client"}),
    "member.sources": frozenset(),
    "member.sources.kafka_topics": frozenset({"confluent_kafka"}),
    "spark_bridge": frozenset(),
    "spark_bridge.source": frozenset({"pyspark", "pyarrow"}),
    "spark_bridge.registration": frozenset({"pyspark", "pyarrow"}),
    "spark_bridge.partitioning": frozenset({"pyspark", "pyarrow"}),
    "spark_bridge.exactly_once.postgresql": frozenset({"psycopg"}),
    "spark_bridge.batch_loop": frozenset({"pyspark", "pyarrow"}),
    "spark_bridge.progress_commits": frozenset({"pyspark"}),
    "spark_bridge.mirror": frozenset({"confluent_kafka"}),
    "spark_bridge.key_partitions": frozenset({"pyarrow", "numpy"}),
    "spark_bridge.sources": frozenset({"pyarrow"}),
    "spark_bridge.kept_sources": frozenset({"pyarrow"}),
    "spark_bridge.sources.kafka": frozenset({"pyarrow", "confluent_kafka"}),
    "spark_bridge.sources.kafka_reading": frozenset({"pyarrow", "confluent_kafka"}),
    "spark_bridge.sources.kafka_batches": frozenset({"pyarrow", "confluent_kafka"}),
    "cli": frozenset({"aiohttp", "yarl"}),
}
TYPES_ALONE: dict[str, frozenset[str]] = {"spark_bridge": frozenset({"pyspark"})}
"""Libraries whose types one very module names (not those below it); at run time it gets on without them."""
EVERYWHERE = frozenset({"pydantic", "pydantic_core", *PACKAGES})


class Plant(NamedTuple):
    """A wrong import: the module that gets it as its last line, and what it imports."""

    importer: str
    imported: str


PLANTS: dict[str, Plant] = {
    "house": Plant("assignors.planted", "member"),
    "clients-apart": Plant("spark_bridge.planted", "coordinator"),
    "server-apart": Plant("coordinator.runtime.planted", "cli"),
    "rules-are-pure": Plant("coordinator.core.planted", "time"),
    "member-and-consumer": Plant("member.topic_watch", "member.consumer"),
    "server-rooms": Plant("coordinator.runtime.planted", "coordinator.settings"),
    "rules-and-assignors": Plant("coordinator.core.planted", "assignors.range"),
    "memory-and-rules": Plant("coordinator.storage.codec", "coordinator.core.commands"),
    "engines-and-records": Plant("coordinator.storage.memory", "coordinator.core.records"),
    "memory-rooms": Plant("coordinator.storage.sqlite", "coordinator.storage.memory"),
    "engines-are-chosen": Plant("coordinator.runtime.planted", "coordinator.storage.sqlite"),
    "main-chooses": Plant("coordinator.runtime.planted", "coordinator.storage.engines"),
    "sqlite-behind-its-engine": Plant("coordinator.storage.memory", "sqlite3"),
    "door-and-rules": Plant("coordinator.http.planted", "coordinator.core.apply"),
    "door-and-memory": Plant("coordinator.http.planted", "coordinator.storage.contract"),
    "main-is-last": Plant("coordinator.http.planted", "coordinator.main"),
    "spark-behind-its-door": Plant("spark_bridge.planted", "pyspark"),
}


def contracts() -> dict[str, str]:
    """The contracts of .importlinter: identifier → name."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    return {
        section.removeprefix("importlinter:contract:"): parser[section]["name"]
        for section in parser.sections()
        if section.startswith("importlinter:contract:")
    }


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over the packages of a tree."""
    program = Path(sys.executable).parent / "lint-imports"
    return subprocess.run([program, "--no-logo", "--no-cache"], cwd=tree, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What import-linter says of a copy of the tree with every plant in it: contract name → its complaint."""
    tree = tmp_path_factory.mktemp("planted")
    shutil.copy(ROOT / ".importlinter", tree)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    for plant in PLANTS.values():
        path = tree / (plant.importer.replace(".", "/") + ".py")
        with path.open("a") as module:
            module.write(f"\nimport {plant.imported}\n")
    answer = lint(tree)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    _, _, complaints = answer.stdout.partition("Broken contracts")
    # Each complaint stands below its contract's name and a rule of dashes.
    found: dict[str, str] = {}
    lines = complaints.splitlines()
    heads = [at for at, line in enumerate(lines) if line in contracts().values() and lines[at + 1].startswith("---")]
    for head, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        found[lines[head]] = "\n".join(lines[head:end])
    return found


def test_every_contract_holds() -> None:
    answer = lint(ROOT)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_every_contract_has_a_plant() -> None:
    assert PLANTS.keys() == contracts().keys()


@pytest.mark.parametrize("contract", PLANTS)
def test_a_planted_import_breaks_its_contract(broken: dict[str, str], contract: str) -> None:
    plant = PLANTS[contract]
    complaint = broken[contracts()[contract]]
    # The longest complaints wrap where the terminal would.
    assert f"{plant.importer} -> {plant.imported} (l." in " ".join(complaint.split())


def modules(package: Path) -> Iterator[tuple[str, str]]:
    """Every module below a folder of the tree: its dotted name and its text."""
    for path in sorted(package.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        yield name, path.read_text()


def imported_libraries(text: str) -> set[str]:
    """The top-level names of what a module imports from outside the standard library, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def allowed_libraries(module: str) -> frozenset[str]:
    """What LIBRARIES gives the room that a module is in."""
    room = max((room for room in LIBRARIES if f"{module}.".startswith(f"{room}.")), key=len)
    return EVERYWHERE | LIBRARIES[room] | TYPES_ALONE.get(module, frozenset())


@pytest.mark.parametrize("package", PACKAGES)
def test_a_room_imports_its_own_libraries_alone(package: str) -> None:
    strangers = {
        module: sorted(foreign)
        for module, text in modules(ROOT / package)
        if (foreign := imported_libraries(text) - allowed_libraries(module))
    }
    assert strangers == {}


@pytest.mark.parametrize(("module", "libraries"), TYPES_ALONE.items())
def test_what_is_named_for_its_types_is_not_imported(module: str, libraries: frozenset[str]) -> None:
    program = f"import sys, {module}; print(sorted({set(libraries)!r} & sys.modules.keys()))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert answer.stdout.strip() == "[]"


def test_a_library_is_seen_wherever_it_is_imported() -> None:
    text = "import json\nif json:\n    import pandas.core\ndef load():\n    from rich import print\n"
    assert imported_libraries(text) == {"pandas", "rich"}
    assert "aiohttp" in allowed_libraries("coordinator.http.session")
    assert "aiohttp" not in allowed_libraries("coordinator.httpd")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_with_modules_is_a_package(package: str) -> None:
    """A folder without __init__.py is invisible to import-linter."""
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    assert folders
    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").exists()) == []
