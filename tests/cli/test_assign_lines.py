"""`rallypoint assign --jsonl` as a process: all oracle files, bad lines, a reader that is gone, Ctrl-C."""

import gzip
import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from rallypoint.assignors.contract import GroupSpec, MemberSubscription
from rallypoint.assignors.validity import faults_of
from tests.assignors.oracle_cases import ORACLES
from tests.cli.assign_process import run, start
from tests.sizes import by_size

EXACT = {
    "range-structured": 138,
    "range-random": 2600,
    "roundrobin-structured": 116,
    "roundrobin-random": 2300,
    "replica-placement": 823,
    "coordinator-partition": 780,
    "producer-partitioner": 1250,
    "rocketmq": 1356,
    "metaq": 936,
}
STEP = by_size(10, 3, 1)
STICKY = {
    "sticky-structured-2.0.1": 178,
    "sticky-chains-2.0.1": 1006,
    "sticky-structured-4.1.1": 240,
    "sticky-chains-4.1.1": 1005,
    "cooperative-sticky-structured-4.1.1": 263,
    "cooperative-sticky-chains-4.1.1": 1007,
}
"""Lines by file. Of these a jar's answer is one of several good ones."""

OLDER = "range/s/topic-listed-twice@2.0.1"
"""The one line where versions differ; what is answered is that of 4.1.1."""


def asked_and_answered(file: str, lines: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """The cases of a file, of which a small run takes every tenth and a full one every third, the lines that a process
    printed for them, and its exit status.
    """
    whole = gzip.decompress((ORACLES / f"{file}.jsonl.gz").read_bytes()).splitlines(keepends=True)
    assert len(whole) == lines
    text = b"".join(whole[::STEP])
    ran = run("--jsonl", given=text)
    assert ran.stderr == b""
    cases, answers = [[json.loads(line) for line in lines.splitlines()] for lines in (text, ran.stdout)]
    assert [answer["id"] for answer in answers] == [case["id"] for case in cases]
    return cases, answers, ran.returncode


def expected(case: dict[str, Any]) -> object:
    """What a jar gave; an error where it threw, but for a group without members, which gets nothing."""
    output = case["output"]
    if case["input"].get("subscriptions") == {}:
        return {}
    threw = "error" in output or (output and all(isinstance(one, dict) and "error" in one for one in output.values()))
    return "error" if threw else output


@pytest.mark.parametrize("file", EXACT)
def test_every_case_of_an_exact_rule_is_answered_exactly(file: str) -> None:
    cases, answers, status = asked_and_answered(file, EXACT[file])
    errors = 0
    for case, answer in zip(cases, answers, strict=True):
        if case["id"] == OLDER:
            continue
        assert answer.get("output", "error") == expected(case), case["id"]
        errors += "error" in answer
    assert status == (1 if errors else 0)
    if STEP == 1:
        assert errors == {"rocketmq": 15, "replica-placement": 7}.get(file, 0)


@pytest.mark.parametrize("file", STICKY)
def test_every_case_of_a_sticky_rule_is_answered_validly(file: str) -> None:
    cases, answers, status = asked_and_answered(file, STICKY[file])
    assert status == 0
    for case, answer in zip(cases, answers, strict=True):
        asked = case["input"]
        spec = GroupSpec(
            asked["partitions_per_topic"],
            {member: MemberSubscription(tuple(said["topics"])) for member, said in asked["subscriptions"].items()},
        )
        given = {member: tuple((topic, n) for topic, n in share) for member, share in answer["output"].items()}
        assert not faults_of(spec, given), case["id"]
        assert all(share == tuple(sorted(share)) for share in given.values()), case["id"]


GOOD = (
    '{"id": "good", "algorithm": "range", "input": {"partitions_per_topic": {"t": 1}, "subscriptions": {"a": ["t"]}}}'
)


def case(algorithm: object, asked: object, case_id: object = 7) -> bytes:
    return json.dumps({"id": case_id, "algorithm": algorithm, "input": asked}).encode()


def group(partitions: object, subscriptions: object, **more: object) -> dict[str, object]:
    return {"partitions_per_topic": partitions, "subscriptions": subscriptions, **more}


BAD_LINES: list[tuple[bytes, str]] = [
    (b"hello", "the line is not JSON: Expecting value"),
    (b"", "the line is not JSON"),
    (b'{"id": 1', "the line is not JSON"),
    (b'{"id": NaN}', "the line is not JSON: NaN is no JSON number"),
    (b'"\xff"', "the line is not JSON: 'utf-8' codec"),
    (b"[" * 100_000, "nested too deeply"),
    (b"[1]", "the line is JSON, but not an object"),
    (b"null", "the line is JSON, but not an object"),
    (b'{"id": 1e999}', "id: it must be"),
    (b'{"id": ["x"]}', "id: it must be"),
]
BAD_CASES: list[tuple[bytes, str]] = [
    (b'{"id": 7}', "algorithm: a name is required"),
    (case(None, {}), "algorithm: a name is required"),
    (case("range", []), "input: an object is required"),
    (case("rnage", {}), "no algorithm is called 'rnage'; did you mean 'range'? There are: "),
    (case("range", {}), "partitions_per_topic: field required"),
    (case("range", group({"t": "3"}, {})), "partitions_per_topic.t: input should be a valid integer"),
    (case("range", group({"t": True}, {})), "partitions_per_topic.t: input should be a valid integer"),
    (case("range", group({"t": -1}, {})), "partitions_per_topic.t: input should be greater than or equal to 0"),
    (case("range", group({"t": 10**9}, {})), "partitions_per_topic.t: input should be less than or equal to 1000000"),
    (case("range", group({"t": 10**6, "u": 1}, {})), "partitions_per_topic: more than 1000000 partitions in all"),
    (case("range", group({"t": 1}, {"a": {"topics": "t"}})), "subscriptions.a.topics: input should be a valid list"),
    (case("range", group({"t": 1}, {"a": None})), "subscriptions.a: input should be"),
    (case("range", group({"t": 1}, {"a": {"topics": [], "owned": [["t", -1]]}})), "subscriptions.a.owned.0.1: "),
    (
        b'{"id":7,"algorithm":"range","input":{"partitions_per_topic":{},"subscriptions":{"a":{"topics":[],"user_data":'
        + b"[" * 500
        + b"]" * 500
        + b"}}}}",
        "subscriptions.a.user_data.list.0.list.0.list: recursion error",
    ),
    (case("range", group({"t": 1}, {}, replica_racks={"t": [[None]]})), "replica_racks.t.0.0: "),
    (case("replicas", group({"t": 1}, {})), "'replicas' does not assign partitions to the members of a group"),
    (case("replicas", {"brokers": [{"id": "a"}], "partitions": 1, "replication_factor": 1}), "brokers.0.id: "),
    (
        case("replicas", {"brokers": [], "partitions": 1, "replication_factor": 1, "fixed_start_index": -1}),
        "fixed_start_index: input should be greater than or equal to 0",
    ),
    (
        case("replicas", {"brokers": [{"id": 1}], "partitions": 10**6, "replication_factor": 2}),
        "partitions: more than 1000000 replicas in all",
    ),
    (case("coordinator-partition", {"group_id": "g", "partitions": 0}), "partitions: input should be greater than"),
    (case("producer-partitioner", {"key_hex": "0g", "partitions": 1}), "key_hex: non-hexadecimal number"),
    (case("metaq-default", {"partitions": [], "consumers": []}), "consumers: there are none to assign queues to"),
    (
        case("rocketmq-consistent-hash", {"queues": [["t", "b", 0]], "consumers": ["a", "b"], "virtual_nodes": 10**6}),
        "virtual_nodes: more than 1000000 points",
    ),
]


def test_a_bad_line_has_an_error_for_its_answer_and_the_rest_go_on() -> None:
    given = b"".join(line + b"\n" + GOOD.encode() + b"\n" for line, _ in [*BAD_LINES, *BAD_CASES])
    ran = run("--jsonl", given=given)
    assert (ran.returncode, ran.stderr) == (1, b"")
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert answers[1::2] == [{"id": "good", "output": {"a": [["t", 0]]}}] * len(answers[1::2])
    for number, ((line, sentence), answer) in enumerate(zip([*BAD_LINES, *BAD_CASES], answers[::2], strict=True)):
        named = {"id": None, "line": 2 * number + 1} if number < len(BAD_LINES) else {"id": 7}
        assert {key: value for key, value in answer.items() if key != "error"} == named, line[:80]
        assert sentence in answer["error"], line[:80]


def test_other_keys_and_another_order_of_keys_do_not_matter() -> None:
    line = (
        '{"output": 1, "metrics": [], "input": {"extra": 1, "subscriptions": {"a": {"topics": ["t"], "x": 0}}, '
        '"partitions_per_topic": {"t": 1}}, "algorithm": "range"}\n'
    )
    assert json.loads(run("--jsonl", given=line.encode()).stdout) == {"id": None, "output": {"a": [["t", 0]]}}


def test_what_a_member_knows_reaches_the_assignor() -> None:
    weights = {"topics": ["t"], "user_data": {"weights": {"t": {"0": 30, "1": 10, "2": 10, "3": 10}}}}
    ran = run("--jsonl", given=case("weighted", group({"t": 4}, {"a": weights, "b": ["t"]})))
    shares = json.loads(ran.stdout)["output"].values()
    assert sorted(len(share) for share in shares) == [1, 3]


def test_no_lines_are_answered_by_none() -> None:
    ran = run("--jsonl")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def finished(process: subprocess.Popen[bytes], end: Callable[[], object]) -> tuple[int, bytes]:
    """End a process in some way; its exit status, and what it said about it."""
    with process:
        assert process.stderr
        end()
        said = process.stderr.read()
        return process.wait(timeout=60), said


def test_each_answer_comes_before_the_next_question() -> None:
    process = start("--jsonl")
    assert process.stdin
    assert process.stdout
    for _ in range(3):
        process.stdin.write(GOOD.encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == "good"
    assert finished(process, process.stdin.close) == (0, b"")


def test_it_ends_quietly_when_nobody_reads_on() -> None:
    process = start("--jsonl")
    assert process.stdin
    assert process.stdout
    process.stdin.write(GOOD.encode() + b"\n")
    process.stdin.flush()
    process.stdout.readline()
    process.stdout.close()
    process.stdin.write(GOOD.encode() + b"\n")
    assert finished(process, process.stdin.flush) == (141, b"")


def test_it_ends_quietly_on_ctrl_c() -> None:
    process = start("--jsonl")
    assert process.stdin
    assert process.stdout
    process.stdin.write(GOOD.encode() + b"\n")
    process.stdin.flush()
    process.stdout.readline()  # it is up, and waits for the next line
    assert finished(process, lambda: process.send_signal(signal.SIGINT)) == (130, b"")
