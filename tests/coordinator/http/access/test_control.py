"""What is accepted, and whether it matters what a caller shows: as it stands now, though it is not asked each time."""

from rallypoint.coordinator.access.policy_file import read_access
from rallypoint.coordinator.access.tokens import TokenEntry, hash_token
from rallypoint.coordinator.http.access.control import AccessControl

TOKEN = TokenEntry("etl", hash_token("etl"))


def test_it_matters_what_a_caller_shows_as_soon_as_something_can_be_taken_away() -> None:
    policy = read_access('[[allow]]\nwho = ["*"]\nmay = ["*"]\non = ["group:*"]\n').policy
    for access in (AccessControl([TOKEN]), AccessControl(policy=policy), AccessControl(takes_certificates=True)):
        assert access.knows_credentials
    access = AccessControl()
    found = [access.anybody.can_be_lost]
    access.use_tokens([TOKEN])
    found.append(access.anybody.can_be_lost)
    access.use_tokens([])
    found.append(access.anybody.can_be_lost)
    access.use_policy(policy)
    found.append(access.anybody.can_be_lost)
    assert found == [False, True, False, True]
