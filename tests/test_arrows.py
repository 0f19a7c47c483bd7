"""Who imports whom: .importlinter's contracts, and which libraries a package may import.

A contract that cannot break protects nothing, so each is shown a wrong import in a copy of the tree and must name it.
"""

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.real.parts import ROOT

PACKAGES = ("protocol", "assignors", "coordinator", "member", "spark_bridge", "cli")

# Third-party libraries by package; the longest name that fits a module counts. Every package may use pydantic, which
# comes with the protocol's models; yarl's URLs and multidict's headers are part of aiohttp's interface. What is not
# named here is imported nowhere.
LIBRARIES: dict[str, frozenset[str]] = {
    "rallypoint.protocol": frozenset(),
    "rallypoint.assignors": frozenset(),
    "rallypoint.coordinator": frozenset(),
    "rallypoint.coordinator.access.signed_tokens": frozenset({"joserfc"}),
    "rallypoint.coordinator.http": frozenset({"aiohttp", "multidict", "yarl"}),
    "rallypoint.coordinator.http.channel": frozenset({"aiohttp", "multidict", "websockets", "yarl"}),
    "rallypoint.coordinator.http.answers.answer_text": frozenset({"msgspec"}),
    "rallypoint.coordinator.metrics": frozenset({"prometheus_client"}),
    "rallypoint.coordinator.storage.codec": frozenset({"msgspec"}),
    "rallypoint.coordinator.storage.cluster_codec": frozenset({"msgspec"}),
    "rallypoint.coordinator.storage.etcd.grpc_client": frozenset({"grpc"}),
    "rallypoint.coordinator.storage.etcd.rallypoint_etcd_pb2": frozenset({"google"}),
    "rallypoint.coordinator.tracing": frozenset({"opentelemetry"}),
    "rallypoint.coordinator.settings": frozenset({"pydantic_settings"}),
    "rallypoint.coordinator.main": frozenset({"aiohttp", "uvloop"}),
    "rallypoint.member": frozenset({"aiohttp", "yarl"}),
    "rallypoint.member.metrics": frozenset({"prometheus_client"}),
    "rallypoint.member.sources": frozenset(),
    "rallypoint.member.sources.kafka": frozenset({"confluent_kafka"}),
    "rallypoint.member.sources.kafka_errors": frozenset({"confluent_kafka"}),
    "rallypoint.member.sources.kafka_fetcher": frozenset({"confluent_kafka"}),
    "rallypoint.member.sources.kafka_refusals": frozenset({"confluent_kafka"}),
    "rallypoint.member.sources.kafka_topics": frozenset({"confluent_kafka"}),
    "rallypoint.spark_bridge": frozenset(),
    "rallypoint.spark_bridge.source": frozenset({"pyspark", "pyarrow"}),
    "rallypoint.spark_bridge.registration": frozenset({"pyspark", "pyarrow"}),
    "rallypoint.spark_bridge.query_checks": frozenset({"pyspark", "pyarrow"}),
    "rallypoint.spark_bridge.pyspark_version": frozenset({"pyspark"}),
    "rallypoint.spark_bridge.partitioning": frozenset({"pyspark", "pyarrow"}),
    "rallypoint.spark_bridge.exactly_once.files": frozenset({"pyspark"}),
    "rallypoint.spark_bridge.exactly_once.hadoop_files": frozenset({"py4j"}),
    "rallypoint.spark_bridge.exactly_once.postgresql": frozenset({"psycopg"}),
    "rallypoint.spark_bridge.batch_loop": frozenset({"pyspark", "pyarrow"}),
    "rallypoint.spark_bridge.progress_commits": frozenset({"pyspark"}),
    "rallypoint.spark_bridge.mirror": frozenset({"confluent_kafka"}),
    "rallypoint.spark_bridge.key_partitions": frozenset({"pyarrow", "numpy"}),
    "rallypoint.spark_bridge.sources": frozenset({"pyarrow"}),
    "rallypoint.spark_bridge.source_pool": frozenset({"pyarrow"}),
    "rallypoint.spark_bridge.sources.kafka": frozenset({"pyarrow", "confluent_kafka"}),
    "rallypoint.spark_bridge.sources.kafka_cluster": frozenset({"confluent_kafka"}),
    "rallypoint.spark_bridge.sources.kafka_reading": frozenset({"pyarrow", "confluent_kafka"}),
    "rallypoint.spark_bridge.sources.kafka_batches": frozenset({"pyarrow", "confluent_kafka"}),
    "rallypoint.cli": frozenset(),
    "rallypoint.cli.completion": frozenset({"shtab"}),
    "rallypoint.cli.contexts": frozenset({"tomlkit"}),
}
TYPES_ALONE: dict[str, frozenset[str]] = {"rallypoint.spark_bridge.entry": frozenset({"pyspark"})}
"""Libraries whose types one very module names (not those below it); at run time it gets on without them."""
EVERYWHERE = frozenset({"pydantic", "pydantic_core", "rallypoint"})


class Plant(NamedTuple):
    """A wrong import: the module that gets it as its last line, and what it imports."""

    importer: str
    imported: str


PLANTS: dict[str, Plant] = {
    "packages": Plant("rallypoint.assignors.planted", "rallypoint.member"),
    "clients-apart": Plant("rallypoint.spark_bridge.planted", "rallypoint.coordinator"),
    "server-apart": Plant("rallypoint.coordinator.runtime.condition", "rallypoint.cli"),
    "rules-are-pure": Plant("rallypoint.coordinator.core.planted", "time"),
    "member-and-consumer": Plant("rallypoint.member.topic_watch", "rallypoint.member.consumer"),
    "server-layers": Plant("rallypoint.coordinator.runtime.condition", "rallypoint.coordinator.settings"),
    "access-is-pure": Plant("rallypoint.coordinator.access.policy", "time"),
    "runtime-packages": Plant("rallypoint.coordinator.runtime.appends.writer", "rallypoint.coordinator.runtime.shard"),
    "http-packages": Plant("rallypoint.coordinator.http.requests.routes", "rallypoint.coordinator.http.handlers"),
    "core-and-assignors": Plant("rallypoint.coordinator.core.planted", "rallypoint.assignors.range"),
    "storage-and-core": Plant("rallypoint.coordinator.storage.codec", "rallypoint.coordinator.core.commands"),
    "engines-and-records": Plant("rallypoint.coordinator.storage.memory", "rallypoint.coordinator.core.records"),
    "storage-layers": Plant("rallypoint.coordinator.storage.sqlite", "rallypoint.coordinator.storage.memory"),
    "engines-are-chosen": Plant("rallypoint.coordinator.runtime.condition", "rallypoint.coordinator.storage.sqlite"),
    "main-chooses": Plant("rallypoint.coordinator.runtime.condition", "rallypoint.coordinator.storage.engines"),
    "etcd-layers": Plant("rallypoint.coordinator.storage.etcd.lease", "rallypoint.coordinator.storage.etcd.store"),
    "etcd-rules-are-pure": Plant("rallypoint.coordinator.storage.etcd.fence", "asyncio"),
    "grpc-behind-its-client": Plant("rallypoint.coordinator.storage.etcd.store", "grpc"),
    "sqlite-behind-its-engine": Plant("rallypoint.coordinator.storage.memory", "sqlite3"),
    "http-and-core": Plant("rallypoint.coordinator.http.contract", "rallypoint.coordinator.core.apply"),
    "http-and-storage": Plant("rallypoint.coordinator.http.contract", "rallypoint.coordinator.storage.contract"),
    "main-is-last": Plant("rallypoint.coordinator.http.contract", "rallypoint.coordinator.main"),
    "public-modules": Plant("rallypoint.member.planted", "rallypoint.sources"),
    "spark-in-the-bridge-alone": Plant("rallypoint.spark_bridge.planted", "pyspark"),
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
    program = (sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()")
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    return subprocess.run(
        [*program, "--no-logo", "--no-cache"], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What import-linter says of a copy of the tree with every plant in it: contract name → its complaint."""
    tree = tmp_path_factory.mktemp("planted")
    shutil.copy(ROOT / ".importlinter", tree)
    shutil.copytree(ROOT / "src", tree / "src", symlinks=True)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    for plant in PLANTS.values():
        path = tree / "src" / (plant.importer.replace(".", "/") + ".py")
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
        name = ".".join(("rallypoint", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
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
    """What LIBRARIES gives the package that a module is in."""
    package = max((name for name in LIBRARIES if f"{module}.".startswith(f"{name}.")), key=len)
    return EVERYWHERE | LIBRARIES[package] | TYPES_ALONE.get(module, frozenset())


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_its_own_libraries_alone(package: str) -> None:
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
    assert "aiohttp" in allowed_libraries("rallypoint.coordinator.http.channel.channel")
    assert "aiohttp" not in allowed_libraries("rallypoint.coordinator.httpd")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_with_modules_is_a_package(package: str) -> None:
    """A folder without __init__.py is invisible to import-linter."""
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    assert folders
    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").exists()) == []


AWAITED_AT_ONCE = {
    "coordinator/http/tls/entrance.py",
    "coordinator/copies.py",
    "coordinator/main.py",
    "coordinator/runtime/assignments/partition_owners.py",
    "coordinator/storage/sqlite.py",
    "coordinator/storage/etcd/keyspace.py",
    "coordinator/storage/etcd/node.py",
    "coordinator/storage/etcd/store.py",
    "coordinator/storage/etcd/views.py",
}
"""Where tasks begin of which nothing is lost if they fail: whoever asked for one awaits it, and hears of it."""


def bare_tasks(text: str) -> bool:
    """Whether tasks begin here of whose end by a fault nobody may hear."""
    names = {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
    return not names.isdisjoint({"create_task", "ensure_future", "TaskGroup"})


def test_a_task_that_somebody_relies_on_is_begun_where_its_faults_are_seen() -> None:
    files = (ROOT / "coordinator").rglob("*.py")
    found = {str(path.relative_to(ROOT)) for path in files if bare_tasks(path.read_text())}
    assert found == {"coordinator/runtime/event_loop/faults.py", *AWAITED_AT_ONCE}
    assert bare_tasks("import asyncio\nasyncio.get_running_loop().create_task(x())")


THREADS_ARE_BEGUN_IN = {
    "member/loop_thread.py",  # its end by itself is logged, and whoever waits hears of it
    "member/daemon_threads.py",  # one for a call, which gets back whatever the call raised
    "member/sources/kafka_fetcher.py",  # whoever waits for a record hears of its end
    "spark_bridge/background_calls.py",  # for one call, of whose end whoever asked hears
    "spark_bridge/stopping.py",  # for one call, which gets back whatever the call raised
    "spark_bridge/periodic_thread.py",  # outlives a run that fails
    "spark_bridge/query_checks.py",  # for one call, which takes too long to wait for it
}


def begins_threads(text: str) -> bool:
    """Whether a thread begins here."""
    return "Thread" in {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}


def test_a_thread_that_must_live_is_begun_where_nothing_ends_it_unheard() -> None:
    files = [path for package in ("member", "spark_bridge") for path in (ROOT / package).rglob("*.py")]
    assert {str(path.relative_to(ROOT)) for path in files if begins_threads(path.read_text())} == THREADS_ARE_BEGUN_IN
    assert begins_threads("import threading\nthreading.Thread(target=print).start()")


OTHER_HTTP_CLIENTS = {"urllib.request", "http.client", "requests", "httpx"}


def imported_modules(text: str) -> set[str]:
    """The full names of the modules imported here, and of what may be one."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("package", ["member", "spark_bridge", "cli"])
def test_there_is_one_http_client(package: str) -> None:
    """Another one would follow redirects with the token, and raise what nobody here expects. The command has one of its
    own, in one module: docs/decisions/0037-the-command-imports-little.md.
    """
    found = {module for module, text in modules(ROOT / package) if imported_modules(text) & OTHER_HTTP_CLIENTS}
    assert found == ({"rallypoint.cli.calls.transport"} if package == "cli" else set())
    assert imported_modules("from urllib import request") & OTHER_HTTP_CLIENTS


BY_THE_LOOP_S_CLOCK = {
    "access/issuer_documents.py": {"timeout"},  # the answer of an issuer, who is no client; it is asked again
    "limits/deadline.py": {"call_at", "time", "timeout"},  # what all that ends something goes by
    "connections.py": {"time", "timeout"},  # how often the log is warned; how long a stop waits, as for HTTP
    "channel/channel.py": {"time"},  # in which second a frame came that carries no call
    "channel/pings.py": {"call_at"},  # when a ping is due; what its answer may take is a deadline
    "channel/websocket.py": {"call_at", "time", "timeout"},  # the same, and a close that was said already
    "cluster/peers.py": {"timeout"},  # none: a peer's event stream may take any time
    "answers/json_response.py": {"time"},  # the date that an answer bears
}
"""Where the API looks at other time than the service's, which does not count a stall. Nothing may end by it: what a
client sent in the stall has not been read yet.
"""
OTHER_TIME = {"call_at", "call_later", "time", "timeout", "timeout_at", "wait_for"}


def other_time(text: str) -> set[str]:
    """With what the event loop's clock is asked here, or waited for."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.module in {"asyncio", "time"}:
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.keyword) and node.arg == "timeout":
            found.add("timeout")
    return found & OTHER_TIME


def test_what_ends_in_the_http_api_ends_by_the_service_s_clock() -> None:
    folder = ROOT / "coordinator" / "http"
    times = {str(path.relative_to(folder)): other_time(path.read_text()) for path in folder.rglob("*.py")}
    found = {name: names for name, names in times.items() if names}
    assert found == BY_THE_LOOP_S_CLOCK
    assert other_time("asyncio.get_running_loop().call_later(1, x)") == {"call_later"}
    assert other_time("from asyncio import timeout") == {"timeout"}
    assert other_time("await asyncio.wait(tasks, timeout=1)") == {"timeout"}


NAMES = "|".join(PACKAGES)
BARE_IMPORT = re.compile(
    rf"(?:^|\\n|[;\"'])\s*(?:from (?:{NAMES})(?:\.\w+)* import |import (?:[\w.]+(?: as \w+)?, *)*(?:{NAMES})\b)", re.M
)


def test_everything_is_imported_as_users_have_it() -> None:
    """In programs that stand in texts, too. By their bare names the folders are found in a checkout alone."""
    assert BARE_IMPORT.search('program = "import sys\\nfrom cli.main import main"')
    assert BARE_IMPORT.search("    import member.client\n")
    assert BARE_IMPORT.search("'import sys, json as j, member'")
    assert not BARE_IMPORT.search("from rallypoint.member import client")
    folders = (*PACKAGES, "src", "tests", "bench", "examples")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)]
    assert len(found) > len(PACKAGES)
    bare = {str(path.relative_to(ROOT)) for path in found if BARE_IMPORT.search(path.read_text())}
    assert bare == set()
