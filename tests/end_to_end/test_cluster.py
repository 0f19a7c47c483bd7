"""Three processes on a real etcd: any of them lists the groups of all, and the command shows and drains them.

With TLS between all of them, etcd included, and a policy on every node, where no test says otherwise.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rallypoint import GroupMember, MemberOptions
from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.member.options import TransportName
from tests.end_to_end.service_process import ServiceProcess
from tests.end_to_end.three_nodes import POLICY, Certificates, make_certificates, three_nodes
from tests.fakes.certificates import Authority, PemFiles
from tests.sizes import in_long

pytestmark = [pytest.mark.etcd, pytest.mark.slow]

GROUPS = [f"group-{number:02}" for number in range(30)]
SHARDS = 12
TOKEN = "rp_of-a-test"
SETTLED_SECONDS = 30.0


def listed(node: ServiceProcess, query: str = "") -> tuple[list[str], list[Any]]:
    status, answer = node.send("GET", f"/v1/groups{query}")
    assert status == 200, answer
    return [group["group_id"] for group in answer["groups"]], answer["unavailable_shards"]


def listed_whole(node: ServiceProcess) -> list[str]:
    """The groups, once the shards that have just changed hands are loaded."""
    until = time.monotonic() + SETTLED_SECONDS
    while (found := listed(node))[1]:
        assert time.monotonic() < until, found
        time.sleep(0.1)
    return found[0]


def settled(nodes: list[ServiceProcess]) -> None:
    """Every node has its share."""
    until = time.monotonic() + SETTLED_SECONDS
    while not all(shard_counts(node) == [4, 4, 4] for node in nodes):
        assert time.monotonic() < until, [shard_counts(node) for node in nodes]
        time.sleep(0.1)
    assert [listed_whole(node) for node in nodes] == [[], [], []]


def shard_counts(node: ServiceProcess) -> list[int]:
    status, answer = node.send("GET", "/v1/cluster")
    return [one["shards"] for one in answer["nodes"]] if status == 200 else []


def commit(nodes: list[ServiceProcess], group_id: str) -> None:
    """A group of a commit alone, at whichever node coordinates it."""
    body = {"generation_id": -1, "member_id": "", "offsets": {"clicks": {"0": {"offset": 7}}}}
    statuses = [node.send("POST", f"/v1/groups/{group_id}/offsets", body)[0] for node in nodes]
    assert sorted(statuses) == [200, 421, 421], statuses


def called(node: ServiceProcess, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"RALLYPOINT_COORDINATOR": node.url, **more}
    command = [sys.executable, "-m", "rallypoint.cli.main", "cluster", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path / "certificates")


def test_any_node_lists_all_and_names_what_it_cannot_ask(tmp_path: Path, certificates: Certificates) -> None:
    with three_nodes(tmp_path, shards=SHARDS, certificates=certificates) as nodes:
        settled(nodes)
        for group_id in GROUPS:
            commit(nodes, group_id)
        for node in nodes:
            assert listed_whole(node) == GROUPS
        own = [listed(node, "?node_only=true")[0] for node in nodes]
        assert sorted(group_id for groups in own for group_id in groups) == GROUPS
        # Within the lease: to the store the node still runs.
        nodes[2].pause()
        found, unavailable = listed(nodes[0])
        nodes[2].resume()
        assert found == sorted(own[0] + own[1])
        assert len(unavailable) == SHARDS // 3
        assert all(
            "node 'n2', which cannot be asked: it gave no answer within 2000 ms" in one["detail"] for one in unavailable
        )
        metrics = nodes[0].metrics()
        assert metrics["rallypoint_live_nodes"] == 3
        assert metrics["rallypoint_shards_owned"] == 4
        assert 0 < metrics["rallypoint_lease_remaining_seconds"] <= 3
        assert metrics['rallypoint_hand_overs_total{outcome="done"}'] >= 8
        assert metrics['rallypoint_storage_info{engine="etcd"}'] == 1


def test_a_node_is_drained_from_the_command_line(tmp_path: Path, certificates: Certificates) -> None:
    shows = certificates.variables()
    with three_nodes(tmp_path, shards=SHARDS, certificates=certificates) as nodes:
        settled(nodes)
        for group_id in GROUPS:
            commit(nodes, group_id)
        drained = called(nodes[1], "drain", "n0", "--wait", **shows)
        assert (drained.returncode, drained.stderr) == (0, "")
        shown = json.loads(called(nodes[2], "--output", "json", **shows).stdout)
        assert [(node["state"], node["shards"]) for node in shown["nodes"]] == [
            ("draining", 0),
            ("live", 6),
            ("live", 6),
        ]
        for node in nodes:
            assert listed_whole(node) == GROUPS
        assert nodes[0].stop() == 0
        assert "Unclosed" not in nodes[0].log, "connections to the other nodes are left open"
        assert called(nodes[1], "remove", "n0", **shows).stdout == "node n0 is removed from the cluster\n"
        assert listed_whole(nodes[1]) == GROUPS
        moved = called(nodes[1], "move", "0", "n2", "--wait", **shows)
        assert (moved.returncode, moved.stdout) == (0, "node n2 coordinates shard 0\n")


@pytest.mark.parametrize("transport", ["channel", in_long("http")])
async def test_members_go_on_without_a_rebalance_when_their_node_is_killed(
    tmp_path: Path, certificates: Certificates, transport: TransportName
) -> None:
    authority, policy = certificates.authority, certificates.policy
    team = authority.sign("team", "spiffe://example.org/team")
    other_team = authority.sign("other-team", "spiffe://example.org/other-team")
    policy.write_text(POLICY + rules_of("team", "over") + rules_of("other-team", "other"))
    with three_nodes(tmp_path, shards=SHARDS, certificates=certificates) as nodes:
        await asyncio.to_thread(settled, nodes)
        options = MemberOptions(
            coordinator=tuple(node.url for node in nodes),
            group_id="over-tls",
            topics=("clicks",),
            transport=transport,
            ca=certificates.authority.ca,
            certificate=team.certificate,
            key=team.key,
        )
        members = [GroupMember(options, partition_counts={"clicks": 4}) for _ in range(2)]
        try:
            for member in members:
                await member.start()
            async with asyncio.timeout(SETTLED_SECONDS):
                held = [await member.wait_assigned() for member in members]
                while {len(one.partitions) for one in held} != {2}:
                    held = [await member.wait_assigned() for member in members]
                    await asyncio.sleep(0.05)
            (owner,) = [node for node in nodes if is_owner(node, "over-tls")]
            await asyncio.to_thread(check_teams, nodes, authority, team, other_team)
            owner.kill()
            for member, one in zip(members, held, strict=True):
                await member.commit(dict.fromkeys(one.partitions, 7))
            assert [member.assignment for member in members] == held
            (other,) = [node for node in nodes if node is not owner and is_owner(node, "over-tls")]
            status, described = other.send("GET", "/v1/groups/over-tls")
            assert (status, described["generation_id"]) == (200, held[0].generation_id)
            left = [node for node in nodes if node is not owner]
            await asyncio.to_thread(check_teams, left, authority, team, other_team)
            policy.write_text(POLICY + rules_of("other-team", "other"))
            await asyncio.to_thread(wait_until_removed, other, "over-tls")
            for node in left:
                await asyncio.to_thread(wait_until_blind, replace(node, client=authority.client(team)))
        finally:
            await asyncio.gather(*(member.close() for member in members))


def rules_of(team: str, prefix: str) -> str:
    """All rights on what has the prefix, and on the topic that all teams read."""
    who, on = f"cert:spiffe://example.org/{team}", f'"group:{prefix}*", "topic:clicks"'
    return f'\n[[allow]]\nwho = ["{who}"]\nmay = ["*"]\non = [{on}]\n'


def check_teams(nodes: list[ServiceProcess], authority: Authority, team: PemFiles, other_team: PemFiles) -> None:
    """Whichever node is asked, each team gets what is its own, from all nodes, and the other learns nothing."""
    until = time.monotonic() + SETTLED_SECONDS
    for node in nodes:
        own, other = (replace(node, client=authority.client(shown)) for shown in (team, other_team))
        while listed_whole(own) != ["over-tls"]:  # after a kill another node loads it first
            assert time.monotonic() < until
            time.sleep(0.1)
        assert listed_whole(other) == []
        look_up = "/v1/coordinator?group_id=over-tls"
        (found,) = own.send("GET", look_up)[1]["coordinators"]
        assert (found["error_name"], found["url"] in {one.url for one in nodes}) == ("NONE", True)
        (refused,) = other.send("GET", look_up)[1]["coordinators"]
        assert (refused["error_name"], refused["url"]) == ("GROUP_AUTHORIZATION_FAILED", None)
        expected = 200 if found["url"] == node.url else 421
        assert own.send("GET", "/v1/groups/over-tls")[0] == expected
        for group_id in ("over-tls", "over-none"):
            status, answer = other.send("GET", f"/v1/groups/{group_id}")
            assert (status, answer["error_name"]) == (403, "GROUP_AUTHORIZATION_FAILED")
        assert own.send("GET", "/v1/cluster")[0] == 403


def wait_until_removed(node: ServiceProcess, group_id: str) -> None:
    """The members' caller has lost its right, and so they are out of the group."""
    until = time.monotonic() + SETTLED_SECONDS
    while (answer := node.send("GET", f"/v1/groups/{group_id}"))[1].get("members") != []:
        assert time.monotonic() < until, answer
        time.sleep(0.1)


def wait_until_blind(node: ServiceProcess) -> None:
    """The node has read the policy again, too: who asks has no right any more."""
    until = time.monotonic() + SETTLED_SECONDS
    while listed(node)[0]:
        assert time.monotonic() < until
        time.sleep(0.1)


def is_owner(node: ServiceProcess, group_id: str) -> bool:
    status, answer = node.send("GET", f"/v1/groups/{group_id}")
    assert status in {200, 421}, answer
    return status == 200


def test_nodes_with_tokens_present_one_to_each_other(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    options = ("--tokens", hash_token(TOKEN), "--cluster-token-file", str(tmp_path / "token"))
    with three_nodes(tmp_path, *options, shards=SHARDS) as nodes:
        until = time.monotonic() + SETTLED_SECONDS
        shown: list[int] = []
        while shown != [4, 4, 4] and time.monotonic() < until:
            answer = called(nodes[0], "--output", "json", RALLYPOINT_TOKEN=TOKEN)
            shown = [node["shards"] for node in json.loads(answer.stdout)["nodes"]]
        assert shown == [4, 4, 4]
        for node in nodes:
            while missing := what_is_missing(node):
                assert time.monotonic() < until, missing
                time.sleep(0.1)
            assert "cluster_token_file" not in node.log


def what_is_missing(node: ServiceProcess) -> Any:
    request = urllib.request.Request(f"{node.url}/v1/groups", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=30) as page:
        return json.load(page)["unavailable_shards"]
