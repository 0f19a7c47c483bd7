"""A real Prometheus scrapes the real service, and answers questions about its groups."""

from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.end_to_end.service_process import running_service
from tests.real.prometheus import PrometheusServer, promtool_check_metrics

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]


def test_prometheus_knows_the_members_and_the_lag_of_a_group(
    tmp_path: Path, start_prometheus: Callable[[Sequence[str]], PrometheusServer]
) -> None:
    folder = tmp_path / "service"
    folder.mkdir()
    with running_service(folder, "--group-initial-rebalance-delay-ms", "0") as service:
        join = {
            "member_id": "",
            "group_instance_id": "one",
            "protocol_type": "consumer",
            "session_timeout_ms": 60000,
            "rebalance_timeout_ms": 60000,
            "protocols": [{"name": "range", "metadata": {"topics": ["clicks"]}}],
        }
        assert service.send("PUT", "/v1/topics/clicks", {"partitions": 2, "end_offsets": {"0": 100}})[0] == 200
        status, joined = service.send("POST", "/v1/groups/scraped/join", join)
        assert status == 200
        member = {"generation_id": joined["generation_id"], "member_id": joined["member_id"]}
        sync = member | {"protocol_type": "consumer", "protocol_name": "range"}
        assert service.send("POST", "/v1/groups/scraped/sync", sync)[0] == 200
        commit = member | {"offsets": {"clicks": {"0": {"offset": 58}}}}
        assert service.send("POST", "/v1/groups/scraped/offsets", commit)[0] == 200

        prometheus = start_prometheus([f"127.0.0.1:{service.port}"])
        [sample] = prometheus.wait_for('rallypoint_group_members{group_id="scraped"} == 1')
        assert sample.labels["job"] == "tests"
        for expression, value in (
            ('rallypoint_group_lag{group_id="scraped"}', 42),
            ('rallypoint_group_generation{group_id="scraped"}', 1),
            ('rallypoint_groups{state="Stable"}', 1),
            ('rallypoint_rebalances_total{trigger="member_joined"}', 1),
            ("rallypoint_commits_total", 1),
            ('rallypoint_requests_total{operation="commit",outcome="NONE"}', 1),
            ("rallypoint_ready", 1),
        ):
            [sample] = prometheus.query(expression)
            assert sample.value == value, expression
        assert prometheus.query("histogram_quantile(0.5, rallypoint_append_seconds_bucket)")[0].value > 0

        with urlopen(f"{service.url}/metrics", timeout=10) as answer:
            assert promtool_check_metrics(answer.read().decode()) == ""
