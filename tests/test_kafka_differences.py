"""Each difference from Kafka that the page names has its reason, and a test that exists."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = (DOCS / "kafka-differences.md").read_text()
CASE = re.compile(r"\[(test_\w+)\]\(([^)]+)\)")
ROWS = [line.strip("|").split("|") for line in PAGE.splitlines() if re.match(r"\| [A-Z]", line)]


@pytest.mark.parametrize(("test", "file"), sorted(set(CASE.findall(PAGE))))
def test_each_case_exists(test: str, file: str) -> None:
    assert re.search(rf"^(async )?def {test}\(", (DOCS / file).read_text(), re.MULTILINE), f"{file} has no {test}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_each_difference_says_what_why_and_where_it_is_shown(row: list[str]) -> None:
    here, in_kafka, why, shown_by = (cell.strip() for cell in row)
    assert here
    assert in_kafka
    assert why
    assert CASE.search(shown_by)


def test_the_page_has_rows() -> None:
    assert len(ROWS) > 20
