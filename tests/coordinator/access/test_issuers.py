"""The issuers that a policy file names: what they may be, what is wrong with them, and whom they can name."""

import pytest

from rallypoint.coordinator.access.issuers import Issuer, is_safe_url, may_name
from rallypoint.coordinator.access.policy_file import read_access

ONE = '[[issuer]]\nurl = "https://login.example.org"\naudience = "rallypoint"\n'
OTHER = '[[issuer]]\nurl = "https://other.example.org"\naudience = "rallypoint"\n'
RULE = '[[allow]]\nwho = ["{who}"]\nmay = ["join"]\non = ["group:*"]\n'
GROUPS = 'groups_claim = "groups"\n'


def named(text: str, name: str) -> str:
    return f'{text}name = "{name}"\n'


def test_an_issuer_is_read_with_its_defaults() -> None:
    found = read_access(ONE)
    assert found.problems == ()
    assert found.issuers == (Issuer("https://login.example.org", "rallypoint"),)
    (issuer,) = found.issuers
    assert (issuer.algorithms, issuer.subject_claim, issuer.groups_claim) == (("RS256", "ES256"), "sub", ())
    assert (issuer.clock_skew_seconds, issuer.prefix, issuer.label) == (30, "", "https://login.example.org")


def test_an_issuer_is_read_with_all_keys() -> None:
    text = named(ONE, "corp") + (
        'algorithms = ["PS256"]\nsubject_claim = "client_id"\ngroups_claim = ["realm_access", "roles"]\n'
        'jwks_url = "http://127.0.0.1:9/jwks"\nca = "/etc/ca.pem"\nclock_skew_seconds = 0\n'
    )
    (issuer,) = read_access(text).issuers
    assert (issuer.prefix, issuer.label, issuer.algorithms) == ("corp/", "corp", ("PS256",))
    assert (issuer.subject_claim, issuer.groups_claim) == ("client_id", ("realm_access", "roles"))
    assert (issuer.jwks_url, issuer.ca, issuer.clock_skew_seconds) == ("http://127.0.0.1:9/jwks", "/etc/ca.pem", 0)


BAD = {
    "issuer = 3\n": "Line 1: `issuer` is a list of tables, each below `[[issuer]]`.",
    '[[issuer]]\nurl = "https://a.example"\n': "Line 1: issuer: `audience` is missing.",
    '[[issuer]]\naudience = "a"\n': "Line 1: issuer: `url` is missing.",
    ONE + 'secret = "x"\n': "Line 4: issuer: there is no key `secret`; there are: url, audience, name",
    ONE.replace("https", "http"): "Line 2: issuer: `url` is no URL of https, nor one of http on this machine.",
    ONE.replace("example.org", "example.org/?a=b"): "Line 2: issuer: `url` has a query",
    ONE.replace("https://", "https://user:secret@"): "Line 2: issuer: `url` is no URL of https",
    ONE + 'jwks_url = "http://keys.example.org"\n': "Line 4: issuer: `jwks_url` is no URL of https",
    ONE.replace('"rallypoint"', '""'): "Line 3: issuer: `audience` is a text that is not empty.",
    ONE.replace('"rallypoint"', '["a"]'): "Line 3: issuer: `audience` is a text that is not empty.",
    ONE + 'algorithms = ["HS256"]\n': "Line 4: issuer: `algorithms` has 'HS256'; there are: RS256, RS384",
    ONE + 'algorithms = ["none"]\n': "Line 4: issuer: `algorithms` has 'none'; there are: RS256",
    ONE + "algorithms = []\n": "Line 4: issuer: `algorithms` is empty, so no token could be checked.",
    ONE + "groups_claim = 1\n": "Line 4: issuer: `groups_claim` is the name of a claim, or a list",
    ONE + "clock_skew_seconds = 301\n": "Line 4: issuer: `clock_skew_seconds` is a whole number from 0 to 300.",
    ONE + "clock_skew_seconds = true\n": "Line 4: issuer: `clock_skew_seconds` is a whole number",
    named(ONE, "a/b"): "Line 4: issuer: `name` is letters, digits, dots, dashes and underscores",
    ONE + OTHER: "Line 4: issuer: each of several has a `name`, which tells their subjects apart.",
    named(ONE, "a") + OTHER: "Line 5: issuer: each of several has a `name`",
    named(ONE, "a") + named(OTHER, "a"): "Line 5: issuer: another one has this `name`",
    named(ONE, "a") + named(ONE, "b"): "Line 5: issuer: another one has this `url`.",
    "".join(
        named(ONE.replace("login", f"l{at}"), f"n{at}") for at in range(17)
    ): "issuer: there are 17, and may be 16.",
    RULE.format(who="oidc:alice"): "Line 2: who: 'oidc:alice' is nobody: no [[issuer]] is in the file.",
    RULE.format(who="oidc:*"): "is nobody: no [[issuer]] is in the file.",
    ONE + RULE.format(who="oidc-group:a"): "Line 5: who: 'oidc-group:a' is nobody: no [[issuer]] has a `groups_claim`.",
    named(ONE, "corp")
    + RULE.format(who="oidc:alice"): "is nobody: what the issuers of this file name is `oidc:corp/…`.",
    named(ONE, "corp")
    + RULE.format(who="oidc:corp*"): "is nobody: what the issuers of this file name is `oidc:corp/…`.",
    named(ONE, "a") + named(OTHER, "b") + RULE.format(who="oidc:c/d"): "name is `oidc:a/…` or `oidc:b/…`.",
    'nodes = ["oidc:node"]\n': "Line 1: nodes: 'oidc:node' is nobody: no [[issuer]] is in the file.",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_wrong_is_said_with_its_line(text: str) -> None:
    problems = read_access(text).problems
    assert any(problem.startswith(BAD[text]) or BAD[text] in problem for problem in problems), problems


def test_whom_a_faulty_issuer_names_is_no_fault_besides() -> None:
    assert len(read_access(ONE.replace("https", "http") + RULE.format(who="oidc:alice")).problems) == 1


@pytest.mark.parametrize("who", ["oidc:alice", "oidc:a*", "oidc:*", "oidc-group:ops", "*"])
def test_who_a_single_issuer_can_name_may_stand_in_rules(who: str) -> None:
    assert read_access(ONE + GROUPS + RULE.format(who=who)).problems == ()


@pytest.mark.parametrize("who", ["oidc:corp/alice", "oidc:corp/*", "oidc-group:corp/ops", "oidc:*"])
def test_who_a_named_issuer_can_name_may_stand_in_rules(who: str) -> None:
    assert read_access(named(ONE, "corp") + GROUPS + named(OTHER, "lab") + RULE.format(who=who)).problems == ()


def test_how_keys_are_got_makes_no_other_issuer() -> None:
    issuer = Issuer("https://a.example", "b")
    assert issuer == Issuer("https://a.example", "b", jwks_url="https://c.example", ca="d", clock_skew_seconds=1)
    assert issuer != Issuer("https://a.example", "c")


@pytest.mark.parametrize(
    ("url", "is_safe"),
    [
        ("https://a.example/b", True),
        ("http://127.0.0.1:8080", True),
        ("http://localhost", True),
        ("http://[::1]:1/x", True),
        ("http://a.example", False),
        ("http://127.0.0.1.example.org", False),
        ("https://a.example#b", False),
        ("https://", False),
        ("https://..", False),
        ("HTTPS://a.example", False),
        ("https://a.example:x", False),
        ("file:///etc/passwd", False),
        ("https://a.example/\n", False),
        ("", False),
    ],
)
def test_a_url_is_safe_where_nobody_on_the_way_can_answer(url: str, is_safe: bool) -> None:
    assert is_safe_url(url) is is_safe


def test_a_name_is_of_the_issuer_whose_name_it_begins_with() -> None:
    issuers = [Issuer("https://a.example", "x", "a"), Issuer("https://b.example", "x", "b")]
    assert [may_name(name, issuers) for name in ("a/x", "b/a/x", "c/x", "a", "a/", "*")] == [
        True, True, False, False, False, True,
    ]  # fmt: skip
