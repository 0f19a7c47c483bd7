"""docs/spark.md: the reference names every option with its default, and no other; its examples of sources work."""

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from rallypoint.spark_bridge import errors
from rallypoint.spark_bridge.errors import OptionError, SourceError
from rallypoint.spark_bridge.offsets import Range
from rallypoint.spark_bridge.options import BRIDGE_OPTIONS, SourceOptions
from rallypoint.spark_bridge.sources import registry
from rallypoint.spark_bridge.sources.files import FilesSource
from rallypoint.spark_bridge.sources.kafka import KafkaSource
from rallypoint.spark_bridge.sources.kafka_options import JAVA, REFUSED
from tests.real.parts import ROOT
from tests.spark_bridge.sources.test_files_source import source, values
from tests.spark_bridge.writing_snippets import ON_A_CLUSTER, SNIPPETS, examples

KAFKA_PAGE = (ROOT / "docs" / "spark-kafka.md").read_text("utf-8")


def test_every_option_is_in_the_reference_with_its_default() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| `?([^|`]+?)`? \|", (ROOT / "docs" / "spark.md").read_text("utf-8"), re.M)
    known = (*BRIDGE_OPTIONS, *FilesSource.options, *KafkaSource.options)
    assert sorted(rows) == sorted((spec.name, spec.default) for spec in known)


def test_every_example_that_writes_is_run_by_two_drivers_and_counted() -> None:
    programs = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "examples").rglob("*.py")))
    named = []
    for page, name, text in examples():
        if name:
            named.append(name)
            continue
        strange = [line for line in text.splitlines() if line.strip() and line.strip() not in programs]
        assert not strange, (
            f"{page}: an example that writes needs a name and an entry in tests/spark_bridge/writing_snippets.py, or to"
            f" be a part of a program in examples/; not there: {strange}"
        )
    assert sorted(named) == sorted([*SNIPPETS, ON_A_CLUSTER])


def example(name: str, **given: Any) -> dict[str, Any]:
    """What the example of that name defines."""
    found = re.search(rf"^```python {name}\n(.*?)^```$", (ROOT / "docs" / "spark.md").read_text("utf-8"), re.M | re.S)
    assert found is not None
    exec(found[1], given)
    return given


def options_of(name: str) -> dict[str, str]:
    """Those of the example of that name on the page about Kafka."""
    found = re.search(rf"^```properties {name}\n(.*?)^```$", KAFKA_PAGE, re.M | re.S)
    assert found is not None
    return dict(line.split("=", 1) for line in found[1].splitlines())


def test_the_page_about_kafka_has_the_sentence_of_each_option_of_javas() -> None:
    rows = dict(re.findall(r"^\| `kafka\.([\w.]+)` \| (?!`)(.+) \|$", KAFKA_PAGE, re.M))
    rows.pop("isolation.level", None)
    assert rows == dict(JAVA)


@pytest.mark.parametrize("name", [*JAVA, *REFUSED])
def test_an_option_of_javas_is_refused_with_what_to_write(name: str) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:9", f"kafka.{name}": "1"}
    with pytest.raises(OptionError, match=re.escape(f"option kafka.{name}: ")) as caught:
        KafkaSource(SourceOptions("kafka", (), own=given))
    assert str(caught.value).endswith({**JAVA, **REFUSED}[name])


def test_what_is_to_be_written_is_known_to_librdkafka() -> None:
    values = {"sasl.oauthbearer.method": "oidc"}
    told = {name for sentence in JAVA.values() for name in re.findall(r"kafka\.([a-z.]+[a-z])", sentence)}
    assert told
    for name in told - {"ssl.ca.location", "ssl.keystore.location", "ssl.certificate.pem", "ssl.key.pem", "ssl.ca.pem"}:
        value = values.get(name, "100000" if name.endswith(("bytes", "ms")) else "x")
        KafkaSource(SourceOptions("kafka", (), own={"kafka.bootstrap.servers": "x:1", f"kafka.{name}": value})).check()


def test_the_secured_cluster_of_the_page_is_taken_in_our_words_and_refused_in_javas() -> None:
    ours = {"kafka.bootstrap.servers": "x:1", **options_of("librdkafka")}
    # Where the machine has its certificates.
    ours["kafka.ssl.ca.location"] = "probe"
    KafkaSource(SourceOptions("kafka", (), own=ours)).check()
    javas = {"kafka.bootstrap.servers": "x:1", **{f"kafka.{n}": v for n, v in options_of("java").items()}}
    with pytest.raises(OptionError, match=r"kafka\.sasl\.jaas\.config: .* use kafka\.sasl\.username"):
        KafkaSource(SourceOptions("kafka", (), own=javas))


class EndedQuery:
    """A query that ends at once, by an error or because it was stopped."""

    isActive = False  # noqa: N815 - PySpark's names
    lastProgress = object()  # noqa: N815

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def exception(self) -> Exception | None:
        return self._error

    def awaitTermination(self) -> None:  # noqa: N802
        if self._error is not None:
            raise self._error


def test_the_supervisor_of_the_example_starts_a_query_again_until_it_is_stopped() -> None:
    supervise = example("supervise")["supervise"]
    ends = [EndedQuery(RuntimeError("the planner was killed")) for _ in range(8)] + [EndedQuery(None)]
    pauses: list[float] = []
    supervise(lambda: ends.pop(0), sleep=pauses.append)
    assert not ends
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize("name", ["OptionError", "SchemaRefused", "QueryRefused", "QueryFenced", "DataLost"])
def test_the_supervisor_of_the_example_lets_go_of_what_does_not_pass_by_itself(name: str) -> None:
    assert issubclass(getattr(errors, name), errors.BridgeError)
    supervise = example("supervise")["supervise"]
    error = RuntimeError(f"[STREAM_FAILED] Failed when ...: spark_bridge.errors.{name}: a sentence")
    with pytest.raises(RuntimeError, match=name):
        supervise(lambda: EndedQuery(error), sleep=lambda seconds: pytest.fail("it was started again"))


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
