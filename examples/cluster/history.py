"""etcd's history as it is read: all of it for the audit, and the owners as they change for the picture."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import groupby

from examples.cluster.audit import Change, Revision
from examples.cluster.pauses import OwnerChange
from rallypoint.coordinator.storage.etcd.client import (
    EtcdClient,
    EtcdCompacted,
    EtcdError,
    Get,
    KeyRange,
    Put,
    Txn,
    WatchEvent,
)
from rallypoint.coordinator.storage.etcd.grpc_client import GrpcEtcdClient
from rallypoint.coordinator.storage.etcd.keys import Keys, range_of_prefix

CALL_TIMEOUT_S = 5.0
RETRY_SECONDS = 0.2
SHARD = "shard-"


async def read_history(addresses: Sequence[str], prefix: str) -> AsyncGenerator[Revision, None]:
    """Every revision of the prefix, from etcd's first on, up to now. Raises EtcdError, also where etcd was compacted.

    A key below the prefix marks the end; no node reads it.
    """
    client = GrpcEtcdClient(addresses)
    try:
        mark = Put(f"{prefix}/audit".encode(), b"")
        last = (await client.txn(Txn((), (mark,)), CALL_TIMEOUT_S)).revision
        async with aclosing(read_part(client, prefix, 1, last)) as revisions:
            async for revision in revisions:
                yield revision
    finally:
        await client.close()


async def read_part(client: EtcdClient, prefix: str, first: int, last: int) -> AsyncGenerator[Revision, None]:
    """The revisions of the prefix from `first` to `last`, both included. Raises EtcdError.

    Where nothing is written below the prefix any more, etcd is asked after seconds whether that was all.
    """
    async with aclosing(client.watch([range_of_prefix(f"{prefix}/".encode())], first)) as answers:
        async for answer in answers:
            for number, events in groupby(answer.events, lambda event: event.mod_revision):
                if number <= last:
                    yield Revision(number, [Change(event.key, event.value) for event in events])
                if number >= last:
                    return
            if not answer.events and answer.revision >= last:
                return


async def follow_owners(addresses: Sequence[str], prefix: str, changes: list[OwnerChange], revision: int = 0) -> None:
    """Add each change of a shard's owner after the revision, as etcd tells of it, until this is cancelled.

    Where etcd has compacted the changes that come next, it goes on with those from now on.
    """
    client = GrpcEtcdClient(addresses)
    keys = Keys(prefix)
    try:
        while True:
            try:
                async with aclosing(client.watch([keys.all_of("owner")], revision + 1)) as answers:
                    async for answer in answers:
                        at_ms = int(time.monotonic() * 1000)
                        for event in answer.events:
                            revision = event.mod_revision
                            changes += _change(keys, event, at_ms)
            except EtcdCompacted:
                revision = await revision_now(client)
            except EtcdError:
                await asyncio.sleep(RETRY_SECONDS)
    finally:
        await client.close()


async def revision_now(client: EtcdClient) -> int:
    """The revision of all that etcd holds now. Raises EtcdError."""
    return (await client.txn(Txn((), (Get(KeyRange(b"\0")),)), CALL_TIMEOUT_S)).revision


def _change(keys: Keys, event: WatchEvent, at_ms: int) -> list[OwnerChange]:
    name = keys.name_in("owner", event.key)
    if not name.startswith(SHARD):
        return []
    return [OwnerChange(at_ms, int(name.removeprefix(SHARD)), None if event.value is None else event.value.decode())]
