"""When the keys of an issuer are fetched, how long they count, and what that says of a token."""

import json

import pytest

from rallypoint.coordinator.access.issuer_keys import KEPT_MAX_MS, REFRESH_MS, RETRY_MS, IssuerKeys, Verdict
from rallypoint.coordinator.access.issuers import Issuer
from rallypoint.coordinator.access.signed_tokens import SigningKey, UncheckedToken, read_keys
from tests.fakes.issuer import new_key, public

ISSUER = Issuer("https://a.example", "rallypoint")


def keys_of(*key_ids: str) -> dict[str, SigningKey]:
    return read_keys(json.dumps({"keys": [public(KEYS[key_id]) for key_id in key_ids]}).encode())


KEYS = {key_id: new_key(key_id) for key_id in ("k1", "k2")}


def token(key_id: str, algorithm: str = "ES256") -> UncheckedToken:
    return UncheckedToken("", ISSUER.url, key_id, algorithm)


@pytest.fixture
def keys() -> IssuerKeys:
    """Fetched at 0."""
    found = IssuerKeys(ISSUER)
    found.begin_fetch(0)
    assert found.use(keys_of("k1"), 0)
    return found


def test_keys_are_due_at_the_start_and_then_after_a_while(keys: IssuerKeys) -> None:
    assert IssuerKeys(ISSUER).is_due(0)
    assert not keys.is_due(REFRESH_MS - 1)
    assert keys.is_due(REFRESH_MS)


def test_a_fetch_that_fails_is_tried_again_soon_and_not_at_once(keys: IssuerKeys) -> None:
    keys.begin_fetch(REFRESH_MS)
    assert [keys.is_due(REFRESH_MS + after) for after in (0, RETRY_MS - 1, RETRY_MS)] == [False, False, True]
    first = IssuerKeys(ISSUER)
    first.begin_fetch(0)
    assert [first.is_due(after) for after in (RETRY_MS - 1, RETRY_MS)] == [False, True]


def test_no_two_fetches_begin_within_the_least_time(keys: IssuerKeys) -> None:
    assert [keys.may_fetch(at) for at in (0, RETRY_MS - 1, RETRY_MS)] == [False, False, True]


def test_keys_count_for_a_time_without_their_issuer_and_then_no_more(keys: IssuerKeys) -> None:
    (key,) = keys.keys.values()
    assert not keys.drop_old(KEPT_MAX_MS - 1)
    assert keys.has(key.digest)
    assert keys.drop_old(KEPT_MAX_MS)
    assert not keys.has(key.digest)
    assert not keys.drop_old(KEPT_MAX_MS), "it is told once"
    assert keys.verdict_on(token("k1")) is Verdict.UNDECIDED


def test_whether_others_count_is_told(keys: IssuerKeys) -> None:
    keys.begin_fetch(RETRY_MS)
    assert not keys.use(keys_of("k1"), RETRY_MS)
    assert keys.age_ms(RETRY_MS + 5) == 5
    assert keys.use(keys_of("k1", "k2"), RETRY_MS)
    assert keys.use(keys_of("k2"), RETRY_MS)


def test_a_token_is_judged_by_the_key_that_it_names(keys: IssuerKeys) -> None:
    assert keys.verdict_on(token("k1")) is Verdict.CHECKABLE
    assert keys.verdict_on(token("k2")) is Verdict.UNDECIDED
    for algorithm in ("none", "HS256", "RS384"):
        assert keys.verdict_on(token("k2", algorithm)) is Verdict.REFUSED, "no key would help"


def test_a_key_that_the_issuer_lacks_may_be_there_the_next_time(keys: IssuerKeys) -> None:
    """Of an issuer's replicas one may sign with it before another shows it."""
    keys.begin_fetch(RETRY_MS)
    keys.use(keys_of("k1"), RETRY_MS)
    assert keys.verdict_on(token("k2")) is Verdict.UNDECIDED
    assert keys.may_fetch(2 * RETRY_MS)
    keys.begin_fetch(2 * RETRY_MS)
    keys.use(keys_of("k1", "k2"), 2 * RETRY_MS)
    assert keys.verdict_on(token("k2")) is Verdict.CHECKABLE


def test_keys_that_were_got_in_another_way_count_until_there_are_others(keys: IssuerKeys) -> None:
    after = IssuerKeys(Issuer(ISSUER.url, ISSUER.audience, jwks_url="https://b.example"), keys)
    assert after.verdict_on(token("k1")) is Verdict.CHECKABLE
    assert after.is_due(1)
    assert not IssuerKeys(ISSUER).keys
    assert after.drop_old(KEPT_MAX_MS), "their age goes on"
