"""Owners and previews of a group of real members: what is said to come is what comes."""

import time
from pathlib import Path
from typing import Any

import pytest

from rallypoint import BlockingGroupMember, MemberOptions
from tests.end_to_end.service_process import ServiceProcess, running_service

pytestmark = pytest.mark.slow


def member_of(service: ServiceProcess, name: str) -> BlockingGroupMember:
    return BlockingGroupMember(
        MemberOptions(coordinator=service.url, group_id="clicks", topics=("clicks",), client_id=name)
    )


def shares(members: list[dict[str, Any]], key: str) -> list[list[int]]:
    return sorted(member[key].get("clicks", []) for member in members)


def test_a_preview_comes_true_and_every_key_has_its_owner(tmp_path: Path) -> None:
    with running_service(tmp_path, "--group-initial-rebalance-delay-ms", "300") as service:
        assert service.send("PUT", "/v1/topics/clicks", {"partitions": 5})[0] == 200
        first, second = member_of(service, "first"), member_of(service, "second")
        with first:
            alone = first.wait_assigned(30_000)
            status, foretold = service.send("POST", "/v1/groups/clicks/preview", {"join": [{}]})
            assert (status, foretold["assignor"]) == (200, "range"), foretold
            assert foretold["generation_id"] == alone.generation_id
            status, owner = service.send("GET", "/v1/groups/clicks/owner?topic=clicks&key=user-7")
            assert (status, owner["owner"]["member_id"]) == (200, first.member_id)
            with second:
                first.wait_assigned(30_000, newer_than=alone.generation_id)
                second.wait_assigned(30_000)
                _, described = service.send("GET", "/v1/groups/clicks")
                came = [member["assignment"]["partitions"] for member in described["members"]]
                assert shares([{"after": share} for share in came], "after") == shares(foretold["members"], "after")
                owners = {member["member_id"]: member["assignment"]["partitions"] for member in described["members"]}
                for partition in range(5):
                    path = f"/v1/groups/clicks/owner?topic=clicks&partition={partition}"
                    status, owner = service.send("GET", path)
                    assert status == 200
                    assert partition in owners[owner["owner"]["member_id"]]["clicks"]
                    assert owner["generation_id"] == described["generation_id"]
                _, back = service.send("POST", "/v1/groups/clicks/preview", {"leave": [second.member_id]})
                assert back["partitions_moved_count"] == len(owners[second.member_id]["clicks"])
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                _, owner = service.send("GET", "/v1/groups/clicks/owner?topic=clicks&partition=4")
                if owner["owner"] and owner["owner"]["member_id"] == first.member_id:
                    break
                time.sleep(0.05)
            else:
                raise AssertionError(f"the partition of who left came to nobody: {owner}")
        assert "Traceback" not in service.log
