"""Hand-overs and kills of real Spark drivers on a real broker: the command finds that nothing is missing."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.main import main
from bench.spark import moves
from tests.real.kafka import require_jars

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")


@pytest.mark.spark
@pytest.mark.drivers
@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("java_home")  # no figure of this run counts, and Java may compile in a hurry
def test_no_record_is_missing_after_hand_overs_and_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_jars()
    # Nearly all the time a batch is in its sink then: there a kill finds it, and it costs nothing. Nobody measures.
    for name, seconds in {"HOLD_S": 1.0, "PRODUCING_INTERVAL_S": 0.5, "LOOK_INTERVAL_S": 0.1}.items():
        monkeypatch.setattr(moves, name, seconds)
    rounds = 2  # the first dies alone, the second with all its processes
    output = tmp_path / "moves.json"
    chosen = ("--only", "spark-moves", "--rounds", str(rounds))
    assert main([*chosen, "--data", str(tmp_path), "--output", str(output)]) == 0
    report = json.loads(output.read_text("utf-8"))
    assert (report["failures"], report["left_out"]) == ([], [])
    results: dict[str, dict[str, Any]] = {result["name"]: result for result in report["results"]}
    there_and_back = {"spark-handovers": 2, "spark-kills": rounds, "spark-second-driver": rounds}
    assert {name: result["rounds"] for name, result in results.items()} == there_and_back
    for result in results.values():
        assert result["records"] > 0
        assert (result["lost"], result["unexplained"], result["strange"]) == (0, 0, 0)
        assert 0 < result["median_ms"] <= result["max_ms"]
    assert results["spark-handovers"]["twice"] == 0
