"""Hand-overs and kills of real Spark drivers on a real broker: the command finds that nothing is missing."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.main import main
from tests.real.kafka import require_jars
from tests.sizes import by_size

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")


@pytest.mark.spark
@pytest.mark.drivers
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("java_home")  # no figure of this run counts, and Java may compile in a hurry
def test_no_record_is_missing_after_hand_overs_and_kills(tmp_path: Path) -> None:
    require_jars()
    handovers = measured("spark-handovers", 2, tmp_path)
    # The first dies alone, the second with all its processes.
    kills = measured("spark-kills", by_size(0, 1, 2), tmp_path)
    assert set(handovers | kills) == {"spark-handovers", "spark-kills", "spark-second-driver"}
    assert handovers["spark-handovers"]["twice"] == 0


def measured(name: str, rounds: int, folder: Path) -> dict[str, Any]:
    """The results of a benchmark by their names, in which no record is missing."""
    output = folder / f"{name}.json"
    chosen = ("--only", name, "--rounds", str(rounds))
    assert main([*chosen, "--data", str(folder), "--output", str(output)]) == 0
    report = json.loads(output.read_text("utf-8"))
    assert (report["failures"], report["left_out"]) == ([], [])
    results = {result["name"]: result for result in report["results"]}
    for result in results.values():
        assert result["rounds"] == rounds
        assert result["records"] > 0
        assert (result["lost"], result["unexplained"], result["strange"]) == (0, 0, 0)
        assert 0 < result["median_ms"] <= result["max_ms"]
    return results
