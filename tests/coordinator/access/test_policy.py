"""Policies: deny by default, a deny wins, and the index says what a look at every rule says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.coordinator.access.policy import (
    ALL_RIGHTS,
    ANY,
    CLUSTER,
    DECISIONS_KEPT_MAX,
    DESCRIBE,
    GROUP,
    JOIN,
    RIGHTS,
    RIGHTS_ON,
    TOPIC,
    Policy,
    Resource,
    Rule,
)
from rallypoint.coordinator.access.principals import ANONYMOUS

DESCRIBE_GROUP, JOIN_GROUP = (DESCRIBE, GROUP), (JOIN, GROUP)
ETL = ("token:etl",)


def rule(who: str, may: str, *on: Resource, allows: bool = True, line: int = 1) -> Rule:
    return Rule(allows, tuple(who.split()), frozenset(may.split()), on, line)


CLICKS = Resource(GROUP, "clicks", is_prefix=True)


def test_nothing_is_allowed_that_no_rule_allows() -> None:
    rights = Policy(()).rights_of(ETL)
    assert not any(rights.allows((right, kind), "x") for kind, found in RIGHTS_ON.items() for right in found)
    assert not rights.allows_all(DESCRIBE_GROUP)


def test_a_rule_is_about_its_principals_its_rights_and_its_resources_alone() -> None:
    policy = Policy([rule("token:etl", "join", CLICKS)])
    rights = policy.rights_of(ETL)
    assert rights.allows(JOIN_GROUP, "clicks")
    assert rights.allows(JOIN_GROUP, "clicks-2")
    assert not rights.allows(JOIN_GROUP, "click")
    assert not rights.allows(DESCRIBE_GROUP, "clicks")
    assert not rights.allows((DESCRIBE, TOPIC), "clicks")
    assert not policy.rights_of(("token:other",)).allows(JOIN_GROUP, "clicks")


def test_a_name_without_a_star_is_one_name() -> None:
    rights = Policy([rule("token:etl", "join", Resource(GROUP, "clicks"))]).rights_of(ETL)
    assert rights.allows(JOIN_GROUP, "clicks")
    assert not rights.allows(JOIN_GROUP, "clicks-2")


def test_a_deny_wins_wherever_it_stands_and_whoever_allows() -> None:
    deny = rule("token:etl", "join", Resource(GROUP, "clicks-prod"), allows=False)
    allow = rule("token:* oidc-group:admins", "join", CLICKS)
    for rules in ([deny, allow], [allow, deny]):
        rights = Policy(rules).rights_of(("token:etl", "oidc-group:admins"))
        assert rights.allows(JOIN_GROUP, "clicks-dev")
        assert not rights.allows(JOIN_GROUP, "clicks-prod")


def test_a_star_is_everybody_who_has_shown_something_and_anonymous_is_named() -> None:
    everybody = Policy([rule("*", "describe", CLICKS)])
    assert everybody.rights_of(ETL).allows(DESCRIBE_GROUP, "clicks")
    assert not everybody.rights_of((ANONYMOUS,)).allows(DESCRIBE_GROUP, "clicks")
    assert not everybody.admits_anybody
    named = Policy([rule(ANONYMOUS, "describe", CLICKS)])
    assert named.rights_of((ANONYMOUS,)).allows(DESCRIBE_GROUP, "clicks")
    assert named.admits_anybody


def test_all_groups_are_seen_only_if_none_is_denied() -> None:
    allow = rule("token:etl", "describe", Resource(GROUP, "", is_prefix=True))
    assert Policy([allow]).rights_of(ETL).allows_all(DESCRIBE_GROUP)
    deny = rule("token:etl", "describe", Resource(GROUP, "secret"), allows=False)
    assert not Policy([allow, deny]).rights_of(ETL).allows_all(DESCRIBE_GROUP)
    assert ALL_RIGHTS.allows_all(DESCRIBE_GROUP)


def test_the_rule_that_decided_is_named() -> None:
    allow = rule("token:etl", "join", CLICKS, line=1)
    deny = rule("token:etl", "join", Resource(GROUP, "clicks-prod"), allows=False, line=5)
    policy = Policy([allow, deny])
    assert policy.explain(ETL, JOIN, GROUP, "clicks").rule is allow
    refused = policy.explain(ETL, JOIN, GROUP, "clicks-prod")
    assert (refused.is_allowed, refused.rule) == (False, deny)
    unknown = policy.explain(ETL, JOIN, GROUP, "orders")
    assert (unknown.is_allowed, unknown.rule) == (False, None)


def test_decisions_that_are_remembered_are_bounded() -> None:
    rights = Policy([rule("token:etl", "join", CLICKS)]).rights_of(ETL)
    for number in range(DECISIONS_KEPT_MAX + 10):
        assert not rights.allows(JOIN_GROUP, f"g{number}")
    assert sum(map(len, rights._known.values())) <= DECISIONS_KEPT_MAX
    assert rights.allows(JOIN_GROUP, "clicks")


def test_a_decision_does_not_look_at_all_rules() -> None:
    class Counted(tuple[Rule, ...]):
        looked = 0

    policy = Policy([rule(f"token:t{number}", "join", Resource(GROUP, f"g{number}")) for number in range(1_000)])
    rights = policy.rights_of(("token:t7",))
    policy.rules = Counted()  # nothing looks there again
    assert rights.allows(JOIN_GROUP, "g7")
    assert not rights.allows(JOIN_GROUP, "g8")
    assert policy.rights_of(("token:t7",)) is rights


NAMES = ("", "a", "ab", "b")
PRINCIPALS = ("token:a", "token:ab", "cert:a", "oidc-group:a", ANONYMOUS)
RESOURCES = st.builds(Resource, st.sampled_from((GROUP, TOPIC)), st.sampled_from(NAMES), st.booleans()) | st.just(
    Resource(CLUSTER, "")
)
RULES = st.builds(
    Rule,
    st.booleans(),
    st.lists(st.sampled_from((*PRINCIPALS, ANY, "token:*", "token:a*")), min_size=1, max_size=3).map(tuple),
    st.frozensets(st.sampled_from(RIGHTS), min_size=1),
    st.lists(RESOURCES, min_size=1, max_size=3).map(tuple),
    st.just(1),
)


@given(st.lists(RULES, max_size=6), st.lists(st.sampled_from(PRINCIPALS), min_size=1, max_size=2, unique=True))
def test_the_index_says_what_a_look_at_every_rule_says(rules: list[Rule], principals: list[str]) -> None:
    policy, caller = Policy(rules), tuple(principals)
    rights = policy.rights_of(caller)
    for kind, there_are in RIGHTS_ON.items():
        for right in there_are:
            for name in NAMES:
                by_index = rights.allows((right, kind), name)
                assert by_index is policy.explain(caller, right, kind, name).is_allowed
                if rights.allows_all((right, kind)):
                    assert by_index


@pytest.mark.parametrize("rules", [10, 1_000])
def test_a_known_decision_is_a_look_up(rules: int) -> None:
    policy = Policy(
        [rule("token:etl", "join", Resource(GROUP, f"g{number}", is_prefix=True)) for number in range(rules)]
    )
    rights = policy.rights_of(ETL)
    assert rights.allows(JOIN_GROUP, "g5-a")
    assert rights._known[JOIN_GROUP] == {"g5-a": True}
