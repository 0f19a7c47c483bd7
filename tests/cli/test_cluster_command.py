"""`rallypoint cluster`: what it shows and changes, and how it ends, against real nodes behind their real API."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rallypoint.cli.cluster.report import summary_lines
from rallypoint.cli.cluster.waits import Progress, drain_progress, move_progress
from rallypoint.cli.main import main
from rallypoint.protocol import admin_messages as admin
from tests.end_to_end.service_process import running_service
from tests.fakes.cluster_api import Nodes, opened
from tests.fakes.cluster_harness import SHARDS
from tests.fakes.manual_clock import settle
from tests.real.parts import free_port

WHERE_A_TOKEN_IS = "--token-file, or RALLYPOINT_TOKEN in the environment, names one that the service knows."
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RALLYPOINT_COORDINATOR", "RALLYPOINT_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@asynccontextmanager
async def running(nodes: Nodes) -> AsyncIterator[None]:
    """Time passes, ten times as fast as outside."""

    async def pass_time() -> None:
        while True:
            await nodes.cluster.clock.run(100)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(pass_time())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def run(*words: str) -> int:
    return await asyncio.to_thread(main, ["cluster", *words])


def url(node_id: str) -> str:
    return f"http://{node_id}"


# --- showing


async def test_it_shows_the_nodes_and_a_summary_of_the_shards(capsys: Captured) -> None:
    async with opened() as nodes:
        first, second = sorted([await nodes.start(), await nodes.start()])
        assert await run("--coordinator", url(second)) == 0
        lines = capsys.readouterr().out.splitlines()
        assert re.split(r"  +", lines[0]) == [
            "NODE", "STATE", "URL", "RACK", "SHARDS", "PREFERRED", "RELEASE", "STARTED",
        ]  # fmt: skip
        for line, node_id in zip(lines[1:3], (first, second), strict=True):
            shown = [node_id, "live", url(node_id), "-", "6", "6", "0"]
            assert re.split(r"  +", line)[:-1] == shown
            assert line.endswith(" d ago")
        assert lines[4] == "12 shards: none without a node, none away from the preferred one"
        assert lines[5].endswith(f"as node {second} sees it")
        assert len(lines) == 6


async def test_it_shows_each_shard_if_asked_to(capsys: Captured) -> None:
    async with opened() as nodes:
        first, second = await nodes.start(), await nodes.start()
        assert await run("--shards", "--coordinator", url(first)) == 0
        lines = capsys.readouterr().out.splitlines()
        at = lines.index(next(line for line in lines if line.startswith("SHARD ")))
        rows = [line.split() for line in lines[at + 1 :]]
        assert [int(row[0]) for row in rows] == list(range(SHARDS))
        assert {int(row[0]) for row in rows if row[1] == second} == nodes.shards_of(second)
        assert all(row[1] == row[2] and {row[2], row[3]} == {first, second} for row in rows)


async def test_json_is_the_answer_of_the_service(capsys: Captured) -> None:
    async with opened() as nodes:
        first = await nodes.start()
        assert await run("--output", "json", "--coordinator", url(first)) == 0
        shown = json.loads(capsys.readouterr().out)
        answer = await nodes.clients[first].request("GET", "/v1/cluster")
        assert shown == answer.json


async def test_what_was_taken_over_is_away_from_its_preferred_node(capsys: Captured) -> None:
    async with opened() as nodes:
        first, second = await nodes.start(), await nodes.start()
        lost = sorted(nodes.shards_of(second))
        assert lost == list(range(6, 12))
        nodes.cluster.contents.run_out(second)
        await settle()
        assert await run("--coordinator", url(first)) == 0
        text = capsys.readouterr().out
        assert "12 shards: none without a node, 6 (6-11) away from the preferred one" in text
        assert re.search(rf"^{re.escape(second)} +gone +- ", text, re.MULTILINE)


def test_shards_without_a_node_are_named() -> None:
    seen = cluster(("n1", "live", 2), owners=(None, None, "n1", "n2", None), registry=None)
    assert summary_lines(seen) == [
        "5 shards: 3 (0-1 4) without a node, 1 (2) away from the preferred one",
        "the topic registry is changed by no node; as node n1 sees it",
    ]


# --- changing


async def test_a_node_is_drained_and_resumed(capsys: Captured) -> None:
    async with opened() as nodes:
        first, second = await nodes.start(), await nodes.start()
        async with running(nodes):
            assert await run("drain", second, "--wait", "--coordinator", url(first)) == 0
            assert capsys.readouterr().out == f"node {second} is drained: it has handed over everything\n"
            assert nodes.shards_of(second) == set()
            assert await run("--output", "json", "resume", second, "--coordinator", url(first)) == 0
            node = json.loads(capsys.readouterr().out)
            assert (node["node_id"], node["state"], node["preferred_shards"]) == (second, "live", 6)
            assert await run("resume", second, "--coordinator", url(first)) == 0
            told = f"node {second} is not drained any more: it gets the 6 shards it is preferred for\n"
            assert capsys.readouterr().out == told


async def test_a_drain_that_is_not_waited_for_says_what_is_left(capsys: Captured) -> None:
    async with opened() as nodes:
        first, second = await nodes.start(), await nodes.start()
        assert await run("--coordinator", url(first), "drain", second) == 0
        assert capsys.readouterr().out == f"node {second} is drained: it has 6 shards to hand over\n"


async def test_a_shard_is_moved(capsys: Captured) -> None:
    async with opened() as nodes:
        first, second = await nodes.start(), await nodes.start()
        shard = min(nodes.shards_of(first))
        async with running(nodes):
            assert await run("move", str(shard), second, "--wait", "--coordinator", url(first)) == 0
            assert capsys.readouterr().out == f"node {second} coordinates shard {shard}\n"
            assert shard in nodes.shards_of(second)


async def test_a_change_that_is_not_done_in_time_ends_with_1(capsys: Captured) -> None:
    async with opened() as nodes:
        first, second = await nodes.start(), await nodes.start()
        shard = min(nodes.shards_of(first))
        nodes.cluster.nodes[first].store.is_cut = True  # it does not hear of the change
        words = ("move", str(shard), second, "--wait", "--timeout-ms", "0", "--coordinator", url(second))
        assert await run(*words) == 1
        said = capsys.readouterr().err
        assert said == f"rallypoint: It is not done after 0 ms: shard {shard} is at node {first!r} yet.\n"


async def test_a_drain_that_nobody_can_follow_is_not_waited_for(capsys: Captured) -> None:
    async with opened() as nodes:
        first = await nodes.start()
        assert await run("drain", first, "--wait", "--coordinator", url(first)) == 1
        assert capsys.readouterr().err == f"rallypoint: There is no node that takes what node {first!r} has.\n"


async def test_a_node_that_is_gone_is_removed(capsys: Captured) -> None:
    async with opened() as nodes:
        first, second = await nodes.start(), await nodes.start()
        assert await run("remove", second, "--coordinator", url(first)) == 1
        assert capsys.readouterr().err == f"rallypoint: Node {second!r} runs. Stop it, then remove it.\n"
        await nodes.stop(second)
        assert await run("remove", second, "--coordinator", url(first)) == 0
        assert capsys.readouterr().out == f"node {second} is removed from the cluster\n"
        assert await run("--output", "json", "--coordinator", url(first)) == 0
        assert [node["node_id"] for node in json.loads(capsys.readouterr().out)["nodes"]] == [first]


# --- whom it asks


async def test_the_next_node_is_asked_where_one_does_not_answer(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as nodes:
        first = await nodes.start()
        dead = f"http://127.0.0.1:{free_port()}"
        monkeypatch.setenv("RALLYPOINT_COORDINATOR", f"{dead},{url(first)}")
        assert await run() == 0
        assert f"as node {first} sees it" in capsys.readouterr().out
        assert await run("--coordinator", dead) == 3
        assert capsys.readouterr().err == (
            f"rallypoint: No node answers. {dead}: no connection: Connection refused. Check --coordinator, and whether"
            " the service runs.\n"
        )


async def test_a_token_is_presented(capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as nodes:
        first = await nodes.start(accepted="rp_operator")
        assert await run("--coordinator", url(first)) == 4
        assert capsys.readouterr().err == f"rallypoint: The request carries no bearer token. {WHERE_A_TOKEN_IS}\n"
        (tmp_path / "token").write_text("rp_operator\n")
        assert await run("--coordinator", url(first), "--token-file", str(tmp_path / "token")) == 0
        monkeypatch.setenv("RALLYPOINT_TOKEN", "rp_operator")
        assert await run("--coordinator", url(first)) == 0
        monkeypatch.setenv("RALLYPOINT_TOKEN", "rp_another")
        capsys.readouterr()
        assert await run("--coordinator", url(first)) == 4
        assert capsys.readouterr().err == f"rallypoint: The service does not know this token. {WHERE_A_TOKEN_IS}\n"


# --- how it ends


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["drain"], "NODE"),
        (["move", "x", "n1"], "'x' is not the number of a shard"),
        (["move", "1"], "NODE"),
        (["stop", "n1"], "invalid choice: 'stop'"),
        (["--output", "yaml"], "invalid choice: 'yaml'"),
        (["drain", "n1", "--timeout-ms", "soon"], "'soon' is not a whole number"),
        (["drain", "n1", "--shards"], "unrecognized arguments: --shards"),
    ],
)
def test_wrong_words_end_with_2(words: list[str], said: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cluster", *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shards", "drain", "n1"], "--shards is for the cluster alone: remove it, or drain"),
        (["drain", "n1", "--timeout-ms", "5"], "--timeout-ms is for --wait: add that"),
        (["--coordinator", "localhost"], "--coordinator: 'localhost' is not a URL like http://127.0.0.1:8000"),
        (["--token-file", "/no/such/file"], "--token-file: /no/such/file cannot be read: No such file or directory."),
    ],
)
def test_wrong_flags_end_with_2_and_a_sentence(words: list[str], said: str, capsys: Captured) -> None:
    assert main(["cluster", *words]) == 2
    assert capsys.readouterr().err == f"rallypoint: {said}\n"


async def test_what_the_service_refuses_ends_with_1(capsys: Captured) -> None:
    async with opened() as nodes:
        first = await nodes.start()
        for words, said in (
            (("drain", "n/9"), "The cluster has no node 'n/9'."),
            (("move", "99", first), "There are 12 shards, numbered from 0."),
        ):
            assert await run(*words, "--coordinator", url(first)) == 1
            assert capsys.readouterr().err == f"rallypoint: {said}\n"


# --- when it is done


def cluster(*nodes: tuple[str, str, int], owners: tuple[str | None, ...] = (), registry: str | None = "n1") -> Any:
    answer = admin.ClusterAnswer(
        node_id="n1",
        registry_owner=registry,
        nodes=tuple(
            admin.ClusterNode(
                node_id=node_id, state=state, url=None, rack=None, release=None, started_at_ms=None,
                shards=shards, preferred_shards=0,
            )
            for node_id, state, shards in nodes
        ),
        shards=tuple(
            admin.ClusterShard(shard=shard, owner=owner, nodes=("n2", "n1")) for shard, owner in enumerate(owners)
        ),
    )  # fmt: skip
    return answer.model_dump(mode="json")


def test_a_drain_is_done_when_the_registry_is_handed_over_too() -> None:
    drained = ("n1", "draining", 0), ("n2", "live", 4)
    assert drain_progress(cluster(*drained, registry="n2"), "n1") == Progress(is_done=True)
    assert drain_progress(cluster(*drained, registry="n1"), "n1") == Progress(
        is_done=False, rest="node 'n1' has 0 shards and the topic registry yet"
    )
    ended = drain_progress(cluster(("n1", "live", 2), ("n2", "live", 2)), "n1")
    assert ended.stuck == "Node 'n1' is not drained: somebody has ended the drain."
    assert "any more" in (drain_progress(cluster(("n2", "live", 4)), "n1").stuck or "")


def test_a_move_is_stuck_where_its_node_cannot_take_the_shard() -> None:
    nodes = ("n1", "live", 1), ("n2", "draining", 0)
    stuck = move_progress(cluster(*nodes, owners=("n1",)), 0, "n2").stuck
    assert stuck == "Node 'n2' is draining; it gets shard 0 when it runs and is not drained."
    other = move_progress(cluster(*nodes, owners=("n2",)), 0, "n1").stuck
    assert other == "Somebody has made another node the preferred one of shard 0."
    live = cluster(("n1", "live", 1), ("n2", "live", 0), owners=(None,))
    assert move_progress(live, 0, "n2") == Progress(is_done=False, rest="shard 0 is at no node yet")


# --- as a process


@pytest.mark.slow
def test_the_program_speaks_to_a_service(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        environment = os.environ | {"RALLYPOINT_COORDINATOR": service.url}

        def called(*words: str) -> "subprocess.CompletedProcess[str]":
            command = [sys.executable, "-m", "rallypoint.cli.main", "cluster", *words]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

        shown = called()
        assert shown.returncode == 0, shown.stderr
        assert "50 shards: none without a node" in shown.stdout
        refused = called("drain", "node-1")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith("rallypoint: Node 'node-1' is the only one and cannot be drained")
        with subprocess.Popen(
            [sys.executable, "-m", "rallypoint.cli.main", "cluster", "--shards"],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as unread:  # fmt: skip
            assert unread.stdout is not None
            unread.stdout.close()
            assert unread.stderr is not None
            assert unread.stderr.read() == b""
        assert unread.returncode == 141
