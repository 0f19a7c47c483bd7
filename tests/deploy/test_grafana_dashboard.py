"""The dashboard in deploy/grafana is what its program makes, and fits Grafana's grid."""

from itertools import combinations
from typing import Any

from deploy.grafana.dashboard import COLUMNS, dashboard, text
from tests.deploy.test_prometheus_rules import ROOT


def test_the_file_is_what_the_program_makes() -> None:
    made = "python -m deploy.grafana.dashboard > deploy/grafana/rallypoint.json"
    assert (ROOT / "deploy" / "grafana" / "rallypoint.json").read_text() == text(), made


def test_no_panel_lies_on_another_or_leaves_the_grid() -> None:
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)
    assert not [(one, other) for one, other in combinations(places, 2) if overlap(one, other)]
    numbers = [panel["id"] for panel in dashboard()["panels"]]
    assert len(numbers) == len(set(numbers))


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(
        one[start] < other[start] + other[length] and other[start] < one[start] + one[length]
        for start, length in (("x", "w"), ("y", "h"))
    )
