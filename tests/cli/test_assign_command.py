"""`rallypoint assign`: flags, files, what it prints for people and for programs, and what it refuses."""

import json
import re
import shlex
from pathlib import Path
from typing import ClassVar

import pytest

from rallypoint.assignors import registry
from rallypoint.assignors.contract import Assignment, Assignor, GroupSpec
from rallypoint.cli.assign import algorithms
from rallypoint.cli.assign.report import partitions_text, table
from rallypoint.cli.main import main
from tests.cli.assign_process import run
from tests.real.parts import ROOT

DOC = (ROOT / "docs" / "assign.md").read_text(encoding="utf-8")
TWO = ["--topic", "t=3", "--member", "a:t", "--member", "b:t"]


def block(info: str) -> str:
    (found,) = re.findall(rf"^```{info}\n(.*?)^```$", DOC, flags=re.MULTILINE | re.DOTALL)
    assert isinstance(found, str)
    return found


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command prints when all is well."""
    assert main(["assign", *arguments]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def refused(capsys: pytest.CaptureFixture[str], status: int, *arguments: str) -> str:
    """The sentence that the command prints when it ends with this status."""
    assert main(["assign", *arguments]) == status
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("rallypoint: ")
    assert shown.err.count("\n") == 1
    return shown.err.removeprefix("rallypoint: ").rstrip("\n")


@pytest.mark.parametrize("name", ["example", "moves"])
def test_what_the_document_shows_is_what_is_printed(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = block(f"text {name}").splitlines(keepends=True)
    commands = [shlex.split(line[2:]) for line in lines if line.startswith("$ ")]
    for _, *words in commands[:-1]:
        assert words[-2] == ">"
        Path(words[-1]).write_text(printed(capsys, *words[1:-2]))
    assert printed(capsys, *commands[-1][2:]) == "".join(line for line in lines if not line.startswith("$ "))


def test_the_documents_stream_is_true() -> None:
    lines = block("text lines").splitlines()
    assert lines.pop(0) == "$ rallypoint assign --jsonl"
    asked = [line.removeprefix("> ") for line in lines if line.startswith("> ")]
    ran = run("--jsonl", given="\n".join(asked).encode())
    assert ran.stdout.decode().splitlines() == [line for line in lines if not line.startswith("> ")]
    assert ran.returncode == 1


def test_the_documents_file_is_answered(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    path.write_text(block("json group"))
    answered = json.loads(printed(capsys, "--file", str(path), "--json"))
    assert answered == {
        "algorithm": "range",
        "assignment": {"a": [["clicks", 1], ["clicks", 3]], "b": [["clicks", 0], ["clicks", 2]]},
        "unassigned": [],
        "counts": {"a": 2, "b": 2},
        "spread": 0,
        "optimal": True,
        "optimal_counts": [2, 2],
        "rack_misses": 0,
        "moved": [{"topic": "clicks", "partition": 0, "from": "a", "to": "b"}],
    }
    assert json.loads(printed(capsys, "--file", str(path), "--json", "--algorithm", "roundrobin"))["rack_misses"] == 2


def test_every_flag_is_in_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["assign", "--help"])
    flags = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", capsys.readouterr().out, flags=re.MULTILINE)) - {"--help"}
    assert flags == set(re.findall(r"^\| `(--[a-z-]+)", DOC, flags=re.MULTILINE))


def test_racks_and_instance_ids_by_flag_reach_the_assignor(capsys: pytest.CaptureFixture[str]) -> None:
    racks = ["--rack", "a=x", "--rack", "b=y", "--replica-racks", "t=y/x,z/z"]
    text = printed(capsys, "--algorithm", "range", *TWO, *racks)
    assert "a       2      t 1-2\nb       1      t 0\n" in text
    assert json.loads(printed(capsys, "--algorithm", "range", *TWO, *racks, "--json"))["rack_misses"] == 1
    assert "racks: 1 partition without a replica in the member's rack\n" in text
    static = json.loads(printed(capsys, "--algorithm", "range", *TWO, "--instance-id", "b=node", "--json"))
    assert static["assignment"] == {"a": [["t", 2]], "b": [["t", 0], ["t", 1]]}
    assert static["moved"] is None


def test_a_member_that_left_lost_what_it_had(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text('{"gone": [["t", 0], ["t", 9], ["other", 0]], "a": [["t", 1]]}')
    moved = json.loads(printed(capsys, "--algorithm", "range", *TWO, "--previous", str(before), "--json"))["moved"]
    assert moved == [{"topic": "t", "partition": 0, "from": "gone", "to": "a"}]


def test_many_moves_are_counted_and_not_all_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text(json.dumps({"gone": [["t", n] for n in range(30)]}))
    text = printed(capsys, "--algorithm", "range", "--topic", "t=30", "--member", "a:t", "--previous", str(before))
    assert "moved: 30 partitions\n" in text
    assert text.count("gone -> a") == 20
    assert text.endswith("  and 10 more; --json lists all\n")


def test_the_list_names_everything_that_can_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(printed(capsys, "--list", "--json"))
    assert set(listed) == {*registry.names(), *algorithms.RULES}
    assert all(re.search(r"\w.*\.$", text) for text in listed.values())
    head, *rows = printed(capsys, "--list").splitlines()
    assert head.split() == ["ALGORITHM", "WHAT", "IT", "DOES"]
    assert [row.split()[0] for row in rows] == sorted(listed)


def test_rules_without_a_group_answer_from_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "question.json"
    brokers = [{"id": 1}, {"id": 2}]
    asked = {"brokers": brokers, "partitions": 2, "replication_factor": 2}
    path.write_text(json.dumps({"id": "x", "algorithm": "replicas", "input": asked}))
    assert printed(capsys, "--file", str(path)) == "REPLICAS  ANSWER\n0         1 2\n1         2 1\n"
    assert json.loads(printed(capsys, "--file", str(path), "--json"))["output"] == {"0": [1, 2], "1": [2, 1]}
    path.write_text(json.dumps({"queues": [["t", "b", 0], ["t", "b", 1]], "consumers": ["a", "c", "d"]}))
    text = printed(capsys, "--file", str(path), "--algorithm", "rocketmq-averagely")
    assert (
        text
        == "ROCKETMQ-AVERAGELY  ANSWER\na                   t/b/0\nc                   t/b/1\nd                   -\n"
    )


def test_a_file_from_standard_input() -> None:
    asked = {"partitions_per_topic": {"t": 1}, "subscriptions": {"a": ["t"]}}
    ran = run("--file", "-", "--algorithm", "range", "--json", given=json.dumps(asked).encode())
    assert json.loads(ran.stdout)["assignment"] == {"a": [["t", 0]]}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give --topic and --member, or --file, --jsonl or --list"),
        (TWO, "--algorithm is required"),
        (
            ["--algorithm", "rangr", *TWO],
            "no algorithm is called 'rangr'; did you mean 'range'? There are: cooperative-",
        ),
        (["--algorithm", "zzz", *TWO], "no algorithm is called 'zzz'. There are: cooperative-"),
        (["--algorithm", "range", "--member", "a"], "--member a: write it as MEMBER:TOPIC,TOPIC"),
        (["--algorithm", "range", "--topic", "t"], "--topic t: write it as TOPIC=COUNT"),
        (
            ["--algorithm", "range", "--topic", "t=many"],
            "--topic t=many: the number of partitions must be a whole number",
        ),
        (["--algorithm", "range", *TWO, "--member", "a:t"], "--member: a is given twice"),
        (["--algorithm", "range", *TWO, "--topic", "t=1"], "--topic: t is given twice"),
        (["--algorithm", "range", *TWO, "--rack", "c=x"], "--rack c=x: there is no --member c"),
        (["--algorithm", "range", *TWO, "--rack", "a=x", "--rack", "a=y"], "--rack: rack is given twice"),
        (["--algorithm", "range", *TWO, "--instance-id", "a"], "--instance-id a: write it as MEMBER=VALUE"),
        (
            ["--algorithm", "range", *TWO, "--replica-racks", "t=x/y"],
            "--replica-racks t: 2 partitions, and --topic says 3",
        ),
        (["--algorithm", "range", *TWO, "--file", "x"], "--file contains the whole group: remove --topic"),
        (["--algorithm", "range", "--file", "/no/file"], "--file /no/file: it cannot be read: No such file"),
        (["--algorithm", "range", *TWO, "--previous", "/no/file"], "--previous /no/file: it cannot be read: No such"),
        (["--algorithm", "range", "--file", "-", "--previous", "-"], "--file and --previous cannot both be read"),
        (["--jsonl", "--list"], "--list and --jsonl cannot be combined"),
        (["--jsonl", "--algorithm", "range"], "--jsonl reads everything from its lines: remove --algorithm"),
        (["--jsonl", "--json"], "--jsonl reads everything from its lines: remove --json"),
        (["--list", "--topic", "t=1"], "--list only lists the algorithms: remove --topic"),
    ],
)
def test_wrong_usage_is_a_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, 2, *arguments).startswith(sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "it is not JSON: "),
        ("3", "it must be an object"),
        ('{"a": 3}', "subscriptions.a.owned: input should be a valid list"),
        ('{"a": [["t"]]}', "subscriptions.a.owned.0.1: field required"),
    ],
)
def test_a_wrong_previous_assignment_is_refused(
    text: str, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "before.json"
    path.write_text(text)
    assert sentence in refused(capsys, 2, "--algorithm", "range", *TWO, "--previous", str(path))


def test_a_wrong_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "question.json"
    path.write_text("[]")
    assert "must hold a JSON object" in refused(capsys, 2, "--file", str(path))
    path.write_text("{}")
    assert "or `algorithm` in the file" in refused(capsys, 2, "--file", str(path))
    path.write_text('{"algorithm": "range", "partitions_per_topic": {}}')
    assert refused(capsys, 1, "--file", str(path)) == "subscriptions: field required"
    path.write_text('{"algorithm": "coordinator-partition", "group_id": "g", "partitions": 3}')
    before = tmp_path / "before.json"
    before.write_text("{}")
    assert "needs a group" in refused(capsys, 2, "--file", str(path), "--previous", str(before))


def test_partitions_are_written_in_runs() -> None:
    share = [("a", 0), ("a", 1), ("a", 2), ("a", 4), ("b", 7), ("b", 9), ("b", 10)]
    assert partitions_text(share) == "a 0-2 4, b 7 9-10"
    assert partitions_text([]) == "-"
    assert table(("A", "B"), [("long", "x"), ("", "")]) == ["A     B", "long  x", ""]


class Keeper(Assignor):
    """Gives everyone what they say they own, whether it exists or not."""

    name: ClassVar[str] = "keeper"

    def assign(self, spec: GroupSpec) -> Assignment:
        return {member_id: said.owned for member_id, said in spec.subscriptions.items()}


def test_members_name_what_they_had_before(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithms, "find", lambda _: Keeper())
    before = tmp_path / "before.json"
    before.write_text('{"assignment": {"a": [["t", 2]], "b": [["t", 0]]}}')
    kept = json.loads(printed(capsys, "--algorithm", "keeper", *TWO, "--previous", str(before), "--json"))
    assert kept["assignment"] == {"a": [["t", 2]], "b": [["t", 0]]}
    assert (kept["moved"], kept["unassigned"]) == ([], [["t", 1]])
    text = printed(capsys, "--algorithm", "keeper", *TWO, "--previous", str(before))
    assert "unassigned: t 1\nmoved: 0 partitions\n" in text


def test_an_assignor_that_answers_wrongly_is_not_believed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithms, "find", lambda _: Keeper())
    before = tmp_path / "before.json"
    before.write_text('{"a": [["t", 9]]}')
    asked = ["--algorithm", "keeper", *TWO, "--previous", str(before)]
    assert (
        refused(capsys, 1, *asked)
        == "the assignor 'keeper' returned an invalid assignment: a gets t-9, which does not exist"
    )


def test_an_assignor_that_fails_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Keeper):
        def assign(self, spec: GroupSpec) -> Assignment:
            raise KeyError("t")

    monkeypatch.setattr(algorithms, "find", lambda _: Broken())
    assert refused(capsys, 1, "--algorithm", "keeper", *TWO) == "the assignor 'keeper' failed: KeyError: 't'"
