"""A member on a channel lives by its connection: whose side ended it decides how long the member is waited for."""

import asyncio
import errno
from typing import Any

import pytest

from rallypoint.coordinator.core.effects import SessionExpired
from rallypoint.coordinator.http.channel.channel import Channel
from rallypoint.coordinator.http.channel.websocket import WebSocket
from tests.fakes.api_server import ApiClient
from tests.fakes.channel_client import ChannelClient, beat_body, join_body, open_channel
from tests.fakes.manual_clock import ManualClock
from tests.fakes.set_service import open_service

GRACE_MS = 150


async def members(api: ApiClient, group_id: str = "g") -> set[str]:
    answer = await api.request("GET", f"/v1/groups/{group_id}")
    return {member["member_id"] for member in answer.json["members"]}


async def pass_time(api: ApiClient, by_ms: int) -> None:
    """The service's time, which goes on in steps. In each the service hears what came before."""
    clock = api.service.clock
    assert isinstance(clock, ManualClock)
    for _ in range(10):
        await asyncio.sleep(0.005)
        clock.move(by_ms // 10)


async def wait_until_gone(api: ApiClient, member_id: str) -> None:
    async with asyncio.timeout(30):
        while member_id in await members(api):
            await pass_time(api, GRACE_MS // 5)


async def stays(api: ApiClient, member_id: str) -> None:
    """It is there long after its grace."""
    await pass_time(api, GRACE_MS * 3)
    assert member_id in await members(api)


def service(**given: Any) -> Any:
    """Its clock goes on when a test says so, and no machine is too slow for a grace."""
    return open_service(clock=ManualClock(), disconnect_grace_ms=GRACE_MS, parked_call_max_wait_ms=60_000, **given)


async def test_a_goodbye_without_a_leave_costs_the_grace_and_not_the_session() -> None:
    async with service() as api, open_channel(api.http, api.port) as client:
        joined = await client.form("g")
        await client.socket.close()
        assert joined["member_id"] in await members(api)
        await wait_until_gone(api, joined["member_id"])
        assert SessionExpired("g", joined["member_id"], disconnected=True) in api.events()


async def test_so_does_a_connection_that_is_reset() -> None:
    async with service() as api, open_channel(api.http, api.port) as client:
        joined = await client.form("g")
        waiting = await client.send("heartbeat", "g", beat_body(joined, wait_ms=60_000))
        await client.call("fetch", "g")
        assert waiting
        reset(client)
        await wait_until_gone(api, joined["member_id"])
        assert api.metrics.closed == {"lost": 1}
        assert api.service.parked_calls == 0


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EHOSTUNREACH])
async def test_a_client_that_the_system_does_not_reach_has_ended_nothing(number: int) -> None:
    """Its line is down, perhaps in one direction: it may believe in its session, and has no grace but that."""
    async with service() as api, open_channel(api.http, api.port) as client:
        joined = await client.form("g")
        channel = api.service.connections.connection_of("g", joined["member_id"])
        assert isinstance(channel, Channel)
        assert isinstance(channel._socket, WebSocket)
        channel._socket.incoming.lose(OSError(number, "given up"))
        await stays(api, joined["member_id"])
        assert api.metrics.closed == {"unreachable": 1}
        assert api.service.connections.connection_of("g", joined["member_id"]) is None


def reset(client: ChannelClient) -> None:
    """As the system does for a process that is killed."""
    transport = client.socket._writer.transport
    transport.abort()


async def test_who_comes_back_in_time_lives_on_by_a_channel_or_over_http() -> None:
    async with service() as api:
        async with open_channel(api.http, api.port) as client:
            joined = await client.form("g")
            reset(client)
        async with open_channel(api.http, api.port) as client:
            assert (await client.call("heartbeat", "g", beat_body(joined)))[0] == 200
            await stays(api, joined["member_id"])
            reset(client)
        answer = await api.request("POST", "/v1/groups/g/heartbeat", beat_body(joined))
        assert answer.status == 200
        await stays(api, joined["member_id"])


async def test_the_connection_on_which_it_called_last_counts_alone() -> None:
    async with service() as api, open_channel(api.http, api.port) as new:
        async with open_channel(api.http, api.port) as old:
            joined = await old.form("g")
            assert (await new.call("heartbeat", "g", beat_body(joined)))[0] == 200
        await stays(api, joined["member_id"])
        answer = await api.request("POST", "/v1/groups/g/heartbeat", beat_body(joined))
        assert answer.status == 200
        await new.socket.close()
        await stays(api, joined["member_id"])


async def test_what_an_old_connection_brings_late_and_its_end_do_not_cost_the_member_on_the_new_one() -> None:
    async with service() as api, open_channel(api.http, api.port) as old:
        joined = await old.form("g")
        async with open_channel(api.http, api.port) as new:
            assert (await new.call("heartbeat", "g", beat_body(joined)))[0] == 200
            assert (await old.call("heartbeat", "g", beat_body(joined)))[0] == 200
            reset(old)
            await stays(api, joined["member_id"])
            reset(new)
            await wait_until_gone(api, joined["member_id"])


async def test_the_answer_to_a_call_that_waited_does_not_take_its_member_back() -> None:
    async with service() as api, open_channel(api.http, api.port) as old:
        joined = await old.form("g")
        waiting = await old.send("heartbeat", "g", beat_body(joined, wait_ms=200))
        await old.call("fetch", "g")
        async with open_channel(api.http, api.port) as new:
            commit = {"generation_id": 1, "member_id": joined["member_id"], "offsets": {"t": {"0": {"offset": 1}}}}
            assert (await new.call("commit", "g", commit))[0] == 200
            connection = api.service.connections.connection_of("g", joined["member_id"])
            await pass_time(api, 200)
            assert (await old.answer(waiting))[0] == 200
            assert api.service.connections.connection_of("g", joined["member_id"]) is connection


async def test_who_is_made_to_leave_over_http_is_carried_no_longer() -> None:
    async with service() as api, open_channel(api.http, api.port) as client:
        joined = await client.form("g")
        assert api.service.connections.members_of("g") == {joined["member_id"]}
        body = {"members": [{"member_id": joined["member_id"]}]}
        assert (await api.request("POST", "/v1/groups/g/leave", body)).status == 200
        assert not api.service.connections.members_of("g")


async def test_a_rebalance_in_progress_that_is_told_over_http_counts_as_a_call_there() -> None:
    async with service() as api, open_channel(api.http, api.port) as client:
        joined = await client.form("g")
        await client.new_id("g", "b")
        await client.send("join", "g", join_body("", client_id="c", group_instance_id="c"))
        assert (await client.push())["event"] == "rebalance"
        answer = await api.request("POST", "/v1/groups/g/heartbeat", beat_body(joined))
        assert answer.json["error_name"] == "REBALANCE_IN_PROGRESS"
        assert joined["member_id"] not in api.service.connections.members_of("g")


async def test_each_member_of_the_connection_has_its_own_grace() -> None:
    async with service() as api:
        async with open_channel(api.http, api.port) as client:
            short = await client.form("g")
            long = await client.form("h", disconnect_grace_ms=60_000)
            static = await client.call("join", "i", join_body("", group_instance_id="one"))
            assert static[0] == 200
        await wait_until_gone(api, short["member_id"])
        assert await members(api, "h") == {long["member_id"]}
        assert await members(api, "i") == {static[1]["member_id"]}


async def test_where_the_service_ended_it_the_session_timeout_alone_decides() -> None:
    async with service(channel_ping_interval_ms=100) as api:
        async with open_channel(api.http, api.port, autoping=False) as client:
            joined = await client.form("g")
            async with asyncio.timeout(30):
                while not api.metrics.closed["unanswered_ping"]:
                    await pass_time(api, 20)
        await stays(api, joined["member_id"])
        async with open_channel(api.http, api.port) as client:
            assert (await client.call("heartbeat", "g", beat_body(joined)))[0] == 200
            ending = asyncio.create_task(api.http_api.channels.close())
            assert await client.close_code() == 1012
            await ending
        await stays(api, joined["member_id"])


async def test_who_has_left_is_not_waited_for() -> None:
    async with service() as api:
        async with open_channel(api.http, api.port) as client:
            joined = await client.form("g")
            await client.call("leave", "g", {"members": [{"member_id": joined["member_id"]}]})
        await pass_time(api, GRACE_MS * 2)
        assert not [event for event in api.events() if isinstance(event, SessionExpired)]


async def test_a_static_member_that_waits_for_its_first_join_is_found_by_its_call() -> None:
    async with service(group_initial_rebalance_delay_ms=60_000) as api:
        async with open_channel(api.http, api.port) as client:
            body = join_body("", group_instance_id="one", disconnect_grace_ms=GRACE_MS, rebalance_timeout_ms=60_000)
            await client.send("join", "g", body)
            await client.call("fetch", "g")
            (member_id,) = await members(api)
        await wait_until_gone(api, member_id)


@pytest.mark.parametrize("way", ["heartbeat", "heartbeats", "commit", "another channel"])
async def test_whichever_way_it_calls_elsewhere_it_is_carried_by_the_old_channel_no_longer(way: str) -> None:
    async with service() as api, open_channel(api.http, api.port) as other:
        async with open_channel(api.http, api.port) as old:
            joined = await old.form("g")
            beat = beat_body(joined)
            if way == "heartbeat":
                assert (await api.request("POST", "/v1/groups/g/heartbeat", beat)).status == 200
            elif way == "heartbeats":
                answer = await api.request("POST", "/v1/heartbeats", {"heartbeats": [{"group_id": "g", **beat}]})
                assert answer.json["heartbeats"][0]["error_name"] == "NONE"
            elif way == "commit":
                body = {"generation_id": 1, "member_id": joined["member_id"], "offsets": {"t": {"0": {"offset": 1}}}}
                assert (await api.request("POST", "/v1/groups/g/offsets", body)).status == 200
            else:
                assert (await other.call("heartbeat", "g", beat))[0] == 200
            await old.socket.close()
        await stays(api, joined["member_id"])


async def test_a_batch_in_which_the_member_is_refused_tells_nothing_of_where_it_calls() -> None:
    async with service() as api, open_channel(api.http, api.port) as client:
        joined = await client.form("g")
        beat = {"group_id": "g", "generation_id": 7, "member_id": joined["member_id"]}
        answer = await api.request("POST", "/v1/heartbeats", {"heartbeats": [beat]})
        assert answer.json["heartbeats"][0]["error_name"] == "ILLEGAL_GENERATION"
        assert api.service.connections.members_of("g") == {joined["member_id"]}
