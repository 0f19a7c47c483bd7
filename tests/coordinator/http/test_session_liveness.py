"""A member on a session lives by its connection: whose side ended it decides how long the member is waited for."""

import asyncio
from typing import Any

from coordinator.core.effects import SessionExpired
from tests.fakes.door_server import DoorClient
from tests.fakes.session_client import SessionClient, beat_body, join_body, open_session
from tests.fakes.set_service import open_service

GRACE_MS = 150


async def members(door: DoorClient, group_id: str = "g") -> set[str]:
    answer = await door.request("GET", f"/v1/groups/{group_id}")
    return {member["member_id"] for member in answer.json["members"]}


async def wait_until_gone(door: DoorClient, member_id: str) -> None:
    async with asyncio.timeout(5):
        while member_id in await members(door):  # noqa: ASYNC110 - the service's clock decides
            await asyncio.sleep(0.02)


async def stays(door: DoorClient, member_id: str) -> None:
    """It is there long after its grace."""
    await asyncio.sleep(GRACE_MS * 3 / 1000)
    assert member_id in await members(door)


def service(**given: Any) -> Any:
    return open_service(disconnect_grace_ms=GRACE_MS, parked_call_max_wait_ms=60_000, **given)


async def test_a_goodbye_without_a_leave_costs_the_grace_and_not_the_session() -> None:
    async with service() as door, open_session(door.session, door.port) as client:
        joined = await client.form("g")
        await client.socket.close()
        assert joined["member_id"] in await members(door)
        await wait_until_gone(door, joined["member_id"])
        assert SessionExpired("g", joined["member_id"], disconnected=True) in door.events()


async def test_so_does_a_connection_that_is_reset() -> None:
    async with service() as door, open_session(door.session, door.port) as client:
        joined = await client.form("g")
        waiting = await client.send("heartbeat", "g", beat_body(joined, wait_ms=60_000))
        await client.call("fetch", "g")
        assert waiting
        reset(client)
        await wait_until_gone(door, joined["member_id"])
        assert door.figures.closed == {"lost": 1}
        assert door.service.parked_calls == 0


def reset(client: SessionClient) -> None:
    """As the system does for a process that is killed."""
    transport = client.socket._writer.transport
    transport.abort()


async def test_who_comes_back_in_time_lives_on_by_a_session_or_over_http() -> None:
    async with service() as door:
        async with open_session(door.session, door.port) as client:
            joined = await client.form("g")
            reset(client)
        async with open_session(door.session, door.port) as client:
            assert (await client.call("heartbeat", "g", beat_body(joined)))[0] == 200
            await stays(door, joined["member_id"])
            reset(client)
        answer = await door.request("POST", "/v1/groups/g/heartbeat", beat_body(joined))
        assert answer.status == 200
        await stays(door, joined["member_id"])


async def test_the_connection_on_which_it_called_last_counts_alone() -> None:
    async with service() as door, open_session(door.session, door.port) as new:
        async with open_session(door.session, door.port) as old:
            joined = await old.form("g")
            assert (await new.call("heartbeat", "g", beat_body(joined)))[0] == 200
        await stays(door, joined["member_id"])
        answer = await door.request("POST", "/v1/groups/g/heartbeat", beat_body(joined))
        assert answer.status == 200
        await new.socket.close()
        await stays(door, joined["member_id"])


async def test_what_an_old_connection_brings_late_and_its_end_do_not_cost_the_member_on_the_new_one() -> None:
    async with service() as door, open_session(door.session, door.port) as old:
        joined = await old.form("g")
        async with open_session(door.session, door.port) as new:
            assert (await new.call("heartbeat", "g", beat_body(joined)))[0] == 200
            assert (await old.call("heartbeat", "g", beat_body(joined)))[0] == 200
            reset(old)
            await stays(door, joined["member_id"])
            reset(new)
            await wait_until_gone(door, joined["member_id"])


async def test_the_answer_to_a_call_that_waited_does_not_take_its_member_back() -> None:
    async with service() as door, open_session(door.session, door.port) as old:
        joined = await old.form("g")
        waiting = await old.send("heartbeat", "g", beat_body(joined, wait_ms=200))
        await old.call("fetch", "g")
        async with open_session(door.session, door.port) as new:
            commit = {"generation_id": 1, "member_id": joined["member_id"], "offsets": {"t": {"0": {"offset": 1}}}}
            assert (await new.call("commit", "g", commit))[0] == 200
            carrier = door.service.carriers.carrier_of("g", joined["member_id"])
            assert (await old.answer(waiting))[0] == 200
            assert door.service.carriers.carrier_of("g", joined["member_id"]) is carrier


async def test_who_is_made_to_leave_over_http_is_carried_no_longer() -> None:
    async with service() as door, open_session(door.session, door.port) as client:
        joined = await client.form("g")
        assert door.service.carriers.members_of("g") == {joined["member_id"]}
        body = {"members": [{"member_id": joined["member_id"]}]}
        assert (await door.request("POST", "/v1/groups/g/leave", body)).status == 200
        assert not door.service.carriers.members_of("g")


async def test_a_rebalance_in_progress_that_is_told_over_http_counts_as_a_call_there() -> None:
    async with service() as door, open_session(door.session, door.port) as client:
        joined = await client.form("g")
        await client.new_id("g", "b")
        await client.send("join", "g", join_body("", client_id="c", group_instance_id="c"))
        assert (await client.push())["event"] == "rebalance"
        answer = await door.request("POST", "/v1/groups/g/heartbeat", beat_body(joined))
        assert answer.json["error_name"] == "REBALANCE_IN_PROGRESS"
        assert joined["member_id"] not in door.service.carriers.members_of("g")


async def test_each_member_of_the_connection_has_its_own_grace() -> None:
    async with service() as door:
        async with open_session(door.session, door.port) as client:
            short = await client.form("g")
            long = await client.form("h", disconnect_grace_ms=60_000)
            static = await client.call("join", "i", join_body("", group_instance_id="one"))
            assert static[0] == 200
        await wait_until_gone(door, short["member_id"])
        assert await members(door, "h") == {long["member_id"]}
        assert await members(door, "i") == {static[1]["member_id"]}


async def test_where_the_service_ended_it_the_session_timeout_alone_decides() -> None:
    async with service(session_ping_interval_ms=100) as door:
        async with open_session(door.session, door.port, autoping=False) as client:
            joined = await client.form("g")
            async with asyncio.timeout(5):
                while not door.figures.closed["unanswered_ping"]:  # noqa: ASYNC110 - the service's clock decides
                    await asyncio.sleep(0.02)
        await stays(door, joined["member_id"])
        async with open_session(door.session, door.port) as client:
            assert (await client.call("heartbeat", "g", beat_body(joined)))[0] == 200
            ending = asyncio.create_task(door.door.sessions.close())
            assert await client.close_code() == 1012
            await ending
        await stays(door, joined["member_id"])


async def test_who_has_left_is_not_waited_for() -> None:
    async with service() as door:
        async with open_session(door.session, door.port) as client:
            joined = await client.form("g")
            await client.call("leave", "g", {"members": [{"member_id": joined["member_id"]}]})
        await asyncio.sleep(GRACE_MS * 2 / 1000)
        assert not [event for event in door.events() if isinstance(event, SessionExpired)]


async def test_a_static_member_that_waits_for_its_first_join_is_found_by_its_call() -> None:
    async with service(group_initial_rebalance_delay_ms=60_000) as door:
        async with open_session(door.session, door.port) as client:
            body = join_body("", group_instance_id="one", disconnect_grace_ms=GRACE_MS, rebalance_timeout_ms=60_000)
            await client.send("join", "g", body)
            await client.call("fetch", "g")
            (member_id,) = await members(door)
        await wait_until_gone(door, member_id)
