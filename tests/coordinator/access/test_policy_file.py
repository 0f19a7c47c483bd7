"""The policy file: what it says, and sentences with the line for whatever is wrong with it."""

import pytest

from rallypoint.coordinator.access.policy import JOIN, RIGHTS
from rallypoint.coordinator.access.policy_file import read_access

GOOD = """\
nodes = ["token:nodes"]

[[deny]]
who = ["token:intern"]
may = ["delete"]
on = ["group:*"]

[[allow]]
who = [
  "token:etl",  # two lines
  "cert:data",
]
may = ["describe", "join"]
on = ["group:clicks*", "topic:clicks*"]
"""


def test_a_file_is_read() -> None:
    found = read_access(GOOD)
    assert found.problems == ()
    assert [(rule.allows, rule.line) for rule in found.policy.rules] == [(False, 3), (True, 8)]
    assert found.policy.nodes == ("token:nodes",)
    assert found.policy.is_node(("token:nodes",))
    assert found.policy.rights_of(("token:etl",)).allows((JOIN, "group"), "clicks-1")


def test_a_star_in_may_is_every_right() -> None:
    text = '[[allow]]\nwho = ["token:a"]\nmay = ["*"]\non = ["cluster", "group:*", "topic:*"]\n'
    (rule,) = read_access(text).policy.rules
    assert rule.may == set(RIGHTS)


RULE = '[[allow]]\nwho = ["token:a"]\nmay = ["join"]\non = ["group:*"]\n'

BAD = {
    "rules = 1\n": "Line 1: there is no key `rules`; there are: allow, deny, issuer, nodes.",
    "\n[[permit]]\n": "Line 1: there is no key `permit`",
    RULE.replace("who", "whom"): "Line 2: a rule has no key `whom`; it has: who, may, on.",
    RULE.replace('"token:a"', '"a"'): "Line 2: who: 'a' is no principal; it is `token:NAME`",
    RULE.replace('["token:a"]', '"token:a"'): "Line 2: `who` is a list of texts.",
    RULE.replace('["token:a"]', "[]"): "Line 2: `who` is empty, so the rule is about nothing.",
    RULE.replace('"join"', '"jion"'): "Line 3: may: there is no right 'jion'; there are: describe, admin, join",
    RULE.replace('"join"', '"topics"'): "Line 3: may: `topics` is a right on a topic, and `on` names none.",
    RULE.replace("group:*", "groups:*"): "Line 4: on: 'groups:*' is no resource; there are: cluster, group:NAME",
    RULE.replace('on = ["group:*"]\n', ""): "Line 1: the rule has no `on`.",
    RULE + RULE.replace("join", "fly"): "Line 7: may: there is no right 'fly'",
    "allow = 3\n": "Line 1: `allow` is a list of tables, each below `[[allow]]`.",
    'nodes = ["a"]\n': "Line 1: nodes: 'a' is no principal",
    "[[allow]\n": "It is not TOML: ",
    " \n": "It is empty.",
    "a = " + "9" * 5_000: "It is not TOML: ",
    "a = " + "[" * 100_000: "It is not TOML that can be read: it is nested too deeply.",
    RULE.replace("token:a", "token:*a"): "Line 2: who: 'token:*a' is no principal",
    RULE.replace("token:a", "token:a/b"): "Line 2: who: 'token:a/b' is no principal",
    RULE.replace("token:a", "token: a"): "Line 2: who: 'token: a' is no principal",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_wrong_is_said_with_its_line(text: str) -> None:
    problems = read_access(text).problems
    assert any(problem.startswith(BAD[text]) or BAD[text] in problem for problem in problems), problems


@pytest.mark.parametrize("key", ["allow", "deny"])
def test_a_name_of_a_host_is_meant_however_it_is_written(key: str) -> None:
    text = RULE.replace("allow", key).replace("token:a", "cert:Etl.Example.org") + RULE.replace("token:a", "cert:*")
    allows = key == "allow"
    rights = read_access(text).policy
    for name in ("Etl.Example.org", "etl.example.org"):
        assert rights.explain((f"cert:{name}",), "join", "group", "g").is_allowed is allows


def test_many_rules_in_one_list_are_read_by_looking_at_each_line_once() -> None:
    rule = '{ who = ["token:a"], may = ["join"], on = ["group:g*"] },\n'
    found = read_access("allow = [\n" + rule * 10_000 + "]\n")
    assert found.problems == ()
    assert len(found.policy.rules) == 10_000


def test_everything_wrong_is_said_at_once() -> None:
    assert len(read_access(RULE.replace("join", "fly").replace("token:a", "a").replace("group", "gruop")).problems) == 3


def test_what_is_shown_of_a_wrong_value_is_short_and_printable() -> None:
    (problem,) = read_access(RULE.replace("token:a", "\\u0000\\u001b[31m" + "x" * 500)).problems
    assert problem.isprintable()
    assert len(problem) < 250
