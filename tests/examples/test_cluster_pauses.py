"""How long members waited, who coordinated what, and the picture of it, from made-up books."""

from xml.etree import ElementTree

import pytest

from examples.cluster.books import Assigned, Commit, Entry
from examples.cluster.load import group_ids
from examples.cluster.pauses import Episode, OwnerChange, Span, findings_of, quantile, spans_of, usual_of
from examples.cluster.picture import Event, Picture, draw
from examples.cluster.servers import are_settled
from rallypoint.protocol.admin_messages import ClusterAnswer, ClusterNode, ClusterShard
from rallypoint.protocol.group_hash import shard_of_group

CHANGES = [
    OwnerChange(0, 1, "a"),
    OwnerChange(0, 2, "a"),
    OwnerChange(5_000, 1, None),
    OwnerChange(5_100, 1, "b"),
    OwnerChange(9_000, 1, "a"),
    OwnerChange(9_050, 1, "a"),
]
EPISODES = [Episode("kill", 2_000, 8_000), Episode("back", 8_000, 12_000)]


def commit(group_id: str, began_ms: int, ended_ms: int, error: str | None = None) -> Commit:
    return Commit(group_id, "m", began_ms, ended_ms, {0: 1}, error)


ENTRIES: list[Entry] = [
    commit("moved", 2_100, 5_400),
    commit("moved", 2_200, 5_300, "REFUSED"),
    commit("moved", 7_000, 7_900),  # slow, and long after the shard is there
    commit("stayed", 2_000, 7_000),
    commit("moved", 8_990, 9_100),
    Assigned("stayed", "m", 1_000, 1, (0,)),
    Assigned("stayed", "m", 9_000, 2, (0,)),
    Assigned("stayed", "n", 9_001, 2, (1,)),
]


def test_a_pause_is_the_longest_commit_of_a_group_while_its_shard_moves() -> None:
    kill, back = (findings_of(kind, EPISODES, CHANGES, ENTRIES, {"moved": 1, "stayed": 2}) for kind in ("kill", "back"))
    assert (kill.moved, kill.median_ms, kill.worst_ms) == (1, 3_300, 3_300)
    assert (kill.acknowledged, kill.refused, kill.rebalances) == (3, 1, 0)
    assert (back.moved, back.worst_ms, back.rebalances) == (1, 110, 1)


@pytest.mark.parametrize(("share", "value"), [(0.5, 5), (0.9, 9), (0.91, 10), (1.0, 10), (0.01, 1)])
def test_a_quantile_is_one_of_the_values(share: float, value: int) -> None:
    assert quantile(range(1, 11), share) == value
    assert quantile((), share) == 0


def test_the_usual_commit_is_of_all_groups() -> None:
    assert usual_of(ENTRIES) == (3_100, 5_000)


def test_spans_end_where_another_node_or_none_begins() -> None:
    assert spans_of(CHANGES, 10_000) == [
        Span(1, "a", 0, 5_000),
        Span(1, "b", 5_100, 9_000),
        Span(1, "a", 9_000, 10_000),
        Span(2, "a", 0, 10_000),
    ]


def test_the_picture_has_a_bar_for_each_span_and_names_what_was_done() -> None:
    events = [Event(2_000, "a killed", alarm=True), Event(2_100, "a <starts>")]
    svg = draw(Picture(spans_of(CHANGES, 10_000), events, ("a", "b"), 3, 1_000, 10_000, "all is well"))
    titles = [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}title")]
    assert "shard 1: node b, 4.1 to 8.0 s" in titles
    assert len(titles) == 5
    assert "a &lt;starts&gt;" in svg


@pytest.mark.parametrize("count", [1, 6, 18, 50, 120])
def test_the_groups_of_the_load_are_spread_over_the_shards(count: int) -> None:
    names = group_ids(count)
    shards = [shard_of_group(name) for name in names]
    assert len(set(names)) == count
    assert shards == sorted(shards)
    assert len(set(shards)) == min(count, 50)


def answer(owners: dict[int, str | None], running: str = "ab") -> ClusterAnswer:
    nodes = tuple(
        ClusterNode(
            node_id=one,
            state="live" if one in running else "gone",
            url=None,
            rack=None,
            release=None,
            started_at_ms=None,
            shards=0,
            preferred_shards=0,
        )
        for one in "abc"
    )
    shards = tuple(ClusterShard(shard=number, owner=node, nodes=("c", "a", "b")) for number, node in owners.items())
    return ClusterAnswer(node_id="a", registry_owner="a", nodes=nodes, shards=shards)


@pytest.mark.parametrize(
    ("one", "settled"),
    [
        (answer({0: "a", 1: "a"}), True),
        (answer({0: "a", 1: "b"}), False),
        (answer({0: "a", 1: None}), False),
        (answer({0: "a", 1: "a"}, running="abc"), False),
        (None, False),
    ],
)
def test_settled_is_when_all_who_run_say_that_the_first_who_runs_has_it(
    one: ClusterAnswer | None, settled: bool
) -> None:
    assert are_settled([answer({0: "a"}), one], {"a", "b"}) is settled
