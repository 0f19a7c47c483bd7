"""Groups for tests of assignors that look at what members had: made at random, and led from one round to the next."""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import strategies as st

from rallypoint.assignors.contract import Assignment, GroupSpec, MemberSubscription, TopicPartition

# Names on both sides of the surrogates, so that Java's order and Python's differ among them.
NAMES = st.text(alphabet="ab19-\uff21\ue000\U0001f600", max_size=3)
TOPICS = st.sampled_from(["a", "b", "t1", "t10", "\uff21", "\U0001f600"])
RACKS = ("x", "y", "z")


def subscriptions(
    topics: st.SearchStrategy[str], racks: bool, partitions_max: int
) -> st.SearchStrategy[MemberSubscription]:
    """Members that may name anything as owned, also what does not exist, what others name, and the same twice."""
    owned = st.lists(st.tuples(topics, st.integers(-1, partitions_max)), max_size=6).map(tuple)
    return st.builds(
        MemberSubscription,
        topics=st.lists(topics, max_size=5).map(tuple),
        group_instance_id=st.none() | NAMES,
        owned=owned,
        generation_id=st.integers(-1, 3),
        rack_id=st.none() | st.sampled_from(RACKS) if racks else st.none(),
    )


@st.composite
def specs(
    draw: st.DrawFn,
    topics: st.SearchStrategy[str] = TOPICS,
    members_max: int = 7,
    partitions_max: int = 9,
    racks: bool = True,
) -> GroupSpec:
    """Any group, its owned partitions at random."""
    counts = draw(st.dictionaries(topics, st.integers(0, partitions_max), max_size=6))
    members = draw(st.dictionaries(NAMES, subscriptions(topics, racks, partitions_max), max_size=members_max))
    known = draw(st.sets(st.sampled_from(sorted(counts)))) if counts and racks else set()
    holding = st.lists(st.sampled_from(RACKS), max_size=2)
    replica_racks = {topic: [draw(holding) for _ in range(counts[topic])] for topic in sorted(known)}
    return GroupSpec(counts, members, replica_racks)


def owning(spec: GroupSpec, given: Assignment, generation_id: int, joined: Iterable[str] = ()) -> GroupSpec:
    """The same group at its next round: everybody names what it was given, at this generation.

    A member that is not in `given`, or is among `joined`, names nothing.
    """
    nothing: tuple[TopicPartition, ...] = ()
    return replace(
        spec,
        subscriptions={
            member: replace(said, owned=nothing, generation_id=-1)
            if member not in given or member in joined
            else replace(said, owned=given[member], generation_id=generation_id)
            for member, said in spec.subscriptions.items()
        },
    )


def without(spec: GroupSpec, *gone: str) -> GroupSpec:
    """The group after members left."""
    staying = {member: said for member, said in spec.subscriptions.items() if member not in gone}
    return replace(spec, subscriptions=staying)
