"""A reader follows three nodes on a real etcd, with TLS between all: one is killed, the reader goes on at another, the
node comes back.
"""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.end_to_end.service_process import ServiceProcess
from tests.end_to_end.test_cluster import GROUPS, SHARDS, settled
from tests.end_to_end.three_nodes import make_certificates, three_nodes
from tests.fakes.event_reader import EventReader, Told, read_events

pytestmark = [pytest.mark.etcd, pytest.mark.slow]

QUERY = "?kinds=group_created,offsets_committed&prefix=group-"
WAIT_SECONDS = 30.0
Commit = tuple[str, int]


async def commit_all(nodes: list[ServiceProcess], group_ids: list[str], offset: int) -> None:
    """Each group once, at whichever node coordinates it; a shard that changes hands is waited for."""
    body = {"generation_id": -1, "member_id": "", "offsets": {"clicks": {"0": {"offset": offset}}}}
    async with asyncio.timeout(WAIT_SECONDS):
        for group_id in group_ids:
            while not await asyncio.to_thread(is_taken, nodes, f"/v1/groups/{group_id}/offsets", body):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


def is_taken(nodes: list[ServiceProcess], path: str, body: Any) -> bool:
    return any(node.send("POST", path, body)[0] == 200 for node in nodes)


def commit_of(told: Told) -> Commit:
    return told.data["group_id"], told.data["offsets"]["clicks"]["0"]["offset"]


async def commits_until(reader: EventReader, wanted: set[Commit], others: list[Told]) -> list[Commit]:
    """The commits up to the last that is wanted. What else the stream tells goes to `others`."""
    found: list[Commit] = []
    while not wanted <= set(found):
        told = await reader.next(WAIT_SECONDS)
        assert told is not None
        if told.kind == "offsets_committed":
            found.append(commit_of(told))
        elif told.kind != "group_created":
            others.append(told)
    return found


def said(others: list[Told]) -> list[tuple[str, str, str | None]]:
    return [(one.kind, one.data["node_id"], one.data.get("reason")) for one in others]


async def until_said(reader: EventReader, kind: str, node_id: str, others: list[Told]) -> None:
    others += await reader.until(kind, node_id=node_id)


async def test_a_reader_goes_on_at_another_node_after_a_kill(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path / "certificates")
    shown = aiohttp.TCPConnector(ssl=certificates.authority.client(certificates.client))
    with three_nodes(tmp_path, shards=SHARDS, certificates=certificates) as nodes:
        await asyncio.to_thread(settled, nodes)
        async with aiohttp.ClientSession(connector=shown) as http:
            before, everything = await see_a_kill(nodes, http)
            await go_on_elsewhere(nodes, http, before, everything)
        assert await asyncio.to_thread(nodes[0].stop) == 0
        assert "Unclosed" not in nodes[0].log
        assert "Traceback" not in nodes[0].log + nodes[2].log


async def see_a_kill(nodes: list[ServiceProcess], http: aiohttp.ClientSession) -> tuple[str, list[Commit]]:
    """The cursor of before the kill, and the commits that were told after it."""
    others: list[Told] = []
    async with read_events(http, nodes[0].url, QUERY) as reader:
        assert reader.nodes == ["n0", "n1", "n2"]
        await commit_all(nodes, GROUPS, 1)
        found = await commits_until(reader, {(group_id, 1) for group_id in GROUPS}, others)
        assert sorted(found) == [(group_id, 1) for group_id in GROUPS], "each commit of each node, once"
        assert others == []
        before = reader.cursor
        nodes[1].kill()
        rest = [nodes[0], nodes[2]]
        await commit_all(rest, GROUPS, 2)
        await commit_all(rest, GROUPS, 3)
        wanted = {(group_id, offset) for group_id in GROUPS for offset in (2, 3)}
        found = await commits_until(reader, wanted, others)
        assert sorted(found) == sorted(wanted)
        for group_id in GROUPS:
            assert [offset for one, offset in found if one == group_id] == [2, 3]
        if ("gap", "n1", "node_gone") not in said(others):
            await until_said(reader, "gap", "n1", others)
        assert said(others) == [
            ("node_lost", "n1", "unreachable"),
            ("node_lost", "n1", "gone"),
            ("gap", "n1", "node_gone"),
        ]
        return before, found


async def go_on_elsewhere(
    nodes: list[ServiceProcess], http: aiohttp.ClientSession, before: str, told: list[Commit]
) -> None:
    others: list[Told] = []
    async with read_events(http, nodes[2].url, QUERY, headers={"Last-Event-ID": before}) as reader:
        assert reader.nodes == ["n0", "n2"]
        found = await commits_until(reader, set(told), others)
        assert sorted(found) == sorted(told)
        for group_id in GROUPS:
            assert [offset for one, offset in found if one == group_id] == [2, 3]
        assert said(others) == [("gap", "n1", "node_gone")]
        others.clear()
        await asyncio.to_thread(nodes[1].start)
        await until_said(reader, "node_followed", "n1", others)
        await commit_all(nodes, GROUPS, 4)
        found = await commits_until(reader, {(group_id, 4) for group_id in GROUPS}, others)
        assert sorted(found) == [(group_id, 4) for group_id in GROUPS]
        assert said(others) == [("node_followed", "n1", None)]
        cursor = reader.cursor
    # At the node that is new, with a cursor of another one.
    await commit_all(nodes, GROUPS, 5)
    async with read_events(http, nodes[1].url, QUERY, headers={"Last-Event-ID": cursor}) as reader:
        others.clear()
        found = await commits_until(reader, {(group_id, 5) for group_id in GROUPS}, others)
        assert (sorted(found), others) == ([(group_id, 5) for group_id in GROUPS], [])
