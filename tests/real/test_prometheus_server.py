"""The Prometheus that other tests lean on: it scrapes, it answers, and promtool tells a good page from a bad one."""

from collections.abc import Callable, Sequence

import pytest

from tests.real.parts import free_port
from tests.real.prometheus import PrometheusServer, promtool_check_metrics

pytestmark = pytest.mark.prometheus

GOOD_PAGE = """# HELP rallypoint_probe_total Probes so far.
# TYPE rallypoint_probe_total counter
rallypoint_probe_total 3
"""


def test_the_server_scrapes_itself_and_answers(start_prometheus: Callable[[Sequence[str]], PrometheusServer]) -> None:
    server = start_prometheus([])
    (up,) = server.wait_for("up == 1")
    assert up.labels["job"] == "tests"
    assert server.query("no_such_series") == []


def test_a_target_that_is_not_there_is_down(start_prometheus: Callable[[Sequence[str]], PrometheusServer]) -> None:
    target = f"127.0.0.1:{free_port()}"
    server = start_prometheus([target])
    (down,) = server.wait_for("up == 0")
    assert down.labels["instance"] == target


def test_promtool_has_nothing_against_a_good_page() -> None:
    assert promtool_check_metrics(GOOD_PAGE) == ""


def test_promtool_names_what_breaks_the_naming_rules() -> None:
    assert "rallypoint_probe" in promtool_check_metrics(GOOD_PAGE.replace("probe_total", "probe"))


def test_promtool_refuses_a_page_that_does_not_parse() -> None:
    assert promtool_check_metrics("rallypoint_probe_total three\n") != ""
