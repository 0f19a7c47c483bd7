"""A session that has just begun is a newcomer until it calls a group; groups that form wait a moment for such."""

import pytest

import coordinator.core.newcomers
import coordinator.runtime.newcomers
from coordinator.http.security import SecurityPolicy, hash_token
from tests.fakes.door_server import DoorClient
from tests.fakes.session_client import join_body, open_session
from tests.fakes.set_service import open_service

TOKEN = "a-token"


@pytest.fixture(autouse=True)
def _slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slowly this runs, it is within a moment."""
    monkeypatch.setattr(coordinator.core.newcomers, "WAITED_MAX_MS", 600_000)
    monkeypatch.setattr(coordinator.runtime.newcomers, "NEW_MS", 600_000)


def is_somebody_new(door: DoorClient) -> bool:
    return bool(door.service._moment().newcomers)


async def test_members_whose_sessions_began_together_are_in_one_generation() -> None:
    async with (
        open_service(parked_call_max_wait_ms=60_000) as door,
        open_session(door.session, door.port) as first,
        open_session(door.session, door.port) as second,
    ):
        joins = [(first, await first.send("join", "g", join_body("", group_instance_id="a")))]
        # Its answer says that the join has been read, and that there is no generation yet.
        status, problem = await first.call("sync", "g", {"generation_id": 1, "member_id": "nobody", "assignments": []})
        assert (status, problem["error_name"]) == (404, "UNKNOWN_MEMBER_ID")
        assert is_somebody_new(door)
        joins.append((second, await second.send("join", "g", join_body("", group_instance_id="b"))))
        answers = [await client.answer(call_id) for client, call_id in joins]
        assert [(status, answer["generation_id"]) for status, answer in answers] == [(200, 1), (200, 1)]
        assert not is_somebody_new(door)


async def test_who_hangs_up_without_a_call_is_awaited_no_more() -> None:
    async with open_service() as door, open_session(door.session, door.port) as staying:
        async with open_session(door.session, door.port):
            await staying.call("fetch", "g")
            assert is_somebody_new(door)
        await staying.call("fetch", "g")
        while door.figures.sessions > 1:
            await staying.call("fetch", "g")
        assert not is_somebody_new(door)


async def test_a_question_of_no_group_leaves_it_new() -> None:
    async with open_service() as door, open_session(door.session, door.port) as client:
        await client.call("coordinator", body={"group_ids": ["g"]})
        assert is_somebody_new(door)


async def test_nobody_is_new_who_has_shown_no_token() -> None:
    policy = SecurityPolicy(token_hashes=(hash_token(TOKEN),))
    async with open_service(policy=policy) as door, open_session(door.session, door.port) as client:
        assert not is_somebody_new(door)
        assert await client.call("authenticate", token=TOKEN) == (200, {})
        assert is_somebody_new(door)
        await client.call("fetch", "g")
        assert not is_somebody_new(door)
