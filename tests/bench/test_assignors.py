"""The benchmark of the assignors: its groups, its check, its table and where it is written."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench import assignors, report
from bench.assignors import CASES, LAGS, PUBLISHED, QUICK, Case, after_one_left, check, measure, spec_of
from bench.crowd import WrongAnswerError
from bench.machine import Surroundings
from bench.main import main
from bench.metrics import AssignorResult, assignor_result, is_right, with_growth
from rallypoint.assignors import registry
from rallypoint.assignors.contract import Assignment

SMALL = Case(10, 200, "different", "scratch")


def result(partitions: int, seconds: float, **more: float | None) -> AssignorResult:
    made = assignor_result(
        "sticky", [seconds, 2 * seconds, 4 * seconds], [seconds / 2] * 3, members=10, partitions=partitions,
        subscriptions="same", change="scratch", peak_bytes=3 * 1024 * 1024, moved=7, kafka_ms=None, franz_go_ms=None,
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def test_the_published_figures_are_of_cases_and_assignors_that_are_measured() -> None:
    assert {case for _, case in PUBLISHED} <= set(CASES)
    assert {name for name, _ in PUBLISHED} | set(LAGS) <= set(registry.names(installed=()))


def test_groups_are_as_the_case_says_and_the_same_each_time() -> None:
    spec = spec_of(SMALL, with_lags=True)
    assert (len(spec.subscriptions), sum(spec.partitions_per_topic.values())) == (10, 200)
    assert {len(said.topics) for said in spec.subscriptions.values()} == {50}
    assert len({said.topics for said in spec.subscriptions.values()}) == 10
    assert spec == spec_of(SMALL, with_lags=True)
    assert spec_of(SMALL, with_lags=False).subscriptions["member-0"].user_data is None
    same = spec_of(Case(10, 200, "same", "scratch"), with_lags=False)
    assert {len(said.topics) for said in same.subscriptions.values()} == {100}


def test_one_left_is_the_last_and_the_others_say_what_they_had() -> None:
    spec = spec_of(SMALL, with_lags=False)
    given = registry.find("range").assign(spec)
    left = after_one_left(spec, given)
    assert spec.subscriptions.keys() - left.subscriptions.keys() == {"member-9"}
    assert {member: said.owned for member, said in left.subscriptions.items()} == {
        member: share for member, share in given.items() if member != "member-9"
    }


@pytest.mark.parametrize("name", registry.names(installed=()))
@pytest.mark.parametrize("case", [replace(SMALL, change="one left"), SMALL], ids=["left", "scratch"])
def test_every_assignor_is_measured(name: str, case: Case) -> None:
    found = measure(registry.find(name), case, 2)
    assert (found.name, found.rounds, found.partitions, found.kafka_ms) == (name, 2, 200, None)
    assert 0 < found.min_ms <= found.median_ms <= found.max_ms
    assert found.cpu_ms > 0
    assert found.peak_bytes > 0
    assert is_right(found)


def test_a_wrong_result_has_no_figures() -> None:
    spec = spec_of(SMALL, with_lags=False)
    given = registry.find("range").assign(spec)
    check("range", SMALL, spec, given)
    twice: Assignment = given | {"member-0": given["member-1"]}
    with pytest.raises(WrongAnswerError, match="range, Case"):
        check("range", SMALL, spec, twice)
    with pytest.raises(WrongAnswerError, match="given to nobody"):
        check("range", SMALL, spec, dict.fromkeys(given, ()))


def test_growth_is_against_a_tenth_of_the_partitions() -> None:
    tenth, whole = with_growth([result(100, 0.5), result(1000, 4.0)])
    assert whole.growth == 8.0
    assert str(tenth.growth) == "nan"


def surroundings() -> Surroundings:
    return Surroundings(
        at="2026-01-02T03:04:05+00:00", commit="abc", cpu_model="A CPU", cores=2, memory_bytes=1, kernel="Linux",
        versions={"python": "3.11.7"}, file_system="ext4", flush_p50_ms=1.0, load_average=(0.5, 0.0, 0.0),
    )  # fmt: skip


def test_the_table_is_written_between_its_marks_and_can_be_written_again() -> None:
    rows = report.assignor_markdown(
        surroundings(), [result(100, 0.5, kafka_ms=180_000.0), result(1000, 4.0, franz_go_ms=19.0)]
    )
    document = f"before\n{report.ASSIGNORS.begin}\nold\n{report.ASSIGNORS.end}\nafter\n"
    written = report.put_into(document, report.ASSIGNORS, rows)
    assert written.splitlines()[:3] == [
        "before",
        report.ASSIGNORS.begin,
        "2026-01-02, commit abc: A CPU, 2 cores, Python 3.11.7, load average at the start 0.5.",
    ]
    assert "| sticky | 10 x 100 | same | scratch | 250 | 1,000 | - | 3.0 | 7 | over 180,000 | - |" in written
    assert "| sticky | 10 x 1,000 | same | scratch | 2,000 | 8,000 | - | 3.0 | 7 | - | 19 |" in written
    assert assignors.PUBLISHED_BY in written
    assert "old" not in written
    assert written.endswith(f"{report.ASSIGNORS.end}\nafter\n")
    assert report.put_into(written, report.ASSIGNORS, rows) == written


def test_the_document_of_figures_has_a_place_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.has_section(
        (Path(__file__).parents[2] / "docs" / "performance.md").read_text("utf-8"), report.ASSIGNORS
    )
    (tmp_path / "plain.md").write_text(f"{report.ASSIGNORS.end}\n{report.ASSIGNORS.begin}\n")
    for path in (tmp_path / "plain.md", tmp_path / "none.md"):
        with pytest.raises(SystemExit) as stopped:
            main(["--document", str(path), "--data", str(tmp_path)])
        assert stopped.value.code == 2
        assert "--document" in capsys.readouterr().err


def test_small_groups_are_enough_to_see_that_all_runs() -> None:
    assert {(case.subscriptions, case.change) for case in QUICK} == {
        (case.subscriptions, case.change) for case in CASES
    }
