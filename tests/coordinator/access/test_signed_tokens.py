"""Signed tokens: whose they are, and every kind that is nobody's."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jwk

from rallypoint.coordinator.access.issuers import ALGORITHMS, Issuer
from rallypoint.coordinator.access.principals import Caller
from rallypoint.coordinator.access.signed_tokens import (
    EXPIRES_MAX_S,
    RSA_BITS_MAX,
    KeysInvalid,
    caller_of,
    read_keys,
    read_unchecked,
)
from rallypoint.protocol.limits import TOKEN_LENGTH_MAX
from tests.fakes.issuer import AUDIENCE, LASTS_S, FakeIssuer, encoded, new_key, public, sign, sign_with_secret

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1_000
FAKE = FakeIssuer(NOW_S)
ISSUER = Issuer(FAKE.url, AUDIENCE, algorithms=("ES256", "RS256"), groups_claim=("groups",))
KEYS = read_keys(json.dumps(FAKE.jwks()).encode())
HEADER = {"alg": "ES256", "kid": "k1", "typ": "JWT"}
KEY = FAKE.keys["k1"]


def judge(token: str, issuer: Issuer = ISSUER, now_ms: int = NOW_MS) -> Caller | None:
    read = read_unchecked(token)
    return None if read is None or read.key_id not in KEYS else caller_of(read, issuer, KEYS[read.key_id], now_ms)


def of_claims(**more: Any) -> Caller | None:
    return judge(FAKE.token(**more))


def test_a_good_token_is_its_subject_s() -> None:
    caller = of_claims()
    assert caller is not None
    assert (caller.principals, caller.name) == (("oidc:alice",), "oidc:alice")
    assert caller.expires_at_ms == (NOW_S + LASTS_S + 30) * 1_000
    assert caller.signed_by is not None
    assert (caller.signed_by.issuer, caller.signed_by.key_digest) == (ISSUER, KEYS["k1"].digest)
    assert KEYS["k1"].digest.decode() not in repr(caller)


def test_groups_are_principals_beside_the_subject() -> None:
    caller = of_claims(groups=["ops", "etl", "ops"])
    assert caller is not None
    assert caller.principals == ("oidc:alice", "oidc-group:ops", "oidc-group:etl")
    alone = of_claims(groups="ops")
    assert alone is not None
    assert alone.principals == ("oidc:alice", "oidc-group:ops")


def test_groups_may_stand_deeper() -> None:
    issuer = replace(ISSUER, groups_claim=("realm_access", "roles"))
    for claims, groups in (({"roles": ["ops"]}, ("oidc-group:ops",)), ({}, ()), (None, ())):
        caller = judge(FAKE.token(realm_access=claims), issuer)
        assert caller is not None
        assert caller.principals[1:] == groups
    assert judge(FAKE.token(realm_access=["roles"]), issuer) is None


def test_without_the_setting_no_claim_makes_groups() -> None:
    caller = judge(FAKE.token(groups=["ops"]), replace(ISSUER, groups_claim=()))
    assert caller is not None
    assert caller.principals == ("oidc:alice",)


def test_the_subject_may_be_another_claim() -> None:
    issuer = replace(ISSUER, subject_claim="client_id")
    caller = judge(FAKE.token(client_id="etl"), issuer)
    assert caller is not None
    assert caller.name == "oidc:etl"
    assert judge(FAKE.token(), issuer) is None


def test_a_named_issuer_cannot_name_another_s_subjects() -> None:
    for subject in ("alice", "b/alice", "../b/alice", "b:alice"):
        caller = judge(FAKE.token(subject, groups=["b/ops"]), replace(ISSUER, name="a"))
        assert caller is not None
        assert caller.principals == (f"oidc:a/{subject}", "oidc-group:a/b/ops")


def test_an_audience_among_several_is_enough() -> None:
    assert of_claims(aud=["other", AUDIENCE]) is not None


BAD_CLAIMS: dict[str, dict[str, Any]] = {
    "another audience": {"aud": "other"},
    "other audiences": {"aud": ["other", f"{AUDIENCE}2"]},
    "an audience that is no text": {"aud": {AUDIENCE: 1}},
    "no audience": {"aud": None},
    "another issuer": {"iss": "https://issuer.test/"},
    "no issuer": {"iss": None},
    "expired": {"exp": NOW_S - 31},
    "no end": {"exp": None},
    "an end that is a text": {"exp": str(NOW_S + 60)},
    "an end that is true": {"exp": True},
    "an end after the last year": {"exp": EXPIRES_MAX_S + 1},
    "an end that is no time": {"exp": 1e308},
    "not yet": {"nbf": NOW_S + 31},
    "a beginning that is a text": {"nbf": "0"},
    "signed in the future": {"iat": NOW_S + 31},
    "no subject": {"sub": None},
    "an empty subject": {"sub": ""},
    "a subject that is a number": {"sub": 7},
    "a subject with a line's end": {"sub": "a\nb"},
    "a subject that is too long": {"sub": "a" * 2_100},
    "groups that are an object": {"groups": {"ops": True}},
    "groups that are numbers": {"groups": [1]},
    "an empty group": {"groups": ["ops", ""]},
    "a group with a tab": {"groups": ["ops", "a\tb"]},
    "a group that is too long": {"groups": ["ops", "a" * 2_100]},
    "groups that are null": {"groups": [None]},
    "more groups than are looked at": {"groups": [f"g{at}" for at in range(200)]},
    "more groups than a token has room for": {"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {}}},
    "more groups than a link has room for": {"hasgroups": True},
}


@pytest.mark.parametrize("name", BAD_CLAIMS)
def test_a_token_with_such_claims_is_nobody_s(name: str) -> None:
    assert of_claims(**BAD_CLAIMS[name]) is None


def test_as_many_groups_as_are_looked_at_are_taken() -> None:
    caller = of_claims(groups=[f"g{at}" for at in range(199)])
    assert caller is not None
    assert len(caller.principals) == 200


def test_clocks_may_differ_by_the_setting() -> None:
    early, late = FAKE.token(nbf=NOW_S + 30, iat=NOW_S + 30), FAKE.token(exp=NOW_S - 29)
    assert judge(early) is not None
    assert judge(late) is not None
    assert judge(early, replace(ISSUER, clock_skew_seconds=29)) is None
    assert judge(late, replace(ISSUER, clock_skew_seconds=29)) is None


BAD_HEADERS: dict[str, dict[str, Any]] = {
    "no key id": {"kid": None},
    "an empty key id": {"kid": ""},
    "a key id that is a number": {"kid": 1},
    "a key id that is too long": {"kid": "k" * 257},
    "something critical": {"crit": ["exp"], "exp": 1},
    "a body that is not encoded": {"b64": True},
    "another kind of token": {"typ": "logout+jwt"},
    "a kind that is a number": {"typ": 1},
    "no algorithm": {"alg": 1},
}


@pytest.mark.parametrize("name", BAD_HEADERS)
def test_a_token_with_such_a_header_is_nobody_s(name: str) -> None:
    header = {key: value for key, value in (HEADER | BAD_HEADERS[name]).items() if value is not None}
    _, body, signature = FAKE.token().split(".")
    token = f"{encoded(json.dumps(header).encode())}.{body}.{signature}"
    assert read_unchecked(token) is None


@pytest.mark.parametrize("kind", ["JWT", "jwt", "at+jwt", "application/at+jwt"])
def test_kinds_of_tokens_that_say_who_somebody_is(kind: str) -> None:
    assert judge(sign(KEY, HEADER | {"typ": kind}, FAKE.claims())) is not None


def test_what_nobody_knows_in_a_header_is_ignored() -> None:
    other = new_key("evil")
    header = HEADER | {"nonce": "x", "jku": "https://evil.example/jwks", "jwk": public(other)}
    assert judge(sign(KEY, header, FAKE.claims())) is not None
    assert judge(sign(other, header, FAKE.claims())) is None


def test_a_token_that_is_not_signed_is_nobody_s() -> None:
    for algorithm in ("none", "None", "NONE", ""):
        head, body = (encoded(json.dumps(part).encode()) for part in (HEADER | {"alg": algorithm}, FAKE.claims()))
        for signature in ("", "AA"):
            assert judge(f"{head}.{body}.{signature}") is None
    head, body, _ = FAKE.token().split(".")
    assert judge(f"{head}.{body}.") is None


def test_a_token_signed_with_the_public_key_as_a_secret_is_nobody_s() -> None:
    for secret in (KEY.as_pem(private=False), json.dumps(public(KEY)).encode()):
        token = sign_with_secret(secret, HEADER, FAKE.claims())
        assert judge(token) is None
        assert judge(token, replace(ISSUER, algorithms=("ES256", "HS256"))) is None, "the key is of another kind"


def test_an_algorithm_that_is_not_allowed_is_refused_though_the_key_fits() -> None:
    assert judge(FAKE.token(), replace(ISSUER, algorithms=("RS256",))) is None


def test_a_key_that_is_for_one_algorithm_is_used_for_no_other() -> None:
    key = jwk.RSAKey.generate_key(2048, {"kid": "r"})
    keys = read_keys(json.dumps({"keys": [public(key) | {"alg": "RS256"}]}).encode())
    issuer = replace(ISSUER, algorithms=("RS256", "PS256"))
    found = []
    for algorithm in ("RS256", "PS256"):
        read = read_unchecked(sign(key, {"alg": algorithm, "kid": "r"}, FAKE.claims()))
        assert read is not None
        found.append(caller_of(read, issuer, keys["r"], NOW_MS) is not None)
    assert found == [True, False]


def test_a_token_that_another_key_has_signed_is_nobody_s() -> None:
    assert judge(sign(new_key("k1"), HEADER, FAKE.claims())) is None


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_token_in_which_something_was_changed_is_nobody_s(part: int) -> None:
    parts = FAKE.token().split(".")
    if part == 2:
        parts[2] = encoded(bytes([*base64.urlsafe_b64decode(parts[2] + "==")][::-1]))
    else:
        found = json.loads(base64.urlsafe_b64decode(parts[part] + "=="))
        parts[part] = encoded(json.dumps(found | {"sub": "bob", "x": 1}).encode())
    assert judge(".".join(parts)) is None


@pytest.mark.parametrize("claims", ['{"sub":"bob",', '{"exp":NaN,', '{"exp":Infinity,', '{"exp":1' + "0" * 5_000 + ","])
def test_a_body_that_can_be_read_in_two_ways_is_nobody_s(claims: str) -> None:
    """Also where the issuer has signed it."""
    rest = json.dumps(FAKE.claims())[1:]
    if "exp" in claims:
        rest = json.dumps({name: value for name, value in FAKE.claims().items() if name != "exp"})[1:]
    token = sign(KEY, HEADER, claims + rest)
    assert judge(token) is None
    assert judge(sign(KEY, HEADER, '{"x":1,' + json.dumps(FAKE.claims())[1:])) is not None


def test_a_header_with_a_key_twice_is_nobody_s() -> None:
    _, body, signature = FAKE.token().split(".")
    head = encoded(b'{"alg":"none","alg":"ES256","kid":"k1"}')
    assert read_unchecked(f"{head}.{body}.{signature}") is None


NO_TOKENS = [
    "",
    "..",
    "a.b",
    "a.b.c",
    "a.b.c.d",
    " ".join(FAKE.token().split(".", 1)),
    FAKE.token() + "=",
    FAKE.token() + "\n",
    FAKE.token().replace(".", "+.", 1),
    "é" + FAKE.token(),
    "\udcff" + FAKE.token(),
    encoded(b"[" * 20_00) + "." + ".".join(FAKE.token().split(".")[1:]),
    encoded(b"[]") + "." + ".".join(FAKE.token().split(".")[1:]),
    encoded(b"\xff\xfe") + "." + ".".join(FAKE.token().split(".")[1:]),
    FAKE.token(pad="x" * TOKEN_LENGTH_MAX),
]


@pytest.mark.parametrize("token", NO_TOKENS, ids=range(len(NO_TOKENS)))
def test_what_is_no_token_is_nobody_s(token: str) -> None:
    assert read_unchecked(token) is None


def test_a_body_that_is_nested_deeply_is_nobody_s() -> None:
    body = '{"a":' + "[" * 5_000 + "]" * 5_000 + "," + json.dumps(FAKE.claims())[1:]
    assert read_unchecked(sign(KEY, HEADER, body)) is None


# --- keys


def keys_of(*keys: dict[str, Any]) -> set[str]:
    return set(read_keys(json.dumps({"keys": keys}).encode()))


def test_keys_that_are_for_something_else_are_left_out() -> None:
    good, small = public(new_key("good")), public(new_key("other"))
    secret = {"kty": "oct", "k": "AAAA", "kid": "other"}
    nameless = {name: value for name, value in small.items() if name != "kid"}
    short = {"kty": "RSA", "n": "x" * 341, "e": "AQAB", "kid": "other"}
    broken = small | {"x": "AAAA"}
    for other in (
        secret,
        nameless,
        short,
        broken,
        small | {"use": "enc"},
        small | {"key_ops": ["sign"]},
        small | {"alg": 1},
        small | {"kty": 1},
        small | {"kty": []},
        small | {"kty": {}},
        small | {"crv": "BP-256"},
        small | {"crv": "P-256K"},
        {"kty": "OKP", "crv": "Foo", "x": "AAAA", "kid": "other"},
        {"kty": "RSA", "e": "AQAB", "kid": "other"},
        {},
    ):
        assert keys_of(good, other) == {"good"}, other
        with pytest.raises(KeysInvalid, match="none that could check a token"):
            keys_of(other)
    assert keys_of(good, small | {"key_ops": ["verify"]}) == {"good", "other"}


def test_of_two_keys_with_one_id_none_counts() -> None:
    one, other, good = public(new_key("k")), public(new_key("k")), public(new_key("good"))
    assert keys_of(one, other, good, one) == {"good"}


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[],"keys":[]}', b'{"keys":[]}', b"\xff", b"[" * 100_000]
)
def test_what_is_no_set_of_keys_is_refused(text: bytes) -> None:
    with pytest.raises(KeysInvalid):
        read_keys(text)


def test_a_key_of_too_few_bits_is_left_out() -> None:
    few = rsa.generate_private_key(65_537, 1_024).public_key().public_numbers()
    for size_bytes in (128, 256, 300):  # with zeros in front
        modulus = encoded(few.n.to_bytes(size_bytes, "big"))
        assert keys_of(public(RSA), {"kty": "RSA", "n": modulus, "e": "AQAB", "kid": "few"}) == {"x"}


def test_a_key_of_too_many_bits_is_left_out() -> None:
    modulus = encoded(((1 << RSA_BITS_MAX) + 1).to_bytes(RSA_BITS_MAX // 8 + 1))
    assert keys_of(public(RSA), {"kty": "RSA", "n": modulus, "e": "AQAB", "kid": "many"}) == {"x"}


def test_more_keys_than_are_looked_at_are_refused() -> None:
    with pytest.raises(KeysInvalid, match="100 at the most"):
        keys_of(*[public(new_key("k"))] * 101)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm_that_may_be_allowed_is_one_and_warns_of_nothing(algorithm: str) -> None:
    key: Any
    if algorithm == "Ed25519":
        key = jwk.OKPKey.generate_key("Ed25519", {"kid": "x"})
    elif algorithm.startswith("ES"):
        key = jwk.ECKey.generate_key({"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}[algorithm], {"kid": "x"})
    else:
        key = RSA
    keys = read_keys(json.dumps({"keys": [public(key)]}).encode())
    read = read_unchecked(sign(key, {"alg": algorithm, "kid": "x"}, FAKE.claims()))
    assert read is not None
    assert caller_of(read, replace(ISSUER, algorithms=(algorithm,)), keys["x"], NOW_MS) is not None


RSA = jwk.RSAKey.generate_key(2048, {"kid": "x"})
