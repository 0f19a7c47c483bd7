"""Commands that look, against a real service."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rallypoint.cli.calls.failures import CallFailed
from rallypoint.cli.look.groups import GROUP_COLUMNS, groups_view, totals_line
from rallypoint.cli.look.members import MEMBER_COLUMNS
from rallypoint.cli.main import main
from rallypoint.cli.output.view import Form
from rallypoint.cli.output.writing import table_lines
from rallypoint.cli.topics.command import TOPIC_COLUMNS
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from tests.cli.groups_of_a_service import commit, join, stable
from tests.end_to_end.service_process import running_service
from tests.fakes.real_api import RealApi

Captured = pytest.CaptureFixture[str]


def out(capsys: Captured, *words: str, status: int = 0) -> str:
    assert main(list(words)) == status
    captured = capsys.readouterr()
    assert captured.err == "" or status
    return captured.out


def cells(line: str) -> list[str]:
    return re.split(r"  +", line.strip())


def test_groups_are_listed(api: RealApi, capsys: Captured) -> None:
    assert (
        out(capsys, "groups") == out(capsys, "groups", "--sort", "lag", "--limit", "3") == "There are no groups yet.\n"
    )
    assert out(capsys, "groups", "--prefix", "x") == "There are no such groups.\n"
    api.call("PUT", "/v1/topics/clicks", {"partitions": 2, "end_offsets": {"0": 100, "1": 2_000}})
    commit(api, "etl", {"clicks": {"0": 42, "1": 7}})
    stable(api, "web", topic="views")
    lines = out(capsys, "groups").splitlines()
    assert cells(lines[0])[:6] == ["GROUP", "STATE", "STATUS", "MEMBERS", "LAG", "LAST COMMIT"]
    assert cells(lines[1])[:2] == ["etl", "Empty"]
    assert "2,051" in lines[1]
    assert cells(lines[2])[:2] == ["web", "Stable"]
    assert out(capsys, "groups", "-o", "name", "--lag", ">2050") == "etl\n"
    assert out(capsys, "groups", "-o", "name", "--lag", ">=2052") == ""
    assert out(capsys, "groups", "-o", "name", "--topic", "views") == "web\n"
    assert out(capsys, "groups", "-o", "name", "--sort", "group_id", "-r") == "web\netl\n"
    assert out(capsys, "groups", "-o", "name", "--search", "WE") == "web\n"
    assert out(capsys, "groups", "-o", "name", "--limit", "1") == "etl\n"
    assert [row["group_id"] for row in json.loads(out(capsys, "groups", "-o", "json"))] == ["etl", "web"]
    assert out(capsys, "groups", "-o", "csv").splitlines()[1].startswith("etl,Empty,")
    assert "2 of 2 groups with 1 member; lag 2,051" in out(capsys, "groups", "--totals")


def test_a_hostile_id_does_not_reach_the_terminal(api: RealApi, capsys: Captured) -> None:
    commit(api, "a%1B%5D0%3Bx%07%E2%80%AEb", {"t": {"0": 1}})
    for form in ("table", "wide", "json", "jsonl", "csv", "name"):
        text = out(capsys, "groups", "-o", form)
        assert text.replace("\n", "").isprintable()
    assert out(capsys, "groups", "-o", "name") == "a\\x1b]0;x\\x07\\u202eb\n"


def test_a_request_is_printed_in_place_of_the_list(api: RealApi, capsys: Captured) -> None:
    text = out(capsys, "groups", "--state", "Stable", "--curl")
    assert text == f"curl -sS '{api.url}/v1/groups?limit=1000&state=Stable'\n"


def test_members_and_what_each_owns(api: RealApi, capsys: Captured) -> None:
    member_id = stable(api, "web", partitions=(0, 1, 2, 5))
    lines = out(capsys, "members", "web").splitlines()
    assert cells(lines[1])[0] == member_id
    assert lines[1].endswith("clicks 0-2 5")
    assert out(capsys, "members", "web", "-o", "name") == f"{member_id}\n"
    assert main(["members", "none"]) == 1
    assert "none" in capsys.readouterr().err


def test_a_group_s_worst_partitions_are_found_among_thousands(api: RealApi, capsys: Captured) -> None:
    ends = {str(number): 5 for number in range(2_500)} | {"2400": 9_000}
    api.call("PUT", "/v1/topics/clicks", {"partitions": 2_500, "end_offsets": ends})
    commit(api, "etl", {"clicks": dict.fromkeys(ends, 3)})
    lines = out(capsys, "describe", "etl").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("TOPIC")) + 1
    assert cells(lines[first])[:2] == ["clicks", "2,400"]
    assert "8,997" in lines[first]
    assert cells(lines[first + 1])[:2] == ["clicks", "0"]
    assert lines[-1] == "and 2,450 partitions more: `rallypoint offsets get`"


def test_who_is_awaited(api: RealApi, capsys: Captured) -> None:
    first = stable(api, "web")
    assert out(capsys, "awaited", "web") == "The group is Stable and waits for nobody.\n"
    join(api, "web", "late")
    text = out(capsys, "awaited", "web")
    assert first in text.splitlines()[1]
    assert "to join " in text
    assert "Rebalance 2 began " in text
    assert first in out(capsys, "awaited", "web", "-o", "name")


def test_topics_are_listed_set_and_deleted(api: RealApi, capsys: Captured) -> None:
    words = ("topics", "set", "clicks", "--partitions", "3", "--end", "0=100")
    assert out(capsys, *words) == (
        "topic clicks would be registered with 3 partitions, and 1 end would be reported\n"
        "nothing was changed: --execute does it\n"
    )
    assert out(capsys, "topics") == "There are no such topics in the registry.\n"
    assert out(capsys, *words, "--execute") == "topic clicks has 3 partitions\n"
    assert cells(out(capsys, "topics").splitlines()[1])[:2] == ["clicks", "3"]
    assert "would grow from 3 to 5 partitions" in out(capsys, "topics", "set", "clicks", "--partitions", "5")
    assert main(["topics", "set", "clicks", "--partitions", "2"]) == 1
    assert main(["topics", "set", "new"]) == 2
    assert main(["topics", "delete", "new"]) == 1
    capsys.readouterr()
    commit(api, "etl", {"clicks": {"0": 1}})
    text = out(capsys, "topics", "describe", "clicks")
    assert text.splitlines()[:4] == ["topic       clicks", "partitions  3", "records     100", "groups      1"]
    assert out(capsys, "topics", "describe", "clicks", "-o", "name") == "etl\n"
    assert out(capsys, "topics", "delete", "clicks").startswith(
        "topic clicks would go, with its 3 partitions, and its committed offsets in 1 group"
    )
    assert out(capsys, "topics", "-o", "name") == "clicks\n"
    assert out(capsys, "topics", "delete", "clicks", "--execute").startswith("topic clicks is gone")
    assert out(capsys, "topics", "-o", "name") == ""


class Pages:
    """A client whose list has these pages."""

    def __init__(self, *pages: dict[str, Any]) -> None:
        self.found = pages

    def pages(self, *_: Any, **__: Any) -> Any:
        return iter(self.found)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (
            {"unavailable_shards": [{"shard": 7, "detail": "Shard 7 is\x1b loaded."}]},
            r"The list lacks the groups of 1 shard (7): Shard 7 is\x1b loaded.",
        ),
        (
            {"damaged_groups": [{"group_id": "x", "detail": "A record is cut."}]},
            "The list lacks 1 damaged group (x): A record is cut.",
        ),
    ],
)
def test_a_list_that_lacks_groups_fails_behind_its_rows(page: dict[str, Any], said: str) -> None:
    client: Any = Pages({"groups": [{"group_id": "a"}], **page}, {"groups": [{"group_id": "b"}]})
    rows = iter(groups_view(client, {}, None).rows)
    assert [next(rows)["group_id"], next(rows)["group_id"]] == ["a", "b"]
    with pytest.raises(CallFailed) as failed:
        next(rows)
    assert str(failed.value) == said


def test_nobody_who_answers_ends_with_3(api: RealApi, capsys: Captured) -> None:
    assert main(["groups", "--coordinator", "http://127.0.0.1:1"]) == 3
    assert "No node answers. http://127.0.0.1:1: no connection: Connection refused." in capsys.readouterr().err


def test_a_list_is_watched_until_ctrl_c(api: RealApi) -> None:
    commit(api, "etl", {"t": {"0": 1}})
    command = [sys.executable, "-m", "rallypoint.cli.main", "groups", "-o", "name", "--watch", "50ms"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert watching.stdout.readline() == "etl\n"
        commit(api, "web", {"t": {"0": 1}})
        while watching.stdout.readline() != "web\n":
            pass
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20) == 130
        assert watching.stderr.read() == ""


def test_columns_show_what_the_service_has() -> None:
    for columns, model in (
        (GROUP_COLUMNS, admin.GroupListing), (TOPIC_COLUMNS, m.Topic), (MEMBER_COLUMNS, admin.DescribedMember),
    ):  # fmt: skip
        assert {column.key for column in columns if column.of is None} <= set(model.model_fields), model


def test_totals_are_a_sentence() -> None:
    totals = {"group_count": 9, "matching_count": 2, "by_state": {"Stable": 2, "Empty": 0}, "by_status": {"OK": 1},
              "lag": 5, "member_count": 3}  # fmt: skip
    assert totals_line(totals) == "2 of 9 groups with 3 members; lag 5; 2 Stable; 1 OK"


@pytest.mark.parametrize(
    "line",
    ["why g -n 0", "why g -n -5", "groups -w 0s", "groups -w 99999999999d", "groups --request-timeout-ms 0"],
)
def test_a_number_that_makes_no_sense_is_a_usage_error(line: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2


def test_a_group_behind_the_flag_for_watching_is_told_from_a_time(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["describe", "-w", "billing"])
    assert "'billing' is no duration" in (said := capsys.readouterr().err)
    assert "if it is a name, put it before the flag" in said


def test_no_other_service_is_asked_where_a_script_names_none(capsys: Captured) -> None:
    assert main(["groups", "--coordinator", ""]) == 2
    assert "--coordinator is empty" in capsys.readouterr().err


def test_who_watches_sees_the_service_go_and_come_back(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        commit_one = {"generation_id": -1, "member_id": "", "offsets": {"t": {"0": {"offset": 1}}}}
        assert service.send("POST", "/v1/groups/etl/offsets", commit_one)[0] == 200
        words = ["groups", "-o", "name", "--watch", "50ms", "--coordinator", service.url]
        command = [sys.executable, "-m", "rallypoint.cli.main", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            assert watching.stderr is not None
            assert watching.stdout.readline() == "etl\n"
            service.kill()
            assert "No node answers." in watching.stderr.readline()
            service.start()
            assert service.send("POST", "/v1/groups/web/offsets", commit_one)[0] == 200
            while (line := watching.stdout.readline()) != "web\n":
                assert line, "it ended"
            watching.send_signal(signal.SIGINT)
            watching.stdout.read()
            watching.stderr.read()
            assert watching.wait(20) == 130


def test_the_groups_fit_a_narrow_terminal() -> None:
    row = {"group_id": "a-group-with-a-long-name", "state": "PreparingRebalance", "status": "WARN", "member_count": 20,
           "lag": 1200, "last_commit_at_ms": 0, "last_rebalance_at_ms": 0, "topics": ["clicks"]}  # fmt: skip
    for columns in (50, 60, 80):
        lines = list(table_lines(GROUP_COLUMNS, [row], Form("table", columns, colour=False, now_ms=9_000)))
        assert max(map(len, lines)) <= columns
