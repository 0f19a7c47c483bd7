"""Names in a client's certificate as principals, and the end of the certificate."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from yarl import URL

from rallypoint.coordinator.http.tls.certificates import Certificates, TlsFiles
from tests.fakes.access_world import AccessWorld, bearer, open_world
from tests.fakes.api_server import ANSWER_SECONDS, Answer
from tests.fakes.certificates import Authority, PemFiles
from tests.fakes.channel_client import ChannelClient

POLICY = """\
[[allow]]
who = ["cert:spiffe://example.org/team/*", "token:etl"]
may = ["*"]
on = ["group:clicks*", "topic:clicks"]

[[allow]]
who = ["cert:old-name"]
may = ["describe"]
on = ["group:orders"]
"""
END = datetime(2027, 2, 1, tzinfo=UTC)
END_MS = round(END.timestamp() * 1000)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificates(authority: Authority) -> Certificates:
    node = authority.sign("node", "localhost", "127.0.0.1")
    return Certificates(TlsFiles(node.certificate, node.key, authority.ca, is_client_required=False))


@pytest.fixture(scope="module")
def member(authority: Authority) -> PemFiles:
    return authority.sign("member", "spiffe://example.org/team/etl", common_name="old-name", not_after=END)


@pytest.fixture(scope="module")
def stranger(authority: Authority) -> PemFiles:
    return authority.sign("stranger", "spiffe://example.org/teams", common_name="spiffe-team")


async def ask(
    world: AccessWorld, authority: Authority, shown: PemFiles | None, target: str, headers: dict[str, str] | None = None
) -> Answer:
    url = URL(f"https://localhost:{world.api.port}{target}")
    async with world.api.http.get(url, ssl=authority.client(shown), headers=headers) as answer:
        return Answer(answer.status, answer.headers, await answer.read())


async def test_each_name_in_a_certificate_is_a_principal(
    tmp_path: Path, authority: Authority, certificates: Certificates, member: PemFiles, stranger: PemFiles
) -> None:
    async with open_world(tmp_path, POLICY, ("etl",), certificates=certificates) as world:
        assert (await ask(world, authority, member, "/v1/groups/clicks")).status == 404
        assert (await ask(world, authority, member, "/v1/groups/orders")).status == 404, "by its common name"
        assert (await ask(world, authority, stranger, "/v1/groups/clicks")).status == 403
        assert (await ask(world, authority, None, "/v1/groups/clicks")).status == 401
        # a token counts beside a certificate: the caller is who the token says, or nobody
        assert (await ask(world, authority, member, "/v1/groups/orders", bearer("etl"))).status == 403
        assert (await ask(world, authority, member, "/v1/groups/clicks", bearer("guess"))).status == 401
    assert world.lines[0]["principal"] == "cert:spiffe://example.org/teams"


async def test_a_certificate_that_runs_out_ends_what_it_began(
    tmp_path: Path, authority: Authority, certificates: Certificates, member: PemFiles
) -> None:
    async with open_world(tmp_path, POLICY, ("etl",), certificates=certificates) as world:
        url = f"wss://localhost:{world.api.port}/v1/channel"
        async with world.api.http.ws_connect(url, ssl=authority.client(member)) as socket:
            channel = ChannelClient(socket)
            await channel.form("clicks")
            world.now_ms = END_MS - 1
            await world.look()
            assert len(await world.member_ids("clicks")) == 1
            world.now_ms = END_MS
            await world.look()
            assert await channel.close_code() == 1008
        assert await world.member_ids("clicks") == []
        answer = await ask(world, authority, member, "/v1/groups/clicks")
        assert answer.status == 401
        assert answer.headers["Connection"] == "close", "the client may have a new one for the next connection"


async def test_in_its_last_minute_each_answer_ends_its_connection(
    tmp_path: Path, authority: Authority, certificates: Certificates, member: PemFiles
) -> None:
    """So that a client that has renewed its certificate comes with the new one before the old one is refused."""
    async with open_world(tmp_path, POLICY, ("etl",), certificates=certificates) as world:
        world.now_ms = END_MS - 60_000
        assert "Connection" not in (await ask(world, authority, member, "/v1/groups")).headers
        world.now_ms += 1
        answer = await ask(world, authority, member, "/v1/groups")
        assert (answer.status, answer.headers["Connection"]) == (200, "close")


async def test_a_member_with_a_renewed_certificate_stays(
    tmp_path: Path, authority: Authority, certificates: Certificates, member: PemFiles
) -> None:
    renewed = authority.sign("renewed", "spiffe://example.org/team/etl")
    async with open_world(tmp_path, POLICY, ("etl",), certificates=certificates) as world:
        url = f"wss://localhost:{world.api.port}/v1/channel"
        async with world.api.http.ws_connect(url, ssl=authority.client(member)) as old:
            joined = await ChannelClient(old).form("clicks")
            async with world.api.http.ws_connect(url, ssl=authority.client(renewed)) as new:
                beat = {"generation_id": joined["generation_id"], "member_id": joined["member_id"]}
                assert (await ChannelClient(new).call("heartbeat", "clicks", beat))[0] == 200
                world.now_ms = END_MS
                await world.look()
                async with asyncio.timeout(ANSWER_SECONDS):
                    assert await ChannelClient(old).close_code() == 1008
                assert (await ChannelClient(new).call("heartbeat", "clicks", beat))[0] == 200
        assert await world.member_ids("clicks") == [joined["member_id"]]
