"""`POST /v1/heartbeats`: each heartbeat is heard as if it came by itself."""

import pytest

from tests.coordinator.http.problem_checks import check_problem
from tests.fakes.channel_client import beat_body, open_channel
from tests.fakes.set_service import open_service


async def test_each_has_its_result_in_order() -> None:
    async with open_service() as api, open_channel(api.http, api.port) as client:
        members = {group_id: await client.form(group_id) for group_id in ("g", "h")}
        beats = [
            {"group_id": "h", **beat_body(members["h"])},
            {"group_id": "g", **beat_body(members["g"])},
            {"group_id": "g", "generation_id": 7, "member_id": members["g"]["member_id"]},
            {"group_id": "g", "generation_id": 1, "member_id": "nobody"},
            {"group_id": "", "generation_id": 1, "member_id": "nobody"},
            {"group_id": "g", "group_instance_id": "one", **beat_body(members["g"])},
        ]
        answer = await api.request("POST", "/v1/heartbeats", {"heartbeats": beats})
        assert answer.status == 200
        results = answer.json["heartbeats"]
        assert [(x["group_id"], x["member_id"]) for x in results] == [(x["group_id"], x["member_id"]) for x in beats]
        names = ["NONE", "NONE", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "INVALID_GROUP_ID", "UNKNOWN_MEMBER_ID"]
        assert [x["error_name"] for x in results] == names
        assert results[0].keys() == {"group_id", "member_id", "error_code", "error_name"}
        assert results[2]["generation_id"] == 1


async def test_a_host_of_many_members_keeps_them_all() -> None:
    async with open_service(group_min_session_timeout_ms=1) as api, open_channel(api.http, api.port) as client:
        ids = [f"group-{number}" for number in range(250)]
        members = [await client.form(group_id) for group_id in ids]
        beats = [{"group_id": group_id, **beat_body(x)} for group_id, x in zip(ids, members, strict=True)]
        answer = await api.request("POST", "/v1/heartbeats", {"heartbeats": beats})
        assert {x["error_name"] for x in answer.json["heartbeats"]} == {"NONE"}
        assert [x["group_id"] for x in answer.json["heartbeats"]] == ids


@pytest.mark.parametrize(
    ("beats", "field"),
    [
        ([], "heartbeats"),
        ([{"group_id": "g", "generation_id": 1}], "heartbeats.0.member_id"),
        ([{"group_id": "g", "generation_id": 1, "member_id": "a", "wait_ms": 5}], "heartbeats.0.wait_ms"),
    ],
)
async def test_a_wrong_one_refuses_the_request(beats: list[dict[str, object]], field: str) -> None:
    async with open_service() as api:
        problem = check_problem(await api.request("POST", "/v1/heartbeats", {"heartbeats": beats}))
        assert (problem["status"], problem["field"]) == (400, field)
