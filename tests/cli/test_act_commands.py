"""Commands that act on a group, wait for it and judge it, against a real service."""

import argparse
import json
from typing import Any

import pytest

from rallypoint.cli.look.conditions import Condition
from rallypoint.cli.main import main
from rallypoint.cli.until.check import judged, nagios_line, prometheus_lines
from rallypoint.cli.until.wait import missing
from tests.cli.groups_of_a_service import commit, join, stable
from tests.fakes.real_api import RealApi

Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, *words: str, status: int = 0) -> str:
    assert main(list(words)) == status
    captured = capsys.readouterr()
    return captured.out if not status else captured.out + captured.err


def test_a_member_is_kicked(api: RealApi, capsys: Captured) -> None:
    member_id = stable(api, "web")
    assert run(capsys, "kick", "web", member_id) == (
        f"{member_id}: would be removed\nnothing was changed: --execute does it\n"
    )
    assert run(capsys, "members", "web", "-o", "name") == f"{member_id}\n"
    assert f"{member_id}: removed" in run(capsys, "kick", "web", member_id, "--execute", "--reason", "it hangs")
    assert run(capsys, "members", "web", "-o", "name") == ""
    assert "knows no member" in run(capsys, "kick", "web", member_id, "--execute", status=1)


def test_a_group_is_deleted(api: RealApi, capsys: Captured) -> None:
    commit(api, "etl", {"clicks": {"0": 1, "1": 2}})
    assert run(capsys, "delete", "etl").startswith("group etl would go, with the committed offsets of 2 partitions")
    assert run(capsys, "groups", "-o", "name") == "etl\n"
    assert run(capsys, "delete", "etl", "--execute") == "group etl is gone, with its committed offsets\n"
    assert run(capsys, "groups", "-o", "name") == ""
    stable(api, "web")
    assert "would not be deleted" in run(capsys, "delete", "web", status=1)
    run(capsys, "delete", "web", "--execute", status=1)


def test_a_group_is_frozen_and_thawed(api: RealApi, capsys: Captured) -> None:
    stable(api, "web")
    assert run(capsys, "freeze", "web", "--for", "90s", "--reason", "deploy").startswith("group web is frozen for ")
    assert run(capsys, "groups", "--frozen", "-o", "name") == "web\n"
    assert json.loads(run(capsys, "freeze", "web", "-o", "json"))["frozen_until_ms"] == 1_700_000_000_000 + 300_000
    assert "frozen" in run(capsys, "describe", "web")
    assert run(capsys, "thaw", "web") == "group web is not frozen\n"
    assert run(capsys, "cooldown", "web", "20s") == "group web cools down for 20 s\n"
    assert run(capsys, "cooldown", "web", "--default").endswith("(the service's setting)\n")
    with pytest.raises(SystemExit):
        main(["freeze", "web", "--for", "soon"])


def test_a_rebalance_is_started_and_explained(api: RealApi, capsys: Captured) -> None:
    member_id = stable(api, "web")
    assert run(capsys, "rebalance", "web", "--reason", "new rack") == "rebalance 2 of group web has begun\n"
    assert run(capsys, "rebalance", "web") == "rebalance 2 of group web was under way already\n"
    why = run(capsys, "why", "web")
    assert "#2 at 2023-11-14T22:13:20Z: " in why.splitlines()[0]
    assert "new rack" in why
    assert len(why.splitlines()) == 2
    assert run(capsys, "why", "web", "-n", "1", "-o", "name") == "2\n"
    assert member_id in run(capsys, "awaited", "web")
    commit(api, "etl", {"clicks": {"0": 1}})
    assert run(capsys, "why", "etl") == "The group has not rebalanced yet.\n"
    assert "nothing to rebalance" in run(capsys, "rebalance", "etl")


def test_a_group_is_described(api: RealApi, capsys: Captured) -> None:
    api.call("PUT", "/v1/topics/clicks", {"partitions": 2, "end_offsets": {"0": 100, "1": 7}})
    member_id = stable(api, "web")
    commit_as = {"generation_id": 1, "member_id": member_id, "offsets": {"clicks": {"0": {"offset": 42}}}}
    assert api.call("POST", "/v1/groups/web/offsets", commit_as).status == 200
    text = run(capsys, "describe", "web")
    assert "state       Stable" in text
    assert "assignor    range" in text
    assert member_id in text
    assert "clicks 0-1" in text
    assert " 58 " in text
    assert json.loads(run(capsys, "describe", "web", "-o", "json"))["group_id"] == "web"


def test_a_preview_of_a_group_without_members_says_what_to_name(api: RealApi, capsys: Captured) -> None:
    api.call("PUT", "/v1/topics/clicks", {"partitions": 3})
    commit(api, "idle", {"clicks": {"0": 1}})
    joining = ["preview", "idle", "--join", "2"]
    for words, status, said in (
        (joining, 1, "Nobody in the group subscribes to a topic: name some with --topic.\n"),
        ([*joining, "--topic", "clicks"], 1, "The group has no assignor yet: name one with --assignor.\n"),
        (["preview", "idle", "--topic", "clicks"], 2, "--topic is for those who join: add --join N.\n"),
    ):
        assert main(words) == status
        assert capsys.readouterr().err == f"rallypoint: {said}"
    text = run(capsys, *joining, "--topic", "clicks", "--assignor", "range")
    assert "partitions a member: 0 before, 1 to 2 after" in text


def test_a_preview_changes_nothing(api: RealApi, capsys: Captured) -> None:
    api.call("PUT", "/v1/topics/clicks", {"partitions": 4})
    member_id = stable(api, "web", partitions=(0, 1, 2, 3))
    text = run(capsys, "preview", "web", "--join", "1")
    assert "range: 2 partitions would move, in 1 rebalance" in text
    assert "partitions a member: 4 before, 2 after" in text
    assert "would have no owner" not in run(capsys, "preview", "web", "--leave", member_id, "--join", "2")
    assert run(capsys, "members", "web", "-o", "name") == f"{member_id}\n"
    run(capsys, "preview", "web", "--assignor", "none", status=1)


def test_a_rebalance_goes_on_without_those_that_are_awaited(api: RealApi, capsys: Captured) -> None:
    assert "waits for members 30 s" in run(capsys, "join-wait", stable(api, "web") and "web", "30s")
    assert run(capsys, "join-wait", "web", "--default").endswith("own rebalance timeouts say (the service's setting)\n")
    run(capsys, "join-wait", "web", "1s", status=1)
    assert run(capsys, "proceed", "web") == "no rebalance of group web is under way\n"
    slow = run(capsys, "members", "web", "-o", "name").strip()
    join(api, "web", "late")
    assert run(capsys, "proceed", "web").splitlines() == [
        "rebalance 2 would go on without 1 member", f"  {slow}", "nothing was changed: --execute does it",
    ]  # fmt: skip
    assert slow in run(capsys, "awaited", "web", "-o", "name")
    assert run(capsys, "proceed", "web", "--execute", "--reason", "it hangs").startswith(
        "rebalance 2 goes on without 1"
    )
    assert slow not in run(capsys, "members", "web", "-o", "name")


def test_the_page_and_the_command_use_the_same_words(api: RealApi, capsys: Captured) -> None:
    stable(api, "web")
    join(api, "web", "late")
    group = api.call("GET", "/v1/groups/web").json
    (rebalance, *_) = api.call("GET", "/v1/groups/web/rebalances").json["rebalances"]
    assert group["explanation"] in run(capsys, "describe", "web")
    assert rebalance["sentence"] in run(capsys, "why", "web")


# --- waiting


def test_what_holds_is_not_waited_for(api: RealApi, capsys: Captured) -> None:
    stable(api, "web")
    assert run(capsys, "wait", "web", "--stable", "--members", "1") == "group web is Stable: 1 member\n"
    said = run(capsys, "wait", "web", "--members", "2", "--timeout", "1ms", status=5)
    assert "is not ready after 1 ms: it has 1 of 2 members." in said
    run(capsys, "wait", "web", status=2)
    run(capsys, "wait", "none", "--stable", status=1)
    said = run(capsys, "wait", "none", "--members", "2", "--timeout", "1ms", status=5)
    assert "there is no such group yet" in said


def given(**flags: Any) -> argparse.Namespace:
    return argparse.Namespace(
        **{"stable": False, "lag": None, "members": None, "warn_lag": None, "status": False} | flags
    )


ROW: dict[str, Any] = {"group_id": "g", "state": "Stable", "member_count": 3, "lag": 1_200, "status": "WARN"}


def test_what_is_missing_is_named() -> None:
    assert missing(ROW, given(stable=True, lag=1_200, members=3)) == ""
    assert missing(ROW | {"state": "Empty"}, given(stable=True, members=4, lag=0)) == (
        "it is Empty, it has 3 of 4 members, its lag is 1,200"
    )
    assert missing(ROW | {"lag": None}, given(lag=5)) == "its lag is not known"


# --- judging


def test_a_check_ends_as_it_says(api: RealApi, capsys: Captured) -> None:
    api.call("PUT", "/v1/topics/clicks", {"partitions": 1, "end_offsets": {"0": 100}})
    commit(api, "etl", {"clicks": {"0": 42}})
    assert run(capsys, "check", "etl", "--lag", ">58") == "group etl: good: Empty, 0 members, lag 58\n"
    assert run(capsys, "check", "etl", "--lag", ">57", status=5) == "group etl: its lag is 58, > 57\n"
    nagios = ("check", "etl", "--format", "nagios", "--lag")
    assert run(capsys, *nagios, ">57", status=2).startswith(
        "RALLYPOINT CRITICAL - group etl: its lag is 58, > 57 | lag=58;;57;0"
    )
    assert run(capsys, *nagios, ">99", "--warn-lag", ">50", status=1).startswith("RALLYPOINT WARNING - ")
    assert run(capsys, *nagios, ">99").startswith("RALLYPOINT OK - ")
    assert run(capsys, "check", "none", "--format", "nagios", "--stable", status=3).startswith("RALLYPOINT UNKNOWN - ")
    run(capsys, "check", "etl", status=2)
    run(capsys, "check", "none", "--stable", status=1)


def test_what_is_bad_is_judged() -> None:
    assert judged(ROW, given(lag=Condition(">", 1_000))) == (["its lag is 1,200, > 1,000"], [])
    assert judged(ROW, given(status=True, members=Condition("<", 4))) == (
        ["it has 3 members, < 4"], ["its status is WARN"],
    )  # fmt: skip
    assert judged(ROW | {"lag": None, "state": "Dead"}, given(lag=Condition(">", 1), stable=True))[0] == [
        "its lag is not known", "it is Dead",
    ]  # fmt: skip


def test_lines_for_other_programs_hold_no_stranger_s_marks() -> None:
    hostile = ROW | {"group_id": 'a|b"\\\n\x1b'}
    line = nagios_line(hostile, given(), 0, [])
    assert line.isprintable()
    assert line.count("|") == 1
    assert prometheus_lines(hostile, is_bad=True)[1] == 'rallypoint_check_bad{group_id="a|b\\"\\\\\\n\\\\x1b"} 1'


def test_who_waits_is_awaited(api: RealApi, capsys: Captured) -> None:
    stable(api, "web")
    join(api, "web", "late")
    assert "it is PreparingRebalance" in run(capsys, "wait", "web", "--stable", "--timeout", "1ms", status=5)
