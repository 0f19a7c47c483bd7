"""What is left out of a run of each size, and that the numbers of examples follow."""

import pytest

from tests.sizes import Size, by_size, choose

PARTS = {"browser", "image", "kafka", "languages", "postgresql", "prometheus", "spark"}
LEFT_OUT = {"small": {"long", "slow", *PARTS}, "full": {"long"}, "long": set()}


def test_no_test_of_this_run_is_too_costly_for_its_size(request: pytest.FixtureRequest) -> None:
    size = request.config.getoption("size")
    for item in request.session.items:
        assert {mark.name for mark in item.iter_markers()} & LEFT_OUT[size] == set(), item.nodeid
        assert size != "small" or item.path.parent.name not in {"end_to_end", "fuzz", "real"}, item.nodeid


@pytest.mark.parametrize(
    ("size", "numbers"), [(Size.SMALL, (1, 1)), (Size.FULL, (20, 20)), (Size.LONG, (20, 300))], ids=str
)
def test_a_number_follows_the_size(size: Size, numbers: tuple[int, int], request: pytest.FixtureRequest) -> None:
    try:
        choose(size)
        assert (by_size(1, 20), by_size(1, 20, 300)) == numbers
    finally:
        choose(Size[request.config.getoption("size").upper()])
