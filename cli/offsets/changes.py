"""What `rallypoint offsets` changes. Each change is a dry run first: what would be refused changes nothing."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rallypoint.cli.act.execution import dry_run_line
from rallypoint.cli.calls.client import Client, Json
from rallypoint.cli.calls.failures import CallFailed, UsageError
from rallypoint.cli.offsets import files
from rallypoint.cli.output.columns import Column, Row, number, since, text, word
from rallypoint.cli.output.terminal import Progress
from rallypoint.cli.output.text import counted, shown
from rallypoint.cli.output.view import View
from rallypoint.cli.running import Output, warn

PARTITIONS_PER_REQUEST = 10_000
"""The service takes no more in one request."""
BYTES_PER_REQUEST = 1_000_000
"""The service takes 1 MiB in one request; some of it stands around the offsets."""
PARTITION_BYTES = 64
"""What a partition takes at the most, beside the name of its topic."""

RESET_COLUMNS: tuple[Column, ...] = (
    text("topic", "TOPIC"),
    number("partition", "PARTITION"),
    number("before", "BEFORE"),
    number("after", "AFTER"),
    Column("clamped", "", lambda value, _: "clamped" if value else ""),
    since("at_ms", "END REPORTED", rank=1),
    word("error_name", "RESULT", colours={"NONE": "32"}),
)
DELETED_COLUMNS: tuple[Column, ...] = (
    text("topic", "TOPIC"),
    number("partition", "PARTITION"),
    word("error_name", "RESULT", colours={"NONE": "32"}),
)


def chosen(words: Sequence[str]) -> dict[str, list[int] | None]:
    """Topics, each with its partitions or, for all, None: of `clicks` and `clicks:0,1`. Raises UsageError."""
    found: dict[str, list[int] | None] = {}
    for given in words:
        topic, colon, listed = given.rpartition(":")
        if not colon or not all(part.isascii() and part.isdigit() for part in listed.split(",")):
            topic, partitions = given, None
        else:
            partitions = [int(part) for part in listed.split(",")]
        if topic in found:
            raise UsageError(f"--topic {shown(topic)}: it is named twice.")
        found[topic] = partitions
    return found


def reset(given: argparse.Namespace, client: Client, output: Output) -> None:
    """`offsets reset`."""
    topics = chosen(given.topic)
    if given.from_group is not None:
        _set(given, client, output, _kept(committed(client, given.from_group), topics))
        return
    if given.from_file is not None:
        _set(given, client, output, _kept(_read(given.from_file, "--from-file"), topics))
        return
    body: Json = {"to": "offset" if given.to_offset is not None else "shift", "topics": topics or None}
    if given.to_earliest or given.to_latest:
        body["to"] = "earliest" if given.to_earliest else "latest"
    elif given.to_time is not None:
        body |= {"to": "time", "at_ms": given.to_time}
    elif given.to_offset is not None:
        body["offset"] = given.to_offset
    else:
        body["shift"] = given.shift_by
    _change(given, client, output, [body])


def import_offsets(given: argparse.Namespace, client: Client, output: Output) -> None:
    """`offsets import`."""
    _set(given, client, output, _read(given.file, "FILE"))


def _kept(offsets: files.Offsets, topics: dict[str, list[int] | None]) -> files.Offsets:
    """Those of the topics and partitions that were chosen. Raises CallFailed if one of them is not there."""
    if not topics:
        return offsets
    kept: files.Offsets = {}
    for topic, partitions in topics.items():
        there = offsets.get(topic, {})
        kept[topic] = there if partitions is None else {one: there[one] for one in partitions if one in there}
        if not there or (partitions is not None and len(kept[topic]) < len(set(partitions))):
            raise CallFailed(f"There are no offsets for all that --topic names of {shown(topic)!r}.")
    return kept


def _set(given: argparse.Namespace, client: Client, output: Output, offsets: files.Offsets) -> None:
    if not offsets:
        raise CallFailed("There are no offsets to take over.")
    try:
        _change(given, client, output, [{"to": "offsets", "offsets": part} for part in portions(offsets)])
    except CallFailed as error:
        if error.error_name != "GROUP_ID_NOT_FOUND":
            raise
        _make(given, client, output, offsets)


def _make(given: argparse.Namespace, client: Client, output: Output, offsets: files.Offsets) -> None:
    """Commit for a group that does not exist, which makes it: it has expired, was deleted, or is a new one."""
    warn(f"There is no group {shown(given.group)!r}: it {'is' if given.execute else 'would be'} made.")
    results: dict[tuple[str, int], Json] = {}
    if given.execute:
        for part in portions(offsets):
            committed = {
                topic: {partition: {"offset": max(0, offset)} for partition, offset in partitions.items()}
                for topic, partitions in part.items()
            }
            body = {"generation_id": -1, "member_id": "", "offsets": committed}
            answer = client.call("commit", body=body, group_id=given.group)
            results |= {(row["topic"], row["partition"]): row for row in _rows([answer])}
    none: Json = {"error_code": 0, "error_name": "NONE"}
    rows = [
        {"topic": topic, "partition": partition, "before": None, "after": max(0, offset), "clamped": offset < 0}
        | results.get((topic, partition), none)
        for topic, partitions in offsets.items()
        for partition, offset in sorted(partitions.items())
    ]
    _show(output, RESET_COLUMNS, rows, [row for row in rows if row["error_code"]], is_dry=not given.execute)


def portions(offsets: files.Offsets) -> Iterator[files.Offsets]:
    """The offsets in parts that the service takes."""
    part: files.Offsets = {}
    count = size = 0
    for topic, partitions in offsets.items():
        name_bytes = len(json.dumps(topic))
        for partition, offset in partitions.items():
            more = PARTITION_BYTES + (0 if topic in part else name_bytes)
            if count == PARTITIONS_PER_REQUEST or size + more > BYTES_PER_REQUEST:
                yield part
                part, count, size, more = {}, 0, 0, PARTITION_BYTES + name_bytes
            part.setdefault(topic, {})[partition] = offset
            count += 1
            size += more
    if part:
        yield part


def _change(given: argparse.Namespace, client: Client, output: Output, bodies: list[Json]) -> None:
    """Ask for all of it as a dry run; then, with --execute, do it. Raises CallFailed if a partition is refused."""
    answers: list[Json] = []
    prints = getattr(given, "curl", False)
    with Progress() as progress:
        for is_dry in (False,) if prints and given.execute else (True, False) if given.execute else (True,):
            answers = []
            for at, body in enumerate(bodies):
                progress.say(f"{'checking' if is_dry else 'setting'} part {at + 1} of {len(bodies)}")
                answers.append(client.call("reset_offsets", body={**body, "dry_run": is_dry}, group_id=given.group))
            _check_topics(bodies[0].get("topics") or (), answers)
            if refused := [row for row in _rows(answers) if row["error_code"]]:
                break
    _show(output, RESET_COLUMNS, _rows(answers), refused, is_dry=is_dry)


def _check_topics(topics: Iterable[str], answers: Sequence[Json]) -> None:
    """Raises CallFailed if a topic that was named has no partition in any answer, so that nothing is done with it."""
    for topic in topics:
        if not any(answer["offsets"].get(topic) for answer in answers):
            raise CallFailed(f"--topic {shown(topic)}: the group has committed no offset of such a topic.")


def _show(output: Output, columns: tuple[Column, ...], rows: list[Row], refused: list[Row], *, is_dry: bool) -> None:
    below = [dry_run_line()] if is_dry and rows and not refused else []
    output.show(View(columns, rows, "partition", below=lambda _: below, empty="There are no such offsets."))
    if refused:
        why = f" {shown(refused[0]['detail'])}" if refused[0].get("detail") else ""
        done = "Nothing was changed" if is_dry else "The others were changed"
        raise CallFailed(
            f"{counted(len(refused), 'partition')} refused: {refused[0]['error_name']} for"
            f" {shown(refused[0]['topic'])} {refused[0]['partition']}.{why} {done}."
        )


def _rows(answers: list[Json]) -> list[Row]:
    return [
        {"topic": topic, "partition": int(partition), **result}
        for answer in answers
        for topic, partitions in answer["offsets"].items()
        for partition, result in partitions.items()
    ]


def committed(client: Client, group_id: str) -> files.Offsets:
    """What a group has committed. Raises CallFailed if the group does not exist, or has committed nothing."""
    offsets = client.call("describe", group_id=group_id)["offsets"]
    if not offsets:
        raise CallFailed(f"Group {shown(group_id)!r} has committed nothing.")
    return {
        topic: {int(partition): found["offset"] for partition, found in partitions.items()}
        for topic, partitions in offsets.items()
    }


def export(given: argparse.Namespace, client: Client, _: Output) -> None:
    """`offsets export`."""
    offsets = committed(client, given.group)
    written = files.json_text(given.group, offsets) if given.format == "json" else files.csv_text(offsets)
    if given.file == "-":
        sys.stdout.write(written)
        sys.stdout.flush()
        return
    _write_whole(Path(given.file), written)
    count = sum(map(len, offsets.values()))
    print(f"wrote {counted(count, 'offset')} of group {shown(given.group)} to {shown(given.file)}")


def _write_whole(path: Path, written: str) -> None:
    """The file is there whole, or as it was before, whenever this ends."""
    try:
        handle, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(written)
            Path(new).replace(path)
        except BaseException:
            Path(new).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CallFailed(f"{shown(str(path))} cannot be written: {error.strerror}.") from error


def _read(path: str, flag: str) -> files.Offsets:
    try:
        return files.parse(sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{flag} {shown(path)}: it cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UsageError(f"{flag} {shown(path)}: {shown(str(error))}.") from error


def delete(given: argparse.Namespace, client: Client, output: Output) -> None:
    """`offsets delete`."""
    topics = chosen(given.topic)
    if given.partition:
        if len(topics) != 1 or next(iter(topics.values())) is not None:
            raise UsageError("--partition is for one --topic without partitions: write --topic TOPIC:P,P instead.")
        topics = dict.fromkeys(topics, given.partition)
    query: dict[str, Any] = {
        "topic": [topic for topic, partitions in topics.items() if partitions is None],
        "partition": [f"{topic}:{one}" for topic, partitions in topics.items() for one in partitions or ()],
        "dry_run": None if given.execute else True,
    }
    answer = client.call("delete_offsets", query=query, group_id=given.group)
    rows = _rows([answer])
    if rows:
        _show(output, DELETED_COLUMNS, rows, [row for row in rows if row["error_code"]], is_dry=not given.execute)
    _check_topics(query["topic"], [answer])
