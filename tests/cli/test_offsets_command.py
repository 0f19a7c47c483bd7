"""`rallypoint offsets`, against a real service, and its files."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.cli.calls.failures import UsageError
from rallypoint.cli.main import main
from rallypoint.cli.offsets import files
from rallypoint.cli.offsets.changes import chosen, portions
from rallypoint.cli.offsets.columns import PARTITION_COLUMNS
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.limits import REQUEST_BYTES_MAX
from tests.cli.groups_of_a_service import commit, stable
from tests.fakes.real_api import RealApi

Captured = pytest.CaptureFixture[str]
OFFSETS = st.dictionaries(
    st.text(min_size=1, max_size=5).filter(lambda text: not any("\ud800" <= one <= "\udfff" for one in text)),
    st.dictionaries(st.integers(0, 9), st.integers(0, 2**63 - 1), min_size=1),
    min_size=1,
)


def run(capsys: Captured, *words: str, status: int = 0) -> str:
    assert main(["offsets", *words]) == status
    captured = capsys.readouterr()
    return captured.out if not status else captured.out + captured.err


def offsets_of(api: RealApi, group_id: str) -> dict[str, dict[str, int]]:
    found = api.call("GET", f"/v1/groups/{group_id}").json["offsets"]
    return {topic: {p: one["offset"] for p, one in partitions.items()} for topic, partitions in found.items()}


def test_offsets_are_shown_with_partitions_that_are_not_committed(api: RealApi, capsys: Captured) -> None:
    api.call("PUT", "/v1/topics/clicks", {"partitions": 3, "end_offsets": {"0": 100}})
    commit(api, "etl", {"clicks": {"0": 42}})
    lines = run(capsys, "get", "etl").splitlines()
    assert len(lines) == 4
    assert lines[1].split()[:2] == ["clicks", "0"]
    assert " 42 " in lines[1]
    assert " 58 " in lines[1]
    assert [row["partition"] for row in json.loads(run(capsys, "get", "etl", "-o", "json"))] == [0, 1, 2]


def test_a_reset_is_shown_and_then_made(api: RealApi, capsys: Captured) -> None:
    api.call("PUT", "/v1/topics/clicks", {"partitions": 2, "end_offsets": {"0": 100, "1": 7}})
    commit(api, "etl", {"clicks": {"0": 42, "1": 5}})
    shown = run(capsys, "reset", "etl", "--to-latest")
    assert shown.splitlines()[-1] == "nothing was changed: --execute does it"
    assert offsets_of(api, "etl") == {"clicks": {"0": 42, "1": 5}}
    assert "nothing was changed" not in run(capsys, "reset", "etl", "--to-latest", "--topic", "clicks:0", "--execute")
    assert offsets_of(api, "etl") == {"clicks": {"0": 100, "1": 5}}
    run(capsys, "reset", "etl", "--shift-by", "-3", "--execute")
    assert offsets_of(api, "etl") == {"clicks": {"0": 97, "1": 2}}
    run(capsys, "reset", "etl", "--to-offset", "1", "--execute")
    assert offsets_of(api, "etl") == {"clicks": {"0": 1, "1": 1}}
    run(capsys, "reset", "etl", "--to-earliest", "--topic", "clicks", "--execute")
    assert offsets_of(api, "etl") == {"clicks": {"0": 0, "1": 0}}


def test_offsets_are_reset_to_a_time(api: RealApi, capsys: Captured) -> None:
    api.call("PUT", "/v1/topics/clicks", {"partitions": 1, "end_offsets": {"0": 100}})
    commit(api, "etl", {"clicks": {"0": 42}})
    run(capsys, "reset", "etl", "--to-time=2023-11-14T22:13:20Z", "--execute")
    assert offsets_of(api, "etl") == {"clicks": {"0": 100}}
    assert "OFFSET_NOT_AVAILABLE" in run(capsys, "reset", "etl", "--to-time", "2023-11-13T00:00:00Z", status=1)


def test_a_reset_that_is_refused_for_a_partition_changes_none(api: RealApi, capsys: Captured) -> None:
    api.call("PUT", "/v1/topics/clicks", {"partitions": 2, "end_offsets": {"0": 100}})
    commit(api, "etl", {"clicks": {"0": 42, "1": 5}})
    said = run(capsys, "reset", "etl", "--to-latest", "--execute", status=1)
    assert "1 partition refused: OFFSET_NOT_AVAILABLE for clicks 1. Nothing was changed." in said
    assert offsets_of(api, "etl") == {"clicks": {"0": 42, "1": 5}}


def test_offsets_of_another_group_are_taken_over(api: RealApi, capsys: Captured) -> None:
    commit(api, "etl", {"clicks": {"0": 42, "1": 5}, "views": {"0": 9}})
    commit(api, "copy", {"clicks": {"0": 1}})
    run(capsys, "reset", "copy", "--from-group", "etl", "--topic", "clicks", "--execute")
    assert offsets_of(api, "copy") == {"clicks": {"0": 42, "1": 5}}
    assert "There are no offsets for all" in run(
        capsys, "reset", "copy", "--from-group", "etl", "--topic", "clicks:7", status=1
    )


@pytest.mark.parametrize("form", ["csv", "json"])
def test_what_is_exported_is_imported(api: RealApi, capsys: Captured, tmp_path: Path, form: str) -> None:
    commit(api, "etl", {"clicks": {"0": 42, "11": 5}, "vi\\ews\x1b": {"0": 9}})
    before = offsets_of(api, "etl")
    path = str(tmp_path / "offsets")
    assert run(capsys, "export", "etl", path, "--format", form) == f"wrote 3 offsets of group etl to {path}\n"
    assert all(one.isprintable() or one == "\n" for one in run(capsys, "export", "etl", "--format", form))
    run(capsys, "reset", "etl", "--to-offset", "0", "--execute")
    run(capsys, "import", "etl", path)
    assert offsets_of(api, "etl") != before
    run(capsys, "import", "etl", path, "--execute")
    assert offsets_of(api, "etl") == before
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


def test_offsets_are_deleted_by_topic_and_by_partition(api: RealApi, capsys: Captured) -> None:
    commit(api, "etl", {"clicks": {"0": 42, "1": 5}, "views": {"0": 9}})
    assert "nothing was changed" in run(capsys, "delete", "etl", "--topic", "clicks")
    run(capsys, "delete", "etl", "--topic", "clicks", "--partition", "1", "--execute")
    assert offsets_of(api, "etl") == {"clicks": {"0": 42}, "views": {"0": 9}}
    run(capsys, "delete", "etl", "--topic", "clicks:0", "--topic", "views", "--execute")
    assert api.call("GET", "/v1/groups/etl").json.get("offsets", {}) == {}


@pytest.mark.parametrize("action", [("reset", "--to-offset", "7"), ("delete",)])
@pytest.mark.parametrize("topic", ["clikcs", "clicks:x"])
def test_a_topic_that_the_group_has_not_is_no_success(
    api: RealApi, capsys: Captured, action: tuple[str, ...], topic: str
) -> None:
    commit(api, "etl", {"clicks": {"0": 42}})
    name, *how = action
    for execute in ((), ("--execute",)):
        said = run(capsys, name, "etl", *how, "--topic", topic, *execute, status=1)
        assert said == f"rallypoint: --topic {topic}: the group has committed no offset of such a topic.\n"
    assert offsets_of(api, "etl") == {"clicks": {"0": 42}}


def test_a_topic_that_the_group_has_not_keeps_a_reset_from_the_others(api: RealApi, capsys: Captured) -> None:
    commit(api, "etl", {"clicks": {"0": 42}})
    run(capsys, "reset", "etl", "--to-offset", "7", "--topic", "clicks", "--topic", "nope", "--execute", status=1)
    assert offsets_of(api, "etl") == {"clicks": {"0": 42}}


def test_offsets_that_members_may_read_are_not_deleted(api: RealApi, capsys: Captured) -> None:
    commit(api, "web", {"clicks": {"0": 42}})
    stable(api, "web")
    said = run(capsys, "delete", "web", "--topic", "clicks", "--execute", status=1)
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in said
    assert main(["offsets", "reset", "web", "--to-earliest"]) == 1


def test_a_reset_is_printed_for_curl(api: RealApi, capsys: Captured) -> None:
    line = run(capsys, "reset", "etl", "--to-earliest", "--execute", "--curl")
    assert line.startswith("curl -sS -X POST ")
    assert '"dry_run": false' in line


# --- files


@given(OFFSETS)
def test_offsets_are_found_again_in_either_form(offsets: files.Offsets) -> None:
    assert files.parse(files.csv_text(offsets)) == offsets
    assert files.parse(files.json_text("g", offsets)) == offsets


def test_the_first_topic_may_begin_with_a_brace_and_an_offset_be_negative() -> None:
    for offsets in ({"{a}": {0: 5}}, {" {a,b}": {0: 5}, "z": {1: 2}}, {"t": {0: -1}}):
        assert files.parse(files.csv_text(offsets)) == offsets
        assert files.parse(files.json_text("g", offsets)) == offsets


def test_a_spreadsheets_mark_of_its_encoding_is_no_part_of_a_topic(
    api: RealApi, capsys: Captured, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_bytes(b"\xef\xbb\xbftopic,partition,offset\r\nclicks,0,5\r\n")
    commit(api, "etl", {"clicks": {"0": 1}})
    assert main(["offsets", "import", "etl", str(tmp_path / "x.csv"), "--execute"]) == 0
    assert main(["offsets", "export", "etl"]) == 0
    assert capsys.readouterr().out.endswith("clicks,0,5\n")


def test_a_group_that_is_gone_is_made_of_what_was_exported(api: RealApi, capsys: Captured, tmp_path: Path) -> None:
    commit(api, "etl", {"clicks": {"0": 3, "1": -2}, "orders": {"0": 7}})
    kept = str(tmp_path / "kept.csv")
    assert main(["offsets", "export", "etl", kept]) == 0
    assert main(["delete", "etl", "--execute"]) == 0
    capsys.readouterr()
    assert main(["offsets", "import", "etl", kept]) == 0
    assert "would be made" in capsys.readouterr().err
    assert main(["describe", "etl"]) == 1, "a dry run makes nothing"
    assert main(["offsets", "import", "etl", kept, "--execute", "-o", "jsonl"]) == 0
    assert '"after":0,"clamped":true' in capsys.readouterr().out
    assert main(["offsets", "export", "etl"]) == 0
    assert capsys.readouterr().out == "clicks,0,3\nclicks,1,0\norders,0,7\n"
    assert main(["offsets", "reset", "copy", "--from-group", "etl", "--execute"]) == 0
    assert main(["offsets", "reset", "none", "--to-earliest", "--topic", "clicks"]) == 1, "only an import makes one"


def test_what_kafka_s_own_tool_writes_is_read() -> None:
    assert files.parse('"clicks",0,42\nviews,1,7\n') == {"clicks": {0: 42}, "views": {1: 7}}
    assert files.parse("topic,partition,offset\nclicks,0,42\n") == {"clicks": {0: 42}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no offsets"),
        ("clicks,0\n", "line 1 has 2 fields"),
        ("clicks,0,4\nclicks,0,5\n", "line 2 has a partition that was there before"),
        ("clicks,-1,4\n", "partition is '-1'"),
        ("a\\q,0,4\n", "begins no escape"),
        ("{", "it is not JSON"),
        ('{"offsets": {"a": 3}}', "needs `offsets`"),
        ('{"offsets": {"a": {"0": "x"}}}', "no number from 0"),
        ("a\\UFFFFFFFF,0,1", "begins no escape"),
    ],
)
def test_a_wrong_file_says_where(text: str, said: str, tmp_path: Path, capsys: Captured) -> None:
    with pytest.raises(files.OffsetsFileError, match=said.replace("(", r"\(")):
        files.parse(text)
    (tmp_path / "x").write_text(text)
    assert main(["offsets", "import", "g", str(tmp_path / "x"), "--coordinator", "http://127.0.0.1:1"]) == 2
    assert said in capsys.readouterr().err


def test_a_topic_with_a_colon_is_one_name() -> None:
    assert chosen(["a", "b:0,1", "c:d"]) == {"a": None, "b": [0, 1], "c:d": None}
    with pytest.raises(UsageError, match="named twice"):
        chosen(["a", "a:1"])


def test_offsets_go_in_parts_that_the_service_takes() -> None:
    offsets = {"a": dict.fromkeys(range(15_000), 1), "b": {0: 2}}
    parts = list(portions(offsets))
    assert [sum(map(len, part.values())) for part in parts] == [10_000, 5_001]


@pytest.mark.parametrize("letter", ["t", "é"])
def test_a_part_has_no_more_bytes_than_the_service_takes(letter: str) -> None:
    offsets = {f"{letter * 245}{number}": {2**31 - 1: 2**63 - 1} for number in range(10_000)}
    parts = list(portions(offsets))
    assert {topic: partitions for part in parts for topic, partitions in part.items()} == offsets
    for part in parts:
        committed = {topic: {one: {"offset": at} for one, at in there.items()} for topic, there in part.items()}
        body = {"generation_id": -1, "member_id": "", "offsets": committed}
        assert len(json.dumps(body)) <= REQUEST_BYTES_MAX


def test_columns_show_what_the_service_has() -> None:
    assert {column.key for column in PARTITION_COLUMNS} <= set(admin.PartitionListing.model_fields)
