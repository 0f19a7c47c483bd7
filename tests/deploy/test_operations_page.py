"""What an operator is told of the rules and of the unit is what they are."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rallypoint.coordinator.http.access.watch import IssuerStatus
from rallypoint.coordinator.metrics import Metrics
from rallypoint.member.core.states import State
from rallypoint.member.metrics import MemberMetrics
from tests.coordinator.test_metrics import Certificates, Node, Watched
from tests.deploy.test_prometheus_rules import ROOT, rules
from tests.fakes.silent_member import SILENT

PAGE = ROOT / "docs" / "operations.md"
UNIT = ROOT / "deploy" / "systemd" / "rallypoint.service"
INSTALLED = "/opt/rallypoint/bin/rallypoint"


def samples_of_all() -> set[str]:
    """The names of all samples that a service, a node of a cluster and a consumer can show."""
    metrics, registry = Metrics("1", 1), CollectorRegistry()
    service = Watched()
    service.view.add("g")
    service.view.lags = {"g": 1}
    metrics.watch(service)
    metrics.watch_node(Node())
    metrics.watch_certificates(Certificates())
    metrics.watch_issuers(lambda: {"corp": IssuerStatus()})
    metrics.request_answered("commit", "NONE", 0.0)
    metrics.connection_cut("open_files")
    of_members = MemberMetrics(registry)
    of_members.moved(SILENT, State.UNJOINED, State.FINDING)
    of_members.called(SILENT, "join", "NONE", 0.0)
    of_members.consumer_began(SILENT)
    text = metrics.expose("")[0].decode() + generate_latest(registry).decode()
    names = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    families = {family.name for family in text_string_to_metric_families(text)}
    return names | families


@pytest.mark.parametrize("kind", ["alert", "record"])
def test_every_metric_of_a_rule_is_one_that_is_shown(kind: str) -> None:
    known = samples_of_all() | rules("record").keys() | {"up"}
    for name, rule in rules(kind).items():
        unlabelled = re.sub(r"\{.*?\}|\[.*?\]", "", rule["expr"])
        named = set(re.findall(r"\b(?:rallypoint[\w:]+|up)\b", unlabelled))
        assert named, name
        assert named <= known, name


def test_every_alert_leads_to_its_paragraph() -> None:
    paragraphs = dict(re.findall(r"^### (\w+)\n\n(.+)$", PAGE.read_text(), re.MULTILINE))
    assert paragraphs.keys() == rules("alert").keys()
    for name, rule in rules("alert").items():
        assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{name.lower()}"
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in {"critical", "warning"}


def test_the_table_of_alerts_has_the_expressions_of_the_rules() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| \[`(\w+)`\]\(operations\.md#\w+\) \| [^|]+ \| `(.*)` \|$", text, re.MULTILINE)
    shown = {name: expression.replace("\\|", "|") for name, expression in rows}
    assert shown == {name: " ".join(rule["expr"].split()) for name, rule in rules("alert").items()}


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("missing systemd-analyze: Debian's package systemd has it")
    text = UNIT.read_text()
    assert text.count(f"ExecStart={INSTALLED} serve ") == 1
    # It wants the program to be there, and takes any.
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace(INSTALLED, sys.executable))
    answer = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    # Units of the machine itself are not ours to judge.
    assert [line for line in answer.stderr.splitlines() if UNIT.name in line] == []
    assert answer.returncode == 0, answer.stderr
