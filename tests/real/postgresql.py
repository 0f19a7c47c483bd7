"""A real PostgreSQL for tests, the one that an example starts, too: see `examples.exactly_once.private_server`."""

from collections.abc import Iterator

import pytest

from examples.exactly_once.private_server import REMEDY, find_programs, running_postgresql
from tests.real.parts import require


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The connection string of a running server; tests use tables of their own."""
    programs = find_programs()
    require(programs, "PostgreSQL", REMEDY)
    assert programs is not None
    with running_postgresql(programs) as conninfo:
        yield conninfo
