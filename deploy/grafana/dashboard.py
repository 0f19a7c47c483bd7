"""Grafana's dashboard of the service. `python -m deploy.grafana.dashboard` prints the JSON to be imported.

Here lives what each panel asks and how it is laid out. The JSON beside it is made by this program alone.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

COLUMNS = 24
"""Of Grafana's grid."""
PANEL_HEIGHT = 8
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SERVICE = 'job=~"$job",instance=~"$instance"'
GROUP = 'job=~"$job",group_id=~"$group_id"'


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: `asks` has a legend and an expression for each query, `says` is the help behind the title.

    `unit` is Grafana's name of it. `width` is in columns. `single` shows the last value in place of a course.
    """

    title: str
    says: str
    asks: tuple[tuple[str, str], ...]
    unit: str = "short"
    width: int = 8
    single: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


ROWS = (
    Row(
        "At a glance",
        (
            Panel(
                "Ready", "1 while groups are served.", (("{{instance}}", f"rallypoint_ready{{{SERVICE}}}"),),
                width=4, single=True,
            ),
            Panel(
                "Storage writable", "1 while something can be stored.",
                (("{{instance}}", f"rallypoint_storage_writable{{{SERVICE}}}"),), width=4, single=True,
            ),
            Panel(
                "Groups", "Groups by state.",
                (("{{state}}", f"sum by (state) (rallypoint_groups{{{SERVICE}}})"),), width=8, single=True,
            ),
            Panel(
                "Shards", "Failed ones cannot be loaded: their groups are refused.",
                (("{{state}}", f"sum by (state) (rallypoint_shards{{{SERVICE}}})"),), width=8, single=True,
            ),
        ),
    ),
    Row(
        "Groups",
        (
            Panel(
                "Lag", "End offsets minus committed offsets.",
                (("{{group_id}}", f"sum by (group_id) (rallypoint_group_lag{{{GROUP}}})"),),
            ),
            Panel(
                "Lag by topic", "The first 50 topics of a group.",
                (("{{group_id}} {{topic}}", f"sum by (group_id, topic) (rallypoint_group_topic_lag{{{GROUP}}})"),),
            ),
            Panel(
                "Time until the lag is gone", "At the pace of ten minutes; nothing while the lag does not fall.",
                ((
                    "{{group_id}}",
                    f"rallypoint_group_lag{{{GROUP}}} / -(deriv(rallypoint_group_lag{{{GROUP}}}[10m]) < 0)",
                ),),
                unit="s",
            ),
            Panel(
                "Members", "Members of each group, and those without a partition.",
                (
                    ("{{group_id}}", f"sum by (group_id) (rallypoint_group_members{{{GROUP}}})"),
                    ("{{group_id}} idle", f"sum by (group_id) (rallypoint_group_idle_members{{{GROUP}}})"),
                    ("{{group_id}} useful", f"sum by (group_id) (rallypoint_group_useful_members{{{GROUP}}})"),
                ),
            ),
            Panel(
                "Partitions without an owner", "Of subscribed registered topics.",
                (("{{group_id}}", f"sum by (group_id) (rallypoint_group_unowned_partitions{{{GROUP}}})"),),
            ),
            Panel(
                "Time since the last commit", "Of each group.",
                (("{{group_id}}", f"min by (group_id) (rallypoint_group_last_commit_age_seconds{{{GROUP}}})"),),
                unit="s",
            ),
            Panel(
                "Status", "The status that each group has, by Burrow's rules.",
                ((
                    "{{group_id}} {{status}}",
                    f"max by (group_id, status) (rallypoint_group_status{{{GROUP}}}) == 1",
                ),),
            ),
            Panel(
                "Generation", "Each step is a rebalance.",
                (("{{group_id}}", f"max by (group_id) (rallypoint_group_generation{{{GROUP}}})"),),
            ),
            Panel(
                "Awaited, flapping, held", "Awaited by rebalances, coming and going in circles, held by a freeze.",
                (
                    ("{{group_id}} awaited", f"sum by (group_id) (rallypoint_group_awaited_members{{{GROUP}}})"),
                    ("{{group_id}} flapping", f"sum by (group_id) (rallypoint_group_flapping_members{{{GROUP}}})"),
                    ("{{group_id}} held", f"sum by (group_id) (rallypoint_group_held{{{GROUP}}})"),
                ),
            ),
        ),
    ),
    Row(
        "Rebalances",
        (
            Panel(
                "Rebalances by trigger", "Begun in the interval.",
                ((
                    "{{trigger}}",
                    f"sum by (trigger) (increase(rallypoint_rebalances_total{{{SERVICE}}}[$__rate_interval]))",
                ),),
            ),
            Panel(
                "Sessions that ran out", "Members that die rather than leave.",
                ((
                    "{{kind}}",
                    f"sum by (kind) (increase(rallypoint_sessions_expired_total{{{SERVICE}}}[$__rate_interval]))",
                ),),
            ),
            Panel(
                "Length of join and sync phases", "Means.",
                tuple(
                    (
                        phase,
                        f"sum(rate(rallypoint_{phase}_phase_seconds_sum{{{SERVICE}}}[$__rate_interval]))"
                        f" / sum(rate(rallypoint_{phase}_phase_seconds_count{{{SERVICE}}}[$__rate_interval]))",
                    )
                    for phase in ("join", "sync")
                ),
                unit="s",
            ),
        ),
    ),
    Row(
        "Requests and channels",
        (
            Panel(
                "Requests", "Answered over HTTP, by outcome.",
                ((
                    "{{outcome}}",
                    f"sum by (outcome) (rate(rallypoint_requests_total{{{SERVICE}}}[$__rate_interval]))",
                ),),
                unit="reqps",
            ),
            Panel(
                "99 of 100 commits are answered within", "Over HTTP; other calls are held back by design.",
                ((
                    "commit",
                    "histogram_quantile(0.99, sum by (le) (rate(rallypoint_request_seconds_bucket"
                    f'{{{SERVICE},operation="commit"}}[$__rate_interval])))',
                ),),
                unit="s",
            ),
            Panel(
                "Connections", "Open now, and the most of each.",
                (
                    ("{{state}}", f"sum by (state) (rallypoint_connections{{{SERVICE}}})"),
                    ("{{state}} at most", f"sum by (state) (rallypoint_connections_max{{{SERVICE}}})"),
                ),
            ),
            Panel(
                "Channels and streams", "Open now, with the calls that wait.",
                (
                    ("channels", f"sum(rallypoint_channels{{{SERVICE}}})"),
                    ("event streams", f"sum(rallypoint_event_streams{{{SERVICE}}})"),
                    ("parked calls", f"sum(rallypoint_parked_calls{{{SERVICE}}})"),
                ),
            ),
            Panel(
                "Connections that the service cut", "By reason, in the interval.",
                ((
                    "{{reason}}",
                    f"sum by (reason) (increase(rallypoint_connections_cut_total{{{SERVICE}}}[$__rate_interval]))",
                ),),
            ),
            Panel(
                "Faults of the service", "Each is in the log with its traceback.",
                (("{{instance}}", f"increase(rallypoint_faults_total{{{SERVICE}}}[$__rate_interval])"),),
            ),
        ),
    ),
    Row(
        "Storage and process",
        (
            Panel(
                "Commits", "Partitions whose offset was stored.",
                (("partitions", f"sum(rate(rallypoint_committed_partitions_total{{{SERVICE}}}[$__rate_interval]))"),),
                unit="ops",
            ),
            Panel(
                "99 of 100 writes are durable within", "The disk's flush decides it.",
                ((
                    "{{instance}}",
                    "histogram_quantile(0.99, sum by (instance, le) "
                    f"(rate(rallypoint_append_seconds_bucket{{{SERVICE}}}[$__rate_interval])))",
                ),),
                unit="s",
            ),
            Panel(
                "Oldest write under way", "Above 5 s calls that wait for it are refused.",
                (("{{instance}}", f"rallypoint_append_age_seconds{{{SERVICE}}}"),), unit="s",
            ),
            Panel(
                "Damaged", "Groups, records and topics.",
                (
                    ("groups", f"sum(rallypoint_damaged_groups{{{SERVICE}}})"),
                    ("records", f"sum(rallypoint_stray_records{{{SERVICE}}})"),
                    ("topics", f"sum(rallypoint_unreadable_topics{{{SERVICE}}})"),
                ),
            ),
            Panel(
                "Write-ahead log", "Usually up to 4 MiB; of a single node on a file.",
                (("{{instance}}", f"rallypoint_storage_log_bytes{{{SERVICE}}}"),), unit="bytes",
            ),
            Panel(
                "Memory", "Of the process, and of the metadata of all members.",
                (
                    ("{{instance}}", f"process_resident_memory_bytes{{{SERVICE}}}"),
                    ("{{instance}} metadata", f"rallypoint_metadata_bytes{{{SERVICE}}}"),
                ),
                unit="bytes",
            ),
            Panel(
                "Processor", "Cores in use; the service works on one.",
                (("{{instance}}", f"rate(process_cpu_seconds_total{{{SERVICE}}}[$__rate_interval])"),),
            ),
            Panel(
                "Stalls", "Time in which the service stood still, by the second.",
                (("{{instance}}", f"rate(rallypoint_stall_seconds_sum{{{SERVICE}}}[$__rate_interval])"),), unit="s",
            ),
        ),
    ),
)  # fmt: skip


def shown(panel: Panel, number: int, left: int, top: int) -> dict[str, Any]:
    """The panel as Grafana reads it."""
    return {
        "id": number,
        "type": "stat" if panel.single else "timeseries",
        "title": panel.title,
        "description": panel.says,
        "datasource": SOURCE,
        "gridPos": {"x": left, "y": top, "w": panel.width, "h": PANEL_HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
            for at, (legend, expression) in enumerate(panel.asks)
        ],
    }


def laid_out() -> Iterator[dict[str, Any]]:
    """All rows and panels, from left to right and from the top down."""
    number, top = 1, 0
    for row in ROWS:
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
            "panels": [],
        }
        number, top, left = number + 1, top + 1, 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top = 0, top + PANEL_HEIGHT
            yield shown(panel, number, left, top)
            number, left = number + 1, left + panel.width
        top += PANEL_HEIGHT


def choice(name: str, label: str, query: str) -> dict[str, Any]:
    """A list at the top of the dashboard from which any number of values are chosen."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> dict[str, Any]:
    """All of it."""
    return {
        "uid": "rallypoint",
        "title": "Rallypoint",
        "tags": ["rallypoint"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                choice("job", "Job", "label_values(rallypoint_ready, job)"),
                choice("instance", "Node", 'label_values(rallypoint_ready{job=~"$job"}, instance)'),
                choice("group_id", "Group", 'label_values(rallypoint_group_members{job=~"$job"}, group_id)'),
            ]
        },
        "panels": list(laid_out()),
    }


def text() -> str:
    """The file's content."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(text(), end="")
