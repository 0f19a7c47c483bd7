"""The cases of the published jars, read from tests/oracles. See the README there."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ORACLES = Path(__file__).parents[1] / "oracles"


def cases_of(file: str) -> Iterator[dict[str, Any]]:
    with gzip.open(ORACLES / file, "rt", encoding="ascii") as lines:
        for line in lines:
            yield json.loads(line)


def worked_examples(section: str) -> list[dict[str, Any]]:
    examples = json.loads((ORACLES / "worked-examples.json").read_text(encoding="utf-8"))[section]
    assert isinstance(examples, list)
    return examples
