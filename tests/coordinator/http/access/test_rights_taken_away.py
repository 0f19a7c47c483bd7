"""Who loses a right, or runs out, is let go: members, channels, waiting calls and event streams.

The watch looks four times a second; here it looks when a test says so.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from pathlib import Path

import aiohttp
import pytest

from rallypoint.coordinator.access.tokens import TokenEntry, hash_token
from rallypoint.coordinator.http.access.control import AccessControl
from rallypoint.coordinator.http.access.watch import AccessFiles, Issuers
from rallypoint.coordinator.http.access.watched_files import FileProblem
from tests.fakes.access_world import NOW_MS, AccessWorld, bearer, open_world
from tests.fakes.api_server import ANSWER_SECONDS
from tests.fakes.channel_client import beat_body, join_body, open_channel
from tests.fakes.event_reader import read_events

RULE = '[[allow]]\nwho = ["{who}"]\nmay = ["join", "describe"]\non = ["group:{on}", "topic:clicks"]\n'
BOTH = RULE.format(who="token:*", on="*")
ETL_ALONE = RULE.format(who="token:etl", on="*")
OTHERS_ALONE = RULE.format(who="token:*", on="other*")
END_MS = NOW_MS + 1_000


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AccessWorld]:
    async with open_world(tmp_path, BOTH, ("etl", "spy"), ends={"spy": END_MS}) as world:
        yield world


def policy_changes(world: AccessWorld) -> None:
    world.policy_path.write_text(ETL_ALONE)


def token_is_taken_back(world: AccessWorld) -> None:
    world.write_tokens("etl")


def token_runs_out(world: AccessWorld) -> None:
    world.now_ms = END_MS


def token_gets_an_end(world: AccessWorld) -> None:
    world.ends["spy"] = world.now_ms
    world.write_tokens("etl", "spy")


def token_gets_another_name(world: AccessWorld) -> None:
    world.write_tokens("etl", "spy")
    world.token_path.write_text(world.token_path.read_text().replace("spy ", "other "))


LOSSES = pytest.mark.parametrize(
    "lose", [policy_changes, token_is_taken_back, token_runs_out, token_gets_an_end, token_gets_another_name]
)
Lose = Callable[[AccessWorld], None]


def no_issuers() -> Issuers:
    raise AssertionError("the policy names none")


async def waiting(world: AccessWorld) -> None:
    """Until a call waits in its group."""
    async with asyncio.timeout(ANSWER_SECONDS):
        while not world.service.parked_calls:  # noqa: ASYNC110 - the service tells nobody
            await asyncio.sleep(0.01)


@LOSSES
async def test_its_members_are_removed(world: AccessWorld, lose: Lose) -> None:
    stays = await world.form("etl", "a")
    await world.form("spy", "b")
    await world.look()
    assert len(await world.member_ids("b")) == 1, "as long as nothing changes"
    lose(world)
    await world.look()
    assert await world.member_ids("b") == []
    assert await world.member_ids("a") == [stays["member_id"]]
    if lose is not token_gets_another_name:  # which may do the same here, as a caller of its own
        assert (await world.ask("spy", "POST", "/v1/groups/b/join", join_body(""))).status in {401, 403}


async def test_a_token_with_a_later_end_goes_on(world: AccessWorld) -> None:
    async with open_channel(world.api.http, world.api.port, headers=bearer("spy")) as channel:
        member_id = (await channel.form("b"))["member_id"]
        world.ends["spy"] = END_MS + 60_000
        world.write_tokens("etl", "spy")
        await world.look()
        world.now_ms = END_MS
        await world.look()
        assert await world.member_ids("b") == [member_id]
        world.now_ms = END_MS + 60_000
        await world.look()
        assert await world.member_ids("b") == []


async def test_members_are_removed_without_a_policy_too(tmp_path: Path) -> None:
    async with open_world(tmp_path, None, ("etl", "spy")) as world:
        await world.form("spy", "b")
        world.write_tokens("etl")
        await world.look()
        assert await world.member_ids("b") == []


async def test_a_member_that_calls_with_the_new_token_stays(world: AccessWorld) -> None:
    """As a member does whose token is replaced."""
    joined = await world.form("spy", "b")
    assert (await world.ask("etl", "POST", "/v1/groups/b/heartbeat", beat_body(joined))).status == 200
    token_is_taken_back(world)
    await world.look()
    assert await world.member_ids("b") == [joined["member_id"]]


@LOSSES
async def test_its_channel_s_members_are_removed(world: AccessWorld, lose: Lose) -> None:
    async with open_channel(world.api.http, world.api.port, headers=bearer("spy")) as channel:
        await channel.form("b")
        lose(world)
        await world.look()
        assert await world.member_ids("b") == []
        if lose is policy_changes:
            status, answer = await channel.call("join", "b", join_body(""))
            assert (status, answer["error_name"]) == (403, "GROUP_AUTHORIZATION_FAILED")
        else:
            assert await channel.close_code() == 1008


@LOSSES
async def test_a_member_at_rest_on_a_channel_is_removed_after_hours(world: AccessWorld, lose: Lose) -> None:
    async with open_channel(world.api.http, world.api.port, headers=bearer("spy")) as channel:
        await channel.form("b")
        for _ in range(5):
            world.api.http_api.members.age()
        lose(world)
        await world.look()
        assert await world.member_ids("b") == []


async def test_a_member_that_no_channel_carries_is_forgotten(world: AccessWorld) -> None:
    async with open_channel(world.api.http, world.api.port, headers=bearer("spy")) as channel:
        await channel.form("b")
        await world.form("spy", "c")
        members = world.api.http_api.members
        for _ in range(3):
            members.age()
        assert len(members) == 1, "of one nothing was heard"
    async with asyncio.timeout(ANSWER_SECONDS):
        while len(world.service.connections):  # noqa: ASYNC110 - the service tells nobody
            await asyncio.sleep(0.01)
    for _ in range(2):
        members.age()
    assert len(members) == 0, "its channel has ended"


async def test_a_channel_that_began_without_a_token_ends_with_its_token(world: AccessWorld) -> None:
    async with open_channel(world.api.http, world.api.port) as channel:
        assert (await channel.call("authenticate", token="spy"))[0] == 200
        token_runs_out(world)
        await world.look()
        assert await channel.close_code() == 1008


@LOSSES
async def test_its_waiting_call_is_answered_at_once_and_its_member_removed(world: AccessWorld, lose: Lose) -> None:
    stays = await world.form("etl", "a")
    refused = await world.ask("spy", "POST", "/v1/groups/a/join", join_body("", client_id="spy"))
    join = join_body(refused.json["member_id"], client_id="spy")
    call = asyncio.create_task(world.ask("spy", "POST", "/v1/groups/a/join", join))
    await waiting(world)
    assert len(await world.member_ids("a")) == 2
    lose(world)
    await world.look()
    answer = await call
    assert answer.status == (403 if lose is policy_changes else 401)
    assert "member" not in answer.json
    assert await world.member_ids("a") == [stays["member_id"]]


@LOSSES
async def test_a_static_member_goes_though_it_waits_for_its_first_id(world: AccessWorld, lose: Lose) -> None:
    stays = await world.form("etl", "a")
    join = join_body("", client_id="spy", group_instance_id="one")
    call = asyncio.create_task(world.ask("spy", "POST", "/v1/groups/a/join", join))
    await waiting(world)
    lose(world)
    await world.look()
    assert (await call).status in {401, 403}
    assert await world.member_ids("a") == [stays["member_id"]]


@LOSSES
async def test_a_heartbeat_that_waits_ends_and_its_member_goes(world: AccessWorld, lose: Lose) -> None:
    joined = await world.form("spy", "b")
    world.api.http_api.members.age()
    world.api.http_api.members.age()  # as after a restart: nothing was heard of it
    beat = beat_body(joined) | {"wait_ms": 10_000}
    call = asyncio.create_task(world.ask("spy", "POST", "/v1/groups/b/heartbeat", beat))
    await waiting(world)
    lose(world)
    await world.look()
    assert (await call).status == (403 if lose is policy_changes else 401)
    assert await world.member_ids("b") == []


ALL_RIGHTS = '[[allow]]\nwho = ["{who}"]\nmay = ["*"]\non = ["group:*", "topic:*"]\n'
BODIES: dict[str, dict[str, object]] = {
    "PUT /v1/topics/t": {"partitions": 2},
    "POST /v1/groups/b/join": join_body(""),
    "POST /v1/groups/b/preview": {"leave": []},
}


@pytest.mark.parametrize("target", BODIES)
@pytest.mark.parametrize("lose", [policy_changes, token_is_taken_back])
async def test_a_body_that_comes_when_the_right_is_gone_is_refused(tmp_path: Path, target: str, lose: Lose) -> None:
    async with open_world(tmp_path, ALL_RIGHTS.format(who="token:*"), ("etl", "spy")) as world:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.api.port)
        body = json.dumps(BODIES[target]).encode()
        head = f"{target} HTTP/1.1\r\nHost: 127.0.0.1:{world.api.port}\r\nAuthorization: Bearer spy\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body[:5])
        for _ in range(2):  # what was sent before is let in before these are answered
            assert (await world.ask("etl", "GET", "/v1/topics")).status == 200
        if lose is policy_changes:
            world.policy_path.write_text(ALL_RIGHTS.format(who="token:etl"))
        else:
            lose(world)
        await world.look()
        writer.write(body[5:])
        async with asyncio.timeout(ANSWER_SECONDS):
            status = int((await reader.readline()).split()[1])
        writer.close()
        assert status == (403 if lose is policy_changes else 401)
        assert (await world.ask("etl", "GET", "/v1/topics")).json["topics"] == []


async def test_what_waits_on_a_channel_is_answered_at_once(world: AccessWorld) -> None:
    stays = await world.form("etl", "a")
    async with open_channel(world.api.http, world.api.port, headers=bearer("spy")) as channel:
        member_id = await channel.new_id("a", "spy")
        call_id = await channel.send("join", "a", join_body(member_id, client_id="spy"))
        await waiting(world)
        policy_changes(world)
        await world.look()
        status, answer = await channel.answer(call_id)
        assert (status, answer["error_name"]) == (403, "GROUP_AUTHORIZATION_FAILED")
    assert await world.member_ids("a") == [stays["member_id"]]


@pytest.mark.parametrize("lose", [token_is_taken_back, token_runs_out])
async def test_its_event_stream_ends(world: AccessWorld, lose: Lose) -> None:
    async with read_events(world.api.http, world.url, headers=bearer("spy")) as events:
        lose(world)
        await world.look()
        with pytest.raises(aiohttp.ClientError):
            await events.until("no such event")


async def test_an_event_stream_leaves_out_what_may_no_longer_be_seen(world: AccessWorld) -> None:
    async with read_events(world.api.http, world.url, headers=bearer("spy")) as events:
        world.policy_path.write_text(ETL_ALONE + OTHERS_ALONE)
        await world.look()
        await world.form("etl", "a")
        await world.form("etl", "other-a")
        told = await events.until("group_changed", state="Stable")
    assert {one.data["group_id"] for one in told} == {"other-a"}


async def test_a_right_that_is_given_counts_on_open_channels(world: AccessWorld) -> None:
    policy_changes(world)
    await world.look()
    async with open_channel(world.api.http, world.api.port, headers=bearer("spy")) as channel:
        assert (await channel.call("join", "b", join_body("")))[0] == 403
        world.policy_path.write_text(BOTH)
        await world.look()
        await channel.form("b")


async def test_a_pipe_in_place_of_a_file_is_a_fault_and_is_not_waited_for(world: AccessWorld) -> None:
    world.policy_path.unlink()
    os.mkfifo(world.policy_path)
    await world.look()
    assert world.files.refused() == {"tokens": False, "policy": True}
    assert (await world.ask("spy", "POST", "/v1/groups/b/join", join_body(""))).status == 409


async def test_a_token_of_the_settings_that_the_file_has_otherwise_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"etl {hash_token('etl')}\n")
    for fixed, is_fault in (("etl", False), ("other", True)):
        files = AccessFiles(AccessControl(), (TokenEntry(fixed, hash_token("etl")),), path, None, no_issuers)
        with pytest.raises(FileProblem, match="with another name or end") if is_fault else nullcontext():
            files.load()


async def test_two_tokens_in_one_request_are_none(world: AccessWorld) -> None:
    for tokens in (("etl", "guess"), ("guess", "etl"), ("etl", "etl")):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.api.port)
        shown = "".join(f"Authorization: Bearer {token}\r\n" for token in tokens)
        writer.write(f"GET /v1/groups HTTP/1.1\r\nHost: 127.0.0.1:{world.api.port}\r\n{shown}\r\n".encode())
        async with asyncio.timeout(ANSWER_SECONDS):
            assert b" 401 " in await reader.readline()
        writer.close()


@pytest.mark.parametrize("text", ["", "[[allow]\n", BOTH.replace("join", "jion"), BOTH[:-5]])
async def test_a_faulty_policy_changes_nothing_and_is_told(
    world: AccessWorld, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    await world.form("spy", "b")
    world.policy_path.write_text(text)
    await world.look()
    assert world.files.refused() == {"tokens": False, "policy": True}
    assert (await world.ask("spy", "GET", "/v1/groups/b")).status == 200
    assert "What was read before goes on holding." in caplog.text
    world.policy_path.write_text(ETL_ALONE)
    await world.look()
    assert world.files.refused() == {"tokens": False, "policy": False}
    assert (await world.ask("spy", "GET", "/v1/groups/b")).status == 403


async def test_a_file_that_is_half_written_at_a_look_is_not_used(world: AccessWorld) -> None:
    """Half a file may be a policy of fewer rules, or of a prefix that is shorter."""
    await world.form("spy", "b")
    world.policy_path.write_text(ETL_ALONE)
    await world.watch.look()
    world.policy_path.write_text(BOTH)
    await world.look()
    assert len(await world.member_ids("b")) == 1


async def test_a_folder_that_is_swapped_under_a_link_is_seen(tmp_path: Path) -> None:
    """As Kubernetes swaps a mounted ConfigMap."""
    for name, text in (("one", BOTH), ("two", ETL_ALONE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "access.toml").write_text(text)
    (tmp_path / "data").symlink_to("one")
    (tmp_path / "access.toml").symlink_to("data/access.toml")
    async with open_world(tmp_path, None, ("etl", "spy")) as world:
        world.files = type(world.files)(world.control, (), world.token_path, world.policy_path, no_issuers)
        world.files.load()
        world.watch._files = world.files
        assert (await world.ask("spy", "GET", "/v1/groups/b")).status == 404
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").rename(tmp_path / "data")
        await world.look()
        assert (await world.ask("spy", "GET", "/v1/groups/b")).status == 403
