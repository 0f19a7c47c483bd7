"""Every setting, metric and error stands in the documents, with the facts that the code has."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from coordinator.core.commands import Trigger
from coordinator.core.effects import GroupChanged, GroupSummary
from coordinator.http.errors import ERROR_PAGES
from coordinator.http.event_text import KINDS
from coordinator.metrics import GROUP_STATES, Metrics
from coordinator.settings import Settings, flag_of, variable_of
from member.core.states import State
from member.metrics import MemberMetrics
from protocol.operations import EVENTS, OPERATIONS, SESSION
from tests.coordinator.test_metrics import Watched
from tests.fakes.silent_member import SILENT

DOCS = Path(__file__).parent.parent / "docs"


def words(text: str) -> str:
    """The text on one line, however it is wrapped."""
    return " ".join(text.split())


def section(text: str, heading: str) -> str:
    """What stands below the heading, up to the next of any level."""
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {heading!r}"
    return found[1]


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_has_its_heading(name: str) -> None:
    field = Settings.model_fields[name]
    text = words(section((DOCS / "settings.md").read_text(), f"### `{name}`"))
    default = field.default
    shown = "none" if default in (None, ()) else str(default).lower() if isinstance(default, bool) else str(default)
    assert text.startswith(f"Default: `{shown}` · `{flag_of(name)}` · `{variable_of(name)}`")
    assert words(field.description or "?") in text


def test_no_setting_stands_there_that_is_gone() -> None:
    named = re.findall(r"^### `(\w+)`$", (DOCS / "settings.md").read_text(), re.MULTILINE)
    assert named == list(Settings.model_fields)


def test_every_metric_has_its_row() -> None:
    metrics = Metrics("1", 1)
    service = Watched()
    service.view.add("g")
    service.view.lags = {"g": 1}
    metrics.watch(service)
    rows = dict(re.findall(r"^\| `(rallypoint_\w+)(?:{[\w,]+})?` \| (\w+) \|", (DOCS / "metrics.md").read_text(), re.M))
    registry = CollectorRegistry()
    of_members = MemberMetrics(registry)
    of_members.moved(SILENT, State.UNJOINED, State.FINDING)
    of_members.called(SILENT, "join", "NONE", 0.0)
    of_members.consumer_began(SILENT)
    expected = {}
    text = metrics.expose("")[0].decode() + generate_latest(registry).decode()
    for family in text_string_to_metric_families(text):
        if family.name.startswith("rallypoint_"):
            expected[f"{family.name}_total" if family.type == "counter" else family.name] = family.type
    assert rows == expected


def test_the_values_of_labels_are_named() -> None:
    text = (DOCS / "metrics.md").read_text()
    for value in (*GROUP_STATES, *(trigger.value for trigger in Trigger)):
        assert f"`{value}`" in text


@pytest.mark.parametrize("slug", ERROR_PAGES)
def test_every_error_has_its_row(slug: str) -> None:
    page = ERROR_PAGES[slug]
    text = (DOCS / "http.md").read_text()
    found = re.search(rf"^\| `{slug}` \| (-?\d+) `(\w+)` \| (\d+) \| (yes|no) \| (.+?) \|$", text, re.MULTILINE)
    assert found, f"no row for {slug}"
    code, name, status, retriable, action = found.groups()
    assert (int(code), name, int(status)) == (page.code, page.code.name, page.status)
    assert retriable == ("yes" if page.retriable else "no")
    assert action == page.action


def test_every_operation_is_named() -> None:
    text = (DOCS / "http.md").read_text()
    for operation in (*OPERATIONS, EVENTS, SESSION):
        assert f"`{operation.method} {operation.path}`" in text


def test_every_kind_of_event_has_its_row() -> None:
    text = section((DOCS / "events.md").read_text(), "## Kinds")
    rows = {kind: re.findall(r"`(\w+)`", told) for kind, told in re.findall(r"^\| `(\w+)` \| (.*?) \|", text, re.M)}
    expected = {}
    for kind, event_type in KINDS.items():
        source = GroupSummary if event_type is GroupChanged else event_type
        expected[kind] = [field.name for field in fields(source) if field.name not in {"group_id", "topics"}]
    assert rows == expected
