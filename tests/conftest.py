"""What holds for every test: the order, the rule for missing parts, and how long chance may take.

No test's own fixture belongs here: those of real parts are in tests/real/, fakes in tests/fakes/.
"""

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

pytest_plugins = [
    "tests.open_connections",
    "tests.real.java",
    "tests.real.kafka",
    "tests.real.languages",
    "tests.real.postgresql",
    "tests.real.prometheus",
    "tests.real.spark_kafka",
]

IN_CI = os.environ.get("CI", "").lower() not in {"", "0", "false"}

# The machines that run these tests are shared, so one slow example says nothing about the code. A failure prints what
# repeats it. In CI the examples are always the same ones, so that what fails there is what the change broke; elsewhere
# they are new ones each time, and find more.
settings.register_profile("rallypoint", deadline=None, print_blob=True, derandomize=IN_CI)
settings.load_profile("rallypoint")

# From the bottom of the house to its roof, so that the first failure is the nearest to its cause. A folder that is not
# named here comes after those that are.
ROOMS = (
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
COSTLY_MARKERS = ("slow", "languages", "prometheus", "postgresql", "kafka", "spark")


def cost(item: pytest.Item) -> tuple[int, int]:
    """The place of a test in the run: first by the costliest part it needs, then by its room."""
    part = max(
        (place for place, name in enumerate(COSTLY_MARKERS, start=1) if item.get_closest_marker(name)), default=0
    )
    folder = f"{item.path.parent.as_posix()}/"
    return part, next((place for place, room in enumerate(ROOMS) if f"/tests/{room}/" in folder), len(ROOMS))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the cheap before the costly; within a room, files keep their order."""
    items.sort(key=cost)


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
    def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Apply the rule to a module that skips as a whole, as `pytest.importorskip` does."""
        report = yield
        fail_if_missing(report)
        return report
