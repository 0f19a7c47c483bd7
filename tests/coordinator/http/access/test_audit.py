"""The audit log: a line for each change of an operator and each refusal, whatever clients write, and never a secret."""

import asyncio
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rallypoint.coordinator.http.access.audit import (
    COMMITS_WINDOW_MS,
    REFUSALS_MAX,
    REFUSALS_OF_ADDRESS_MAX,
    TEXT_LENGTH_MAX,
    WINDOW_MS,
    Audit,
    AuditFile,
)
from rallypoint.coordinator.runtime.service import Service
from tests.fakes.access_world import NOW_MS, AccessWorld, bearer, open_world
from tests.fakes.channel_client import beat_body, join_body, open_channel

POLICY = """\
[[allow]]
who = ["token:ops"]
may = ["*"]
on = ["group:clicks*", "topic:*", "cluster"]
"""


def told(world: AccessWorld) -> list[tuple[str, str, str, str]]:
    return [(line["principal"], line["operation"], line["resource"], line["outcome"]) for line in world.lines]


async def test_changes_of_operators_have_a_line_and_calls_of_members_have_none(tmp_path: Path) -> None:
    async with open_world(tmp_path, POLICY, ("ops",)) as world:
        joined = await world.form("ops", "clicks")
        await world.ask("ops", "POST", "/v1/groups/clicks/heartbeat", beat_body(joined))
        await world.ask("ops", "GET", "/v1/groups/clicks")
        assert world.lines == []
        headers = {"X-Request-Id": "deploy-7"}
        await world.ask("ops", "PUT", "/v1/groups/clicks/freeze", {"duration_ms": 60_000}, headers)
        await world.ask("ops", "PUT", "/v1/topics/a%0Ab", {"partitions": 2})
        await world.ask("ops", "PUT", "/v1/topics/a%0Ab", {"partitions": 2, "end_offsets": {"0": 5}})
        racks = {"replica_racks": [["a"], ["b"]]}
        for _ in range(2):
            await world.ask("ops", "PUT", "/v1/topics/a%0Ab", {"partitions": 2, "end_offsets": {"0": 5}, **racks})
        await world.ask("ops", "POST", "/v1/groups/clicks/offsets/reset", {"to": "earliest", "dry_run": True})
        await world.ask("ops", "DELETE", "/v1/groups/clicks")
    assert told(world) == [
        ("token:ops", "freeze", "group:clicks", "NONE"),
        ("token:ops", "put_topic", "topic:a\nb", "NONE"),
        ("token:ops", "put_topic", "topic:a\nb", "NONE"),
    ], "no report of end offsets, no dry run, and nothing that was refused for another reason"
    assert world.lines[0] | {"request_id": "deploy-7", "address": "127.0.0.1"} == world.lines[0]
    assert world.lines[0]["time"] == "2027-01-15T08:00:00.000Z"


async def test_a_leave_by_instance_id_is_an_operator_s_and_a_member_s_own_is_not(tmp_path: Path) -> None:
    named = {"members": [{"member_id": "", "group_instance_id": "one"}]}
    async with open_world(tmp_path, POLICY, ("ops",)) as world:
        joined = await world.form("ops", "clicks")
        await world.ask("ops", "POST", "/v1/groups/clicks/leave", {"members": [{"member_id": joined["member_id"]}]})
        assert world.lines == []
        assert (await world.ask("ops", "POST", "/v1/groups/clicks/leave", named)).status == 200
        async with open_channel(world.api.http, world.api.port, headers=bearer("ops")) as channel:
            assert (await channel.call("leave", "clicks", {"members": [{"member_id": "nobody"}]}))[0] == 200
            assert (await channel.call("leave", "clicks", named))[0] == 200
    assert told(world) == [("token:ops", "leave", "group:clicks", "NONE")] * 2


async def test_commits_from_outside_have_a_line_a_minute_and_those_of_members_none(tmp_path: Path) -> None:
    offsets = {"offsets": {"clicks": {"0": {"offset": 5}}}}
    outside = {"generation_id": -1} | offsets
    async with open_world(tmp_path, POLICY, ("ops", "spy")) as world:
        joined = await world.form("ops", "clicks-1")
        assert (
            await world.ask("ops", "POST", "/v1/groups/clicks-1/offsets", beat_body(joined, **offsets))
        ).status == 200
        await world.ask("ops", "POST", "/v1/groups/clicks-1/offsets", outside)  # the group has a member
        assert world.lines == []
        for _ in range(3):
            assert (await world.ask("ops", "POST", "/v1/groups/clicks-2/offsets", outside)).status == 200
        async with open_channel(world.api.http, world.api.port, headers=bearer("ops")) as channel:
            for group_id in ("clicks-2", "clicks-3"):
                assert (await channel.call("commit", group_id, outside))[0] == 200
        world.now_ms += COMMITS_WINDOW_MS
        await world.ask("ops", "POST", "/v1/groups/clicks-2/offsets", outside)
    assert told(world) == [("token:ops", "commit", f"group:clicks-{number}", "NONE") for number in (2, 3, 2)]


async def test_a_change_has_a_line_also_if_its_client_hangs_up(tmp_path: Path) -> None:
    async with open_world(tmp_path, POLICY, ("ops",)) as world:
        names = [f"t{number}" for number in range(20)]
        for name in names:
            await world.ask("ops", "PUT", f"/v1/topics/{name}", {"partitions": 2})
        world.lines.clear()
        for name in names:
            _, writer = await asyncio.open_connection("127.0.0.1", world.api.port)
            host = f"Host: 127.0.0.1:{world.api.port}\r\nAuthorization: Bearer ops\r\n"
            writer.write(f"DELETE /v1/topics/{name} HTTP/1.1\r\n{host}\r\n".encode())
            await asyncio.sleep(0)
            writer.transport.abort()
        there = names
        async with asyncio.timeout(30):
            while len(there) == len(names) or len(there) + len(world.lines) < len(names):
                listed = (await world.ask("ops", "GET", "/v1/topics")).json["topics"]
                there = [topic["name"] for topic in listed]
    assert {line["outcome"] for line in world.lines} <= {"NONE", "UNANSWERED"}
    assert {line["resource"] for line in world.lines} >= {f"topic:{name}" for name in {*names} - {*there}}


OUTSIDE = {"generation_id": -1, "offsets": {"clicks": {"0": {"offset": 5}}}}


@pytest.mark.parametrize(
    ("op", "path", "body"),
    [("commit", "offsets", OUTSIDE), ("leave", "leave", {"members": [{"group_instance_id": "one"}]})],
)
@pytest.mark.parametrize("by", ["http", "channel"])
async def test_a_change_to_a_group_has_a_line_also_if_its_client_hangs_up(
    tmp_path: Path, op: str, path: str, body: Any, by: str
) -> None:
    async with open_world(tmp_path, POLICY, ("ops",)) as world:
        gate = world.store.append_gate
        if op == "leave":
            joined = await world.ask("ops", "POST", "/v1/groups/clicks/join", join_body("", group_instance_id="one"))
            assert joined.status == 200
        gate.shut()
        if by == "http":
            asking = asyncio.create_task(world.ask("ops", "POST", f"/v1/groups/clicks/{path}", body))
            await _until(lambda: gate.waiting == 1)
            asking.cancel()
        else:
            async with open_channel(world.api.http, world.api.port, headers=bearer("ops")) as channel:
                await channel.send(op, "clicks", body)
                await _until(lambda: gate.waiting == 1)
        await _until(lambda: bool(world.lines))
        gate.let_go()
        assert await world.member_ids("clicks") == []
        if op == "commit":
            assert (await world.ask("ops", "GET", "/v1/groups/clicks/offsets")).json["offsets"]["clicks"]
    assert told(world) == [("token:ops", op, "group:clicks", "UNANSWERED")]


async def test_a_dry_run_has_no_line_also_if_its_client_hangs_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hold(*_: object, **__: object) -> None:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    async with open_world(tmp_path, POLICY, ("ops",)) as world:
        body = {"to": "earliest", "dry_run": True}
        with monkeypatch.context() as patch:
            patch.setattr(Service, "call", hold)
            asking = asyncio.create_task(world.ask("ops", "POST", "/v1/groups/clicks/offsets/reset", body))
            async with asyncio.timeout(30):
                await begun.wait()
                asking.cancel()
                await ended.wait()
        await world.ask("ops", "GET", "/v1/groups")
    assert world.lines == []


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.005)


async def test_refusals_have_a_line_over_http_and_on_channels(tmp_path: Path) -> None:
    async with open_world(tmp_path, POLICY, ("ops", "spy")) as world:
        await world.ask("spy", "DELETE", "/v1/groups/clicks")
        await world.ask("guess", "GET", "/v1/groups")
        await world.ask("", "GET", "/v1/nothing")
        await world.ask("ops", "GET", "/v1/topics", headers={"Host": "evil.example.org"})
        beats = {"heartbeats": [{"group_id": "orders", "member_id": "m", "generation_id": 1}]}
        await world.ask("ops", "POST", "/v1/heartbeats", beats)
        await world.ask("ops", "GET", "/v1/coordinator?group_id=orders&group_id=clicks")
        headers = bearer("spy") | {"X-Request-Id": "hand"}
        async with open_channel(world.api.http, world.api.port, headers=headers) as channel:
            await channel.call("join", "clicks", join_body(""))
            await channel.call("coordinator", body={"group_ids": ["orders"]})
        async with open_channel(world.api.http, world.api.port) as channel:
            await channel.call("authenticate", token="guess")
    assert told(world) == [
        ("token:spy", "delete_group", "group:clicks", "GROUP_AUTHORIZATION_FAILED"),
        ("anonymous", "list_groups", "", "SASL_AUTHENTICATION_FAILED"),
        ("anonymous", "unrouted", "", "SASL_AUTHENTICATION_FAILED"),
        ("anonymous", "unrouted", "", "CLUSTER_AUTHORIZATION_FAILED"),
        ("token:ops", "heartbeats", "group:orders", "GROUP_AUTHORIZATION_FAILED"),
        ("token:ops", "coordinator", "group:orders", "GROUP_AUTHORIZATION_FAILED"),
        ("token:spy", "join", "group:clicks", "GROUP_AUTHORIZATION_FAILED"),
        ("token:spy", "coordinator", "group:orders", "GROUP_AUTHORIZATION_FAILED"),
        ("anonymous", "authenticate", "", "SASL_AUTHENTICATION_FAILED"),
    ]
    assert [line["request_id"] for line in world.lines[6:8]] == ["hand/1", "hand/2"]
    assert "guess" not in json.dumps(world.lines)


def test_a_line_is_a_line_whatever_is_in_it() -> None:
    lines: list[str] = []
    audit = Audit(lambda: NOW_MS, lines.append)
    audit.changed("token:a", "192.0.2.1", "freeze", 'group:a"}\n{"principal": "token:root\r\u2028\x1b[31m', None)
    audit.changed("cert:" + "x" * 5_000, "192.0.2.1", "freeze", "group:" + "y" * 5_000, "z" * 5_000)
    assert all(line.isascii() and line.isprintable() for line in lines)
    first, second = map(json.loads, lines)
    assert first["principal"] == "token:a"
    assert all(len(value) <= TEXT_LENGTH_MAX + 1 for value in second.values())


def test_a_flood_of_refusals_is_counted_and_hides_no_change() -> None:
    lines: list[str] = []
    now_ms = [NOW_MS]
    audit = Audit(lambda: now_ms[0], lines.append)
    for number in range(1_000):
        audit.refused("anonymous", "192.0.2.1", "join", f"group:{number}", "SASL_AUTHENTICATION_FAILED", None)
    assert len(lines) == REFUSALS_OF_ADDRESS_MAX
    audit.refused("anonymous", "192.0.2.2", "join", "group:a", "SASL_AUTHENTICATION_FAILED", None)
    assert len(lines) == REFUSALS_OF_ADDRESS_MAX + 1, "another address has lines of its own"
    for number in range(1_000):
        audit.refused("anonymous", f"198.51.100.{number % 250}", "join", "group:a", "SASL_AUTHENTICATION_FAILED", None)
    assert len(lines) == REFUSALS_MAX
    audit.changed("token:ops", "192.0.2.1", "freeze", "group:a", None)
    assert len(lines) == REFUSALS_MAX + 1
    now_ms[0] += WINDOW_MS
    audit.flush()
    left_out = json.loads(lines[-1])
    assert (left_out["outcome"], left_out["count"]) == ("REFUSALS_LEFT_OUT", 2_001 - REFUSALS_MAX)


def test_a_wall_clock_that_is_put_back_leaves_no_line_out() -> None:
    lines: list[str] = []
    now_ms = [NOW_MS]
    audit = Audit(lambda: now_ms[0], lines.append)
    for _ in range(2):
        for _ in range(REFUSALS_OF_ADDRESS_MAX):
            audit.refused("anonymous", "192.0.2.1", "join", "group:a", "SASL_AUTHENTICATION_FAILED", None)
        audit.committed("token:ops", "192.0.2.1", "commit", "a", None)
        now_ms[0] -= 3_600_000
    assert len(lines) == 2 * (REFUSALS_OF_ADDRESS_MAX + 1)


def test_lines_go_to_the_log_without_a_file(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rallypoint.audit"):
        Audit(lambda: NOW_MS).changed("token:ops", "192.0.2.1", "freeze", "group:a", None)
    assert json.loads(caplog.messages[0])["operation"] == "freeze"


def test_the_file_is_only_appended_to_and_followed_when_it_is_renamed(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("before\n")
    file = AuditFile(path)
    file.write("one")
    path.rename(tmp_path / "audit.log.1")
    file.write("two")
    file.follow()
    file.write("three")
    file.close()
    assert (tmp_path / "audit.log.1").read_text() == "before\none\ntwo\n"
    assert path.read_text() == "three\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_written_goes_to_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = AuditFile(tmp_path / "audit.log")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, file._file)
    os.close(full)
    with caplog.at_level(logging.INFO):
        file.write("one")
        file.write("two")
    file.close()
    assert [record.getMessage() for record in caplog.records if record.name == "rallypoint.audit"] == ["one", "two"]
    assert sum("cannot be written" in message for message in caplog.messages) == 1
