"""`range` with racks: what holds for any group, and the same as a slow version that looks at everyone each time.

The slow version shares no code with the package. Kafka's own answers are compared in test_assignor_oracles.py.
"""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from rallypoint.assignors.contract import Assignment, GroupSpec, MemberSubscription
from rallypoint.assignors.range import RangeAssignor
from tests.sizes import by_size

TOPICS = st.sampled_from(["t", "u", "v"])
RACKS = st.sampled_from(["x", "y", "z"])


@st.composite
def specs(draw: st.DrawFn) -> GroupSpec:
    """Few topics, sizes and subscriptions, so that topics often stand together; racks of some partitions unknown."""
    counts = draw(st.dictionaries(TOPICS, st.sampled_from([0, 3, 3, 3, 5, 8]), max_size=3))
    everyone = draw(st.booleans())
    subscriptions = {
        member: MemberSubscription(
            tuple(counts) if everyone else tuple(draw(st.lists(TOPICS, max_size=3))),
            rack_id=draw(st.none() | st.just("") | RACKS),
        )
        for member in draw(st.lists(st.sampled_from("abcdef"), unique=True))
    }
    sets = st.lists(RACKS, max_size=3)
    racks = {topic: draw(st.lists(sets, min_size=n, max_size=n)) for topic, n in counts.items()}
    for topic in draw(st.lists(TOPICS, max_size=1)):
        racks[topic] = racks.get(topic, [])[:2]
    return GroupSpec(counts, subscriptions, racks)


class SlowTopic:
    """One topic, with questions that count anew each time."""

    def __init__(self, spec: GroupSpec, name: str) -> None:
        self.name = name
        self.subscribers = sorted(m for m, said in spec.subscriptions.items() if name in said.topics)
        self.rack = {m: spec.subscriptions[m].rack_id or None for m in self.subscribers}
        known = spec.replica_racks.get(name, ())
        self.racks = [set(known[n]) if n < len(known) else set() for n in range(spec.partitions_per_topic[name])]
        self.owner: dict[int, str] = {}

    def may_take(self, member: str) -> int:
        each, remainder = divmod(len(self.racks), len(self.subscribers))
        has = Counter(self.owner.values())
        with_extra = sum(count > each for count in has.values())
        return max(0, each + (with_extra < remainder) - has[member])

    def fits(self, member: str, partition: int) -> bool:
        return self.rack[member] is None or self.rack[member] in self.racks[partition]

    def matters(self) -> bool:
        all_racks = set().union(*self.racks)
        return bool(all_racks & set(self.rack.values())) and any(racks != all_racks for racks in self.racks)

    def hand_out(self, *, by_rack: bool) -> None:
        for member in self.subscribers:
            free = [n for n in range(len(self.racks)) if n not in self.owner and (not by_rack or self.fits(member, n))]
            for partition in free[: self.may_take(member)]:
                self.owner[partition] = member


def slow_range(spec: GroupSpec) -> Assignment:
    topics = [SlowTopic(spec, name) for name in sorted(spec.partitions_per_topic) if spec.partitions_per_topic[name]]
    topics = [topic for topic in topics if topic.subscribers]
    if any(topic.matters() for topic in topics):
        for topic in topics:
            alike = [t for t in topics if (t.subscribers, len(t.racks)) == (topic.subscribers, len(topic.racks))]
            if len(alike) == 1 and topic.matters():
                topic.hand_out(by_rack=True)
            if len(alike) > 1 and topic is alike[0]:
                for partition in range(len(topic.racks)):
                    fitting = [
                        m for m in topic.subscribers if all(t.fits(m, partition) and t.may_take(m) for t in alike)
                    ]
                    for one in alike if fitting else []:
                        one.owner[partition] = fitting[0]
    for topic in topics:
        topic.hand_out(by_rack=False)
    return {
        member: tuple((topic.name, n) for topic in topics for n in range(len(topic.racks)) if topic.owner[n] == member)
        for member in spec.subscriptions
    }


@given(spec=specs())
@settings(deadline=None, max_examples=by_size(15, 100, 300))
def test_it_equals_its_slow_version(spec: GroupSpec) -> None:
    assert RangeAssignor().assign(spec) == slow_range(spec)


@given(spec=specs())
@settings(deadline=None, max_examples=by_size(5, 40, 100))
def test_racks_decide_who_gets_what_and_never_how_many(spec: GroupSpec) -> None:
    with_racks = RangeAssignor().assign(spec)
    for topic, partitions in spec.partitions_per_topic.items():
        subscribers = [m for m, said in spec.subscriptions.items() if topic in said.topics]
        counts = [sum(name == topic for name, _ in with_racks[m]) for m in subscribers]
        assert sum(counts) == (partitions if subscribers else 0)
        assert max(counts, default=0) - min(counts, default=0) <= 1
