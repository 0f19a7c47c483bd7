"""Two hand-overs and two kills of real Spark drivers on a real broker: the command finds that nothing is missing."""

import json
from pathlib import Path

import pytest

from bench.main import main
from tests.real.kafka import require_jars

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("java_home")  # no figure of this run counts, and Java may compile in a hurry
def test_no_record_is_missing_after_hand_overs_and_kills(tmp_path: Path) -> None:
    require_jars()
    output = tmp_path / "results.json"
    chosen = ("--only", "spark-handovers", "--only", "spark-kills")
    assert main([*chosen, "--rounds", "2", "--data", str(tmp_path), "--output", str(output)]) == 0
    report = json.loads(output.read_text("utf-8"))
    assert (report["failures"], report["left_out"]) == ([], [])
    results = {result["name"]: result for result in report["results"]}
    assert set(results) == {"spark-handovers", "spark-kills", "spark-second-driver"}
    for result in results.values():
        assert result["rounds"] == 2
        assert result["records"] > 0
        assert (result["lost"], result["unexplained"], result["strange"]) == (0, 0, 0)
        assert 0 < result["median_ms"] <= result["max_ms"]
    assert results["spark-handovers"]["twice"] == 0
