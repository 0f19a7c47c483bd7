"""The rules in deploy/prometheus: promtool takes them, each alert fires on what it is for and on nothing else.

A case has series of two instances or groups: `fires` belongs to the one that is ill, `quiet` to one that is just well.
"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.parts import require_program
from tests.real.prometheus import REMEDY

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rallypoint-rules.yaml"


def rules(kind: str) -> dict[str, dict[str, Any]]:
    """The rules that are of this kind, `alert` or `record`, by name."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule[kind]: rule for group in groups for rule in group["rules"] if kind in rule}


@dataclass(frozen=True, slots=True)
class Case:
    """What an alert is to say at `at`, of series with a sample each 15 s, in promtool's notation.

    `at_first`: a time at which it must not fire yet, where it has a `for`.
    """

    fires: dict[str, str]
    quiet: dict[str, str]
    at: str
    labels: dict[str, str]
    summary: str
    at_first: str | None = None


ILL, WELL = {"instance": "a:8000", "job": "rallypoint"}, {"instance": "b:8000", "job": "rallypoint"}
GROUP, OTHER = ILL | {"group_id": "g"}, ILL | {"group_id": "other"}
CONSUMER, FAST = (ILL | {"group_id": "g", "client_id": name} for name in ("etl", "fast"))


def series(name: str, labels: dict[str, str], **more: str) -> str:
    """Its name as Prometheus writes it."""
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in (labels | more).items()) + "}"


def pair(
    name: str, ill: str, well: str, of: tuple[dict[str, str], dict[str, str]] = (ILL, WELL), **more: str
) -> tuple[dict[str, str], dict[str, str]]:
    """`fires` and `quiet` of one metric."""
    return {series(name, of[0], **more): ill}, {series(name, of[1], **more): well}


GROUPS, CONSUMERS = (GROUP, OTHER), (CONSUMER, FAST)
CASES = {
    "RallypointNotScraped": Case(
        *pair("up", "0x40", "1x40"), "3m", ILL, "Rallypoint at a:8000 cannot be scraped.", at_first="1m"
    ),
    "RallypointNotReady": Case(
        *pair("rallypoint_ready", "0x40", "1x40"), "3m", ILL, "Rallypoint at a:8000 serves no groups.", at_first="1m"
    ),
    "RallypointServiceFault": Case(
        *pair("rallypoint_faults_total", "0x20 1x40", "3x60"),
        "10m",
        ILL,
        "Rallypoint at a:8000 met a fault of its own, and survived it.",
        at_first="5m",
    ),
    "RallypointStrangersTakeConnections": Case(
        *pair("rallypoint_connections_cut_total", "0+1x80", "5x80", reason="made_place"),
        "12m",
        ILL | {"reason": "made_place"},
        "Clients without a token hold all unauthenticated connections of a:8000.",
        at_first="3m",
    ),
    "RallypointOpenFilesTooFew": Case(
        *pair("rallypoint_connections_cut_total", "0x20 1x20", "5x40", reason="open_files"),
        "6m",
        ILL | {"reason": "open_files"},
        "Rallypoint at a:8000 cut connections: it may open no more files.",
        at_first="5m",
    ),
    "RallypointCertificateRunsOut": Case(
        # promtool's time begins at 0.
        *pair("rallypoint_tls_certificate_not_after_timestamp_seconds", "1209690x40", "2000000x40"),
        "2m",
        ILL,
        "The certificate of a:8000 runs out in 13d 23h 59m 30s.",
        at_first="1m",
    ),
    "RallypointTlsFilesOutdated": Case(
        *pair("rallypoint_tls_files_outdated", "0x4 1x40", "0x44"),
        "8m",
        ILL,
        "a:8000 cannot use its new TLS files, and goes on with the former ones.",
        at_first="4m",
    ),
    "RallypointIssuerAway": Case(
        *pair("rallypoint_issuer_keys_age_seconds", "290x4 1000x40", "300x44", issuer="corp"),
        "4m",
        ILL | {"issuer": "corp"},
        "a:8000 cannot fetch the keys of the issuer corp.",
        at_first="1m",
    ),
    "RallypointNothingCanBeStored": Case(
        *pair("rallypoint_storage_writable", "1x3 0x20", "1x24"),
        "2m",
        ILL,
        "Rallypoint at a:8000 can store nothing.",
        at_first="1m",
    ),
    "RallypointDiskHangs": Case(
        *pair("rallypoint_append_age_seconds", "0x8 6x20", "4.9x30"),
        "3m",
        ILL,
        "A write of a:8000 has been under way for 6s.",
        at_first="2m",
    ),
    "RallypointDiskSlow": Case(
        {
            series("rallypoint_append_seconds_bucket", ILL, le="0.25"): "0x100",
            series("rallypoint_append_seconds_bucket", ILL, le="0.5"): "0+10x100",
            series("rallypoint_append_seconds_bucket", ILL, le="+Inf"): "0+10x100",
        },
        {
            series("rallypoint_append_seconds_bucket", WELL, le="0.25"): "0+10x100",
            series("rallypoint_append_seconds_bucket", WELL, le="0.5"): "0+10x100",
            series("rallypoint_append_seconds_bucket", WELL, le="+Inf"): "0+10x100",
        },
        "20m",
        ILL,
        "One durable write in a hundred of a:8000 takes over 497.5ms.",
        at_first="8m",
    ),
    "RallypointLogNotCut": Case(
        *pair("rallypoint_storage_log_bytes", "209715200x40", "67108864x40"),
        "8m",
        ILL,
        "The write-ahead log of a:8000 has 200MiB.",
        at_first="4m",
    ),
    "RallypointShardFailed": Case(
        *pair("rallypoint_shards", "0x8 2x20", "0x28", state="Failed"),
        "3m",
        ILL | {"state": "Failed"},
        "2 shards of a:8000 cannot be loaded: their groups are refused.",
        at_first="2m",
    ),
    "RallypointStoredDataDamaged": Case(
        {
            series("rallypoint_damaged_groups", ILL): "0x8 1x20",
            series("rallypoint_stray_records", ILL): "0x28",
            series("rallypoint_unreadable_topics", ILL): "0x28",
        },
        {
            series("rallypoint_damaged_groups", WELL): "0x28",
            series("rallypoint_stray_records", WELL): "0x28",
            series("rallypoint_unreadable_topics", WELL): "0x28",
        },
        "3m",
        ILL,
        "1 groups, records or topics of a:8000 are damaged.",
        at_first="2m",
    ),
    "RallypointNodesDisagree": Case(
        {series("rallypoint_live_nodes", ILL): "3x40", series("rallypoint_live_nodes", WELL): "3x8 2x40"},
        {series("rallypoint_live_nodes", {"instance": name, "job": "whole"}): "3x48" for name in ("c", "d", "e")},
        "5m",
        {"job": "rallypoint"},
        "Nodes of the cluster do not see each other; one sees 3.",
        at_first="2m30s",
    ),
    "RallypointShardsNotServed": Case(
        {
            series("rallypoint_shards", ILL, state="Active"): "25x8 24x40",
            series("rallypoint_shards", ILL, state="Absent"): "25x8 26x40",
            series("rallypoint_shards", WELL, state="Active"): "25x48",
            series("rallypoint_shards", WELL, state="Absent"): "25x48",
        },
        {
            series("rallypoint_shards", {"instance": "c", "job": "whole"}, state="Active"): "8x48",
            series("rallypoint_shards", {"instance": "c", "job": "whole"}, state="Absent"): "0x48",
        },
        "6m",
        {"job": "rallypoint"},
        "Only 49 shards are served: the groups of the others are refused.",
        at_first="2m",
    ),
    "RallypointLeaseNearDeadline": Case(
        *pair("rallypoint_lease_remaining_seconds", "4x8 0.5x20", "1x28"),
        "3m",
        ILL,
        "a:8000 is 500ms from the deadline of its lease.",
        at_first="2m",
    ),
    "RallypointLeaseLost": Case(
        *pair("rallypoint_leases_lost_total", "0x20 1x40", "2x60"),
        "10m",
        ILL,
        "a:8000 lost its lease: other nodes took its shards.",
        at_first="5m",
    ),
    "RallypointGroupRebalancesAgain": Case(
        *pair("rallypoint_group_generation", "1+1x6 7x40", "1+1x5 6x40", GROUPS),
        "5m",
        GROUP,
        "Group g rebalanced 6 times in 15 minutes.",
        at_first="1m",
    ),
    "RallypointRebalanceStuck": Case(
        *pair("rallypoint_group_awaited_members", "1x80", "1x10 0x1 1x18 0x1 1x18 0x1 1x18 0x1 1x18", GROUPS),
        "16m",
        GROUP,
        "A rebalance of group g has waited for members for minutes.",
        at_first="4m",
    ),
    "RallypointRebalancesHeld": Case(
        *pair("rallypoint_group_held", "0x8 1x80", "0x40 1x48", GROUPS),
        "14m",
        GROUP,
        "Rebalances of group g have been held back for ten minutes.",
        at_first="10m",
    ),
    "RallypointPartitionsWithoutOwner": Case(
        *pair("rallypoint_group_unowned_partitions", "0x8 3x80", "0x40 3x48", GROUPS),
        "14m",
        GROUP,
        "3 partitions of group g have had no owner for ten minutes.",
        at_first="10m",
    ),
    "RallypointGroupFallsBehind": Case(
        *pair("rallypoint_group_lag", "200000+150x200", "200000-150x200", GROUPS),
        "31m",
        GROUP,
        "The lag of group g grows by 10 a second.",
        at_first="10m",
    ),
    "RallypointGroupCatchesUpSlowly": Case(
        *pair("rallypoint_group_lag", "1000000-15x200", "1000000-1500x200", GROUPS),
        "31m",
        GROUP,
        "At its pace group g has no lag left in 11d 13h 15m 40s.",
        at_first="10m",
    ),
    "RallypointGroupStatusErr": Case(
        *pair("rallypoint_group_status", "0x8 1x60", "0x68", GROUPS, status="ERR"),
        "12m",
        GROUP | {"status": "ERR"},
        "A partition of group g stands still, or its offset went back.",
        at_first="6m",
    ),
    "RallypointMembersDie": Case(
        *pair("rallypoint_sessions_expired_total", "0+1x120", "0+1x2 2x118", kind="member"),
        "25m",
        ILL | {"kind": "member"},
        "66.67m members a second die at a:8000 rather than leave.",
        at_first="4m",
    ),
    "RallypointHandlerNearLimit": Case(
        *pair("rallypoint_member_in_hand_seconds", "0+15x30", "60x30", CONSUMERS),
        "4m",
        CONSUMER,
        "etl of group g has a batch in hand for 4m 0s.",
        at_first="3m",
    ),
    "RallypointCommitsRefused": Case(
        {series("rallypoint_member_calls_total", CONSUMER, operation="commit", outcome="ILLEGAL_GENERATION"): "0+1x60"},
        {series("rallypoint_member_calls_total", FAST, operation="commit", outcome="NONE"): "0+9x60"},
        "14m",
        CONSUMER | {"operation": "commit", "outcome": "ILLEGAL_GENERATION"},
        "Commits of etl of group g end with ILLEGAL_GENERATION.",
        at_first="1m",
    ),
}


def promtool(*arguments: str | Path) -> str:
    """What promtool says against it; "" if nothing."""
    command = [require_program("promtool", REMEDY), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return answer.stdout + answer.stderr if answer.returncode else ""


def test_every_alert_has_its_case() -> None:
    assert CASES.keys() == rules("alert").keys()


@pytest.mark.prometheus
def test_promtool_takes_the_rules() -> None:
    assert promtool("check", "rules", RULES) == ""


@pytest.mark.prometheus
@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_for_what_is_ill_alone_and_not_too_soon(alert: str, tmp_path: Path) -> None:
    case, rule = CASES[alert], rules("alert")[alert]
    fired = {
        "exp_labels": case.labels | rule["labels"],
        "exp_annotations": {"summary": case.summary, "runbook_url": rule["annotations"]["runbook_url"]},
    }
    asked = [{"eval_time": case.at, "alertname": alert, "exp_alerts": [fired]}]
    if case.at_first is not None:
        asked.append({"eval_time": case.at_first, "alertname": alert, "exp_alerts": []})
    test = {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in (case.fires | case.quiet).items()],
        "alert_rule_test": asked,
    }
    path = tmp_path / "test.json"  # JSON is YAML
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": [test]}))
    assert promtool("test", "rules", path) == ""


@pytest.mark.prometheus
def test_the_time_to_lag_0_is_the_lag_by_its_pace(tmp_path: Path) -> None:
    asked = [
        {"expr": "rallypoint:group_lag_eta_seconds", "eval_time": "10m", "exp_samples": [
            {"labels": series("rallypoint:group_lag_eta_seconds", {"group_id": "falls"}), "value": 600}
        ]},
    ]  # fmt: skip
    test = {
        "interval": "1m",
        "input_series": [
            {"series": 'rallypoint_group_lag{group_id="falls"}', "values": "12000-600x20"},
            {"series": 'rallypoint_group_lag{group_id="rises"}', "values": "0+600x20"},
            {"series": 'rallypoint_group_lag{group_id="stays"}', "values": "500x20"},
        ],
        "promql_expr_test": asked,
    }
    path = tmp_path / "test.json"
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    assert promtool("test", "rules", path) == ""
