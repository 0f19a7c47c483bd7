"""How results of the benchmarks look, for people and for programs."""

import json
import math

from bench.machine import Surroundings
from bench.metrics import Cost, LoadResult, Repetition, Tally, load_result, rebalance_result
from bench.report import document, load_table, number, rebalance_table, table, text

MIB = 1024 * 1024

FOUND = Surroundings(
    at="2026-11-21T12:00:00+00:00",
    commit="abc",
    cpu_model="A processor",
    cores=2,
    memory_bytes=8 * 1024 * MIB,
    kernel="Linux 6",
    versions={"python": "3.11.0", "aiohttp": "3.14"},
    file_system="ext4",
    flush_p50_ms=0.5,
    load_average=(0.1, 0.2, 0.3),
)


def load(name: str, cpu_seconds: float, *, right: int = 1000, wrong: int = 0) -> LoadResult:
    tally = Tally()
    for _ in range(right):
        tally.right(0.002)
    for _ in range(wrong):
        tally.wrong("500 oops")
    return load_result(name, tally, Cost(1.0, cpu_seconds, 0, 60 * MIB, 0.0), connections=64, members=64)


def cells(line: str) -> list[str]:
    return [cell for cell in line.split("  ") if cell.strip()]


def test_columns_are_as_wide_as_they_need() -> None:
    assert table(("name", "n"), [("a", "1"), ("longer", "22")]).splitlines() == [
        "name     n",
        "a        1",
        "longer  22",
    ]


def test_a_load_is_shown_in_multiples_of_its_own_floor() -> None:
    loads = [load("floor", 0.05), load("floor-at-rest", 0.2), load("heartbeat", 0.1)]
    loads += [load("channel-floor", 0.01), load("channel-floor-at-rest", 0.02)]
    loads += [load("at-rest", 0.3), load("channel-heartbeat", 0.03), load("channels-at-rest", 0.08)]
    shown = {cells(row)[0].strip(): cells(row)[6].strip() for row in load_table(loads).splitlines()[1:]}
    assert shown == {
        "floor": "1.00",
        "floor-at-rest": "1.00",
        "channel-floor": "1.00",
        "channel-floor-at-rest": "1.00",
        "heartbeat": "2.00",
        "at-rest": "1.50",
        "channel-heartbeat": "3.00",
        "channels-at-rest": "4.00",
    }


def test_without_the_floor_there_is_a_dash() -> None:
    assert cells(load_table([load("heartbeat", 0.1)]).splitlines()[1])[6].strip() == "-"


def test_numbers() -> None:
    assert number(1234.567, 1) == "1,234.6"
    assert number(math.nan, 1) == number(math.inf, 1) == "-"


def test_a_rebalance_has_its_row() -> None:
    cost = Cost(1.0, 0.5, 0, 61 * MIB, 0.125, load_cpu_seconds=0.75)
    result = rebalance_result("one-joins", [Repetition(0.25, 1, 300)], cost, members=1000, stall_s=0.031)
    shown = [cell.strip() for cell in cells(rebalance_table([result]).splitlines()[1])]
    assert shown == ["one-joins", "1,000", "1", "250", "250", "250", "1", "300", "0.50", "0.75", "31", "61", "0.12"]


def test_the_text_names_the_machine_the_first_errors_and_the_failures() -> None:
    shown = text(FOUND, [load("heartbeat", 0.1, wrong=1)], ["one-joins failed: why"])
    for expected in ("A processor, 2 cores, 8 GiB", "aiohttp 3.14", "ext4", "commit abc", "0.10 0.20 0.30"):
        assert expected in shown
    assert shown.endswith("heartbeat: 500 oops\n\none-joins failed: why")


def test_the_document_is_json_even_where_a_figure_is_not_known() -> None:
    content = json.loads(document(FOUND, {"seconds": 2.0}, [load("heartbeat", 0.1, right=0, wrong=1)], ["why"]))
    assert content["surroundings"]["cpu_model"] == "A processor"
    assert content["options"] == {"seconds": 2.0}
    assert content["failures"] == ["why"]
    (result,) = content["results"]
    assert result["kind"] == "load"
    assert result["p50_ms"] is None
    assert result["cpu_seconds_per_1000"] == 100.0
    assert result["first_errors"] == ["500 oops"]
