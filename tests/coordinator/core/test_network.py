"""Which addresses are one client if places are divided."""

import pytest

from rallypoint.coordinator.core.network import network_of


@pytest.mark.parametrize(
    ("address", "other", "is_same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("no:address", "no:address", True),
        ("", "", True),
    ],
)
def test_whom_places_are_counted_for(address: str, other: str, is_same: bool) -> None:
    assert (network_of(address) == network_of(other)) is is_same
