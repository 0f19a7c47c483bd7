"""A cluster's benchmarks: the arithmetic, how it looks, whom a member asks, and that they measure what they say."""

import asyncio
import json
import math
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bench.cluster import scenarios, tables
from bench.cluster.metrics import (
    Asked,
    Counts,
    Moved,
    MoveResult,
    Standing,
    StretchResult,
    is_sound,
    move_result,
    stretch_result,
)
from bench.cluster.residents import LookUps
from bench.main import main, make_parser, names_of, plan_of, run
from bench.plan import Plan
from bench.report import CLUSTER, cluster_markdown, document, has_section, put_into, text
from examples.cluster.pauses import OwnerChange
from tests.bench.test_report import FOUND as REPORTED

FOUND = replace(REPORTED, versions={"python": "3.11.0", "etcd": "3.6.16", "grpcio": "1", "sqlite": "3"})
SMALL = Plan(seconds=0.5, sizes=(4,), at_rest=4, rounds=1, directory=Path(), held=4, groups=2, shards=5)
MIB = 1024 * 1024

BEFORE = Counts(
    at_s=10.0, node_cpu_s={"a": 1.0, "b": 2.0}, etcd_cpu_s={"0": 1.0, "1": 1.0}, load_cpu_s=5.0, busy_s=100.0,
    puts=10, proposals=5, appends=4, db_bytes=1_000,
)  # fmt: skip
AFTER = Counts(
    at_s=40.0, node_cpu_s={"a": 2.0, "b": 4.0}, etcd_cpu_s={"0": 1.5, "1": 1.5}, load_cpu_s=6.0, busy_s=111.0,
    puts=2_010, proposals=505, appends=504, db_bytes=115_000,
)  # fmt: skip
STANDING = Standing(node_rss_bytes={"a": 100 * MIB, "b": 110 * MIB}, etcd_rss_bytes=90 * MIB, leases=2, watches=6)


def commits(*, errors: int = 0) -> StretchResult:
    asked = Asked(1_000, errors, [0.001, 0.002, 0.003], ("503 oops",) * errors)
    return stretch_result(
        "cluster-commits", "commits", BEFORE, AFTER, STANDING, asked,
        engine="etcd", shards=50, members=200, in_flight=64,
    )  # fmt: skip


def kill(moved: Moved) -> MoveResult:
    after = replace(AFTER, node_cpu_s={"b": 4.0})
    return move_result(
        "cluster-members", "kill -9 of a node", 10.0, moved, replace(BEFORE, node_cpu_s={"a": 1.0, "b": 2.0}), after,
        shards=50, members=200, resting_cores=0.05, survivors=["b"],
    )  # fmt: skip


# --- arithmetic ------------------------------------------------------------------------------------------------------


def test_a_stretch_costs_what_lies_between_two_counts() -> None:
    found = commits()
    assert (found.seconds, found.node_cpu_s, found.nodes_cpu_s, found.etcd_cpu_s) == (30.0, (1.0, 2.0), 3.0, 1.0)
    assert (found.puts, found.proposals, found.appends, found.db_growth_bytes) == (2_000, 500, 500, 114_000)
    assert (found.per_1000(found.nodes_cpu_s), found.per_minute(found.nodes_cpu_s)) == (3.0, 6.0)
    assert found.requests_per_append == 2.0
    assert found.others_cores == pytest.approx((11 - 3 - 1 - 1) / 30)
    assert (found.p50_ms, found.max_ms) == (2.0, 3.0)


def test_where_nothing_was_asked_there_is_no_latency() -> None:
    found = stretch_result("x", "idle", BEFORE, AFTER, STANDING, Asked(), engine="etcd", shards=50, members=0)
    assert math.isnan(found.p50_ms)
    assert math.isnan(found.per_1000(1.0))


def test_times_of_a_move_count_from_its_cause() -> None:
    moved = Moved(
        owned_at_s={3: 16.0, 4: 17.0}, loaded_at_s={3: 16.5, 9: 99.0}, back_at_s=[16.5, 18.0], pauses_s=[6.0, 7.5]
    )
    found = kill(moved)
    assert (found.moved_shards, found.moved_members) == (2, 2)
    assert (found.owned_max_ms, found.loaded_max_ms) == (7_000, 500), "a shard that did not move is not counted"
    assert (found.back_p50_ms, found.back_max_ms, found.pause_max_ms) == (6_500, 8_000, 7_500)
    assert (found.cpu_s, found.resting_cpu_s) == (2.0, 1.5), "of those that are still there"


@pytest.mark.parametrize(("is_gone", "expected"), [(True, {1: 7.0}), (False, {1: 6.0})])
def test_a_shard_has_moved_with_its_new_owner(is_gone: bool, expected: Mapping[int, float]) -> None:
    changes = [
        OwnerChange(4_000, 1, "b"),  # before it began
        OwnerChange(5_500, 1, None),
        OwnerChange(6_000, 1, "a"),
        OwnerChange(6_500, 2, "b"),  # of no concern
        OwnerChange(7_000, 1, "b"),
        OwnerChange(8_000, 1, "c"),
    ]
    report = {"first_back_at_s": {"1": 9.0}, "back_at_s": [9.0], "pauses_s": [2.0], "wrong": 1, "errors": ["500"]}
    other = {"first_back_at_s": {"1": 8.5}, "back_at_s": [8.5], "pauses_s": [1.0], "wrong": 0, "errors": []}
    found = scenarios._moved([report, other], changes, 5.0, "a", {1}, is_gone=is_gone)
    assert found.owned_at_s == expected
    assert (found.loaded_at_s, found.back_at_s, found.errors) == ({1: 8.5}, [9.0, 8.5], 1)


def test_one_wrong_answer_fails_the_command() -> None:
    assert is_sound(commits())
    assert not is_sound(commits(errors=1))
    assert not is_sound(kill(Moved({}, {}, [], [], errors=1)))


# --- how it looks ----------------------------------------------------------------------------------------------------


def test_every_row_has_a_cell_for_each_column() -> None:
    results: list[StretchResult | MoveResult] = [
        replace(commits(), what="at rest"),
        replace(commits(), what="forms"),
        commits(),
        kill(Moved({}, {}, [], [])),
    ]
    shown = tables.tables(results)
    assert [len(rows) for _, rows in shown] == [2, 1, 1]
    assert all(len(row) == len(header) for header, rows in shown for row in rows)


def test_tables_say_costs_by_minute_and_by_1000_commits() -> None:
    ((header, (row,)),) = tables.tables([commits()])
    cells = dict(zip(header, row, strict=True))
    assert (cells["all nodes"], cells["etcd"]) == ("3.000", "1.000")
    assert (cells["etcd puts a commit"], cells["etcd bytes a commit"]) == ("2.00", "114")
    ((header, (row,)),) = tables.tables([replace(commits(), what="at rest")])
    cells = dict(zip(header, row, strict=True))
    assert (cells["all nodes"], cells["CPU-s/min, each node"]) == ("6.00", "2.00 · 4.00")


def test_results_are_written_for_people_and_for_programs() -> None:
    results: list[StretchResult | MoveResult] = [commits(errors=1), kill(Moved({}, {}, [], []))]
    assert "cluster-commits, commits: 503 oops" in text(FOUND, results, [])
    kinds = [each["kind"] for each in json.loads(document(FOUND, {}, results, []))["results"]]
    assert kinds == ["stretch", "move"]
    page = put_into(f"A\n{CLUSTER.begin}\nold\n{CLUSTER.end}\nZ\n", CLUSTER, cluster_markdown(FOUND, results))
    assert "etcd 3.6.16" in page
    assert "old" not in page


def test_the_page_of_measurements_has_a_place_for_them() -> None:
    assert has_section(Path("docs/performance.md").read_text("utf-8"), CLUSTER)


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_options_of_a_cluster() -> None:
    given = make_parser().parse_args(["--cluster", "--shards", "7", "--groups", "3", "--members", "30"])
    assert (plan_of(given).shards, plan_of(given).groups, plan_of(given).held) == (7, 3, 30)
    assert names_of(given) == tuple(scenarios.BENCHMARKS)
    assert not set(names_of(make_parser().parse_args([]))) & set(scenarios.BENCHMARKS)


def test_a_cluster_is_not_measured_beside_other_choices(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--cluster", "--spark"])
    assert "--spark" in capsys.readouterr().err


async def test_without_an_etcd_it_is_left_out_with_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("bench.cluster.parts.find_etcd", lambda: None)
    results, failures, left_out = await run(["cluster-shards"], replace(SMALL, directory=tmp_path))
    assert (results, failures) == ([], [])
    (sentence,) = left_out
    assert sentence.startswith("cluster-shards is left out: it needs etcd")


# --- the members -----------------------------------------------------------------------------------------------------


async def test_a_look_up_goes_past_nodes_that_do_not_know_or_do_not_answer() -> None:
    async def gone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    def saying(url: str | None, asked: list[bytes]) -> object:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            body = json.dumps({"coordinators": [{"url": url}]}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()
            writer.close()

        return answer

    asked: list[bytes] = []
    async with AsyncExitStack() as stack:
        nodes = []
        for handler in (gone, saying(None, []), saying("http://10.0.0.1:8000", asked)):
            server = await asyncio.start_server(handler, "127.0.0.1", 0)  # type: ignore[arg-type]
            await stack.enter_async_context(server)
            nodes.append(server.sockets[0].getsockname())
        look_ups = LookUps(nodes)
        assert await look_ups.find("orders") == ("10.0.0.1", 8000)
        assert b"group_id=orders" in asked[0]
        assert look_ups._nodes == [nodes[1], nodes[2], nodes[0]], "who did not answer is asked last"
        look_ups.close()


@pytest.mark.slow
async def test_members_of_one_node_form_and_rest(tmp_path: Path) -> None:
    formed, at_rest = await scenarios.measure_one_node(replace(SMALL, directory=tmp_path))
    assert (formed.what, formed.members, at_rest.what, at_rest.members) == ("forms", 4, "at rest", 4)
    assert is_sound(formed)
    assert is_sound(at_rest), at_rest
    assert formed.appends > 0
    assert formed.nodes_cpu_s > 0
    assert at_rest.puts == 0
