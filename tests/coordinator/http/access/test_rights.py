"""Each right opens its own operations and no other; a deny wins; what is public shows nothing of groups."""

from pathlib import Path
from typing import Any

import pytest

from rallypoint.coordinator.access.policy import GROUP, RIGHTS_ON, TOPIC
from tests.fakes.access_world import AccessWorld, open_world
from tests.fakes.channel_client import join_body

MEMBER = {"generation_id": 1, "member_id": "m"}
OFFSETS = {"offsets": {"clicks": {"0": {"offset": 1}}}}
SYNC = MEMBER | {"protocol_type": "consumer", "protocol_name": "range"}
OF_GROUPS: list[tuple[str, str, str, Any]] = [
    # the rights that open it, and the request
    ("join", "POST", "/join", join_body("")),
    ("join", "POST", "/sync", SYNC),
    ("join", "POST", "/heartbeat", MEMBER),
    ("join", "POST", "/leave", {"members": [{"member_id": "m"}]}),
    ("operate", "POST", "/leave", {"members": [{"member_id": "", "group_instance_id": "i"}]}),
    ("operate", "POST", "/leave", {"members": [{"member_id": "m"}, {"member_id": "", "group_instance_id": "i"}]}),
    ("join", "POST", "/offsets", MEMBER | OFFSETS),
    ("offsets", "POST", "/offsets", {"generation_id": -1, "member_id": ""} | OFFSETS),
    ("offsets", "POST", "/offsets", {"generation_id": -1, "member_id": "m"} | OFFSETS),
    ("join describe", "GET", "/offsets?topic=clicks", None),
    ("offsets", "DELETE", "/offsets?topic=clicks", None),
    ("offsets", "POST", "/offsets/reset", {"to": "earliest"}),
    ("offsets", "POST", "/offsets/reset", {"to": "earliest", "dry_run": True}),
    ("describe", "GET", "", None),
    ("describe", "GET", "/rebalances", None),
    ("describe", "GET", "/partitions", None),
    ("describe", "GET", "/lag", None),
    ("describe", "GET", "/ownership", None),
    ("describe", "GET", "/owner?topic=clicks&partition=0", None),
    ("operate", "POST", "/preview", {}),
    ("operate", "POST", "/rebalance", {}),
    ("operate", "POST", "/rebalance/proceed", {}),
    ("operate", "PUT", "/freeze", {"duration_ms": 60_000}),
    ("operate", "DELETE", "/freeze", None),
    ("operate", "PUT", "/cooldown", {"cooldown_ms": 1_000}),
    ("operate", "PUT", "/join_wait", {"join_wait_max_ms": 60_000}),
    ("operate", "POST", "/members/remove", {"members": ["m"]}),
    ("delete", "DELETE", "", None),
]
OF_TOPICS: list[tuple[str, str, Any]] = [
    ("describe", "GET", None),
    ("topics", "PUT", {"partitions": 1}),
    ("delete", "DELETE", None),
]

SEES_CLICKS = '[[allow]]\nwho = ["token:a"]\nmay = ["describe"]\non = ["topic:clicks"]\n'


def alone(right: str, on: str, deny: str = "") -> str:
    text = f'[[allow]]\nwho = ["token:a"]\nmay = ["{right}"]\non = ["{on}"]\n'
    return text + (f'[[deny]]\nwho = ["token:a"]\nmay = ["*"]\non = ["{deny}"]\n' if deny else "")


async def refused(world: AccessWorld, method: str, target: str, body: Any) -> bool:
    answer = await world.ask("a", method, target, body)
    assert answer.status < 500, answer.body
    return answer.status == 403


@pytest.mark.parametrize("right", RIGHTS_ON[GROUP])
async def test_a_right_on_a_group_opens_its_operations_alone(tmp_path: Path, right: str) -> None:
    async with open_world(tmp_path, alone(right, "group:g") + SEES_CLICKS, ("a",)) as world:
        for opened_by, method, path, body in OF_GROUPS:
            is_refused = await refused(world, method, f"/v1/groups/g{path}", body)
            assert is_refused is (right not in opened_by.split()), (method, path, body)
            assert await refused(world, method, f"/v1/groups/h{path}", body), "of another group"


@pytest.mark.parametrize("right", RIGHTS_ON[TOPIC])
async def test_a_right_on_a_topic_opens_its_operations_alone(tmp_path: Path, right: str) -> None:
    async with open_world(tmp_path, alone(right, "topic:t"), ("a",)) as world:
        for opened_by, method, body in OF_TOPICS:
            assert await refused(world, method, "/v1/topics/t", body) is (right != opened_by), method
            assert await refused(world, method, "/v1/topics/u", body), "another topic"


@pytest.mark.parametrize(("right", "sees", "drains"), [("describe", True, False), ("admin", False, True)])
async def test_a_right_on_the_cluster_opens_its_operations_alone(
    tmp_path: Path, right: str, sees: bool, drains: bool
) -> None:
    async with open_world(tmp_path, alone(right, "cluster"), ("a",)) as world:
        assert await refused(world, "GET", "/v1/cluster", None) is not sees
        for method, path, body in (
            ("POST", "/nodes/n/drain", {}),
            ("DELETE", "/nodes/n/drain", None),
            ("DELETE", "/nodes/n", None),
            ("POST", "/shards/1/move", {"to": "n"}),
        ):
            assert await refused(world, method, f"/v1/cluster{path}", body) is not drains, path


async def test_a_deny_wins_also_where_ids_are_written_otherwise(tmp_path: Path) -> None:
    async with open_world(tmp_path, alone("*", "group:*", deny="group:secret/prod*"), ("a",)) as world:
        assert not await refused(world, "GET", "/v1/groups/secret", None)
        for written in ("secret%2Fprod", "secret%2fprod-1", "%73ecret%2Fprod", "secret%2Fprod%00"):
            assert await refused(world, "GET", f"/v1/groups/{written}", None), written
            assert await refused(world, "POST", f"/v1/groups/{written}/join", join_body("")), written
        # what is no id of that name is another group, or none
        for written in ("secret/prod", "secret%252Fprod", "./secret%2Fprod", "x/../secret%2Fprod", "%2E/secret%2Fprod"):
            answer = await world.ask("a", "GET", f"/v1/groups/{written}")
            assert answer.status in {400, 403, 404}, written


async def test_anonymous_may_do_what_a_rule_says_and_a_wrong_token_is_refused_all_the_same(tmp_path: Path) -> None:
    policy = '[[allow]]\nwho = ["anonymous"]\nmay = ["describe"]\non = ["group:public*"]\n'
    everybody = '[[allow]]\nwho = ["*"]\nmay = ["describe"]\non = ["group:*"]\n'
    async with open_world(tmp_path, policy + everybody, ("a",)) as world:
        assert (await world.ask("", "GET", "/v1/groups/public")).status == 404
        assert (await world.ask("", "GET", "/v1/groups/private")).status == 401, "a token would help"
        assert (await world.ask("guess", "GET", "/v1/groups/public")).status == 401
        assert (await world.ask("a", "GET", "/v1/groups/private")).status == 404, "`*` is who has shown something"


@pytest.mark.parametrize("path", ["/", "/docs", "/healthz", "/readyz", "/openapi.json", "/errors/unauthenticated"])
async def test_what_is_public_shows_nothing_of_groups(tmp_path: Path, path: str) -> None:
    async with open_world(tmp_path, alone("*", "group:*") + SEES_CLICKS, ("a",)) as world:
        await world.form("a", "a-very-secret-group")
        answer = await world.ask("", "GET", path)
        assert answer.status == 200
        assert b"a-very-secret-group" not in answer.body


async def test_nothing_is_asked_for_without_tokens_and_without_a_policy(tmp_path: Path) -> None:
    async with open_world(tmp_path, None, ()) as world:
        await world.form("", "g")
        for headers in ({}, {"Authorization": "Bearer whatever"}, {"Authorization": "Basic eDp5"}):
            answer = await world.api.request("GET", "/v1/groups/g", headers=headers)
            assert answer.status == 200
            assert answer.json["authorized_operations"] == ["describe", "join", "operate", "offsets", "delete"]


async def test_whoever_has_a_token_may_do_everything_without_a_policy(tmp_path: Path) -> None:
    async with open_world(tmp_path, None, ("a",)) as world:
        await world.form("a", "g")
        assert (await world.ask("a", "GET", "/v1/cluster")).status == 200
        assert (await world.ask("", "GET", "/v1/groups/g")).status == 401
        assert (await world.ask("guess", "GET", "/v1/groups/g")).status == 401
