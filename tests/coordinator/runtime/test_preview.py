"""What would be if: right by hand-made cases, by what the assignor itself says, and without a trace in the group."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rallypoint.assignors import registry
from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.topics import Racks
from rallypoint.coordinator.runtime.assignments.preview import preview
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.fakes.consumers import form_consumers
from tests.fakes.service_harness import DESCRIBE, ServiceHarness, code, commit, heartbeat
from tests.sizes import by_size

Share = Mapping[str, Sequence[int]]


def group_of(
    shares: Mapping[str, Share],
    *,
    topics: Sequence[str] = ("t",),
    static: bool = False,
    protocol_name: str = "range",
    protocol_type: str = "consumer",
    generation_id: int = 5,
    user_data: object = None,
    rack_ids: Mapping[str, str] | None = None,
) -> admin.DescribeAnswer:
    metadata = {"topics": list(topics), "user_data": user_data}
    said = {name: metadata | {"rack_id": (rack_ids or {}).get(name)} for name in shares}
    return admin.DescribeAnswer(
        group_id="g",
        state="Stable",
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        generation_id=generation_id,
        leader=None,
        members=tuple(
            admin.DescribedMember(
                member_id=name,
                group_instance_id=f"slot-{name}" if static else None,
                client_id=f"client-{name}",
                host="h",
                session_timeout_ms=1,
                rebalance_timeout_ms=1,
                metadata=OpaqueJson.of(said[name]),  # type: ignore[arg-type]
                assignment=OpaqueJson.of({"partitions": {topic: list(of) for topic, of in share.items()}}),
            )
            for name, share in shares.items()
        ),
        offsets={},
    )


def ask(
    group: admin.DescribeAnswer,
    registered: Mapping[str, int],
    *,
    size_max: int = 10_000,
    find: Any = None,
    racks: Mapping[str, Racks] | None = None,
    **asked: Any,
) -> admin.PreviewAnswer | Failure:
    request = admin.PreviewRequest.model_validate_json(OpaqueJson.of(asked).text)
    return preview(group, request, registered, racks or {}, find or registry.find, size_max)


def answered(*asked: Any, **more: Any) -> admin.PreviewAnswer:
    answer = ask(*asked, **more)
    assert isinstance(answer, admin.PreviewAnswer), answer
    check(answer)
    return answer


def refused(*asked: Any, **more: Any) -> Failure:
    answer = ask(*asked, **more)
    assert isinstance(answer, Failure), answer
    return answer


def flat(share: admin.TopicPartitions) -> set[tuple[str, int]]:
    return {(topic, partition) for topic, numbers in share.items() for partition in numbers}


def check(answer: admin.PreviewAnswer) -> None:
    """The parts of an answer agree with each other."""
    before = {tp: member.member_id for member in answer.members for tp in flat(member.before)}
    after = {tp: member.member_id for member in answer.members for tp in flat(member.after)}
    for member in answer.members:
        had, has = flat(member.before), flat(member.after)
        assert (member.before_count, member.after_count) == (len(had), len(has))
        assert (flat(member.gained), flat(member.lost)) == (has - had, had - has)
        if member.change == "leaves":
            assert not has
        if member.change == "joins":
            assert not had
    moved = {(x.topic, x.partition): (x.from_member_id, x.to_member_id) for x in answer.partitions_moved}
    assert moved == {tp: (owner, after.get(tp)) for tp, owner in before.items() if after.get(tp) != owner}
    assert answer.partitions_moved_count == len(answer.partitions_moved) == len(moved)
    assert answer.unassigned_count == len(flat(answer.unassigned))
    assert not flat(answer.unassigned) & after.keys()
    counts = [x.after_count for x in answer.members if x.change != "leaves"]
    assert answer.evenness_after.member_count == len(counts)
    assert answer.evenness_after.least_count == min(counts, default=0)
    assert answer.evenness_after.most_count == max(counts, default=0)
    assert answer.evenness_after.pairwise_sum == sum(abs(x - y) for x in counts for y in counts) // 2


TWO = {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}


def test_nothing_supposed_moves_nothing() -> None:
    answer = answered(group_of(TWO), {"t": 4})
    assert (answer.assignor, answer.generation_id, answer.rebalance_count) == ("range", 5, 1)
    assert (answer.partitions_moved_count, answer.unassigned) == (0, {})
    assert [member.change for member in answer.members] == ["stays", "stays"]
    even = admin.Evenness(
        member_count=2, least_count=2, most_count=2, pairwise_sum=0, least_pairwise_sum=0, balanced=True
    )
    assert answer.evenness_before == answer.evenness_after == even


@pytest.mark.parametrize("name", ["b", "slot-b"])
def test_a_member_that_leaves_hands_everything_over(name: str) -> None:
    answer = answered(group_of(TWO, static=True), {"t": 4}, leave=[name])
    a, b = answer.members
    assert (a.change, b.change) == ("stays", "leaves")
    assert (a.client_id, a.group_instance_id) == ("client-a", "slot-a")
    assert (a.gained, b.lost) == ({"t": (2, 3)}, {"t": (2, 3)})
    assert [(x.from_member_id, x.to_member_id) for x in answer.partitions_moved] == [("b", "a")] * 2


def test_members_that_join_are_like_the_others_unless_it_is_said() -> None:
    answer = answered(group_of(TWO), {"t": 4, "u": 2}, join=[{"count": 2}, {"topics": ["u"]}])
    assert [(x.member_id, x.change, x.client_id) for x in answer.members[2:]] == [
        ("new-1", "joins", None),
        ("new-2", "joins", None),
        ("new-3", "joins", None),
    ]
    assert [dict(x.after) for x in answer.members] == [{"t": (n,)} for n in range(4)] + [{"u": (0, 1)}]
    assert answer.partitions_moved_count == 3, "range shares a topic out again: 1, 2 and 3 move"
    static = answered(group_of(TWO), {"t": 4}, join=[{"group_instance_id": "0-first"}])
    assert static.members[2].after == {"t": (0, 1)}, "range orders static members before the others"


def test_a_made_up_name_is_nobodys() -> None:
    answer = answered(group_of({"new-1": {"t": [0]}, "x": {}}), {"t": 3}, join=[{}, {}])
    assert [x.member_id for x in answer.members] == ["new-1", "x", "new-2", "new-3"]


def test_a_topic_that_grows_is_not_a_move() -> None:
    answer = answered(group_of(TWO), {"t": 4}, partitions={"t": 6})
    assert (answer.partitions_moved_count, answer.members[0].after_count, answer.members[1].after_count) == (1, 3, 3)
    assert answer.evenness_before.most_count == 2
    # Of a topic that nobody registered, as many exist as are assigned; and one that nobody wants changes nothing.
    unregistered = answered(group_of(TWO), {}, partitions={"other": 50})
    assert unregistered.partitions_moved_count == 0
    assert answered(group_of(TWO), {}, partitions={"t": 5}).members[0].after_count == 3


def test_everyone_leaves() -> None:
    answer = answered(group_of(TWO), {"t": 4}, leave=["a", "b"])
    assert [x.to_member_id for x in answer.partitions_moved] == [None] * 4
    assert answer.evenness_after.member_count == 0
    empty = answered(group_of({}, protocol_type="", protocol_name=""), {"t": 4}, assignor="range")
    assert empty.members == ()


def test_an_empty_group_can_be_tried_out() -> None:
    empty = group_of({}, protocol_type="", protocol_name="")
    answer = answered(empty, {"t": 4}, assignor="roundrobin", join=[{"count": 2, "topics": ["t"]}])
    assert [x.after for x in answer.members] == [{"t": (0, 2)}, {"t": (1, 3)}]


@pytest.mark.parametrize("name", registry.names([]))
def test_every_assignor_of_the_house_gives_what_it_gives_to_a_leader(name: str) -> None:
    shares = {"a": {"t": [0, 1, 2], "u": [0]}, "b": {"t": [3, 4, 5]}, "c": {"u": [1, 2]}}
    group = group_of(shares, topics=("t", "u"))
    answer = answered(group, {"t": 6, "u": 3}, assignor=name, leave=["c"], join=[{"count": 2}])
    assert answer.assignor == name
    assert answer.unassigned == {}
    assert sum(x.after_count for x in answer.members) == 9
    if "sticky" in name:
        assert answer.partitions_moved_count <= 4


class Cautious(Assignor):
    """Cooperative: what changes hands is given to nobody first. Looks at claims of the newest generation alone."""

    name: ClassVar[str] = "cautious"
    protocol: ClassVar[Literal["eager", "cooperative"]] = "cooperative"
    asked: ClassVar[list[GroupSpec]] = []

    def assign(self, spec: GroupSpec) -> Assignment:
        self.asked.append(spec)
        newest = max(said.generation_id for said in spec.subscriptions.values())
        holders = {
            tp: member_id
            for member_id, said in spec.subscriptions.items()
            if said.generation_id == newest
            for tp in said.owned
        }
        wanted = registry.find("range", []).assign(spec)
        return {
            member_id: tuple(tp for tp in share if holders.get(tp, member_id) == member_id)
            for member_id, share in wanted.items()
        }


class Greedy(Assignor):
    name: ClassVar[str] = "greedy"

    def assign(self, spec: GroupSpec) -> Assignment:
        return dict.fromkeys(spec.subscriptions, (("t", 0),))


class Picky(Assignor):
    name: ClassVar[str] = "picky"

    def assign(self, spec: GroupSpec) -> Assignment:
        raise ValueError("member a tells no weight")


def test_a_cooperative_rule_is_asked_until_it_is_through() -> None:
    Cautious.asked.clear()
    answer = answered(group_of(TWO, protocol_name="cautious"), {"t": 4}, join=[{}], find=lambda name: Cautious())
    assert (answer.rebalance_count, answer.unassigned) == (2, {})
    assert [x.after_count for x in answer.members] == [2, 1, 1]
    first, second = Cautious.asked[:2]
    assert first.subscriptions["a"].owned == (("t", 0), ("t", 1))
    assert first.subscriptions["a"].generation_id == 5
    assert second.subscriptions["a"].generation_id > 5
    assert second.subscriptions["b"].owned == (("t", 2),), "3 is not given before it is given up"
    still = answered(group_of(TWO, protocol_name="cautious"), {"t": 4}, find=lambda name: Cautious())
    assert still.rebalance_count == 1


def test_members_tell_the_assignor_what_they_told_the_group() -> None:
    seen: list[GroupSpec] = []

    class Nosy(Greedy):
        def assign(self, spec: GroupSpec) -> Assignment:
            seen.append(spec)
            return dict.fromkeys(spec.subscriptions, ())

    group = group_of(TWO, user_data={"weight": 2})
    answered(group, {"t": 4}, join=[{"rack_id": "r", "user_data": [1]}], find=lambda name: Nosy())
    [spec] = seen
    assert spec.subscriptions["a"].user_data == {"weight": 2}
    assert (spec.subscriptions["new-1"].user_data, spec.subscriptions["new-1"].rack_id) == ([1], "r")
    assert spec.subscriptions["new-1"].owned == ()


@pytest.mark.parametrize(
    ("asked", "error", "field", "word"),
    [
        ({"leave": ["a", "nobody"]}, ErrorCode.UNKNOWN_MEMBER_ID, "leave.1", "'nobody'"),
        ({"assignor": "nonsense"}, ErrorCode.INVALID_REQUEST, "assignor", "range"),
        ({"partitions": {"t": 3}}, ErrorCode.INVALID_REQUEST, "partitions.t", "4 partitions"),
        ({"join": [{}, {"group_instance_id": "slot-a"}]}, ErrorCode.INVALID_REQUEST, "join.1.group_instance_id", "a"),
        (
            {"join": [{"group_instance_id": "x", "count": 2}]},
            ErrorCode.INVALID_REQUEST,
            "join.0.group_instance_id",
            "One",
        ),
        (
            {"join": [{"group_instance_id": "x"}, {"group_instance_id": "x"}]},
            ErrorCode.INVALID_REQUEST,
            "join.1.group_instance_id",
            "another",
        ),
        ({"join": [{"count": 9_995}]}, ErrorCode.INVALID_REQUEST, None, "preview_size_max"),
        ({"partitions": {"t": 9_999}}, ErrorCode.INVALID_REQUEST, None, "preview_size_max"),
    ],
)
def test_a_wrong_supposition_is_refused_by_its_field(
    asked: dict[str, Any], error: ErrorCode, field: str | None, word: str
) -> None:
    failure = refused(group_of(TWO, static=True), {"t": 4}, **asked)
    assert (failure.code, failure.field) == (error, field)
    assert word in failure.detail
    assert (failure.limit_name == word) == (word == "preview_size_max") == (failure.limit is not None)


def test_a_slot_is_free_once_its_member_leaves() -> None:
    join = [{"group_instance_id": "slot-a"}]
    assert answered(group_of(TWO, static=True), {"t": 4}, leave=["a"], join=join)


def test_groups_of_which_nobody_can_tell() -> None:
    for group in (
        group_of(TWO, protocol_type="connect"),
        group_of(TWO).model_copy(
            update={
                "members": (group_of(TWO).members[0].model_copy(update={"assignment": OpaqueJson.of("text")}),),
            }
        ),
    ):
        assert refused(group, {"t": 4}).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    nobody = group_of({}, protocol_type="", protocol_name="")
    assert refused(nobody, {}).field == "assignor"
    assert refused(nobody, {}, assignor="range", join=[{}]).field == "join.0.topics"
    unreadable = group_of(TWO).members[0].model_copy(update={"metadata": OpaqueJson.of("text")})
    group = group_of(TWO).model_copy(update={"members": (unreadable, group_of(TWO).members[1])})
    assert answered(group, {"t": 4}).members[0].after == {}, "a leader gives nothing to it either"


@pytest.mark.parametrize(("assignor", "word"), [(Greedy, "which another member gets, too"), (Picky, "tells no weight")])
def test_an_assignor_that_errs_is_told_of(assignor: type[Assignor], word: str) -> None:
    failure = refused(group_of(TWO), {"t": 4}, find=lambda name: assignor())
    assert (failure.code, failure.field) == (ErrorCode.INVALID_REQUEST, "assignor")
    assert word in failure.detail


TOPICS = st.sampled_from(["t", "u", "v"])
SHARES_TOLD = st.dictionaries(TOPICS, st.lists(st.integers(0, 6), max_size=4), max_size=3)
ASSIGNMENTS = st.builds(lambda share: {"partitions": share}, SHARES_TOLD) | st.sampled_from(
    [None, "text", 7, {"partitions": {"t": ["x"]}}]
)
METADATA = st.builds(
    lambda topics, data: {"topics": topics, "user_data": data},
    st.lists(TOPICS, max_size=4),
    st.sampled_from([None, {"weight": 2}, "x", [1]]),
) | st.sampled_from([None, "text", {"topics": 1}])
SLOTS = st.none() | st.sampled_from(["s0", "s1", "s2"])
JOINS = st.fixed_dictionaries(
    {},
    optional={
        "count": st.integers(1, 3),
        "topics": st.lists(TOPICS, max_size=2),
        "group_instance_id": st.sampled_from(["s0", "s9"]),
        "rack_id": st.just("r"),
    },
)
ASKED = st.fixed_dictionaries(
    {},
    optional={
        "leave": st.lists(st.sampled_from(["m0", "m1", "s1", "s2", "nobody"]), max_size=2),
        "join": st.lists(JOINS, max_size=2),
        "partitions": st.dictionaries(TOPICS, st.integers(1, 9), max_size=2),
        "assignor": st.sampled_from(registry.names([])),
    },
)


@settings(max_examples=by_size(15, 100, 300))
@given(
    st.lists(st.tuples(METADATA, ASSIGNMENTS, SLOTS), max_size=4, unique_by=lambda member: member[2] or object()),
    ASKED,
    st.dictionaries(TOPICS, st.integers(1, 7)),
    st.sampled_from([*registry.names([]), "", "nonsense"]),
)
def test_whatever_members_said_the_answer_agrees_with_itself_or_is_a_coded_refusal(
    members: list[tuple[Any, Any, str | None]], asked: dict[str, Any], registered: dict[str, int], protocol_name: str
) -> None:
    blank = group_of({"blank": {}}).members[0]
    everyone = tuple(
        blank.model_copy(
            update={
                "member_id": f"m{number}",
                "group_instance_id": slot,
                "metadata": OpaqueJson.of(metadata),
                "assignment": OpaqueJson.of(assignment),
            }
        )
        for number, (metadata, assignment, slot) in enumerate(members)
    )
    group = group_of({}, protocol_name=protocol_name).model_copy(update={"members": everyone})
    answer = ask(group, registered, **asked)
    if isinstance(answer, Failure):
        assert answer.field or answer.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert answer.detail.endswith(".")
    elif not is_given_twice(members):
        check(answer)
        assert not answer.unassigned, "every partition that somebody wants is given to somebody in the end"


def is_given_twice(members: list[tuple[Any, Any, str | None]]) -> bool:
    """A leader may have given a partition to two members; then it is told as it is, and before and after disagree."""
    given_out: list[tuple[str, int]] = []
    for _, assignment, _ in members:
        if isinstance(assignment, dict):
            given_out += {(topic, n) for topic, numbers in assignment["partitions"].items() for n in numbers}
    return len(set(given_out)) < len(given_out)


# --- racks ----------------------------------------------------------------------------------------------------------


IN_RACKS = group_of({"a": {"t": [0, 1, 2, 3, 4, 5]}}, rack_ids={"a": "x"})
RACKS = {"t": (("x",), ("z",), ("y",), ("x",), ("z",), ("y",)), "unread": (("y",),)}
IN_Y_AND_Z = [{"rack_id": "y"}, {"rack_id": "z"}]


@pytest.mark.parametrize("assignor", ["range", "sticky", "cooperative-sticky"])
def test_who_joins_gets_what_is_near(assignor: str) -> None:
    near = answered(IN_RACKS, {"t": 6}, racks=RACKS, assignor=assignor, join=IN_Y_AND_Z)
    assert {x.member_id: x.after["t"] for x in near.members} == {"a": (0, 3), "new-1": (2, 5), "new-2": (1, 4)}
    blind = answered(IN_RACKS, {"t": 6}, assignor=assignor, join=IN_Y_AND_Z)
    assert blind.members != near.members


def test_of_supposed_partitions_no_racks_are_known() -> None:
    answer = answered(IN_RACKS, {"t": 6}, racks=RACKS, join=IN_Y_AND_Z, partitions={"t": 9})
    after = {x.member_id: set(x.after["t"]) for x in answer.members}
    assert [len(share) for share in after.values()] == [3, 3, 3]
    assert (after["a"] > {0, 3}, after["new-1"] > {2, 5}, after["new-2"] > {1, 4}) == (True, True, True)


# --- through the service ---------------------------------------------------------------------------------------------

SHARES = {"a": {"clicks": [0, 1]}, "b": {"clicks": [2, 3]}}


async def test_a_preview_leaves_no_trace() -> None:
    harness = await ServiceHarness().start()
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4))
    ids = await form_consumers(harness, "g", SHARES)
    await harness.now("g", commit(7, ids["a"], 1))
    described = await harness.now("g", DESCRIBE)
    harness.store.appends.clear()
    harness.watcher.events.clear()
    timers = len(harness.service._timers)
    wake_ups = harness.clock.planned
    request = admin.PreviewRequest(leave=(ids["a"],), join=(admin.PreviewJoin(count=3),), partitions={"clicks": 9})
    answer = await harness.service.preview("g", request)
    assert isinstance(answer, admin.PreviewAnswer)
    check(answer)
    assert (answer.state, len(answer.members), answer.evenness_after.most_count) == ("Stable", 5, 3)
    assert harness.store.appends == []
    assert harness.watcher.events == []
    assert (len(harness.service._timers), harness.clock.planned) == (timers, wake_ups)
    assert await harness.now("g", DESCRIBE) == described
    listed = harness.service.list_topics()
    assert isinstance(listed, m.ListTopicsAnswer)
    assert listed.topics[0].partitions == 4
    for name in ids:
        assert isinstance(await harness.now("g", heartbeat(ids[name], 1)), m.HeartbeatAnswer)
    harness.assert_nothing_waits()
    await harness.service.drain()


async def test_a_preview_asks_the_registry_for_racks() -> None:
    harness = await ServiceHarness().start()
    racks = (("y",), ("x",), ("y",), ("x",))
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4, replica_racks=racks))
    ids = await form_consumers(harness, "g", {"a": {"clicks": [0, 1, 2, 3]}})
    join = tuple(admin.PreviewJoin(rack_id=rack) for rack in "yx")
    answer = await harness.service.preview("g", admin.PreviewRequest(leave=(ids["a"],), join=join))
    assert isinstance(answer, admin.PreviewAnswer)
    after = {x.member_id: x.after for x in answer.members if x.change == "joins"}
    assert after == {"new-1": {"clicks": (0, 2)}, "new-2": {"clicks": (1, 3)}}
    await harness.service.drain()


async def test_a_preview_is_true() -> None:
    """What it says is what comes, for a group whose leader runs the same rule over the same members."""
    harness = await ServiceHarness().start()
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=5))
    answer = await harness.service.preview("g", admin.PreviewRequest())
    assert code(answer) is ErrorCode.GROUP_ID_NOT_FOUND
    await form_consumers(harness, "g", {"a": {"clicks": [0, 1, 2, 3, 4]}})
    answer = await harness.service.preview("g", admin.PreviewRequest(join=(admin.PreviewJoin(),)))
    assert isinstance(answer, admin.PreviewAnswer)
    assert {tuple(x.after["clicks"]) for x in answer.members} == {(0, 1, 2), (3, 4)}
    await harness.service.drain()
    assert code(await harness.service.preview("g", admin.PreviewRequest())) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_heartbeats_are_answered_while_a_preview_is_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = await ServiceHarness().start()
    await harness.service.put_topic("clicks", m.PutTopicRequest(partitions=4))
    ids = await form_consumers(harness, "g", SHARES)
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Slow(Greedy):
        def assign(self, spec: GroupSpec) -> Assignment:
            loop.call_soon_threadsafe(began.set)
            time.sleep(0.3)
            return dict.fromkeys(spec.subscriptions, ())

    monkeypatch.setattr(registry, "find", lambda name: Slow())
    asking = harness.begin(harness.service.preview("g", admin.PreviewRequest()))
    await began.wait()
    for _ in range(10):
        assert isinstance(await harness.now("g", heartbeat(ids["a"], 1)), m.HeartbeatAnswer)
    assert not asking.done()
    owner = await harness.service.find_owner("g", admin.OwnerRequest(topic="clicks", partition=3))
    assert isinstance(owner, admin.OwnerAnswer), "it need not wait for the preview"
    assert not asking.done()
    assert isinstance(await asking, admin.PreviewAnswer)
    await harness.service.drain()
