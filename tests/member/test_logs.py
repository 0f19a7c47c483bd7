"""The member's log as JSON: the fields of each line, and lines of others."""

import json
import logging
from datetime import datetime
from typing import Any

from rallypoint import Batch, Consumer, ConsumerOptions, GroupMember, MemberOptions
from rallypoint.member.logs import JsonFormatter
from rallypoint.member.testing import FakeGroup, MemorySource
from tests.fakes.fake_coordinator import FakeCoordinator


class Lines(logging.Handler):
    """Everything that is logged while it is open, parsed."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines: list[dict[str, Any]] = []
        self.logger = logging.getLogger("rallypoint.member")
        self.before = self.logger.level

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        assert "\n" not in text
        self.lines.append(json.loads(text))

    def __enter__(self) -> "Lines":
        self.logger.addHandler(self)
        self.logger.setLevel(logging.INFO)
        return self

    def __exit__(self, *_: object) -> None:
        self.logger.removeHandler(self)
        self.logger.setLevel(self.before)


async def test_the_lines_of_a_member_say_what_they_are_about() -> None:
    with Lines() as log:
        async with FakeCoordinator() as fake:
            options = MemberOptions(coordinator=fake.url, group_id="g", topics=("clicks", "none"), client_id="etl")
            async with GroupMember(options) as member:
                await member.wait_assigned(30_000)
    moves = [line for line in log.lines if "state" in line]
    stable = next(line for line in moves if line["state"] == "Stable")
    assert stable.pop("time").endswith("Z")
    assert stable == {
        "level": "info",
        "logger": "rallypoint.member",
        "message": "g: Syncing -> Stable: generation 1, 4 partitions",
        "group_id": "g",
        "client_id": "etl",
        "member_id": "etl-1",
        "generation_id": 1,
        "state": "Stable",
        "state_before": "Syncing",
    }
    (warning,) = [line for line in log.lines if line["level"] == "warning"]
    assert warning["message"] == "g: nothing of none is assigned: no such topic"
    assert warning["member_id"] == "etl-1"


async def test_the_lines_of_a_consumer_name_the_partition_and_have_the_error() -> None:
    group, source = FakeGroup(), MemorySource[str]({"clicks": 1})

    async def fail_once(batch: Batch[str]) -> None:
        if batch.attempt == 1:
            raise LookupError("no such\ncustomer")

    options = ConsumerOptions(
        coordinator="http://127.0.0.1:1", group_id="g", topics=("clicks",), on_error="retry", error_backoff_ms=1
    )
    source.append("clicks", 0, "a")
    with Lines() as log:
        async with Consumer(options, source, fail_once, make_member=group.make_member):
            await group.assign({("clicks", 0)})
            await group.wait_committed({("clicks", 0): 1})
    (line,) = log.lines
    assert (line["topic"], line["partition"], line["generation_id"], line["group_id"]) == ("clicks", 0, 1, "g")
    assert line["level"] == "error"
    assert "LookupError: no such\ncustomer" in line["exception"]


def test_a_program_may_write_its_own_lines_so() -> None:
    record = logging.makeLogRecord(
        {
            "name": "mine",
            "levelname": "INFO",
            "msg": "took %d",
            "args": (3,),
            "order": {1},
            "time": "never",
            "created": 0,
        }
    )
    line = json.loads(JsonFormatter().format(record))
    assert line == {
        "time": "1970-01-01T00:00:00.000Z",
        "level": "info",
        "logger": "mine",
        "message": "took 3",
        "order": "{1}",
    }
    assert datetime.fromisoformat(line["time"])
