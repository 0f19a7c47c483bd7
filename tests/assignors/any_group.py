"""Groups at random, for what must hold of every assignor: also the groups that no healthy client would form.

Members name as owned what others have too, what does not exist, and what they do not subscribe to; they list topics
twice, say anything as user data, and are called by names that Java and Python order differently.
"""

from dataclasses import replace

from hypothesis import strategies as st
from pydantic import JsonValue

from rallypoint.assignors.contract import Assignment, GroupSpec, MemberSubscription


def _reporting(weights: JsonValue) -> JsonValue:
    return {"weights": weights}


# Names on both sides of the surrogates.
NAMES = st.text(alphabet="ab19-\uff21\ue000\U0001f600\U00010000", max_size=3)
TOPICS = ("a", "t1", "t10", "t2", "\uff21", "\U0001f600")
RACKS = ("r1", "r2")
WEIGHTS = st.dictionaries(
    st.sampled_from(TOPICS), st.dictionaries(st.integers(0, 9).map(str), st.integers(0, 50), max_size=5), max_size=3
)
ANYTHING: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3) | st.just("weights"), inner, max_size=2)
    ),
    max_leaves=4,
)
USER_DATA = st.builds(_reporting, WEIGHTS) | ANYTHING
GARBAGE = [("gone", 0), ("a", -1), ("t1", 99), ("", 0)]
REPLICA_RACKS = st.dictionaries(
    st.sampled_from(TOPICS), st.lists(st.lists(st.sampled_from(RACKS), max_size=2), max_size=9), max_size=3
)


@st.composite
def groups(draw: st.DrawFn, *, equal: bool = False, plain: bool = False) -> GroupSpec:
    """Any group. `equal`: all subscribe to the same topics. `plain`: nobody says what it owns or anything else.

    Most owned partitions are among the partitions that exist, or hardly any group would have two that matter.
    """
    existing = draw(st.lists(st.sampled_from(TOPICS), unique=True, max_size=4))
    partitions = {topic: draw(st.integers(0, 6)) for topic in existing}
    every = [(topic, n) for topic, count in partitions.items() for n in range(count)]
    owned = st.lists(st.sampled_from([*every, *every, *GARBAGE]), max_size=8).map(tuple)
    topics = st.lists(st.sampled_from([*existing, *existing, "gone"]), max_size=6).map(tuple)
    of_all = draw(topics)
    subscriptions = {}
    for member_id in draw(st.lists(NAMES, unique=True, max_size=6)):
        subscription = MemberSubscription(of_all if equal else draw(topics), draw(st.none() | NAMES))
        if not plain:
            subscription = replace(
                subscription,
                owned=draw(owned),
                generation_id=draw(st.integers(-1, 3)),
                rack_id=draw(st.none() | st.sampled_from((*RACKS, "elsewhere"))),
                user_data=draw(USER_DATA),
            )
        subscriptions[member_id] = subscription
    return GroupSpec(partitions, subscriptions, {} if plain else draw(REPLICA_RACKS))


def one_round_later(spec: GroupSpec, given: Assignment, generation_id: int) -> GroupSpec:
    """The same members, each with what it was given in this generation, and with what it said before."""
    subscriptions = {
        member_id: replace(subscription, owned=given[member_id], generation_id=generation_id)
        for member_id, subscription in spec.subscriptions.items()
    }
    return replace(spec, subscriptions=subscriptions)


def of_one_mind(spec: GroupSpec) -> GroupSpec:
    """The same group, where everybody says as user data what the first member says."""
    said = next(iter(spec.subscriptions.values()), MemberSubscription(())).user_data
    return replace(spec, subscriptions={each: replace(of, user_data=said) for each, of in spec.subscriptions.items()})


def without(spec: GroupSpec, member_id: str) -> GroupSpec:
    """The group after one has left."""
    return replace(spec, subscriptions={each: said for each, said in spec.subscriptions.items() if each != member_id})
