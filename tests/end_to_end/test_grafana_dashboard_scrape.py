"""Each panel of the dashboard asks for what a real service with a group shows, and a real Prometheus has answers."""

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.grafana.dashboard import dashboard
from tests.end_to_end.service_process import ServiceProcess, running_service
from tests.real.prometheus import PrometheusServer

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]

FILLED_IN = {"$job": ".*", "$instance": ".*", "$group_id": ".*", "$__rate_interval": "30s"}


def expressions() -> Iterator[tuple[str, str]]:
    """The title and the expression of each query, as Grafana sends it."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            expression: str = target["expr"]
            for name, value in FILLED_IN.items():
                expression = expression.replace(name, value)
            yield panel["title"], expression


def send(service: ServiceProcess, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    status, answer = service.send(method, path, body)
    assert status == 200, answer
    result: dict[str, Any] = answer
    return result


def test_every_panel_has_data_of_a_group_that_catches_up(
    tmp_path: Path, start_prometheus: Callable[[Sequence[str]], PrometheusServer]
) -> None:
    folder = tmp_path / "service"
    folder.mkdir()
    with running_service(folder, "--group-initial-rebalance-delay-ms", "0") as service:
        send(service, "PUT", "/v1/topics/clicks", {"partitions": 2, "end_offsets": {"0": 1000, "1": 0}})
        prometheus = start_prometheus([f"127.0.0.1:{service.port}"])
        prometheus.wait_for("rallypoint_ready == 1")  # before the group, or there is no increase to be seen
        time.sleep(1.5)
        join = {
            "member_id": "",
            "group_instance_id": "one",
            "protocol_type": "consumer",
            "session_timeout_ms": 60000,
            "rebalance_timeout_ms": 60000,
            "protocols": [{"name": "range", "metadata": {"topics": ["clicks"]}}],
        }
        joined = send(service, "POST", "/v1/groups/shown/join", join)
        member = {"generation_id": joined["generation_id"], "member_id": joined["member_id"]}
        sync = member | {"protocol_type": "consumer", "protocol_name": "range"}
        send(service, "POST", "/v1/groups/shown/sync", sync)
        for offset in range(10, 110, 10):
            send(
                service, "POST", "/v1/groups/shown/offsets", member | {"offsets": {"clicks": {"0": {"offset": offset}}}}
            )
            time.sleep(0.5)
        prometheus.wait_for('rallypoint_group_lag{group_id="shown"} <= 900')

        with build_opener(ProxyHandler({})).open(f"{service.url}/metrics", timeout=10) as answer:
            page = answer.read().decode()
        scraped = {sample.name for family in text_string_to_metric_families(page) for sample in family.samples}
        asked = list(expressions())
        assert len(asked) > 30
        for title, expression in asked:
            named = set(re.findall(r"\b(?:rallypoint|process)_\w+", expression))
            assert named, title
            assert named <= scraped, title
        empty = []
        for title, expression in asked:
            values = [sample.value for sample in prometheus.query(expression)]
            if not any(math.isfinite(value) for value in values):
                empty.append((title, expression, values))
        assert empty == []
