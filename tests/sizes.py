"""How much the tests do in this run: what `pytest --size` chose, for tests that can do less or more of the same.

A test reads it when it is imported, so tests/conftest.py sets it before. What a size leaves out as a whole is said
there, too.
"""

from enum import IntEnum
from typing import Any

import pytest


class Size(IntEnum):
    """`SMALL`: a sample, without any other program. `FULL`: every test. `LONG`: what takes hours of chance as well."""

    SMALL = 1
    FULL = 2
    LONG = 3


class _Chosen:
    size = Size.FULL


def choose(size: Size) -> None:
    """Let it be the size of this run. What was imported before does not hear of it."""
    _Chosen.size = size


def by_size(small: int, full: int, long: int | None = None) -> int:
    """The number for the size of this run: of examples, of seeds, of whatever is drawn. `long` is `full` by default."""
    if _Chosen.size is Size.SMALL:
        return small
    return full if long is None or _Chosen.size is Size.FULL else long


def in_long(*values: Any) -> Any:
    """These values of a parametrized test for a long run alone: a full one has others of the same test."""
    return pytest.param(*values, marks=pytest.mark.long)
