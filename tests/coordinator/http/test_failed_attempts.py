"""Refusals of unknown tokens wait once there are many; whoever has a token that is known waits for nobody."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.core.network import network_of
from rallypoint.coordinator.http.limits.failed_attempts import (
    AT_ONCE_MAX,
    NETWORKS_MAX,
    PER_SECOND,
    WAIT_MAX_MS,
    FailedAttempts,
)
from rallypoint.coordinator.http.security import SecurityPolicy
from tests.fakes.access_world import bearer
from tests.fakes.api_server import ANSWER_SECONDS, Answer, ApiClient
from tests.fakes.channel_client import open_channel
from tests.fakes.manual_clock import ManualClock
from tests.fakes.set_service import open_service

HERE, THERE = network_of("192.0.2.7"), network_of("192.0.2.8")


def test_the_first_are_refused_at_once_and_the_others_at_a_steady_pace() -> None:
    attempts = FailedAttempts()
    assert [attempts.add(HERE, 1_000) for _ in range(AT_ONCE_MAX)] == [0] * AT_ONCE_MAX
    assert [attempts.add(HERE, 1_000) for _ in range(3)] == [200, 400, 600]
    assert attempts.add(THERE, 1_000) == 0, "another address has done nothing"


def test_no_wait_is_longer_than_the_longest_and_all_is_forgotten() -> None:
    attempts = FailedAttempts()
    waits = [attempts.add(HERE, 1_000) for _ in range(10_000)]
    assert waits == sorted(waits)
    assert waits[-1] == WAIT_MAX_MS
    later_ms = 1_000 + WAIT_MAX_MS + AT_ONCE_MAX * 1_000 // PER_SECOND
    assert [attempts.add(HERE, later_ms) for _ in range(AT_ONCE_MAX)] == [0] * AT_ONCE_MAX


def test_whoever_waits_for_each_answer_fails_so_many_times_a_second() -> None:
    attempts, now_ms, count = FailedAttempts(), 0, 0
    while now_ms < 60_000:
        now_ms += attempts.add(HERE, now_ms)
        count += 1
    assert count <= AT_ONCE_MAX + 60 * PER_SECOND + 1


def test_addresses_that_are_remembered_are_bounded_and_the_busiest_stays() -> None:
    attempts, seed = FailedAttempts(), random.Random(4)
    for _ in range(AT_ONCE_MAX + 10):
        attempts.add(HERE, 0)
    for number in range(NETWORKS_MAX):
        attempts.add(network_of(f"2001:db8:{number // 9_999:x}:{number % 9_999:x}::1"), 0)
        if seed.random() < 0.01:
            attempts.add(HERE, 0)
    assert len(attempts) == NETWORKS_MAX
    assert attempts.add(HERE, 0) > 0


# --- over HTTP and on channels, by a clock that a test moves


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def api(clock: ManualClock) -> AsyncIterator[ApiClient]:
    async with open_service(clock=clock, policy=SecurityPolicy(tokens=(hash_token("known"),))) as api:
        yield api


async def ask(api: ApiClient, token: str) -> Answer:
    return await api.request("GET", "/v1/groups", headers=bearer(token))


async def passed(clock: ManualClock, waiting: "asyncio.Future[Any]") -> None:
    """Let time pass until it is done."""
    async with asyncio.timeout(ANSWER_SECONDS):
        while not waiting.done():
            clock.move(100)
            await asyncio.sleep(0.001)


async def test_a_refusal_that_waits_keeps_no_neighbour_waiting(api: ApiClient, clock: ManualClock) -> None:
    """All come from one address, as behind a proxy."""
    at_once = [await ask(api, "guess") for _ in range(AT_ONCE_MAX)]
    waiting = asyncio.gather(*(ask(api, "guess") for _ in range(20)))
    for _ in range(30):
        assert (await ask(api, "known")).status == 200
    async with open_channel(api.http, api.port) as channel:
        assert (await channel.call("authenticate", token="known"))[0] == 200
    assert not waiting.done(), "time stands still, so nobody else's turn has come"
    await passed(clock, waiting)
    words = {(answer.status, answer.json["detail"]) for answer in (*at_once, *waiting.result())}
    assert words == {(401, "The service does not know this token.")}, "the late ones are refused as the first were"


async def test_the_first_message_of_a_channel_waits_too_and_there_is_no_second_try(
    api: ApiClient, clock: ManualClock
) -> None:
    for _ in range(AT_ONCE_MAX):
        await ask(api, "guess")
    async with open_channel(api.http, api.port) as client:
        await client.socket.send_str('{"id": 1, "op": "authenticate", "token": "guess"}')
        await client.socket.send_str('{"id": 2, "op": "authenticate", "token": "known"}')
        answer = asyncio.ensure_future(client.answer(1))
        for _ in range(30):
            assert (await ask(api, "known")).status == 200
        assert not answer.done()
        await passed(clock, answer)
        assert answer.result()[0] == 401
        assert await client.close_code() == 1008
        assert client.pushes == []


async def test_a_channel_that_waits_longer_than_a_token_may_take_is_told_all_the_same(
    api: ApiClient, clock: ManualClock
) -> None:
    for _ in range(AT_ONCE_MAX):
        await ask(api, "guess")
    others = asyncio.gather(*(ask(api, "guess") for _ in range(40)))
    async with open_channel(api.http, api.port) as client:
        while (await ask(api, "known")).status == 200 and clock.planned < 40:
            pass
        answer = asyncio.ensure_future(client.call("authenticate", token="guess"))
        await passed(clock, answer)
        assert answer.result()[0] == 401
        assert await client.close_code() == 1008
    await passed(clock, others)
