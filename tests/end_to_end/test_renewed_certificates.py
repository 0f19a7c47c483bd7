"""Certificates that are renewed under members: nobody rejoins, and who comes afterwards is judged by the new files."""

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rallypoint import ChannelPool, GroupMember, MemberOptions
from rallypoint.member.core.outcomes import Answered, Outcome, Unreachable
from rallypoint.member.http import HttpTransport
from rallypoint.member.tls_files import TlsFiles
from rallypoint.protocol import operations as ops
from tests.end_to_end.service_process import running_service
from tests.fakes.certificates import Authority, PemFiles
from tests.sizes import by_size

MEMBERS = by_size(20, 100, 1_000)
GROUPS = 10
REFUSED = "a node that does not accept the client's certificate, or misses one"


async def ask(url: str, tls: TlsFiles) -> Outcome:
    """Over a connection of its own; again where a busy machine did not even take it in time."""
    async with asyncio.timeout(120):
        while True:
            transport = HttpTransport(tls=tls)
            outcome = await transport.call(url, ops.LIST_TOPICS, None, group_id="", timeout_ms=30_000)
            await transport.close()
            if not (isinstance(outcome, Unreachable) and outcome.reason.startswith("no answer within")):
                return outcome


async def served_serial(port: int, context: ssl.SSLContext) -> Any:
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    try:
        return writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
    finally:
        writer.transport.abort()


async def test_certificates_are_renewed_under_members_and_nobody_rejoins(tmp_path: Path) -> None:
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    node = old.sign("node", "localhost", "127.0.0.1", into=PemFiles(tmp_path / "node.pem", tmp_path / "node.key"))
    mine = old.sign("member", "etl.example.org", into=PemFiles(tmp_path / "me.pem", tmp_path / "me.key"))
    foreign = new.sign("foreign", "etl.example.org")
    expired = old.sign("expired", "etl.example.org", not_after=datetime(2021, 1, 1, tzinfo=UTC))
    clients = tmp_path / "clients.pem"
    clients.write_bytes(old.ca.read_bytes())
    shown = TlsFiles(old.ca, mine.certificate, mine.key)
    words = ("--tls-certificate", str(node.certificate), "--tls-key", str(node.key), "--tls-client-ca", str(clients))
    with running_service(tmp_path, *words, "--group-initial-rebalance-delay-ms", "500") as service:
        pool = ChannelPool()
        members = [
            GroupMember(
                MemberOptions(
                    coordinator=service.url,
                    group_id=f"g{number % GROUPS}",
                    topics=("clicks",),
                    ca=old.ca,
                    certificate=mine.certificate,
                    key=mine.key,
                ),
                partition_counts={"clicks": MEMBERS},
                channels=pool,
            )
            for number in range(MEMBERS)
        ]
        try:
            for member in members:
                await member.start()
            async with asyncio.timeout(120):
                await settled(members)
            before = [held.generation_id for member in members if (held := member.assignment)]
            serial = await served_serial(service.port, old.client(mine))
            for files in (foreign, expired):
                refused = await ask(service.url, TlsFiles(old.ca, files.certificate, files.key))
                assert isinstance(refused, Unreachable)
                assert REFUSED in refused.reason or "the other side" in refused.reason, refused.reason

            old.sign("node", "localhost", "127.0.0.1", into=node)
            clients.write_bytes(old.ca.read_bytes() + new.ca.read_bytes())
            async with asyncio.timeout(120):
                while await served_serial(service.port, old.client(mine)) == serial:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.2)
                now_trusted = TlsFiles(old.ca, foreign.certificate, foreign.key)
                while not isinstance(await ask(service.url, now_trusted), Answered):  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            old.sign("member", "etl.example.org", into=mine)
            assert isinstance(await ask(service.url, shown), Answered)
            for member in members:
                assert member.assignment is not None
                await member.commit({next(iter(member.assignment.partitions)): 1})
            after = [held.generation_id for member in members if (held := member.assignment)]
            assert after == before
            assert len(before) == MEMBERS
        finally:
            await asyncio.gather(*(member.close() for member in members))


async def settled(members: list[GroupMember]) -> None:
    """Wait until all members of each group are of one generation, and hold everything between them."""
    while True:
        held = [await member.wait_assigned() for member in members]
        groups = [held[first::GROUPS] for first in range(GROUPS)]
        if all(
            len({one.generation_id for one in group}) == 1 and sum(len(one.partitions) for one in group) == MEMBERS
            for group in groups
        ):
            return
        await asyncio.sleep(0.05)
