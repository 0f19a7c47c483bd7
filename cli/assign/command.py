"""The command line of `rallypoint assign`: reads the input from flags, a file or standard input, and prints the result.

Exit status: 0 success, 1 an input could not be answered, 2 usage error, 130 Ctrl-C, 141 standard output was closed.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, TypeVar

from rallypoint.assignors.contract import Assignment
from rallypoint.cli.assign import algorithms
from rallypoint.cli.assign.lines import answer_lines
from rallypoint.cli.assign.questions import GroupQuestion, QuestionError, UnknownAlgorithm, read
from rallypoint.cli.assign.report import judge, report_json, report_text, table

INTERRUPTED = 130
UNREAD = 141
"""As a shell reports the end by SIGINT and by SIGPIPE."""

GROUP_FLAGS = ("topic", "member", "instance_id", "rack", "replica_racks")
"""Flags that describe a group. They cannot be combined with --file."""

Value = TypeVar("Value")


class UsageError(Exception):
    """The arguments are invalid. The message is one sentence that names the flag."""


def add_assign(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = "Compute an assignment without a service. Describe the group by flags, or in a file."
    parser.epilog = (
        "Example: rallypoint assign --algorithm range --topic clicks=12 --member a:clicks --member b:clicks."
        " Exit status: 0 success, 1 an input could not be answered, 2 usage error, 130 Ctrl-C, 141 standard output was"
        " closed."
    )
    parser.add_argument("--algorithm", metavar="NAME", help="the algorithm; --list shows all")
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC=COUNT",
        help="a topic and its number of partitions; may be repeated",
    )
    parser.add_argument(
        "--member",
        action="append",
        default=[],
        metavar="MEMBER:TOPICS",
        help="a member and its topics, separated by commas; may be repeated",
    )
    parser.add_argument(
        "--instance-id",
        action="append",
        default=[],
        metavar="MEMBER=ID",
        help="make a member static, with this instance id",
    )
    parser.add_argument("--rack", action="append", default=[], metavar="MEMBER=RACK", help="the rack of a member")
    parser.add_argument(
        "--replica-racks",
        action="append",
        default=[],
        metavar="TOPIC=RACKS",
        help="the racks of a topic's replicas: commas between the racks of a partition, slashes between partitions",
    )
    parser.add_argument(
        "--previous",
        metavar="PATH",
        help='the previous assignment as JSON: {"MEMBER": [["TOPIC", 0]]}, or the output of --json; - for standard'
        " input",
    )
    parser.add_argument("--file", metavar="PATH", help="read the input as JSON from a file; - for standard input")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--list", action="store_true", help="list the algorithms and exit")
    parser.add_argument(
        "--jsonl", action="store_true", help="read inputs from standard input, one JSON object a line, until its end"
    )


def run_assign(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""
    try:
        return _run(given)
    except (UsageError, UnknownAlgorithm) as error:
        print(f"rallypoint: {error}", file=sys.stderr)
        return 2
    except QuestionError as error:
        print(f"rallypoint: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The buffer still has data without a reader: otherwise the interpreter would print an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD


def _run(given: argparse.Namespace) -> int:
    _check_modes(given)
    if given.jsonl:
        return 1 if answer_lines(sys.stdin.buffer, sys.stdout) else 0
    if given.list:
        _print(_listed(as_json=given.json))
        return 0
    asked = read_json(given.file, "--file") if given.file else group_of_flags(given)
    if not isinstance(asked, dict):
        raise UsageError(f"--file {given.file}: it must hold a JSON object")
    algorithm = given.algorithm or asked.get("algorithm")
    if not isinstance(algorithm, str):
        raise UsageError("--algorithm is required" + (", or `algorithm` in the file" if given.file else ""))
    question = asked["input"] if isinstance(asked.get("input"), dict) else asked
    previous = previous_of(read_json(given.previous, "--previous")) if given.previous else None
    _print(_answered(algorithm, question, previous, as_json=given.json))
    return 0


def _check_modes(given: argparse.Namespace) -> None:
    group = [f"--{name.replace('_', '-')}" for name in GROUP_FLAGS if getattr(given, name)]
    others = [f"--{name}" for name in ("algorithm", "file", "previous") if getattr(given, name)]
    if given.jsonl and given.list:
        raise UsageError("--list and --jsonl cannot be combined")
    if given.jsonl and (group or others or given.json):
        raise UsageError(f"--jsonl reads everything from its lines: remove {[*others, *group, '--json'][0]}")
    if given.list and (group or others):
        raise UsageError(f"--list only lists the algorithms: remove {[*others, *group][0]}")
    if given.file and group:
        raise UsageError(f"--file contains the whole group: remove {group[0]}")
    if given.file == "-" and given.previous == "-":
        raise UsageError("--file and --previous cannot both be read from standard input")


def _listed(*, as_json: bool) -> str:
    described = algorithms.described()
    if as_json:
        return json.dumps(described, indent=2) + "\n"
    return "\n".join(table(("ALGORITHM", "WHAT IT DOES"), list(described.items()))) + "\n"


def _answered(algorithm: str, question: dict[str, Any], previous: Assignment | None, *, as_json: bool) -> str:
    if algorithm in algorithms.RULES and not algorithms.is_group(question):
        if previous is not None:
            raise UsageError("--previous needs a group: partitions_per_topic and subscriptions")
        return _plain(algorithm, algorithms.answer(algorithm, question), as_json=as_json)
    assignor = algorithms.find(algorithm)
    asked = read(GroupQuestion, question)
    if previous is not None:
        _name_owned(asked, previous)
    spec = asked.spec()
    report = judge(algorithm, spec, algorithms.assign(assignor, spec), previous)
    return json.dumps(report_json(report), indent=2) + "\n" if as_json else report_text(report)


def _name_owned(asked: GroupQuestion, previous: Assignment) -> None:
    """Let each member that reports no owned partitions report those of the previous assignment, in generation 1."""
    for member_id, said in asked.subscriptions.items():
        if not said.owned and previous.get(member_id):
            said.owned = list(previous[member_id])
            said.generation = 1


def _plain(algorithm: str, output: Any, *, as_json: bool) -> str:
    """An answer that is no group's assignment, as JSON or as a table of its fields."""
    if as_json:
        return json.dumps({"algorithm": algorithm, "output": output}, indent=2) + "\n"
    rows = [(str(key), _cell(value)) for key, value in output.items()]
    return "\n".join(table((algorithm.upper(), "ANSWER"), rows)) + "\n"


def _cell(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    return " ".join("/".join(map(str, one)) if isinstance(one, list) else str(one) for one in value) or "-"


def group_of_flags(given: argparse.Namespace) -> dict[str, Any]:
    """The group that the flags describe, in the form of --file."""
    if not given.member and not given.topic:
        raise UsageError("give --topic and --member, or --file, --jsonl or --list")
    subscriptions: dict[str, dict[str, Any]] = {}
    for text in given.member:
        member_id, found, topics = text.rpartition(":")
        if not found or not member_id:
            raise UsageError(f"--member {text}: write it as MEMBER:TOPIC,TOPIC")
        _add(subscriptions, member_id, {"topics": [topic for topic in topics.split(",") if topic]}, "--member")
    counts: dict[str, int] = {}
    for topic, count in pairs(given.topic, "--topic", "TOPIC=COUNT"):
        if not (count.isascii() and count.isdigit()):
            raise UsageError(f"--topic {topic}={count}: the number of partitions must be a whole number")
        _add(counts, topic, int(count), "--topic")
    for flag, field in (("instance_id", "group_instance_id"), ("rack", "rack")):
        name = f"--{flag.replace('_', '-')}"
        for member_id, value in pairs(getattr(given, flag), name, "MEMBER=VALUE"):
            if member_id not in subscriptions:
                raise UsageError(f"{name} {member_id}={value}: there is no --member {member_id}")
            _add(subscriptions[member_id], field, value, name)
    racks: dict[str, list[list[str]]] = {}
    for topic, text in pairs(given.replica_racks, "--replica-racks", "TOPIC=RACK,RACK/RACK,RACK"):
        of_partitions = [[rack for rack in one.split(",") if rack] for one in text.split("/")]
        if len(of_partitions) != counts.get(topic):
            raise UsageError(
                f"--replica-racks {topic}: {len(of_partitions)} partitions, and --topic says {counts.get(topic)}"
            )
        _add(racks, topic, of_partitions, "--replica-racks")
    return {"partitions_per_topic": counts, "subscriptions": subscriptions, "replica_racks": racks}


def pairs(texts: list[str], flag: str, form: str) -> list[tuple[str, str]]:
    """The two sides of the last `=` of each text. Raises UsageError."""
    found = []
    for text in texts:
        name, sign, value = text.rpartition("=")
        if not sign or not name:
            raise UsageError(f"{flag} {text}: write it as {form}")
        found.append((name, value))
    return found


def _add(to: dict[str, Value], name: str, value: Value, flag: str) -> None:
    if name in to:
        raise UsageError(f"{flag}: {name} is given twice")
    to[name] = value


def read_json(path: str, flag: str) -> Any:
    """Read JSON from a file, or from standard input for `-`. Raises UsageError."""
    try:
        text = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return json.loads(text.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{flag} {path}: it cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{flag} {path}: it is not JSON: {error}") from error


def previous_of(given: Any) -> Assignment:
    """Parse an assignment as JSON: alone, or in the output of --json. Raises UsageError."""
    assignment = given.get("assignment", given) if isinstance(given, dict) else given
    if not isinstance(assignment, dict):
        raise UsageError('--previous: it must be an object, {"MEMBER": [["TOPIC", 0]]}')
    owned = {member_id: {"topics": [], "owned": partitions} for member_id, partitions in assignment.items()}
    try:
        asked = read(GroupQuestion, {"partitions_per_topic": {}, "subscriptions": owned})
    except QuestionError as error:
        raise UsageError(f"--previous: {error}") from error
    return {member_id: tuple(subscription.owned) for member_id, subscription in asked.subscriptions.items()}


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
