"""Answers of many offsets or members: the same words as of a small one, made chunk by chunk."""

import asyncio
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from rallypoint.coordinator.core.effects import LargeDescription, LargeFetch, LargeJoin, LargeTopicList
from rallypoint.coordinator.core.offsets import ANSWERED_AT_ONCE_MAX
from rallypoint.coordinator.core.records import TopicRecord
from rallypoint.coordinator.core.topics import LISTED_AT_ONCE_MAX, Registry, topic_answer, topics_answer
from rallypoint.coordinator.http.answers.answer_text import text_of
from rallypoint.coordinator.http.answers.large_answers import CHUNK_BYTES, CHUNK_ENTRIES, StreamedResponse, chunks_of
from rallypoint.coordinator.http.limits.work_turns import WorkTurns
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.opaque import OpaqueJson
from tests.coordinator.http.channel.test_channels import channel_of
from tests.fakes.manual_clock import ManualClock
from tests.fakes.set_service import open_service

TEXTS = st.text('a"\\\n\u00fc\U0001f600', max_size=5)
OFFSETS = st.dictionaries(
    TEXTS,
    st.dictionaries(
        st.integers(0, 5),
        st.builds(
            m.CommittedOffset,
            offset=st.integers(0, 9),
            leader_epoch=st.none() | st.integers(0, 3),
            metadata=TEXTS,
            commit_at_ms=st.none() | st.integers(0, 9),
        ),
        max_size=4,
    ),
    max_size=3,
)
MEMBERS = st.lists(
    st.builds(
        admin.DescribedMember,
        member_id=TEXTS,
        group_instance_id=st.none() | TEXTS,
        client_id=TEXTS,
        host=TEXTS,
        session_timeout_ms=st.integers(0, 9),
        rebalance_timeout_ms=st.integers(0, 9),
        metadata=st.sampled_from((OpaqueJson("null"), OpaqueJson('{"a":[1]}'))),
        assignment=st.sampled_from((OpaqueJson("null"), OpaqueJson('"x"'))),
    ),
    max_size=3,
)


def no_ends(topic: str) -> dict[int, int]:
    return {}


@given(OFFSETS)
def test_a_large_fetch_says_the_same(offsets: dict[str, dict[int, m.CommittedOffset]]) -> None:
    large = LargeFetch.model_construct(offsets=offsets)
    assert json.loads(b"".join(chunks_of(large, no_ends))) == json.loads(text_of(m.FetchAnswer(offsets=offsets)))


JOINED = st.lists(
    st.builds(
        m.JoinedMember,
        member_id=TEXTS,
        group_instance_id=st.none() | TEXTS,
        metadata=st.sampled_from((OpaqueJson("null"), OpaqueJson('{"a":[1]}'))),
    ),
    max_size=3,
)


@given(JOINED)
def test_a_large_answer_to_a_leader_says_the_same(members: list[m.JoinedMember]) -> None:
    answer: dict[str, Any] = {
        "generation_id": 3, "protocol_type": "consumer", "protocol_name": 'r"', "leader": "a", "member_id": "a",
        "skip_assignment": True, "members": tuple(members), "heartbeat_interval_ms": 7,
    }  # fmt: skip
    large = b"".join(chunks_of(LargeJoin(**answer), no_ends))
    assert json.loads(large) == json.loads(text_of(m.JoinAnswer(**answer)))


def test_a_chunk_ends_with_what_is_long() -> None:
    said = OpaqueJson.of("x" * (CHUNK_BYTES // 2))
    members = tuple(m.JoinedMember(member_id=f"m{n}", group_instance_id=None, metadata=said) for n in range(9))
    large = LargeJoin(
        generation_id=3, protocol_type="", protocol_name="", leader="", member_id="", members=members,
        heartbeat_interval_ms=7,
    )  # fmt: skip
    chunks = list(chunks_of(large, no_ends))
    assert max(map(len, chunks)) < 2 * CHUNK_BYTES
    assert json.loads(b"".join(chunks))["members"] == json.loads(text_of(m.JoinAnswer(**dict(large))))["members"]


@given(OFFSETS, MEMBERS, st.dictionaries(st.integers(0, 5), st.integers(0, 9), max_size=3))
def test_a_large_description_says_the_same(
    offsets: dict[str, dict[int, m.CommittedOffset]], members: list[admin.DescribedMember], ends: dict[int, int]
) -> None:
    given: dict[str, Any] = {
        "group_id": "g", "state": "Stable", "protocol_type": "consumer", "protocol_name": "range", "generation_id": 3,
        "leader": None, "members": tuple(members), "held_count": 2, "freeze_reason": 'a"b',
    }  # fmt: skip
    shown = {
        topic: {
            partition: one.model_copy(
                update={"end_offset": ends[partition], "lag": max(0, ends[partition] - one.offset)}
            )
            if partition in ends
            else one
            for partition, one in partitions.items()
        }
        for topic, partitions in offsets.items()
    }
    small = admin.DescribeAnswer(offsets=shown, **given)
    large = LargeDescription.model_construct(**{**dict(small), "offsets": offsets})
    assert json.loads(b"".join(chunks_of(large, lambda _: ends))) == json.loads(text_of(small))


TOPICS = st.lists(
    st.builds(
        TopicRecord,
        topic=TEXTS,
        partitions=st.integers(0, 9),
        version=st.integers(0, 9),
        end_offsets=st.dictionaries(st.integers(0, 20), st.integers(0, 9), max_size=4),
        replica_racks=st.lists(st.lists(TEXTS, max_size=2).map(tuple), max_size=3).map(tuple),
    ),
    max_size=3,
    unique_by=lambda topic: topic.topic,
)


@given(TOPICS, st.integers(0, 9), st.none() | TEXTS)
def test_a_large_page_of_topics_says_the_same(topics: list[TopicRecord], version: int, cursor: str | None) -> None:
    small = m.ListTopicsAnswer(topics=tuple(map(topic_answer, topics)), version=version, next_cursor=cursor)
    records: Any = tuple(topics)
    large = LargeTopicList.model_construct(topics=records, version=version, next_cursor=cursor)
    assert b"".join(chunks_of(large, no_ends)).decode() == text_of(small).decode()


def test_no_chunk_of_a_page_of_topics_has_more_than_its_share() -> None:
    """Many topics, or one of many partitions."""
    topics = {f"t{n}": TopicRecord(f"t{n}", 1, 1) for n in range(LISTED_AT_ONCE_MAX)}
    topics["u"] = TopicRecord("u", 9_000, 1, {n: n for n in range(9_000)}, (("r",),) * 9_000)
    answer = topics_answer(Registry(version=1, topics=topics), topics, None)
    assert isinstance(answer, LargeTopicList)
    chunks = list(chunks_of(answer, no_ends))
    assert max(chunk.count(b",") for chunk in chunks) <= 4 * CHUNK_ENTRIES
    assert len(json.loads(b"".join(chunks))["topics"]) == LISTED_AT_ONCE_MAX + 1
    few = topics_answer(Registry(version=1, topics=topics), ["t1", "t2"], "t2")
    assert not isinstance(few, LargeTopicList)


def test_no_chunk_has_more_than_its_share() -> None:
    one = m.CommittedOffset(offset=1)
    offsets = {f"t{topic}": dict.fromkeys(range(2_500), one) for topic in range(4)}
    chunks = list(chunks_of(LargeFetch.model_construct(offsets=offsets), no_ends))
    assert max(chunk.count(b'"offset"') for chunk in chunks) == CHUNK_ENTRIES
    assert sum(chunk.count(b'"offset"') for chunk in chunks) == 10_000
    with pytest.raises(AssertionError):
        text_of(LargeFetch.model_construct(offsets=offsets))


def commit_body(count: int) -> dict[str, Any]:
    partitions = {str(n): {"offset": n, "metadata": "x"} for n in range(count)}
    return {"generation_id": -1, "offsets": {"t": partitions, "u": {"0": {"offset": 7}}}}


async def test_others_have_their_turn_after_each_chunk_though_none_has_to_wait_for_his() -> None:
    turns, clock = WorkTurns(), ManualClock()
    made: list[str] = []

    def chunks(name: str) -> Iterator[bytes]:
        for _ in range(5):
            made.append(name)
            yield b"chunk"

    async def answer(name: str) -> None:
        connection = SimpleNamespace(recent_work=turns.new_connection(), ssl_context=None, peername=None, sockname=None)
        request = make_mocked_request("GET", "/", protocol=cast(Any, connection))
        response = StreamedResponse(chunks(name), clock, turns)
        await response.prepare(request)
        await response.write_eof()

    names = list("abcdefgh")
    await asyncio.gather(*map(answer, names))
    assert made == names * 5


async def test_a_large_group_is_shown_whole_over_http() -> None:
    count = ANSWERED_AT_ONCE_MAX + 5
    async with open_service() as api:
        assert (await api.request("POST", "/v1/groups/g/offsets", commit_body(count))).status == 200
        await api.request("PUT", "/v1/topics/u", {"partitions": 1, "end_offsets": {"0": 10}})
        fetched = await api.request("GET", "/v1/groups/g/offsets")
        assert fetched.headers["Content-Type"] == "application/json"
        assert {topic: len(of) for topic, of in fetched.json["offsets"].items()} == {"t": count, "u": 1}
        assert fetched.json["offsets"]["t"]["9"] == {"offset": 9, "leader_epoch": None, "metadata": "x"}
        described = (await api.request("GET", "/v1/groups/g")).json
        assert (described["state"], described["members"], len(described["offsets"]["t"])) == ("Empty", [], count)
        assert (described["offsets"]["u"]["0"]["lag"], described["offsets"]["t"]["9"]["lag"]) == (3, None)
        small = await api.request("GET", "/v1/groups/g/offsets?topic=u&topic=v")
        assert small.json == {"offsets": {"u": {"0": {"offset": 7, "leader_epoch": None, "metadata": ""}}, "v": {}}}
        assert (await api.request("HEAD", "/v1/groups/g/offsets")).status == 200


async def test_a_large_fetch_on_a_channel_is_answered_before_what_came_behind_it() -> None:
    count = ANSWERED_AT_ONCE_MAX + 5
    async with channel_of() as (api, client):
        assert (await api.request("POST", "/v1/groups/g/offsets", commit_body(count))).status == 200
        numbers = [await client.send("fetch", "g", {}) for _ in range(3)]
        numbers.append(await client.send("fetch", "g", {"topics": ["u"]}))
        for number in numbers[:3]:
            status, answer = await client.answer(number)
            assert (status, len(answer["offsets"]["t"])) == (200, count)
        status, answer = await client.answer(numbers[3])
        assert (status, set(answer["offsets"])) == (200, {"u"})
