"""One node by the size of its store, with two groups: that it measures what its row says."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench import report, scale
from bench.connection import Connection, Frames
from bench.machine import look_around
from bench.metrics import is_right
from bench.plan import Plan, serving
from rallypoint.coordinator.core import records as r
from rallypoint.protocol.operations import FETCH, path_of

SMALL = Plan(seconds=0.5, sizes=(1,), at_rest=1, rounds=1, directory=Path())


@pytest.mark.slow  # starts the service three times
async def test_a_size_has_its_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = await scale.measure_scale(replace(SMALL, directory=tmp_path), 2)
    assert is_right(found), found.first_errors
    assert (found.members, found.groups, found.partitions, found.offsets) == (20, 2, 400, 400)
    assert 40 <= found.light_requests <= 60, "100 a second, for half a second"
    assert found.rss_bytes > 2**24
    assert found.load_cpu_s > 0
    assert found.longest_loading_ms > 0
    assert "20 members: building the store" in capsys.readouterr().err, "it says how far it is"
    document = report.scale_markdown(look_around(tmp_path), [found])
    assert "| 20 | 2 | 400 | 400 | " in document
    assert ", aiohttp " in document


@pytest.mark.slow  # starts a service twice
async def test_the_store_has_the_members_and_offsets_of_its_row(tmp_path: Path) -> None:
    built = await scale._build(tmp_path, 2)
    async with serving(tmp_path) as server:
        connection = await Connection.open(server.host, server.port)
        frames = Frames(server.host, server.port)
        for group_id in built.group_ids:
            described = (await connection.exchange(frames.get(f"/v1/groups/{group_id}"))).json()
            fetched = (await connection.exchange(frames.get(path_of(FETCH, group_id=group_id)))).json()
            assert (described["state"], described["generation_id"], len(described["members"])) == ("Stable", 1, 10)
            assert [len(offsets) for offsets in fetched["offsets"].values()] == [200]
        connection.close()


@pytest.mark.slow  # starts the service three times
async def test_groups_that_are_not_served_fail_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = scale._records

    def without_members(group_id: str, topic: str) -> Iterator[r.Record]:
        return (record for record in records(group_id, topic) if not isinstance(record, r.MemberRecord))

    monkeypatch.setattr(scale, "_records", without_members)
    found = await scale.measure_scale(replace(SMALL, directory=tmp_path), 2)
    assert not is_right(found)
    assert "coordinator-not-available" in found.first_errors[0], "the leader is missing, so the group is shut off"
