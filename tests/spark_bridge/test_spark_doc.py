"""docs/spark.md: the reference names every option with its default, and no other; its examples of sources work."""

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from spark_bridge.errors import SourceError
from spark_bridge.offsets import Range
from spark_bridge.options import BRIDGE_OPTIONS
from spark_bridge.sources import registry
from spark_bridge.sources.files import FilesSource
from spark_bridge.sources.kafka import KafkaSource
from tests.real.parts import ROOT
from tests.spark_bridge.sources.test_files_source import source, values


def test_every_option_is_in_the_reference_with_its_default() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| `?([^|`]+?)`? \|", (ROOT / "docs" / "spark.md").read_text("utf-8"), re.M)
    known = (*BRIDGE_OPTIONS, *FilesSource.options, *KafkaSource.options)
    assert sorted(rows) == sorted((spec.name, spec.default) for spec in known)


def example(name: str, **given: Any) -> dict[str, Any]:
    """What the example of that name defines."""
    found = re.search(rf"^```python {name}\n(.*?)^```$", (ROOT / "docs" / "spark.md").read_text("utf-8"), re.M | re.S)
    assert found is not None
    exec(found[1], given)
    return given


def test_the_directory_of_the_example_is_read(tmp_path: Path) -> None:
    example("files", directory=tmp_path)
    assert values(source(tmp_path), 0, 3) == [(0, b"hello"), (1, b"good"), (2, b"morning")]


def test_the_plug_in_of_the_example_is_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = example("plug-in")["NumbersSource"]
    module = ModuleType("numbers_source")
    module.__dict__["NumbersSource"] = kind
    monkeypatch.setitem(sys.modules, "numbers_source", module)
    entry = EntryPoint("numbers", "numbers_source:NumbersSource", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    given = {"coordinator": "http://c", "group": "g", "source": "numbers", "subscribe": "n", "count": "7"}
    options, found = registry.parse_for_source(given)
    assert found is kind
    numbers = found(options.source)
    assert numbers.partitions(["n"]) == {"n": 2}
    assert numbers.latest([("n", 1)]) == {("n", 1): 7}
    batches = list(numbers.read(Range("n", 1, 2, 5)))
    assert [row["value"] for row in pa.Table.from_batches(batches).to_pylist()] == [b"2", b"3", b"4"]
    with pytest.raises(SourceError, match="the source 'numbers' cannot list its topics; name them with subscribe"):
        numbers.topics()
