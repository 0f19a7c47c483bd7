"""The word count without Spark: the text, the two sinks, the comparison, with planted faults."""

from collections import Counter
from pathlib import Path

import pytest

from examples.wordcount import sinks, text
from examples.wordcount.demo import main
from examples.wordcount.proof import compare
from rallypoint.spark_bridge.offsets import Range
from rallypoint.spark_bridge.sources.files import FilesWriter
from tests.spark_bridge.exactly_once.batches import ListFrame
from tests.spark_bridge.sources.test_files_source import source

TRUE = {"to": 2, "be": 2, "or": 1, "not": 1}


def test_words_are_runs_of_letters_in_lower_case() -> None:
    assert list(text.words_of("Das Öl — x86_64's `next_offset`")) == ["das", "öl", "x", "s", "next", "offset"]
    assert list(text.words_of("")) == []


def test_the_documents_of_the_clone_are_text_enough() -> None:
    lines = text.read_lines(text.find_documents())
    counts = text.count_words(lines)
    assert len(lines) > 1_000
    assert counts["partition"] > 100
    assert counts.total() == sum(len(list(text.words_of(line))) for line in lines)


@pytest.mark.parametrize(
    ("content", "words"), [(b"one line\n", "has 1 lines"), (b"\xff\n" * 300, "not UTF-8"), (None, "No such file")]
)
def test_a_text_that_will_not_do_is_named(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "text"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(text.NoText, match=words):
        text.read_lines([path])


def test_the_program_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str], java_home: Path) -> None:
    assert main(["--output", str(tmp_path / "out"), "--text", str(tmp_path / "none")]) == 2
    assert f"{tmp_path / 'none'} cannot be read as text" in capsys.readouterr().err


def test_every_line_is_one_record(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(10)]
    writer = FilesWriter(tmp_path, text.TOPIC, 4)
    text.write_lines(writer, lines[:3], 4)
    text.write_lines(writer, lines[3:], 4)
    records = source(tmp_path)
    ends = records.latest([(text.TOPIC, partition) for partition in range(4)])
    found = [
        value.decode()
        for (topic, partition), end in ends.items()
        for batch in records.read(Range(topic, partition, 0, end))
        for value in batch.column("value").to_pylist()
    ]
    assert sorted(found) == sorted(lines)


def batch(start: int, words: str) -> ListFrame:
    """A line from offset `start` on for each word."""
    return ListFrame([("lines", 0, start + place, word) for place, word in enumerate(words.split())])


def test_a_batch_that_comes_again_is_counted_once_or_by_the_plain_sink_twice(tmp_path: Path) -> None:
    for kind, surplus in (("exactly", 0), ("plain", 4)):
        path = tmp_path / f"{kind}.db"
        sinks.make_table(path)
        sink = sinks.exactly_once(path) if kind == "exactly" else sinks.Plain(path)
        sink(batch(0, "to be or not"), 0)
        sink(batch(0, "to be or not"), 0)
        sink(batch(4, "to be"), 1)
        found = compare(sinks.read_counts(path), TRUE)
        assert (found.lost, found.surplus) == (0, surplus)


def test_equal_counts_are_no_problem() -> None:
    found = compare(dict(TRUE), TRUE)
    assert (found.words, found.occurrences, found.problems()) == (4, 6, [])


@pytest.mark.parametrize(
    ("counted", "sentence"),
    [
        ({"to": 2, "be": 1, "or": 1, "not": 1}, "1 occurrences of words were not counted."),
        ({"to": 4, "be": 2, "or": 1, "not": 1}, "2 occurrences of words were counted twice."),
        ({**TRUE, "question": 1}, "1 occurrences of words were counted twice."),
        ({}, "6 occurrences of words were not counted."),
    ],
)
def test_each_wrong_count_is_found(counted: dict[str, int], sentence: str) -> None:
    problems = compare(counted, TRUE).problems()
    assert sentence in problems
    assert "wrong count" in problems[-1]


def test_a_loss_and_a_surplus_do_not_cancel_out() -> None:
    found = compare(Counter({"to": 3, "be": 1, "or": 1, "not": 1}), TRUE)
    assert (found.lost, found.surplus) == (1, 1)
    assert found.wrong == {"be": (1, 2), "to": (3, 2)}
