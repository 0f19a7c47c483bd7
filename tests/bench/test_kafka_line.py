"""The members of the benchmarks at a Kafka broker: their words in Kafka's bytes, and back."""

import os
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.crowd import TOPIC, Crowd, is_rebalancing
from bench.kafka import check_offsets, no_generations, wait_until_ready
from bench.kafka_line import KafkaLine
from bench.lasting import measure_residents
from bench.line import Answer, ConnectionBrokenError
from bench.metrics import is_right
from bench.plan import Plan
from bench.process import Server
from rallypoint.protocol.operations import COMMIT, FETCH, HEARTBEAT, JOIN
from tests.bench.requests_expected import requests_expected
from tests.real.kafka import create_topic

HEARTBEAT_BODY = {"generation_id": 7, "member_id": "m"}


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.is_closed = True


def open_line() -> tuple[KafkaLine, Transport]:
    line, transport = KafkaLine("127.0.0.1", 1), Transport()
    line.connection_made(transport)  # type: ignore[arg-type]
    return line, transport


async def answer_to(line: KafkaLine, frame: bytes, *pieces: bytes) -> Answer:
    """What the line makes of a response that comes in pieces."""
    waiting = line.exchange(frame)
    waiting.send(None)  # up to where it waits
    for piece in pieces:
        line.data_received(piece)
    try:
        waiting.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("there is no answer yet")


def response(key: int, content: bytes) -> bytes:
    return (4 + len(content)).to_bytes(4) + key.to_bytes(4) + content


def test_a_heartbeat_has_the_bytes_of_the_protocol_guide() -> None:
    line, _ = open_line()
    assert line.frame_of(HEARTBEAT, "g", HEARTBEAT_BODY) == (
        b"\x00\x00\x00\x1b"  # size
        b"\x00\x0c\x00\x03\x00\x00\x00\x0c"  # API 12, version 3, its number
        b"\x00\x05bench"  # client id
        b"\x00\x01g\x00\x00\x00\x07\x00\x01m\xff\xff"  # group, generation, member, no instance
    )


async def test_an_answer_may_come_in_pieces() -> None:
    line, transport = open_line()
    frame = line.frame_of(HEARTBEAT, "g", HEARTBEAT_BODY)
    whole = response(12, bytes(6))
    assert await answer_to(line, frame, *(bytes((byte,)) for byte in whole)) == Answer(200, b"{}")
    assert transport.written == [frame]


async def test_a_rebalance_is_told_as_the_members_know_it() -> None:
    line, _ = open_line()
    frame = line.frame_of(HEARTBEAT, "g", HEARTBEAT_BODY)
    told = await answer_to(line, frame, response(12, bytes(4) + (27).to_bytes(2)))
    assert is_rebalancing(told)
    fenced = await answer_to(line, frame, response(12, bytes(4) + (25).to_bytes(2)))
    assert not is_rebalancing(fenced)
    assert fenced.json()["error_code"] == 25


async def test_what_is_too_short_or_too_much_breaks_the_line() -> None:
    for wrong in (response(12, bytes(5)), response(12, bytes(6)) + b"x"):
        line, transport = open_line()
        with pytest.raises(ConnectionBrokenError):
            await answer_to(line, line.frame_of(HEARTBEAT, "g", HEARTBEAT_BODY), wrong)
        assert transport.is_closed


@pytest.mark.kafka
@pytest.mark.slow
async def test_the_members_share_a_group_of_a_real_broker(kafka_bootstrap_servers: str) -> None:
    create_topic(kafka_bootstrap_servers, TOPIC, 8)
    host, port = kafka_bootstrap_servers.split(":")
    group_id = "bench-line"
    server = Server(1, f"kafka://{kafka_bootstrap_servers}")
    await wait_until_ready(server, group_id)

    async with Crowd(host, int(port), group_id, KafkaLine) as crowd:
        # The crowd itself compares each member's assignment with what the leader gave it.
        # Four at once may take the broker more than one generation, by whose join comes after the first round closed.
        await crowd.grow(4)
        assert len(crowd.members) == 4
        joined = await crowd.grow(1)
        assert (joined.generations, len(crowd.members)) == (1, 5)
        await crowd.rest()
        for member in crowd.members:
            await member.beat()
        assert (await crowd.rejoin(1)).generations == 1

        member = crowd.members[0]
        line = member.line
        assert line is not None
        offsets = {TOPIC: {"3": {"offset": 42, "metadata": "x"}}}
        committed = await line.exchange(line.frame_of(COMMIT, group_id, {**member.heartbeat, "offsets": offsets}))
        assert committed == Answer(200, b'{"offsets":{"bench":{"3":{"error_code":0}}}}')
        await check_offsets(server, crowd, {"3": 42})
        client = AdminClient({"bootstrap.servers": kafka_bootstrap_servers, "log_level": 0})
        asked = ConsumerGroupTopicPartitions(group_id, [TopicPartition(TOPIC, 3)])
        found = client.list_consumer_group_offsets([asked])[group_id].result(30)
        assert [(each.partition, each.offset) for each in found.topic_partitions] == [(3, 42)]

        stale = {**member.heartbeat, "generation_id": 1}
        refused = await line.exchange(line.frame_of(HEARTBEAT, group_id, stale))
        assert (refused.status, refused.json()["error_code"]) == (409, 22)
        await crowd.disband()
        line = await crowd.connect()
        assert (await line.exchange(line.frame_of(FETCH, group_id, {}))).status == 200
        asked_anew = {
            "member_id": "", "client_id": "late", "protocol_type": "consumer", "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000, "protocols": [{"name": "range", "metadata": {"topics": [TOPIC]}}],
        }  # fmt: skip
        handed_out = (await line.exchange(line.frame_of(JOIN, group_id, asked_anew))).json()
        assert handed_out["error_code"] == 79
        assert handed_out["member_id"].startswith("late-")
        line.close()


@pytest.mark.kafka
@pytest.mark.slow
async def test_members_that_stay_at_a_real_broker_send_heartbeats(kafka_bootstrap_servers: str, tmp_path: Path) -> None:
    server = Server(os.getpid(), f"kafka://{kafka_bootstrap_servers}")
    await wait_until_ready(server, "residents-0")
    plan = Plan(seconds=3.0, sizes=(4,), at_rest=4, rounds=1, directory=tmp_path, held=4)
    found = await measure_residents("kafka-quiet", plan, server, tmp_path, no_generations, "--line", "kafka")
    assert is_right(found), found
    assert (found.connections, found.members) == (4, 4)
    least, most = requests_expected(found, 4)
    assert least <= found.requests <= most
