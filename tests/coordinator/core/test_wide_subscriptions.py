"""Members of thousands of topics each: what they say is looked through once, however many say it, and come and go."""

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core import transient_facts as t
from rallypoint.coordinator.core.apply import apply
from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.core.description import summary_of
from rallypoint.coordinator.core.effects import ENCODED_AT_ONCE_CHARACTERS, LargeDescription, LargeJoin
from rallypoint.coordinator.core.group import Group, MemberTerms, Offered, State
from rallypoint.protocol import messages as m
from rallypoint.protocol.opaque import EMPTY, OpaqueJson
from tests.conformance.group_harness import GroupHarness, consumer

COUNT = 50
TOPICS = 300
TERMS = MemberTerms((Offered("range", EMPTY),), 10_000, 10_000, None, None, None)


class Topic(str):
    """A topic that counts how often one of them is looked up in a set."""

    __slots__ = ()
    looked_up = 0

    def __hash__(self) -> int:
        Topic.looked_up += 1
        return super().__hash__()

    __eq__ = str.__eq__


def said() -> frozenset[str]:
    """The same topics, read again."""
    return frozenset(Topic(f"topic-{number}") for number in range(TOPICS))


def come(group: Group, number: int, topics: frozenset[str]) -> None:
    apply(group, t.MemberAdded(f"m{number}", None, "c", "h", "consumer", TERMS, topics, 1, 1))


def test_members_that_come_and_go_cost_no_look_at_their_topics() -> None:
    group = Group("g")
    apply(group, t.GroupInitialized(1))
    read = [said() for _ in range(COUNT)]
    Topic.looked_up = 0
    for number in range(COUNT):
        come(group, number, read[number])
        summary_of(group)
    assert group.named_count == TOPICS, "they count once"
    assert len({id(member.topics) for member in group.members.values()}) == 1, "they share what was read first"
    Topic.looked_up = 0
    for number in range(COUNT):
        apply(group, t.MemberRemoved(f"m{number}"))
        summary_of(group)
    assert Topic.looked_up == 0
    assert (group.subscriptions, group.named_count, group.topics) == ({}, 0, frozenset())


def test_those_that_differ_are_put_together_once_for_all() -> None:
    group = Group("g")
    apply(group, t.GroupInitialized(1))
    for number in range(COUNT):
        come(group, number, frozenset({"t", *(Topic(f"{number}-{at}") for at in range(TOPICS))}))
    assert group.named_count == COUNT * (TOPICS + 1)
    together = group.topics
    assert len(together) == COUNT * TOPICS + 1
    assert group.topics is together
    Topic.looked_up = 0
    apply(group, t.MemberRemoved("m0"))
    assert len(summary_of(group).subscriptions or ()) == COUNT - 1
    assert Topic.looked_up == 0
    assert len(group.topics) == (COUNT - 1) * TOPICS + 1


def test_a_load_reads_what_members_say_record_by_record() -> None:
    harness = GroupHarness(
        rules=Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, group_initial_rebalance_delay_ms=0)
    )
    orders = [("t", "u"), ("u", "t"), ("t", "u", "v")]
    joined = [(harness.join_new(protocols=(("range", consumer(*order)),))[0], order) for order in orders]
    for member_id, order in joined:
        harness.join(member_id, protocols=(("range", consumer(*order)),))
    assert harness.group.leader is not None
    assert harness.state() is State.COMPLETING_REBALANCE
    harness.sync(harness.group.leader, assignments=dict.fromkeys(harness.group.members, "x"))
    before = harness.group
    loading = Group("g")
    for record in sorted(harness.log.values(), key=lambda record: type(record).__name__):  # the header first
        apply(loading, record)
    assert set(loading.subscriptions) == {frozenset("tu"), frozenset("tuv")}, "before the members are made"
    assert len(loading.read_ahead) == len(orders)
    harness.crash()
    invariants.check(harness.group)
    assert harness.group.subscriptions == before.subscriptions
    assert harness.group.metadata_bytes == before.metadata_bytes


def group_of_three_that_say(more: str) -> GroupHarness:
    """The leader alone has got a large answer."""
    harness = GroupHarness()
    much = OpaqueJson.of({"topics": ["t"], "more": more})
    ids = [harness.join_new(protocols=(("range", much),))[0] for _ in range(3)]
    calls = {member_id: harness.join(member_id, protocols=(("range", much),)) for member_id in ids}
    harness.advance_until_answered(*calls.values())
    assert {member_id: type(harness.answer(call)) for member_id, call in calls.items()} == {
        member_id: LargeJoin if member_id == harness.group.leader else m.JoinAnswer for member_id in ids
    }
    return harness


def test_what_names_many_members_is_put_into_words_in_pieces_too() -> None:
    """Of what they say alone there is room for a hundred characters more each."""
    group_of_three_that_say("x" * (ENCODED_AT_ONCE_CHARACTERS // 3 - 100))


def test_an_answer_with_much_that_members_say_is_put_into_words_in_pieces() -> None:
    harness = group_of_three_that_say("x" * (ENCODED_AT_ONCE_CHARACTERS // 2))
    leader = harness.group.leader
    assert leader is not None
    harness.sync(leader, assignments=dict.fromkeys(harness.group.members, "x"))
    assert isinstance(harness.answer(harness.describe()), LargeDescription)
