"""The service over the real file: many groups at once, a clean restart, and a kill -9 in the middle of the work."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from rallypoint.coordinator.storage.contract import AppendMetrics
from rallypoint.coordinator.storage.sqlite import SqliteStore
from rallypoint.protocol import messages as m
from tests.fakes.service_harness import SHARDS, ServiceHarness, commit, committed, heartbeat, sync

SERVER = """
import asyncio, sys
from pathlib import Path
from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.runtime.event_loop.clock import SystemClock
from rallypoint.coordinator.storage.sqlite import SqliteStore
from rallypoint.protocol import messages as m
from tests.fakes.service_harness import ServiceHarness, commit, join, sync

async def commit_for_ever(harness, group_id, member_id):
    offset = 0
    while True:
        answer = await harness.service.call(group_id, commit(offset, member_id, 1), host="h")
        assert isinstance(answer, m.CommitAnswer), answer
        print(group_id, member_id, offset, flush=True)
        offset += 1

async def form(harness, group_id):
    refused = await harness.service.call(group_id, join("a", ""), host="h")
    joined = await harness.service.call(group_id, join("a", refused.member_id), host="h")
    share = m.SyncAssignment(member_id=refused.member_id)
    await harness.service.call(group_id, sync(refused.member_id, joined.generation_id, (share,)), host="h")
    return refused.member_id

async def main():
    harness = await ServiceHarness(store=await SqliteStore.open(Path(sys.argv[1])), clock=SystemClock()).start()
    members = {group_id: await form(harness, group_id) for group_id in ("g0", "g1", "g2", "g3", "g4")}
    await asyncio.gather(*(commit_for_ever(harness, group_id, member_id) for group_id, member_id in members.items()))

asyncio.run(main())
"""


def run_and_kill(path: Path) -> dict[str, tuple[str, int]]:
    """What a server acknowledged before it was killed: group to member and last offset."""
    command = [sys.executable, "-c", SERVER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        lines = [server.stdout.readline() for _ in range(500)]
        os.kill(server.pid, signal.SIGKILL)
        lines += server.stdout.readlines()
    assert server.returncode == -signal.SIGKILL
    acknowledged: dict[str, tuple[str, int]] = {}
    for line in lines:
        if line.endswith("\n"):
            group_id, member_id, offset = line.split()
            acknowledged[group_id] = member_id, int(offset)
    return acknowledged


async def test_after_a_kill_commits_and_assignments_are_there_and_live_members_go_on(tmp_path: Path) -> None:
    acknowledged = run_and_kill(tmp_path / "store.db")
    assert set(acknowledged) == {"g0", "g1", "g2", "g3", "g4"}
    store = await SqliteStore.open(tmp_path / "store.db")
    harness = await ServiceHarness(store=store).start()
    for group_id, (member_id, offset) in acknowledged.items():
        assert isinstance(await harness.service.call(group_id, heartbeat(member_id, 1), host="h"), m.HeartbeatAnswer)
        assert isinstance(await harness.service.call(group_id, sync(member_id, 1), host="h"), m.SyncAnswer)
        stands = (await committed(harness, group_id))[0]
        assert offset <= stands <= offset + 1, "nothing acknowledged is lost, and at most the one under way is added"
        assert isinstance(
            await harness.service.call(group_id, commit(offset + 1, member_id, 1), host="h"), m.CommitAnswer
        )
    await harness.service.drain()
    await store.close()


async def test_commits_of_many_groups_share_a_sync_and_outlive_a_clean_restart(tmp_path: Path) -> None:
    append_metrics: list[AppendMetrics] = []
    store = await SqliteStore.open(tmp_path / "store.db", on_append=append_metrics.append)
    harness = await ServiceHarness(store=store).start()
    names = [f"group-{number}" for number in range(100)]
    tasks = [harness.ask(name, commit(number)) for number, name in enumerate(names)]
    for task in tasks:
        assert isinstance(await task, m.CommitAnswer)
    assert sum(figure.writes for figure in append_metrics) == 202 + SHARDS, (
        "a header and an offset for each group, the layout, the format, and when each shard is served"
    )
    assert len(append_metrics) <= 10
    await harness.service.drain()
    await store.close()

    again = await SqliteStore.open(tmp_path / "store.db")
    after = await ServiceHarness(store=again).start()
    assert {name: (await committed(after, name))[0] for name in names} == {
        name: number for number, name in enumerate(names)
    }
    assert after.service.view.summaries.keys() == set(names)
    await after.service.drain()
    await again.close()
