"""Two files of results: what costs more than it did is found."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import compare

OLD = [
    {"kind": "load", "name": "commit", "members": 64, "cpu_seconds_per_1000": 0.050},
    {"kind": "load", "name": "commit", "members": 1_000, "cpu_seconds_per_1000": 0.060},
    {"kind": "rebalance", "name": "one-joins", "members": 100, "cpu_seconds": 0.2},
]


def write(path: Path, results: list[dict[str, Any]]) -> str:
    path.write_text(json.dumps({"results": results}))
    return str(path)


def test_a_figure_that_rose_by_a_fifth_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write(tmp_path / "old.json", OLD)
    now = [dict(OLD[0]), {**OLD[1], "cpu_seconds_per_1000": 0.0721}, {**OLD[2], "cpu_seconds": 0.21}]
    new = write(tmp_path / "new.json", now)
    assert compare.main([old, new]) == 1
    worse = [line.split() for line in capsys.readouterr().out.splitlines() if "WORSE" in line]
    assert worse == [["commit,", "1000", "0.0600", "0.0721", "1.20", "WORSE"]]
    assert compare.main([old, new, "--more-than", "0.3"]) == 0
    assert compare.main([new, old]) == 0


def test_a_figure_that_is_not_measured_any_more_is_named_and_a_new_one_is_no_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = write(tmp_path / "old.json", OLD[:2]), write(tmp_path / "new.json", OLD[1:])
    assert compare.main([old, new]) == 1
    said = capsys.readouterr().out
    assert [line.split()[-1] for line in said.splitlines()[3:]] == ["MISSING", "1.00", "new"]
    assert said.splitlines()[:2] == ["before: of unknown origin", "now: of unknown origin"]
    assert compare.main([write(tmp_path / "less.json", OLD[1:2]), new]) == 0


def test_what_the_broker_beside_takes_is_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kafkas = {"kind": "load", "name": "kafka-commit", "members": 64, "cpu_seconds_per_1000": 0.05}
    old = write(tmp_path / "old.json", [OLD[0], kafkas])
    new = write(tmp_path / "new.json", [OLD[0], {**kafkas, "cpu_seconds_per_1000": 0.09}])
    assert compare.main([old, new]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-4:] == ["0.0900", "1.80", "not", "ours"]


def test_it_says_what_is_compared_and_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for name, said in (("old", "0.1.0"), ("new", "0.1.0, compiled")):
        path = tmp_path / f"{name}.json"
        found = {"at": "2026-01-02", "commit": "abc", "cpu_model": "A CPU", "versions": {"rallypoint": said}}
        path.write_text(json.dumps({"results": OLD, "surroundings": found}))
        paths.append(str(path))
    assert compare.main(paths) == 0
    before, now, differing = capsys.readouterr().out.splitlines()[:3]
    assert before == "before: at 2026-01-02, commit abc, cpu_model A CPU, rallypoint 0.1.0"
    assert now.endswith("rallypoint 0.1.0, compiled")
    assert differing.startswith("They differ in rallypoint:")
    assert compare.main([paths[0], paths[0]]) == 0
    assert "differ" not in capsys.readouterr().out


def test_files_with_nothing_in_common_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = write(tmp_path / "old.json", OLD[:1]), write(tmp_path / "new.json", OLD[2:])
    with pytest.raises(SystemExit) as stopped:
        compare.main([old, new])
    assert stopped.value.code == 2
    assert "nothing that" in capsys.readouterr().err


def test_what_is_no_file_of_results_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write(tmp_path / "old.json", OLD)
    with pytest.raises(SystemExit) as stopped:
        compare.main([old, str(tmp_path / "none.json")])
    assert stopped.value.code == 2
    assert "none.json is no file of results" in capsys.readouterr().err


def test_what_has_nothing_to_compare_is_not_called_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    none = write(tmp_path / "none.json", [{"kind": "stretch", "name": "cluster-commits", "members": 500}])
    with pytest.raises(SystemExit) as stopped:
        compare.main([none, none])
    assert stopped.value.code == 2
    assert "none.json has no processor time that could be compared" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path", sorted((Path(compare.__file__).parent / "results").glob("*.json")), ids=lambda path: path.name
)
def test_no_figure_of_a_file_that_is_kept_hides_another(path: Path) -> None:
    document = json.loads(path.read_text())
    figures = [result.get(compare.FIGURES.get(result["kind"], "")) for result in document["results"]]
    counted = sorted(figure for figure in figures if figure is not None)
    assert sorted(compare.figures(document).values()) == counted
