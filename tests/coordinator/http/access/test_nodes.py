"""Nodes ask each other in the name of the caller, and nobody else may do so."""

import base64
import json
from collections.abc import AsyncIterator, Sequence

import aiohttp
import pytest

from rallypoint.coordinator.access.policy_file import read_access
from rallypoint.coordinator.access.principals import Caller
from rallypoint.coordinator.access.tokens import TokenEntry, hash_token
from rallypoint.coordinator.core.effects import GroupCreated
from rallypoint.coordinator.http.access.control import AccessControl
from rallypoint.coordinator.http.security import CALLER_HEADER, caller_headers
from rallypoint.protocol.group_hash import shard_of_group
from tests.fakes.access_world import bearer
from tests.fakes.cluster_api import Nodes, opened
from tests.fakes.cluster_harness import SHARDS
from tests.fakes.event_reader import read_events

POLICY = """\
nodes = ["token:node*"]

[[allow]]
who = ["token:clicks"]
may = ["*"]
on = ["group:clicks*", "topic:*"]

[[allow]]
who = ["token:nodes", "token:ops"]
may = ["*"]
on = ["group:*", "topic:*", "cluster"]
"""
TOKENS = ("clicks", "ops", "nodes")


def control(policy: str = POLICY) -> AccessControl:
    found = read_access(policy)
    assert found.problems == ()
    return AccessControl([TokenEntry(name, hash_token(name)) for name in TOKENS], found.policy, key=b"k")


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    async with opened() as nodes:
        for _ in range(2):
            await nodes.start("nodes", access=control())
        yield nodes


def ids(answer: dict[str, list[dict[str, str]]]) -> list[str]:
    return [group["group_id"] for group in answer["groups"]]


async def form_on_each(nodes: Nodes, prefix: str) -> list[str]:
    """A group on every node."""
    found: dict[str, str] = {}
    for number in range(1_000):
        group_id = f"{prefix}-{number}"
        shard = shard_of_group(group_id, SHARDS)
        node_id = next(node_id for node_id in nodes.clients if shard in nodes.shards_of(node_id))
        found.setdefault(node_id, group_id)
        if len(found) == len(nodes.clients):
            break
    for group_id in found.values():
        await nodes.cluster.form(group_id)
    return sorted(found.values())


async def test_a_list_of_all_nodes_has_what_the_caller_may_see(nodes: Nodes) -> None:
    clicks, orders = await form_on_each(nodes, "clicks"), await form_on_each(nodes, "orders")
    for node_id in nodes.clients:
        answer = await nodes.ask(node_id, "?totals=true", "clicks")
        assert ids(answer) == clicks
        assert answer["unavailable_shards"] == []
        assert answer["totals"]["group_count"] == len(clicks)
        assert ids(await nodes.ask(node_id, "", "ops")) == sorted(clicks + orders)
        assert ids(await nodes.ask(node_id, "?node_only=true", "clicks")) == [
            group_id for group_id in clicks if shard_of_group(group_id, SHARDS) in nodes.shards_of(node_id)
        ]


async def test_events_of_all_nodes_are_those_that_the_caller_may_see(nodes: Nodes) -> None:
    node_id = next(iter(nodes.clients))
    client = nodes.clients[node_id]
    async with read_events(client.http, f"http://127.0.0.1:{client.port}", headers=bearer("clicks")) as events:
        assert sorted(events.nodes) == sorted(nodes.clients)
        for prefix in ("orders", "clicks"):
            for other in nodes.clients:
                nodes.feeds[other].event(GroupCreated(f"{prefix}-of-{other}"))
        told = [await events.next() for _ in nodes.clients]
    seen = {one.data["group_id"] for one in told if one is not None}
    assert seen == {f"clicks-of-{other}" for other in nodes.clients}


async def test_what_a_node_reads_for_a_caller_lives_as_long_as_the_token_of_the_node(nodes: Nodes) -> None:
    client = next(iter(nodes.clients.values()))
    headers = bearer("nodes") | named(["token:clicks"])
    access, streams = client.http_api.access, client.http_api.streams
    async with read_events(
        client.http, f"http://127.0.0.1:{client.port}", "?node_only=true", headers=headers
    ) as events:
        access.use_tokens(TokenEntry(name, hash_token(name)) for name in ("nodes", "new"))
        streams.end_strangers(0)
        next(iter(nodes.feeds.values())).event(GroupCreated("clicks-1"))
        told = await events.next()
        assert told is not None
        assert told.data["group_id"] == "clicks-1"
        access.use_tokens([TokenEntry("other", hash_token("nodes"))])
        streams.end_strangers(0)
        with pytest.raises(aiohttp.ClientError):
            await events.next()


def named(principals: Sequence[str]) -> dict[str, str]:
    headers = caller_headers(Caller(tuple(principals)))
    assert headers is not None
    return dict(headers)


async def test_only_a_node_may_ask_in_the_name_of_another(nodes: Nodes) -> None:
    await form_on_each(nodes, "orders")
    client = next(iter(nodes.clients.values()))
    for target in ("/v1/groups", "/v1/events"):
        answer = await client.request("GET", target, headers=bearer("clicks") | named(["token:ops"]))
        assert (answer.status, answer.json["error_name"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")
    answer = await client.request("GET", "/v1/groups", headers=named(["token:ops"]))
    assert answer.status == 401
    answer = await client.request("GET", "/v1/groups", headers=bearer("nodes") | named(["token:clicks"]))
    assert answer.json["groups"] == []


async def test_other_calls_are_the_sender_s_own_whatever_the_header_says(nodes: Nodes) -> None:
    (group_id, *_) = await form_on_each(nodes, "orders")
    for client in nodes.clients.values():
        answer = await client.request("GET", f"/v1/groups/{group_id}", headers=bearer("clicks") | named(["token:ops"]))
        assert (answer.status, answer.json["error_name"]) == (403, "GROUP_AUTHORIZATION_FAILED")


async def test_who_may_not_see_a_group_does_not_learn_where_it_is(nodes: Nodes) -> None:
    """The refusal comes before the 421."""
    group_ids = await form_on_each(nodes, "orders")
    for group_id in group_ids:
        for client in nodes.clients.values():
            answer = await client.request("GET", f"/v1/groups/{group_id}", headers=bearer("clicks"))
            assert answer.status == 403
            assert "Location" not in answer.headers
            assert "url" not in answer.json


@pytest.mark.parametrize(
    "text", ["", "!", "W10=", "bm8=", base64.b64encode(b'["nobody"]').decode(), base64.b64encode(b"[1]").decode()]
)
async def test_a_caller_that_is_none_is_refused(nodes: Nodes, text: str) -> None:
    client = next(iter(nodes.clients.values()))
    answer = await client.request("GET", "/v1/groups", headers=bearer("nodes") | {CALLER_HEADER: text})
    assert (answer.status, answer.json["error_name"]) == (400, "INVALID_REQUEST")


async def test_a_caller_with_many_long_names_is_named_whole_or_not_at_all() -> None:
    names = tuple(f"cert:spiffe://example.org/{'é' * 500}/{number}" for number in range(8))
    headers = caller_headers(Caller(names))
    assert headers is not None
    assert len(headers) > 1
    assert max(len(value) for _, value in headers) < 8_000
    assert json.loads(base64.b64decode("".join(value for _, value in headers))) == list(names)
    assert caller_headers(Caller(names * 4)) is None
