"""Tokens that are replaced while a member runs: over channels, over HTTP, and for calls beside the group."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from rallypoint import BlockingGroupMember, ChannelPool, GroupMember, MemberOptions, NotAuthenticated, TokenFile
from rallypoint.member.http import HttpTransport
from rallypoint.member.tokens import TokenUnavailable, headers_of
from tests.fakes.fake_coordinator import FakeCoordinator, running_in_thread


def options(fake: FakeCoordinator, **changes: Any) -> MemberOptions:
    return MemberOptions(coordinator=fake.url, group_id="g", topics=("clicks",), retry_backoff_ms=1, **changes)


@pytest.mark.parametrize("transport", ["channel", "http"])
async def test_a_function_is_asked_for_each_connection(transport: str) -> None:
    async with FakeCoordinator({"clicks": 2}, token="first") as fake:
        present = "first"
        async with GroupMember(options(fake, token=lambda: present, transport=transport)) as member:
            held = await member.wait_assigned(30_000)
            fake.token = present = "second"
            fake.channels.cut()
            async with asyncio.timeout(30):
                while transport == "channel" and fake.channels.opened_count < 2:  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.001)
            await fake.rebalance()
            held = await member.wait_assigned(30_000, newer_than=held.generation_id)
            await member.commit({("clicks", 0): 3})
            await member.put_topic("clicks", 2, {})
        assert fake.group.members == {}, "the leave was taken, too"


async def test_one_that_raises_is_as_a_service_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCoordinator({"clicks": 1}, token="secret") as fake:
        failures = 5

        def token() -> str:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise FileNotFoundError("no such file")
            return "secret"

        with caplog.at_level(logging.WARNING, "rallypoint.member"):
            async with GroupMember(options(fake, token=token)) as member:
                await member.wait_assigned(30_000)
    assert "the function of the token raised FileNotFoundError: no such file; trying again" in caplog.text


async def test_one_that_the_service_does_not_know_stops_the_member() -> None:
    async with FakeCoordinator({"clicks": 1}, token="secret") as fake:
        member = GroupMember(options(fake, token=lambda: "other"))
        await member.start()
        with pytest.raises(NotAuthenticated):
            await member.wait_assigned(30_000)
        await member.close()


def test_plain_programs_have_it_too(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    fake = FakeCoordinator({"clicks": 1}, token="secret")
    with running_in_thread(fake), BlockingGroupMember(options(fake, token=TokenFile(file))) as member:
        assert member.wait_assigned(30_000).partitions == {("clicks", 0)}


async def test_members_with_one_file_share_a_channel_and_those_with_two_do_not(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("secret")
    two.write_text("secret")
    async with FakeCoordinator({"clicks": 1}, token="secret") as fake:
        for files, count in (((one, one), 1), ((one, two), 2)):
            pool = ChannelPool()
            first, second = (GroupMember(options(fake, token=TokenFile(file)), channels=pool) for file in files)
            await first.start()
            await first.wait_assigned(30_000)
            await second.start()
            await second.committed()
            assert pool.channel_count == count
            await second.leave()
            await first.leave()


@pytest.mark.parametrize("given", [None, 7, "", " ", "two\nlines"])
def test_what_is_no_token_is_never_sent_or_told(given: Any) -> None:
    with pytest.raises(TokenUnavailable, match="gave no token") as raised:
        headers_of(lambda: given)
    assert "two" not in str(raised.value)


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, asyncio.CancelledError, pytest.fail.Exception])
def test_whatever_the_function_raises_there_is_no_token(error: type[BaseException]) -> None:
    def give() -> str:
        raise error("odd")

    with pytest.raises(TokenUnavailable, match=r"the function of the token raised .*: odd"):
        headers_of(give)


def test_a_file_that_is_empty_or_gone_says_so(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    with pytest.raises(ValueError, match="token is empty"):
        TokenFile(tmp_path / "token")()
    (tmp_path / "token").write_text("two\nlines")
    with pytest.raises(ValueError, match="token holds several lines"):
        TokenFile(tmp_path / "token")()
    with pytest.raises(TokenUnavailable, match="FileNotFoundError"):
        headers_of(TokenFile(tmp_path / "none"))


def test_a_token_is_text_or_a_function_and_is_not_shown() -> None:
    base: dict[str, Any] = {"coordinator": "http://127.0.0.1:1", "group_id": "g", "topics": ("clicks",)}
    with pytest.raises(ValueError, match="token: a text, or a function that gives one, not int"):
        MemberOptions(**(base | {"token": 7}))
    assert "s3cret" not in repr(MemberOptions(**base, token="s3cret"))
    assert headers_of("s3cret") == {"Authorization": "Bearer s3cret"}
    assert headers_of(None) == {}
    HttpTransport("s3cret")
