"""Our figures beside Kafka's: which are shown, and where they are written."""

from pathlib import Path

import pytest

from bench import beside, kafka, report
from bench.machine import Surroundings
from bench.main import BESIDE_KAFKA, main
from bench.metrics import Cost, LoadResult, RebalanceResult, Repetition, Tally, load_result, rebalance_result

MIB = 1024 * 1024
FOUND = Surroundings(
    at="2026-01-02T00:00:00+00:00", commit="abc", cpu_model="A CPU", cores=2, memory_bytes=1, kernel="Linux 6",
    versions={"rallypoint": "0.1.0", "python": "3.11.7", "kafka": "4.1.1"}, file_system="ext4", flush_p50_ms=1.0,
    load_average=(0.5, 0.0, 0.0),
)  # fmt: skip


def load(name: str, cpu_seconds: float) -> LoadResult:
    tally = Tally([0.001] * 2_000)
    return load_result(name, tally, Cost(0.5, cpu_seconds, 0, 60 * MIB, 0.25), connections=64, members=64)


def rebalance(name: str, seconds: float, members: int) -> RebalanceResult:
    return rebalance_result(name, [Repetition(seconds, 1, 10)], Cost(1.0, 0.5, 0, 99 * MIB, 1.5), members=members)


def test_each_figure_stands_beside_the_other_sides_and_the_aim() -> None:
    results = [load("channel-heartbeat", 0.1), load("kafka-heartbeat", 0.04)]
    assert beside.rows(results) == [
        (
            "heartbeat, one group of 64", "0.050", "0.020", "2.50", "1.0 x", "1.0 · 1.0", "1.0 · 1.0", "-", "60", "60",
            "0.019-0.025",
        ),
    ]  # fmt: skip
    assert len(beside.rows(results)[0]) == len(beside.HEADER)


def test_members_at_rest_cost_by_the_second_whatever_they_send() -> None:
    results = [load("channels-quiet", 0.01), load("kafka-quiet", 0.04)]
    (row,) = beside.rows(results)
    assert row[:5] == ("a second of 64 at rest, defaults", "0.020", "0.080", "0.25", "0.1 x")


def test_each_size_has_a_row_and_a_side_that_is_missing_a_dash() -> None:
    results = [rebalance("channel-one-joins", 0.4, 1_000), rebalance("channel-one-joins", 0.1, 100)]
    assert [row[:6] for row in beside.rows(results)] == [
        ("one joins 100", "0.500", "-", "-", "-", "100 · 100"),
        ("one joins 1,000", "0.500", "-", "-", "-", "400 · 400"),
    ]
    assert not beside.was_compared(results)
    assert beside.was_compared([*results, rebalance("kafka-one-joins", 3.0, 1_000)])


def test_what_costs_most_beside_kafka_comes_first() -> None:
    results: list[beside.Result] = [
        load("channel-heartbeat", 0.01), load("kafka-heartbeat", 0.04), rebalance("channel-one-joins", 1.0, 9),
        load("channel-commit", 0.08), load("kafka-commit", 0.04),
        load("channel-groups-commit", 0.06), load("kafka-groups-commit", 0.04),
    ]  # fmt: skip
    assert [row[3] for row in beside.rows(results)] == ["2.00", "1.50", "0.25", "-"]


def test_every_benchmark_of_a_broker_has_a_pair_and_a_row() -> None:
    assert {kafkas for _, kafkas in beside.PAIRS} == set(kafka.BENCHMARKS)
    named = {name for row in beside.COMPARISONS for name in (row.ours, row.kafkas)}
    assert {name for pair in beside.PAIRS for name in pair if name not in named} == {"channel-groups", "kafka-groups"}


def test_the_table_is_written_into_its_section_alone() -> None:
    results = [rebalance("channel-all-rejoin", 0.3, 1_000), rebalance("kafka-all-rejoin", 0.06, 1_000)]
    other = f"{report.ASSIGNORS.begin}\nkept\n{report.ASSIGNORS.end}\n"
    document = f"{other}{report.KAFKA.begin}\nold\n{report.KAFKA.end}\nafter\n"
    written = report.put_into(document, report.KAFKA, report.beside_markdown(FOUND, results))
    assert written.startswith(
        f"{other}{report.KAFKA.begin}\n2026-01-02, commit abc: A CPU, 2 cores, Rallypoint 0.1.0, "
    )
    assert "Python 3.11.7, Kafka 4.1.1; other programs kept 1.5 to 1.5 cores busy." in written
    row = "| all 1,000 come again | 0.500 | 0.500 | 1.00 | 1.2 x | 300 · 300 | 60 · 60 | - | 99 | 99 | 0.061 |"
    assert row in written
    assert written.endswith(f"{report.KAFKA.end}\nafter\n")
    assert "old" not in written
    assert report.put_into(written, report.KAFKA, report.beside_markdown(FOUND, results)) == written


def test_the_document_of_figures_has_a_place_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
    sections = [report.kafka_section(is_compiled=is_compiled) for is_compiled in (False, True)]
    assert sections == [report.KAFKA, report.KAFKA_COMPILED]
    assert all(report.has_section(text, section) for section in sections)
    path = tmp_path / "assignors_alone.md"
    path.write_text(f"{report.ASSIGNORS.begin}\n{report.ASSIGNORS.end}\n")
    with pytest.raises(SystemExit) as stopped:
        main(["--beside-kafka", "--document", str(path), "--data", str(tmp_path)])
    assert stopped.value.code == 2
    assert BESIDE_KAFKA.begin in capsys.readouterr().err
