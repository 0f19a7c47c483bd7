"""Who may have a connection: places of those that have authenticated, and who makes place among the others."""

import random
from collections import Counter

import pytest

from rallypoint.coordinator.core.network import Network, network_of
from rallypoint.coordinator.http.limits.admission import (
    Admission,
    ConnectionLimits,
    Unauthenticated,
    last_file,
    limits_within,
    reserved_files,
)


def test_the_first_that_came_of_the_address_that_has_most_makes_place() -> None:
    admission: Admission[int] = Admission(10, 4)
    for number, address in enumerate(["a", "b", "b", "b"]):
        assert admission.come(number, address) is None
    assert admission.come(4, "c") == 1, "b's first"
    assert admission.come(5, "d") == 2, "b has most still"
    assert admission.come(6, "d") == 5, "d has most now, and its newest stays"
    assert admission.unauthenticated_count == 4


def test_of_addresses_with_as_many_the_oldest_makes_place_and_never_the_one_that_comes() -> None:
    admission: Admission[int] = Admission(10, 2)
    cut = [admission.come(number, f"address {number}") for number in range(5)]
    assert cut == [None, None, 0, 1, 2]


def test_who_has_authenticated_makes_place_for_nobody_and_one_too_many_stays_what_it_was() -> None:
    admission: Admission[int] = Admission(2, 2)
    for number in range(3):
        admission.come(number, "proxy")
        assert admission.admit(number) is (number < 2)
        assert admission.admit(number) is (number < 2), "asked again, the same is said"
    assert (admission.authenticated_count, admission.unauthenticated_count) == (2, 1)
    assert [admission.come(number, "proxy") for number in (3, 4, 5)] == [None, 2, 3]
    admission.go(0)
    assert admission.admit(5)
    assert not admission.admit(3), "it was cut"


def test_what_goes_on_as_another_keeps_its_place() -> None:
    admission: Admission[str] = Admission(10, 2)
    for name in ("admitted", "stranger"):
        admission.come(name, "address")
    assert admission.admit("admitted")
    for name in ("admitted", "stranger", "nobody"):
        admission.replace(name, f"{name}'s channel")
    assert (admission.authenticated_count, admission.unauthenticated_count) == (1, 1)
    assert admission.come("another", "address") is None
    assert admission.come("a third", "address") == "stranger's channel"
    assert admission.admit("admitted's channel"), "asked again, the same is said"
    admission.go("admitted's channel")
    assert (admission.authenticated_count, admission.unauthenticated_count) == (0, 2)


def test_any_coming_and_going_keeps_the_books() -> None:
    chance = random.Random(7)
    waiting: Unauthenticated[int] = Unauthenticated()
    plain: dict[int, Network] = {}
    for number in range(5_000):
        if plain and chance.random() < 0.5:
            gone = chance.choice(list(plain))
            assert waiting.remove(gone)
            assert not waiting.remove(gone)
            del plain[gone]
        else:
            plain[number] = network_of(f"address {chance.randrange(6)}")
            waiting.add(number, plain[number])
        assert len(waiting) == len(plain)
        first = waiting.first_of_most()
        if first is None:
            assert not plain
            continue
        counts = Counter(plain.values())
        assert counts[plain[first]] == max(counts.values())
        assert first == next(one for one, address in plain.items() if address == plain[first])


@pytest.mark.parametrize("files_max", [64, 96, 128, 512, 1_024, 20_000, 60_127, 60_128, 1_000_000])
def test_limits_fit_into_the_open_files_of_the_process(files_max: int) -> None:
    wanted = ConnectionLimits()
    limits = limits_within(wanted, files_max)
    total = limits.connections_max + limits.unauthenticated_connections_max
    assert total + reserved_files(files_max) <= files_max
    assert total < last_file(files_max) < files_max
    assert (limits == wanted) is (files_max >= 60_128)
    assert limits.connections_max >= limits.unauthenticated_connections_max >= 8


def test_one_that_is_small_already_is_not_lowered_for_the_other() -> None:
    wanted = ConnectionLimits(connections_max=10, unauthenticated_connections_max=5_000)
    limits = limits_within(wanted, 1_024)
    assert limits.connections_max == 10
    assert limits.unauthenticated_connections_max == 224
