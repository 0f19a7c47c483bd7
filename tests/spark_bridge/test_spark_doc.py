"""The reference in docs/spark.md names every option with its default, and no other."""

import re

from spark_bridge.options import BRIDGE_OPTIONS
from spark_bridge.sources.files import FilesSource
from spark_bridge.sources.kafka import KafkaSource
from tests.real.parts import ROOT


def test_every_option_is_in_the_reference_with_its_default() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| `?([^|`]+?)`? \|", (ROOT / "docs" / "spark.md").read_text("utf-8"), re.M)
    known = (*BRIDGE_OPTIONS, *FilesSource.options, *KafkaSource.options)
    assert sorted(rows) == sorted((spec.name, spec.default) for spec in known)
