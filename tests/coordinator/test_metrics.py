"""What is counted, and that the page is one Prometheus reads without complaint."""

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rallypoint.coordinator.core.commands import Trigger
from rallypoint.coordinator.core.effects import (
    GroupSummary,
    JoinPhaseEnded,
    OffsetsCommitted,
    OffsetsRemoved,
    RebalanceBegan,
    RebalanceHeld,
    Removal,
    SessionExpired,
    SyncPhaseEnded,
)
from rallypoint.coordinator.http.access.watch import IssuerStatus
from rallypoint.coordinator.metrics import CUT_REASONS, GROUP_STATES, LAGS_AT_ONCE_MAX, Metrics
from rallypoint.coordinator.runtime.cluster.member_node import OwnershipCounts
from rallypoint.coordinator.runtime.condition import Condition, ShardState, UnavailableShard
from rallypoint.coordinator.runtime.group_table import GroupMetrics
from rallypoint.coordinator.storage.contract import AppendMetrics, StoreStatus
from rallypoint.coordinator.storage.shared_contract import LeaseStatus
from rallypoint.protocol import admin_messages as admin
from tests.fakes.cluster_harness import SHARDS, Cluster
from tests.real.prometheus import promtool_check_metrics


@dataclass(slots=True)
class View:
    summaries: dict[str, GroupSummary] = field(default_factory=dict)
    lags: dict[str, int] = field(default_factory=dict)

    committed: dict[str, int] = field(default_factory=dict)
    looked: int = 0

    def committed_count(self, group_id: str) -> int:
        return self.committed.get(group_id, 0)

    def lag(self, group_id: str) -> int | None:
        self.looked += self.committed_count(group_id)
        return self.lags.get(group_id)

    def add(self, group_id: str, state: str = "Stable", members: int = 2, generation: int = 5) -> None:
        self.summaries[group_id] = GroupSummary(group_id, state, "consumer", members, generation)


@dataclass(slots=True)
class Watched:
    phase: str = "ready"
    view: View = field(default_factory=View)
    more: dict[str, GroupMetrics] = field(default_factory=dict)
    unavailable: tuple[UnavailableShard, ...] = ()
    store: StoreStatus = field(default_factory=StoreStatus)
    parked_calls: int = 0

    async def group_metrics(self, group_ids: Iterable[str]) -> Mapping[str, GroupMetrics]:
        return {group_id: self.more[group_id] for group_id in group_ids if group_id in self.more}

    def condition(self) -> Condition:
        counts = Counter({ShardState.ACTIVE: 3 if self.phase == "ready" else 0})
        counts.update(shard.state for shard in self.unavailable)
        return Condition(self.phase, {state: counts[state] for state in ShardState}, self.unavailable, store=self.store)


@dataclass(slots=True)
class Node:
    counts: OwnershipCounts = field(default_factory=OwnershipCounts)
    lease: LeaseStatus = field(default_factory=lambda: LeaseStatus(0, 6_000, 0))
    live_count: int = 1
    shards: int = 0

    def owned_shards(self) -> int:
        return self.shards


@dataclass
class Certificates:
    not_after_s: int = 2_000_000_000
    is_outdated: bool = False
    reload_count: int = 0
    failure_count: int = 0


def samples(metrics: Metrics) -> dict[str, float]:
    """Each series by its name with its labels' values, in the order of the labels."""
    page, _ = metrics.expose("")
    return {
        ",".join([sample.name, *(value for _, value in sorted(sample.labels.items()))]): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_events_are_counted() -> None:
    metrics = Metrics("1.0", 10)
    for trigger in Trigger:
        metrics.event(RebalanceBegan("g", trigger, "a", 1, "because", 1))
    metrics.event(RebalanceBegan("h", Trigger.MEMBER_LEFT, "a", 1, "because", 1))
    metrics.event(JoinPhaseEnded("g", 2, 3200, 4, 1))
    metrics.event(SyncPhaseEnded("g", 2, 40, 1, partitions_moved=3))
    metrics.event(RebalanceHeld("g", Trigger.MEMBER_LEFT, "a", "because", 9))
    metrics.event(SessionExpired("g", "a"))
    metrics.event(SessionExpired("g", "b", pending=True))
    metrics.event(SessionExpired("g", "c", pending=True))
    metrics.event(OffsetsCommitted("g", (("t", 0, 1), ("t", 1, 1)), 1))
    metrics.event(OffsetsCommitted("g", (("t", 0, 2),), 2))
    metrics.event(OffsetsRemoved("g", (("t", 0), ("u", 1)), Removal.EXPIRED))
    metrics.event(OffsetsRemoved("g", (("t", 0),), Removal.DELETED))
    found = samples(metrics)
    assert found["rallypoint_offsets_expired_total"] == 2
    assert found["rallypoint_partitions_moved_total"] == 3
    assert found["rallypoint_rebalances_held_total,member_left"] == 1
    assert found["rallypoint_rebalances_held_total,member_joined"] == 0
    assert "rallypoint_rebalances_held_total,operator" not in found
    for trigger in Trigger:
        expected = 2 if trigger is Trigger.MEMBER_LEFT else 1
        assert found[f"rallypoint_rebalances_total,{trigger.value}"] == expected
    assert found["rallypoint_join_phase_seconds_sum"] == pytest.approx(3.2)
    assert found["rallypoint_sync_phase_seconds_sum"] == pytest.approx(0.04)
    assert found["rallypoint_sessions_expired_total,member"] == 1
    assert found["rallypoint_sessions_expired_total,pending"] == 2
    assert found["rallypoint_commits_total"] == 2
    assert found["rallypoint_committed_partitions_total"] == 3


def test_requests_and_appends_are_counted() -> None:
    metrics = Metrics("1.0", 10)
    metrics.request_answered("join", "WAITING", 50.0)
    metrics.request_answered("join", "NONE", 0.002)
    metrics.request_answered("join", "NONE", 0.002)
    metrics.request_answered("commit", "NONE", 0.002)
    metrics.appended(AppendMetrics(batches=3, writes=40, seconds=0.003))
    metrics.streams_open(+2)
    metrics.streams_open(-1)
    metrics.events_lost(7)
    found = samples(metrics)
    assert found["rallypoint_requests_total,join,NONE"] == 2
    assert found["rallypoint_requests_total,join,WAITING"] == 1
    assert found["rallypoint_request_seconds_count,join"] == 3
    assert found["rallypoint_request_seconds_bucket,0.0025,join"] == 2
    assert found["rallypoint_append_seconds_sum"] == 0.003
    assert found["rallypoint_event_streams"] == 1
    assert found["rallypoint_events_lost_total"] == 7
    assert found["rallypoint_append_batches_sum"] == 3
    assert found["rallypoint_append_writes_sum"] == 40
    assert "rallypoint_commits_created" not in found


def test_parked_calls_are_read_at_the_scrape() -> None:
    metrics, service = Metrics("1.0", 10), Watched()
    assert samples(metrics)["rallypoint_parked_calls"] == 0
    metrics.watch(service)
    for service.parked_calls in (2, 1):
        assert samples(metrics)["rallypoint_parked_calls"] == service.parked_calls


def test_a_node_of_a_cluster_is_read_at_the_scrape() -> None:
    metrics = Metrics("1.0", 10, "etcd")
    assert samples(metrics)["rallypoint_storage_info,etcd"] == 1
    assert "rallypoint_live_nodes" not in samples(metrics), "a single node has no cluster"
    node = Node(
        OwnershipCounts(taken=18, handed_over=4, not_handed_over=1, lost=2), LeaseStatus(1_500, 2_500, 3), 3, 16
    )
    metrics.watch_node(node)
    found = samples(metrics)
    assert {name: value for name, value in found.items() if name in OF_A_NODE} == {
        "rallypoint_live_nodes": 3,
        "rallypoint_shards_owned": 16,
        "rallypoint_lease_age_seconds": 1.5,
        "rallypoint_lease_remaining_seconds": 2.5,
        "rallypoint_leases_lost_total": 3,
        "rallypoint_keyspaces_taken_total": 18,
        "rallypoint_hand_overs_total,done": 4,
        "rallypoint_hand_overs_total,failed": 1,
        "rallypoint_keyspaces_lost_total": 2,
    }
    node.lease = LeaseStatus(7_000, -1_000, 3)
    node.counts.lost = 18
    found = samples(metrics)
    assert (found["rallypoint_lease_remaining_seconds"], found["rallypoint_keyspaces_lost_total"]) == (0, 18)


OF_A_NODE = frozenset(
    {
        "rallypoint_live_nodes",
        "rallypoint_shards_owned",
        "rallypoint_lease_age_seconds",
        "rallypoint_lease_remaining_seconds",
        "rallypoint_leases_lost_total",
        "rallypoint_keyspaces_taken_total",
        "rallypoint_hand_overs_total,done",
        "rallypoint_hand_overs_total,failed",
        "rallypoint_keyspaces_lost_total",
    }
)


async def test_the_metrics_of_real_nodes_count_what_they_did() -> None:
    cluster = Cluster()
    await cluster.start("n1", "n2")
    try:
        found = {}
        for node_id in ("n1", "n2"):
            metrics = Metrics("1.0", 10, "etcd")
            metrics.watch_node(cluster[node_id].member)
            found[node_id] = samples(metrics)
        assert [one["rallypoint_live_nodes"] for one in found.values()] == [2, 2]
        assert sum(one["rallypoint_shards_owned"] for one in found.values()) == SHARDS
        moved = found["n2"]["rallypoint_keyspaces_taken_total"]
        assert found["n1"]["rallypoint_hand_overs_total,done"] == moved >= SHARDS // 2
        assert found["n1"]["rallypoint_keyspaces_taken_total"] == SHARDS + 1
    finally:
        await cluster.end()


def test_groups_are_read_at_the_scrape() -> None:
    service = Watched()
    metrics = Metrics("1.0", 10)
    metrics.watch(service)
    service.view.add("a", members=3, generation=7)
    service.view.add("b", state="Empty", members=0)
    service.view.lags = {"a": 12}
    found = samples(metrics)
    assert found["rallypoint_ready"] == 1
    assert {state: found[f"rallypoint_groups,{state}"] for state in GROUP_STATES} == {
        "Empty": 1,
        "PreparingRebalance": 0,
        "CompletingRebalance": 0,
        "Stable": 1,
        "Dead": 0,
    }
    assert found["rallypoint_group_members,a"] == 3
    assert found["rallypoint_group_generation,a"] == 7
    assert found["rallypoint_group_lag,a"] == 12
    assert "rallypoint_group_lag,b" not in found, "an unknown lag is not 0"
    del service.view.summaries["a"]
    service.phase = "draining"
    found = samples(metrics)
    assert "rallypoint_group_members,a" not in found
    assert found["rallypoint_ready"] == 0


def test_shards_are_counted_by_their_state() -> None:
    service = Watched()
    metrics = Metrics("1.0", 10)
    metrics.watch(service)
    service.unavailable = (UnavailableShard(3, ShardState.FAILED, "planted", "StorageUnavailable"),)
    found = samples(metrics)
    assert {state: found[f"rallypoint_shards,{state}"] for state in ("Absent", "Loading", "Active", "Failed")} == {
        "Absent": 0,
        "Loading": 0,
        "Active": 3,
        "Failed": 1,
    }
    assert found["rallypoint_ready"] == 1, "the other shards are served"


def test_a_store_that_takes_nothing_is_seen() -> None:
    service = Watched()
    metrics = Metrics("1.0", 10)
    metrics.watch(service)
    for trouble, writable in ((None, 1), ("the disk is full", 0), (None, 1)):
        service.store = StoreStatus(trouble, 4096)
        found = samples(metrics)
        assert found["rallypoint_storage_log_bytes"] == 4096
        assert found["rallypoint_storage_writable"] == found["rallypoint_ready"] == writable


def test_only_so_many_groups_get_series_of_their_own() -> None:
    service = Watched()
    metrics = Metrics("1.0", 2)
    metrics.watch(service)
    for group_id in ("c", "a", "d", "b"):
        service.view.add(group_id)
    found = samples(metrics)
    assert [name for name in found if name.startswith("rallypoint_group_members")] == [
        "rallypoint_group_members,a",
        "rallypoint_group_members,b",
    ]
    assert found["rallypoint_groups_without_series"] == 2
    assert found["rallypoint_groups,Stable"] == 4


def test_two_services_in_one_process_do_not_meet() -> None:
    first, second = Metrics("1.0", 1), Metrics("1.0", 1)
    first.streams_open(1)
    assert samples(second)["rallypoint_event_streams"] == 0


def test_a_scraper_gets_the_format_it_asks_for() -> None:
    metrics = Metrics("1.0", 1)
    assert metrics.expose("")[1].startswith("text/plain; version=0.0.4")
    page, content_type = metrics.expose("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert page.endswith(b"# EOF\n")


@pytest.mark.parametrize(
    "accept",
    [
        "text/plain; version=x",
        "text/plain; version=1.0.x",
        'application/openmetrics-text; version="1.0.0"',
        "application/openmetrics-text; version=2.\udcff",
        "application/openmetrics-text; version=1.0.0 evil",
        "application/openmetrics-text; version=" + "9" * 5_000,
        "a/b, text/plain; q=0.5; version=",
    ],
)
def test_a_version_that_is_no_number_asks_for_no_other_format(accept: str) -> None:
    page, content_type = Metrics("1.0", 1).expose(accept)
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert b"# EOF" not in page


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
def test_a_series_cannot_be_forged_by_a_group_s_id(accept: str) -> None:
    forged = 'a",state="x"} 1\nrallypoint_groups{state="Stable"} 99\n# HELP \\'
    service = Watched()
    service.view.add(forged)
    metrics = Metrics("1.0", 10)
    metrics.watch(service)
    page = metrics.expose(accept)[0].decode()
    assert 'rallypoint_groups{state="Stable"} 99' not in page.splitlines()
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    shown = [sample.labels for sample in samples if sample.name == "rallypoint_group_members"]
    assert shown == [{"group_id": forged}]


@pytest.mark.prometheus
def test_promtool_has_no_complaint() -> None:
    service = Watched()
    service.view.add('a "quoted"\n\\group')
    service.view.lags = {'a "quoted"\n\\group': 1}
    metrics = Metrics("1.0", 10)
    metrics.watch(service)
    metrics.request_answered("join", "NONE", 0.1)
    assert promtool_check_metrics(metrics.expose("")[0].decode()) == ""


def test_calls_on_channels_are_counted_from_one_look_to_the_next() -> None:
    metrics = Metrics("1.2.3", 10)
    for outcome in ("NONE", "NONE", "UNKNOWN_MEMBER_ID"):
        metrics.channel_call("heartbeat", outcome)
    line = 'rallypoint_channel_calls_total{operation="heartbeat",outcome="%s"} %s'
    for seen in ("2.0", "2.0"):
        page = metrics.expose("")[0].decode().splitlines()
        assert line % ("NONE", seen) in page
        assert line % ("UNKNOWN_MEMBER_ID", "1.0") in page
    metrics.channel_call("heartbeat", "NONE")
    assert line % ("NONE", "3.0") in metrics.expose("")[0].decode().splitlines()


async def test_the_lags_of_large_groups_are_summed_some_at_a_time() -> None:
    service = Watched()
    metrics = Metrics("1", 50)
    metrics.watch(service)
    for number in range(60):
        group_id = f"g{number:02}"
        service.view.add(group_id)
        service.view.lags[group_id] = number
        service.view.committed[group_id] = LAGS_AT_ONCE_MAX // 3
    page, most, before = asyncio.create_task(metrics.page("")), 0, 0
    while not page.done():
        await asyncio.sleep(0)
        most, before = max(most, service.view.looked - before), service.view.looked
    assert 0 < most <= LAGS_AT_ONCE_MAX
    shown = text_string_to_metric_families(page.result()[0].decode())
    lags = {s.labels["group_id"]: s.value for family in shown for s in family.samples if family.name.endswith("_lag")}
    assert lags == {f"g{number:02}": number for number in range(50)}


async def test_what_is_remembered_of_a_group_has_series_of_its_own() -> None:
    watched, metrics = Watched(), Metrics("1", 10)
    metrics.watch(watched)
    for group_id in ("a", "b"):
        watched.view.add(group_id)
    row = admin.GroupListing(
        group_id="a", state="Stable", protocol_type="consumer", member_count=2, generation_id=1, status="WARN",
        idle_member_count=1, unowned_partition_count=2, useful_member_count=3, flapping_member_count=4, awaited_count=5,
    )  # fmt: skip
    lags = {f"t{number:02}": number for number in range(60)}
    watched.more["a"] = GroupMetrics(row, lags, 1_500, 7_000, {"member_left": 6})
    page, _ = await metrics.page("")
    found = {
        f"{sample.name} {' '.join(sample.labels.values())}": sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.labels.get("group_id") == "a" and "topic" not in sample.labels
    }
    expected = {
        "idle_members a": 1, "unowned_partitions a": 2, "useful_members a": 3, "flapping_members a": 4,
        "awaited_members a": 5, "last_commit_age_seconds a": 1.5, "lag_eta_seconds a": 7,
        "status a OK": 0, "status a WARN": 1, "status a ERR": 0, "rebalances_total a member_left": 6,
    }  # fmt: skip
    assert {name: found[f"rallypoint_group_{name}"] for name in expected} == expected
    assert page.count(b"\nrallypoint_group_topic_lag{") == 50
    assert b'rallypoint_group_topic_lag{group_id="a",topic="t49"} 49.0' in page
    assert b'rallypoint_group_status{group_id="b"' not in page


def test_every_reason_to_cut_a_connection_is_there_from_the_start() -> None:
    """Else `increase()` would miss the first: a series that appears with 1 has not grown."""
    text = Metrics("1", 1).expose("")[0].decode()
    for reason in CUT_REASONS:
        assert f'rallypoint_connections_cut_total{{reason="{reason}"}} 0.0' in text


def test_the_tls_files_are_shown() -> None:
    metrics, certificates = Metrics("1", 1), Certificates()
    metrics.watch_certificates(certificates)
    assert samples(metrics)["rallypoint_tls_certificate_not_after_timestamp_seconds"] == 2_000_000_000
    assert samples(metrics)["rallypoint_tls_files_outdated"] == 0
    certificates.is_outdated, certificates.reload_count, certificates.failure_count = True, 2, 3
    shown = samples(metrics)
    assert shown["rallypoint_tls_files_outdated"] == 1
    assert [value for name, value in shown.items() if name.startswith("rallypoint_tls_reloads_total")] == [2, 3]


async def test_a_scrape_shows_and_counts_the_groups_that_its_caller_may_see() -> None:
    metrics = Metrics("1.0", 10)
    service = Watched()
    for group_id in ("clicks-1", "clicks-2", "orders-1"):
        service.view.add(group_id)
    metrics.watch(service)
    metrics.event(SessionExpired("orders-1", "a"))
    page = (await metrics.page("", lambda group_id: group_id.startswith("clicks"), of_node=False))[0].decode()
    assert "orders" not in page
    assert "clicks-1" in page
    names = {family.name for family in text_string_to_metric_families(page)}
    assert not names & {"rallypoint_sessions_expired", "rallypoint_ready", "rallypoint_shards", "python_gc_objects"}
    counted = [
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if family.name == "rallypoint_groups"
    ]
    assert sum(counted) == 2
    of_node = (await metrics.page("", lambda group_id: False, of_node=True))[0].decode()
    assert "rallypoint_sessions_expired_total" in of_node
    assert "orders" not in of_node
    assert "clicks" not in of_node
    assert "orders-1" in (await metrics.page(""))[0].decode(), "the next scrape is another caller's"


def test_issuers_show_the_age_of_their_keys_and_their_fetches() -> None:
    metrics = Metrics("1", 1)
    statuses: dict[str, IssuerStatus] = {}
    metrics.watch_issuers(lambda: statuses)
    assert not any(name.startswith("rallypoint_issuer") for name in samples(metrics))
    statuses |= {"corp": IssuerStatus(1_500, fetched=2, failed=1), "lab": IssuerStatus()}
    found = samples(metrics)
    assert (found["rallypoint_issuer_keys_age_seconds,corp"], found["rallypoint_issuer_keys_age_seconds,lab"]) == (
        1.5,
        math.inf,
    )
    assert found["rallypoint_issuer_fetches_total,corp,fetched"] == 2
    assert found["rallypoint_issuer_fetches_total,corp,failed"] == 1
