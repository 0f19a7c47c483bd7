"""Two teams share a service by the policy of docs/security.md.

Neither can see, join, reset or count the other's groups.
"""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rallypoint.coordinator.http.access.requirements import REQUIREMENTS
from rallypoint.protocol import operations
from rallypoint.protocol.operations import OPERATIONS, Operation
from tests.fakes.access_world import AccessWorld, bearer, open_world
from tests.fakes.channel_client import beat_body, join_body, open_channel
from tests.fakes.event_reader import read_events
from tests.real.parts import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()
(POLICY,) = re.findall(r'^```toml title="access.toml"\n(.*?)^```', PAGE, re.MULTILINE | re.DOTALL)
FORBIDDEN = ("GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")
BODIES: dict[str, Any] = {
    operations.RESET_OFFSETS.name: {"to": "earliest"},
    operations.FREEZE.name: {"duration_ms": 60_000},
    operations.COOLDOWN.name: {"cooldown_ms": 60_000},
    operations.JOIN_WAIT.name: {"join_wait_max_ms": 60_000},
    operations.PUT_TOPIC.name: {"partitions": 3},
}
ORDERS_READS_CLICKS = '[[allow]]\nwho = ["token:orders"]\nmay = ["describe"]\non = ["topic:clicks"]\n'
OF_A_GROUP_OR_TOPIC = [one for one in OPERATIONS if "{group_id}" in one.path or "{topic}" in one.path]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AccessWorld]:
    async with open_world(tmp_path, POLICY, ("clicks", "orders")) as world:
        yield world


def test_the_policy_has_ten_lines() -> None:
    assert len([line for line in POLICY.splitlines() if line]) <= 10


def body_of(operation: Operation) -> Any:
    return None if operation.request is None else BODIES.get(operation.name, {})


@pytest.mark.parametrize("operation", OF_A_GROUP_OR_TOPIC, ids=lambda one: str(one.name))
async def test_whatever_is_the_other_team_s_is_refused_and_whether_it_exists_is_not_told(
    world: AccessWorld, operation: Operation
) -> None:
    await world.form("orders", "orders-1", "orders")
    await world.ask("orders", "PUT", "/v1/topics/orders", {"partitions": 3})
    details = set()
    for group_id, topic in (("orders-1", "orders"), ("orders-2", "orders-none")):
        target = operation.path.format(group_id=group_id, topic=topic)
        answer = await world.ask("clicks", operation.method, target, body_of(operation))
        assert answer.status == 403, answer.body
        assert answer.json["error_name"] in FORBIDDEN
        details.add(answer.json["detail"].replace(group_id, "ID").replace(topic, "ID"))
    assert len(details) == 1
    assert len(await world.member_ids("orders-1")) == 1


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.path.startswith("/v1/cluster")])
async def test_the_cluster_is_neither_s(world: AccessWorld, operation: Operation) -> None:
    target = operation.path.format(node_id="node-1", shard="1")
    answer = await world.ask("clicks", operation.method, target, body_of(operation))
    assert (answer.status, answer.json["error_name"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")


async def test_lists_totals_and_topics_hold_the_caller_s_own(world: AccessWorld) -> None:
    world.policy_path.write_text(f"{POLICY}{ORDERS_READS_CLICKS}")
    await world.look()
    for number in range(3):
        await world.form("orders", f"orders-{number}")
        await world.form("clicks", f"clicks-{number}")
        await world.ask("orders", "PUT", f"/v1/topics/orders-{number}", {"partitions": 1})
        await world.ask("clicks", "PUT", f"/v1/topics/clicks-{number}", {"partitions": 1})
    world.policy_path.write_text(POLICY)
    await world.look()
    page = (await world.ask("clicks", "GET", "/v1/groups?limit=2&totals=true")).json
    assert [group["group_id"] for group in page["groups"]] == ["clicks-0", "clicks-1"]
    assert (page["totals"]["group_count"], page["totals"]["member_count"]) == (3, 3)
    rest = (await world.ask("clicks", "GET", f"/v1/groups?limit=2&cursor={page['next_cursor']}")).json
    assert [group["group_id"] for group in rest["groups"]] == ["clicks-2"]
    assert rest["next_cursor"] is None
    # a cursor of the other team's leads to nothing of theirs
    theirs = (await world.ask("orders", "GET", "/v1/groups?limit=1")).json["next_cursor"]
    assert (await world.ask("clicks", "GET", f"/v1/groups?limit=9&cursor={theirs}")).json["groups"] == []
    for query in ("search=orders", "prefix=orders", "topic=clicks&prefix=orders"):
        assert (await world.ask("clicks", "GET", f"/v1/groups?{query}&totals=true")).json["groups"] == []
    for team in ("clicks", "orders"):
        topics = (await world.ask(team, "GET", "/v1/topics?limit=9")).json
        assert [topic["topic"] for topic in topics["topics"]] == [f"{team}-0", f"{team}-1", f"{team}-2"]
    topic = (await world.ask("clicks", "GET", "/v1/topics/clicks")).json
    assert topic["group_count"] == 3, "of six that subscribe to it"
    assert topic["authorized_operations"] == ["describe", "topics", "delete"]


def naming(topic: str, joined: dict[str, Any]) -> dict[str, tuple[str, str, Any]]:
    """Requests to a group of one's own that name a topic, whose figures would be shown: method, path, body."""
    offsets = {topic: {"0": {"offset": 0}}}
    protocols = [
        {"name": name, "metadata": {"topics": topics}} for name, topics in (("range", ["clicks"]), ("sticky", [topic]))
    ]
    rejoin = join_body(joined["member_id"], protocols=protocols)
    return {
        "a commit": ("POST", "/offsets", beat_body(joined, offsets=offsets)),
        "a commit from outside": ("POST", "/offsets", {"generation_id": -1, "offsets": offsets}),
        "a subscription": ("POST", "/join", rejoin),
        "a reset": ("POST", "/offsets/reset", {"to": "latest", "topics": {topic: None}, "dry_run": True}),
        "a reset to offsets": ("POST", "/offsets/reset", {"to": "offsets", "offsets": {topic: {"0": 5}}}),
        "a preview of growth": ("POST", "/preview", {"partitions": {topic: 1}}),
        "a preview of a member": ("POST", "/preview", {"join": [{"topics": [topic]}]}),
        "an owner": ("GET", f"/owner?topic={topic}&partition=99", None),
    }


@pytest.mark.parametrize("kind", naming("", {"member_id": "", "generation_id": 0}))
async def test_nothing_is_learnt_of_a_topic_through_a_group_of_one_s_own(world: AccessWorld, kind: str) -> None:
    await world.ask("orders", "PUT", "/v1/topics/orders", {"partitions": 3, "end_offsets": {"0": 700}})
    joined = await world.form("clicks", "clicks-1")
    for topic in ("orders", "orders-none"):
        method, path, body = naming(topic, joined)[kind]
        answer = await world.ask("clicks", method, f"/v1/groups/clicks-1{path}", body)
        assert (answer.status, answer.json["error_name"]) == (403, "TOPIC_AUTHORIZATION_FAILED"), answer.body
        assert answer.json["detail"] == f"token:clicks does not have the right `describe` on topic '{topic}'."
        method, path, body = naming("clicks", joined)[kind]
        own = await world.ask("clicks", method, f"/v1/groups/clicks-1{path}", body)
        assert own.status not in {401, 403}, own.body


async def test_a_channel_takes_no_topic_of_the_other_team_s(world: AccessWorld) -> None:
    async with open_channel(world.api.http, world.api.port, headers=bearer("clicks")) as channel:
        member_id = await channel.new_id("clicks-1", "spy")
        for op in ("join", "commit"):
            for topic in ("orders", "orders-none"):
                _, _, body = naming(topic, {"member_id": member_id, "generation_id": 1})[
                    "a subscription" if op == "join" else "a commit"
                ]
                status, answer = await channel.call(op, "clicks-1", body)
                assert (status, answer["error_name"]) == (403, "TOPIC_AUTHORIZATION_FAILED")


async def test_a_leader_that_assigns_the_other_team_s_partitions_is_shown_nothing_of_them(world: AccessWorld) -> None:
    await world.ask("orders", "PUT", "/v1/topics/orders", {"partitions": 3, "end_offsets": {"0": 700}})
    await world.ask("clicks", "PUT", "/v1/topics/clicks", {"partitions": 1})
    joined = await world.form("clicks", "clicks-1")
    refused = await world.ask("clicks", "POST", "/v1/groups/clicks-1/join", join_body(joined["member_id"]))
    assignment = {"partitions": {"clicks": [0], "orders": [0]}}
    sync = {
        "generation_id": refused.json["generation_id"],
        "member_id": joined["member_id"],
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": joined["member_id"], "assignment": assignment}],
    }
    assert (await world.ask("clicks", "POST", "/v1/groups/clicks-1/sync", sync)).status == 200
    listed = (await world.ask("clicks", "GET", "/v1/groups/clicks-1/partitions")).json["partitions"]
    assert [(row["topic"], row["partition"]) for row in listed] == [("clicks", 0)]


async def test_what_is_asked_for_many_groups_is_answered_for_each(world: AccessWorld) -> None:
    theirs = await world.form("orders", "orders-1", "orders")
    own = await world.form("clicks", "clicks-1")
    query = "group_id=orders-1&group_id=clicks-1"
    found = (await world.ask("clicks", "GET", f"/v1/coordinator?{query}")).json["coordinators"]
    assert [entry["error_name"] for entry in found] == ["GROUP_AUTHORIZATION_FAILED", "NONE"]
    assert found[0]["url"] is None
    assert found[0]["node_id"] is None
    beats = [
        {"group_id": group_id, **beat_body(joined)} for group_id, joined in (("orders-1", theirs), ("clicks-1", own))
    ]
    answer = (await world.ask("clicks", "POST", "/v1/heartbeats", {"heartbeats": beats})).json["heartbeats"]
    assert [entry["error_name"] for entry in answer] == ["GROUP_AUTHORIZATION_FAILED", "NONE"]
    assert [entry["group_id"] for entry in answer] == ["orders-1", "clicks-1"]


async def test_a_channel_serves_the_caller_s_own_groups(world: AccessWorld) -> None:
    joined = await world.form("orders", "orders-1", "orders")
    async with open_channel(world.api.http, world.api.port, headers=bearer("clicks")) as channel:
        calls = {
            "join": join_body("", client_id="spy"),
            "sync": {"generation_id": 1, "member_id": joined["member_id"], "protocol_type": "consumer"},
            "heartbeat": beat_body(joined),
            "leave": {"members": [{"member_id": joined["member_id"]}]},
            "commit": beat_body(joined, offsets={"clicks": {"0": {"offset": 5}}}),
            "fetch": {},
        }
        for op, body in calls.items():
            status, answer = await channel.call(op, "orders-1", body)
            assert (op, status, answer["error_name"]) == (op, 403, "GROUP_AUTHORIZATION_FAILED")
        _, found = await channel.call("coordinator", body={"group_ids": ["orders-1"]})
        assert found["coordinators"][0]["error_name"] == "GROUP_AUTHORIZATION_FAILED"
        await channel.form("clicks-1")
        # topics that it may not see are not pushed
        await world.ask("orders", "PUT", "/v1/topics/orders-new", {"partitions": 1})
        await world.ask("clicks", "PUT", "/v1/topics/clicks-new", {"partitions": 1})
        while (push := await channel.push())["event"] != "topics":
            pass
        assert push["topics"] == ["clicks-new"]
    assert await world.member_ids("orders-1") == [joined["member_id"]]


async def test_events_are_those_of_the_caller_s_own_groups(world: AccessWorld) -> None:
    async with read_events(world.api.http, world.url, headers=bearer("clicks")) as events:
        await world.form("orders", "orders-1", "orders")
        await world.form("clicks", "clicks-1")
        told = await events.until("group_changed", state="Stable")
    assert {one.data["group_id"] for one in told} == {"clicks-1"}


async def test_metrics_are_those_of_the_caller_s_own_groups(world: AccessWorld) -> None:
    assert (await world.ask("clicks", "GET", "/metrics")).status == 200
    ((sees, shows_node),) = world.api.metrics.scrapes
    assert sees is not None
    assert [sees("clicks-1"), sees("orders-1"), shows_node] == [True, False, False]


async def test_descriptions_list_the_rights_of_who_asks(world: AccessWorld) -> None:
    await world.form("clicks", "clicks-1")
    answer = (await world.ask("clicks", "GET", "/v1/groups/clicks-1")).json
    assert answer["authorized_operations"] == ["describe", "join", "operate", "offsets", "delete"]


def test_every_operation_has_a_requirement() -> None:
    assert {one.name for one in OPERATIONS} < REQUIREMENTS.keys()


async def test_who_shows_nothing_or_something_unknown_learns_nothing(world: AccessWorld) -> None:
    await world.form("orders", "orders-1", "orders")
    told = set()
    for target in ("/v1/groups/orders-1", "/v1/groups/none", "/v1/groups", "/v1/nothing", "/v1/events", "/metrics"):
        for who in ("", "stranger"):
            answer = await world.ask(who, "GET", target)
            assert answer.status == 401, target
            told.add((who, answer.json["detail"], answer.headers["WWW-Authenticate"]))
    assert len(told) == 2, "one sentence without a token, and one with a wrong one"
