"""What holds for every test: the size of the run, the order, who shares what, and the rule for missing parts.

No test's own fixture belongs here: those of real parts are in tests/real/, fakes in tests/fakes/.
"""

import gc
import json
import os
import signal
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings

from tests.sizes import Size, by_size, choose

pytest_plugins = [
    "tests.compiled",
    "tests.left_threads",
    "tests.open_connections",
    "tests.real.etcd",
    "tests.real.hdfs",
    "tests.real.java",
    "tests.real.kafka",
    "tests.real.languages",
    "tests.real.chromium",
    "tests.real.postgresql",
    "tests.real.prometheus",
    "tests.real.spark_kafka",
]

IN_CI = os.environ.get("CI", "").lower() not in {"", "0", "false"}

# From what depends on least to what depends on most, so that the first failure is the nearest to its cause. A
# folder that is not named here comes after those that are.
FOLDER_ORDER = (
    "protocol",
    "assignors",
    "coordinator/core",
    "coordinator/storage",
    "coordinator/runtime",
    "coordinator/http",
    "coordinator",
    "member",
    "spark_bridge",
    "cli",
    "examples",
    "bench",
    "conformance",
    "model",
    "fuzz",
    "formats",
    "scenarios",
    "simulation",
    "real",
    "end_to_end",
)
COSTLY_MARKERS = ("slow", "etcd", "languages", "browser", "prometheus", "postgresql", "image", "kafka", "spark")
NOT_SMALL = ("real", "end_to_end", "fuzz")
"""Folders of which a small run has nothing: their tests start programs, or take minutes for their examples."""
SHARED = ("programs", "drivers", "spark", "kafka")
"""What one process runs of several that run tests, by the markers; the first that a module has decides. The session,
the drivers and the broker that many modules share start once. Programs share nothing, and one process starts them one
after another: each waits half of the time, and a Spark takes all cores that it gets.
"""


GROUPS_FOLDER = pytest.StashKey["TemporaryDirectory[str] | None"]()
"""Where the processes of a run say which modules belong together."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Whatever the run was started by: a shell's background job ignores SIGINT, and so would all that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _handlers_of_signals() -> Iterator[None]:
    """Fail the test that leaves a handler to those after it."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    left = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not None and left[number] is not handler:
            signal.signal(number, handler)
    assert left == before


@pytest.fixture(scope="module", autouse=True)
def _nothing_old_is_looked_at() -> None:
    """Set aside what is there already, for the collector: all tests of a run are a million objects, and a test that
    asks for a collection would wait a third of a second for a look at each.
    """
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --size."""
    parser.addoption(
        "--size",
        choices=[size.name.lower() for size in Size],
        default=Size.FULL.name.lower(),
        help="how much to test: small (make test) is a sample that needs no other program, full (make test-all) is"
        " every test, long runs thousands of schedules and examples besides",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the size before any test is imported, and what it means for chance."""
    choose(Size[config.getoption("size").upper()])
    # The machines that run these tests are shared, so one slow example says nothing about the code. A failure prints
    # what repeats it. In CI the examples are always the same ones, so that what fails there is what the change broke;
    # elsewhere they are new ones each time, and find more.
    settings.register_profile(
        "rallypoint", deadline=None, print_blob=True, derandomize=IN_CI, max_examples=by_size(15, 40, 100)
    )
    settings.load_profile("rallypoint")
    # All that is made while tests are collected stays: to look through it again and again is a sixth of that time.
    gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage again, from here on."""
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what a small run leaves out as a whole."""
    left_out = {Path(__file__).parent / name for name in NOT_SMALL}
    return True if config.getoption("size") == "small" and collection_path in left_out else None


def is_left_out(item: pytest.Item, size: str) -> bool:
    """Whether a test is too costly for a run of this size."""
    left_out = {"small": (*COSTLY_MARKERS, "long"), "full": ("long",)}.get(size, ())
    return any(item.get_closest_marker(name) for name in left_out)


def cost(item: pytest.Item) -> tuple[int, int]:
    """The place of a test in the run: first by the costliest part it needs, then by its folder."""
    part = max(
        (place for place, name in enumerate(COSTLY_MARKERS, start=1) if item.get_closest_marker(name)), default=0
    )
    folder = f"{item.path.parent.as_posix()}/"
    return part, next(
        (place for place, name in enumerate(FOLDER_ORDER) if f"/tests/{name}/" in folder), len(FOLDER_ORDER)
    )


def groups_of(items: list[pytest.Item]) -> dict[str, str]:
    """What the modules share that share something, by their names in the ids of tests."""
    groups: dict[str, str] = {}
    for name in reversed(SHARED):
        groups |= {module_of(item.nodeid): name for item in items if item.get_closest_marker(name)}
    return groups


def module_of(nodeid: str) -> str:
    """The file of a test."""
    return nodeid.split("::", 1)[0]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what is too costly for the size, and run the cheap before the costly; within a folder, files keep their
    order.

    Several processes begin with the costliest: the longest of all would else run alone in the end.
    """
    left_out = [item for item in items if is_left_out(item, config.getoption("size"))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not is_left_out(item, config.getoption("size"))]
    # A pytest that a test starts has the variables of pytest-xdist, too, and is none of them.
    given: dict[str, str] | None = getattr(config, "workerinput", None)
    if given is not None and "groups" in given:
        tell_groups(Path(given["groups"]), given["workerid"], groups_of(items))
        items.sort(key=lambda item: item.path)
    items.sort(key=cost, reverse=given is not None)


def tell_groups(file: Path, worker: str, groups: dict[str, str]) -> None:
    """Write them where the process that hands tests out reads them: it collects none, and is told their ids alone."""
    written = file.with_name(worker)
    written.write_text(json.dumps(groups), "utf-8")
    written.replace(file)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process where to write its groups, all of them the same place."""
    folder = node.config.stash.setdefault(GROUPS_FOLDER, None) or TemporaryDirectory(prefix="groups-of-tests-")
    node.config.stash[GROUPS_FOLDER] = folder
    node.workerinput["groups"] = str(Path(folder.name) / "groups.json")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what the processes wrote."""
    if (folder := config.stash.get(GROUPS_FOLDER, None)) is not None:
        folder.cleanup()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With --dist loadgroup: a group runs in one process, and so does a module that is in none.

    Not by marks of pytest-xdist: it writes them into an attribute of a test that pytest no longer reads.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - other versions of Python run some tests without

    @cache
    def groups() -> dict[str, str]:
        folder = config.stash[GROUPS_FOLDER]
        assert folder is not None
        told: dict[str, str] = json.loads((Path(folder.name) / "groups.json").read_text("utf-8"))
        return told

    class ByGroupOrModule(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            module = module_of(nodeid)
            return groups().get(module, module)

    return ByGroupOrModule(config, log)


def fail_if_missing(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip for a missing part into a failure. Any other skip (a platform, a privilege) stays one."""
    if not report.skipped or not isinstance(report.longrepr, tuple):
        return
    reason = report.longrepr[2].removeprefix("Skipped: ")
    if reason.startswith(("missing ", "could not import")):
        report.outcome = "failed"
        report.longrepr = f"{reason}\nNothing may be missing where CI is set."


if IN_CI:

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Apply the rule to a test and its fixtures."""
        report = yield
        fail_if_missing(report)
        return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Put a folder's files into this process's order; in CI, apply the rule to a module that skips as a whole, as
    `pytest.importorskip` does.
    """
    report = yield
    given: dict[str, Any] | None = getattr(collector.config, "workerinput", None)
    if given is not None and isinstance(collector, pytest.Directory):
        begin_apart(report.result, int(given["workerid"].removeprefix("gw")), given["workercount"])
    if IN_CI:
        fail_if_missing(report)
    return report


def begin_apart(nodes: list[pytest.Item | pytest.Collector], worker: int, workers: int) -> None:
    """Let each of several processes begin a folder with other files than the rest.

    In a new checkout every file has to be compiled, and the assertions of tests rewritten. What one process has done
    the others read, unless all of them come to the same file at the same time.
    """
    nodes.sort(key=lambda node: (crc32(node.name.encode()) + worker) % workers)
