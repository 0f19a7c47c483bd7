"""The members in JavaScript and Go read what Kafka's consumers write as the Python library does, and answer in it. They
go where a node sends them by its rules, too.
"""

import asyncio
import json
import signal
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rallypoint.member.core.route import may_go_on_at
from rallypoint.protocol.consumer_bytes import partitions_of_bytes, read_assignment, read_subscription
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from rallypoint.protocol.operations import HEARTBEAT, JOIN, SYNC
from tests.end_to_end.service_process import running_service
from tests.examples.test_language_members import GROUP, PARTITIONS, describe, example, register, wait_until
from tests.judges.codec import encode
from tests.judges.group_service import GroupService
from tests.judges.opaque_bytes import ASSIGNMENT, SUBSCRIPTION
from tests.real.languages import GO, JAVASCRIPT, run_go
from tests.real.parts import alone_in

HERE = Path(__file__).parent
TOPICS = ("clicks", "a-b", "→", "__proto__", "t" * 200)
JUNK_BYTES = (
    b"", b"\0", b"\xff\xff\0\0\0\0\xff\xff\xff\xff", b"\0\0\x7f\xff\xff\xff", b"\0\0\xff\xff\xff\xff",
    b"\0\0\0\0\0\x01\0\x02a", b"\0\0\0\0\0\x01\0\x01\xff\xff\xff\xff\xff", b"\0\x01\0\0\0\0\xff\xff\xff\xff",
    b"\0\0\0\0\0\0\0\0\0\x09", b"\0\0\0\0\0\x01\xff\xff\xff\xff\xff\xff",
)  # fmt: skip
JUNK_JSON: tuple[Any, ...] = (None, 5, "clicks", [], {}, {"topics": "clicks"}, {"topics": None}, {"topics": [7]})

pytestmark = [pytest.mark.languages, pytest.mark.slow]


def as_json(data: bytes) -> Any:
    return {"base64": b64encode(data).decode()}


@pytest.fixture(scope="module", params=["javascript", "go"])
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sequence[str | Path]:
    """The command of a program that answers questions with the example's own functions."""
    command: Sequence[str | Path] = request.getfixturevalue(f"{request.param}_member")
    if request.param == "javascript":
        return [command[0], HERE / "read_bytes.mjs", JAVASCRIPT]
    folder = tmp_path_factory.mktemp("read_bytes")
    overlay = folder / "overlay.json"
    overlay.write_text(json.dumps({"Replace": {str(GO / "main.go"): str(HERE / "read_bytes.go")}}))
    with alone_in(Path(command[0]).parent):
        run_go(Path("go"), "build", "-overlay", overlay, "-o", folder / "read_bytes", ".")
    return [folder / "read_bytes"]


def answers_to(reader: Sequence[str | Path], questions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What it said to each; it has to go on whatever was asked, and to end well."""
    asked = "".join(json.dumps(question) + "\n" for question in questions)
    done = subprocess.run(reader, input=asked, capture_output=True, text=True, check=True, timeout=60)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(questions)
    return answers


def by_topic(partitions: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": list(numbers)} for topic, numbers in partitions.items()]


def subscription_bytes(chance: Random) -> bytes:
    version = chance.choice([0, 1, 2, 3, 9])
    value = {
        "topics": chance.sample(TOPICS, chance.randint(0, 3)),
        "user_data": chance.choice([None, b"", chance.randbytes(9)]),
        "owned_partitions": by_topic({topic: chance.sample(range(1 << 31), 2) for topic in chance.sample(TOPICS, 2)}),
        "generation_id": chance.randint(0, (1 << 31) - 1),
        "rack_id": chance.choice([None, "r"]),
    }
    return bytes([0, version]) + encode(SUBSCRIPTION, min(version, 3), value)


def assignment_bytes(chance: Random) -> bytes:
    version = chance.choice([0, 1, 2, 3, 9])
    # A topic may be named twice.
    assigned = by_topic({topic: chance.sample(range(1 << 31), chance.randint(0, 3)) for topic in TOPICS[:3]})
    value = {"assigned_partitions": assigned + assigned[:1], "user_data": chance.choice([None, b"more"])}
    return bytes([0, version]) + encode(ASSIGNMENT, min(version, 3), value)


def test_what_kafka_writes_is_read_as_the_library_reads_it(reader: Sequence[str | Path]) -> None:
    chance = Random(1)
    values = [as_json(subscription_bytes(chance)) for _ in range(200)]
    values += [{"topics": ["clicks"], "colour": "blue"}, {"base64": "", "topics": ["clicks"]}]
    for value, answer in zip(values, answers_to(reader, asked("subscription", values)), strict=True):
        known = read_subscription(OpaqueJson.of(value)).model_dump(mode="json")
        assert {name: answer["said"][name] for name in known} == known
    given = [None, as_json(b""), {}, {"user_data": 5}, {"partitions": {"clicks": [1, 0]}}]
    given += [as_json(assignment_bytes(chance)) for _ in range(200)]
    for value, answer in zip(given, answers_to(reader, asked("assignment", given)), strict=True):
        partitions = {} if value is None else read_assignment(OpaqueJson.of(value)).partitions
        assert answer == {"said": {topic: list(numbers) for topic, numbers in partitions.items()}}


def asked(what: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"what": what, "value": value} for value in values]


def test_what_is_none_is_refused_in_words(reader: Sequence[str | Path]) -> None:
    """Also whatever is cut short, at each byte."""
    chance = Random(2)
    told = [subscription_bytes(chance) for _ in range(5)]
    subscriptions = [as_json(data[:end]) for data in told for end in range(len(data))]
    subscriptions += [*map(as_json, JUNK_BYTES), *JUNK_JSON]
    # Without the user data, which a member has no use for.
    assigned = encode(ASSIGNMENT, 0, {"assigned_partitions": by_topic({"clicks": [1, 2], "a": []})})[:-4]
    assignments = [as_json((b"\0\0" + assigned)[:end]) for end in range(1, len(assigned) + 2)]
    assignments += [
        *map(as_json, JUNK_BYTES[1:7]),
        5,
        "clicks",
        [],
        {"partitions": {"clicks": "01"}},
        {"partitions": 7},
    ]
    questions = asked("subscription", subscriptions) + asked("assignment", assignments)
    for question, answer in zip(questions, answers_to(reader, questions), strict=True):
        assert answer.keys() == {"error"}, question
        assert answer["error"]


def test_a_member_follows_a_node_to_where_the_library_would(reader: Sequence[str | Path]) -> None:
    """Never with its token from https to plain http, and nowhere that is no node."""
    places = ["http://b:8000", "https://b:8000/", "http://b", "https://[::1]:1", "http://b/rallypoint/", "ftp://b:8000"]
    places += ["", "/", "b:8000", "//b:8000", "http://", "http://:8000", "http://b:0", "http://b:99999", "http://b:x"]
    places += ["http://b c", "http://b\n"]
    pairs = [(asked, named) for asked in ("http://a:8000", "https://a:8000") for named in places]
    questions = [{"what": "destination", "from": asked, "named": named} for asked, named in pairs]
    followed = [answer["said"] for answer in answers_to(reader, questions)]
    assert followed == [named.rstrip("/") if may_go_on_at(asked, named) else None for asked, named in pairs]
    assert len([url for url in followed if url]) == 7
    more = ({"from": "http://a", "named": f"http://{odd}"} for odd in ("me@b", "b?c", "b#c"))
    assert answers_to(reader, [{"what": "destination", **pair} for pair in (*more, {"from": "http://a"})]) == (
        [{"said": None}] * 4
    )


def test_whatever_the_bytes_are_they_are_read_alike_or_refused(reader: Sequence[str | Path]) -> None:
    """The library refuses more: what it reads it reads by the rules for names and numbers, too."""
    chance = Random(3)
    values = []
    for _ in range(500):
        data = bytearray(subscription_bytes(chance))
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
        values.append(as_json(bytes(data)))
    read = 0
    for value, answer in zip(values, answers_to(reader, asked("subscription", values)), strict=True):
        try:
            known = read_subscription(OpaqueJson.of(value))
        except ValueError:
            continue
        assert answer == {"said": known.model_dump(mode="json")}
        read += 1
    assert 50 < read < 450


def test_who_speaks_bytes_is_answered_in_bytes(reader: Sequence[str | Path]) -> None:
    chance = Random(4)
    shares = [{topic: chance.sample(range(1 << 31), 3) for topic in chance.sample(TOPICS, 3)} for _ in range(50)]
    shares += [{}, {"clicks": []}]
    forms = [as_json(subscription_bytes(chance)), as_json(b"junk"), {"topics": ["clicks"]}, 5]
    questions = [{"what": "write", "value": form, "partitions": share} for share in shares for form in forms]
    for question, answer in zip(questions, answers_to(reader, questions), strict=True):
        if question["value"] in forms[:2]:
            assert partitions_of_bytes(answer["said"]) == question["partitions"]
            assert read_assignment(OpaqueJson.of(answer["said"])).user_data is None
        else:
            assert answer == {"said": {"partitions": question["partitions"]}}


@dataclass
class BytesMember:
    """A member that speaks bytes, over HTTP. As leader it gives all members that speak JSON the same bytes, `gives`."""

    service: GroupService
    metadata: bytes
    gives: bytes = b""
    member_id: str = ""
    given: Any = None
    """Its assignment, as it came; None while it has none."""

    async def live(self) -> None:
        """Join, sync, and say so until a rebalance begins; again and again."""
        while True:
            joined = await self._call(JOIN, self._join())
            if joined is None:
                continue
            told = {"generation_id": joined["generation_id"], "member_id": self.member_id}
            synced = await self._call(SYNC, told | {"assignments": self._assign(joined)})
            if synced is None:
                continue
            self.given = synced["assignment"]
            while await self._call(HEARTBEAT, told | {"wait_ms": 1_000}) is not None:
                pass
            self.given = None

    async def _call(self, operation: Any, body: Mapping[str, Any]) -> Any:
        """None where the member has to join again."""
        answer = await self.service.call(operation, body, group_id=GROUP)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.body["member_id"]
            return None
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        assert answer.error_code == 0, answer
        return answer.body

    def _join(self) -> dict[str, Any]:
        return {
            "member_id": self.member_id,
            "client_id": "bytes",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": as_json(self.metadata)}],
            "session_timeout_ms": 45_000,
            "rebalance_timeout_ms": 60_000,
        }

    def _assign(self, joined: Mapping[str, Any]) -> list[dict[str, Any]]:
        if joined["leader"] != self.member_id:
            return []
        others = [member["member_id"] for member in joined["members"] if "base64" not in member["metadata"]]
        return [{"member_id": member_id, "assignment": as_json(self.gives)} for member_id in others]


@asynccontextmanager
async def living(service: GroupService, *told: bytes) -> AsyncIterator[list[BytesMember]]:
    """Members that live meanwhile. What goes wrong with one is raised in the end."""
    members = [BytesMember(service, metadata) for metadata in told]
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(member.live()) for member in members]
        yield members
        for task in running:
            task.cancel()


@pytest.mark.parametrize("language", ["javascript", "go"])
async def test_an_example_leads_and_follows_members_that_speak_bytes(
    tmp_path: Path, language: str, request: pytest.FixtureRequest
) -> None:
    command = request.getfixturevalue(f"{language}_member")
    log = tmp_path / f"{Path(command[-1]).name}.log"
    everything = set(range(PARTITIONS))
    told = [bytes([0, version]) + encode(SUBSCRIPTION, version, {"topics": ["clicks"]}) for version in range(4)]
    with running_service(tmp_path, "--group-initial-rebalance-delay-ms", "300") as service:
        register(service)
        async with (
            GroupService(service.url) as calls,
            example(command, service.url, tmp_path) as first,
        ):
            await wait_until("it has all", lambda: first.owned == everything)
            async with living(calls, *told, b"\0\x03cut short") as members:
                *whole, short = members

                def owned() -> list[int]:
                    given = [partitions_of_bytes(member.given) for member in whole if member.given is not None]
                    numbers = [*(first.owned or ()), *(n for each in given for n in (each or {}).get("clicks", ()))]
                    return sorted(numbers)

                await wait_until(
                    "all share", lambda: all(member.given for member in members) and owned() == sorted(everything)
                )
                assert describe(service)["leader"] == first.said[0]["member_id"]
                assert all(partitions_of_bytes(member.given) for member in whole), "each has some"
                assert partitions_of_bytes(short.given) == {}
                assert f"{short.member_id} gets nothing, for its metadata cannot be read: " in log.read_text()

                # Now one of those leads, as a Kafka client would.
                for member in members:
                    member.gives = b"\0\0\0\0\0\x09"
                assert await first.end(signal.SIGTERM) == 0
                async with example(command, service.url, tmp_path) as second:
                    assert await second.ended() != 0
                    assert second.said == []
                assert "what the leader gave cannot be read: " in log.read_text()
                assigned = {"assigned_partitions": by_topic({"clicks": range(PARTITIONS)}), "user_data": b"more"}
                for member in members:
                    member.gives = b"\0\x03" + encode(ASSIGNMENT, 3, assigned)
                async with example(command, service.url, tmp_path) as third:
                    await wait_until("it has all, in bytes", lambda: third.owned == everything)
                    assert describe(service)["leader"] in {member.member_id for member in members}
                    assert await third.end(signal.SIGTERM) == 0
