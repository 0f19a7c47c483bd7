"""What a node sees of what others write: the state of the cluster, and the contents of a keyspace that it follows.

Both read, and then watch from the next revision on. A watch that fails goes on after the last revision that was seen;
where etcd has compacted that, the reading begins again.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from itertools import groupby

from rallypoint.coordinator.storage.contract import Write
from rallypoint.coordinator.storage.etcd.client import (
    EtcdClient,
    EtcdCompacted,
    EtcdError,
    Get,
    KeyRange,
    Txn,
    WatchAnswer,
)
from rallypoint.coordinator.storage.etcd.keys import Keys, announcement_in
from rallypoint.coordinator.storage.etcd.pages import PageSize, after
from rallypoint.coordinator.storage.shared_contract import ClusterState, FollowedWrites, Owner, StoredFact

logger = logging.getLogger(__name__)

READ_TIMEOUT_S = 2.0
RETRY_INTERVAL_S = 0.5


class _Outage:
    """Logs the first failure of those that follow one another, however long etcd is away."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_known = False

    def met(self, error: Exception) -> None:
        """A read or a watch has failed; it is tried again."""
        if not self._is_known:
            logger.info("%s cannot be read or watched now, which is tried again: %s", self._what, error)
        self._is_known = True

    def is_over(self) -> None:
        """Something was read, or a watch has said something."""
        if self._is_known:
            logger.info("%s can be read again", self._what)
        self._is_known = False


async def _answered(call: Callable[[], Awaitable[WatchAnswer]], outage: _Outage) -> WatchAnswer | None:
    """The next answer of a watch; None where the watch has failed. Raises EtcdCompacted."""
    try:
        answer = await call()
    except EtcdCompacted:
        raise
    except (EtcdError, StopAsyncIteration) as error:
        outage.met(error)
        return None
    outage.is_over()
    return answer


# --- the state of the cluster ----------------------------------------------------------------------------------------


async def read_state(client: EtcdClient, keys: Keys) -> ClusterState:
    """The state at one revision. Raises EtcdError."""
    reads = tuple(Get(keys.all_of(kind)) for kind in ("node", "owner", "fact"))
    answer = await client.txn(Txn((), reads), READ_TIMEOUT_S)
    nodes, owners, facts = (found.pairs for found in answer.found)
    announcements = ((keys.name_in("node", pair.key), announcement_in(pair.value)) for pair in nodes)
    return ClusterState(
        answer.revision,
        {node_id: announcement for node_id, announcement in announcements if announcement is not None},
        {
            keys.name_in("owner", pair.key): Owner(pair.value.decode("utf-8", "replace"), pair.mod_revision)
            for pair in owners
        },
        {keys.name_in("fact", pair.key): StoredFact(pair.value, pair.mod_revision) for pair in facts},
    )


class _Changes:
    """Of a watch: whether there was one since the last look, and whether the watch goes on."""

    def __init__(self) -> None:
        self.revision = 0
        self.is_over = False
        self._something = asyncio.Event()

    def tell(self, revision: int) -> None:
        self.revision = max(self.revision, revision)
        self._something.set()

    def end(self) -> None:
        self.is_over = True
        self._something.set()

    async def wait(self) -> None:
        await self._something.wait()
        self._something.clear()


async def states(client: EtcdClient, keys: Keys) -> AsyncGenerator[ClusterState, None]:
    """Each state that somebody takes is read when it is taken, so changes meanwhile are one."""
    last: ClusterState | None = None
    outage = _Outage("the state of the cluster")
    while True:
        try:
            state = await read_state(client, keys)
        except EtcdError as error:
            outage.met(error)
            await asyncio.sleep(RETRY_INTERVAL_S)
            continue
        outage.is_over()
        if last is None or _differs(state, last):
            last = state
            yield state
        async with aclosing(_states_after(client, keys, state, outage)) as followers:
            async for state in followers:
                if _differs(state, last):
                    last = state
                    yield state
        await asyncio.sleep(RETRY_INTERVAL_S)


def _differs(state: ClusterState, last: ClusterState) -> bool:
    return (state.nodes, state.owners, state.facts) != (last.nodes, last.owners, last.facts)


async def _states_after(
    client: EtcdClient, keys: Keys, state: ClusterState, outage: _Outage
) -> AsyncGenerator[ClusterState, None]:
    """The states after this one; ends where the watch or a read fails."""
    changes = _Changes()
    ranges = [keys.all_of(kind) for kind in ("node", "owner", "fact")]
    watching = asyncio.create_task(_tell_changes(client, ranges, state.revision + 1, changes, outage))
    try:
        while True:
            await changes.wait()
            if changes.revision > state.revision:
                try:
                    state = await read_state(client, keys)
                except EtcdError as error:
                    outage.met(error)
                    return
                yield state
            if changes.is_over:
                return
    finally:
        watching.cancel()
        await asyncio.wait([watching])


async def _tell_changes(
    client: EtcdClient, ranges: Sequence[KeyRange], revision: int, changes: _Changes, outage: _Outage
) -> None:
    try:
        async with aclosing(client.watch(ranges, revision)) as watch:
            while (answer := await _answered(watch.__anext__, outage)) is not None:
                if answer.events:
                    changes.tell(answer.revision)
    except EtcdCompacted:
        logger.info("etcd has compacted what was to be watched: the state of the cluster is read again")
    except Exception:
        logger.exception("a fault ended the watch of the cluster, which begins again")
    finally:
        changes.end()


# --- a keyspace ------------------------------------------------------------------------------------------------------


async def follow(client: EtcdClient, keys: Keys, keyspace: str) -> AsyncGenerator[FollowedWrites, None]:
    """What the keyspace holds, and then what is written to it."""
    prefix = keys.data(keyspace)
    outage = _Outage(keyspace)
    while True:
        try:
            async with aclosing(_whole(client, prefix)) as parts:
                async for revision, part in parts:
                    outage.is_over()
                    last_revision = revision
                    yield part
            async with aclosing(_watched(client, prefix, last_revision, outage)) as followed:
                async for writes in followed:
                    yield writes
        except EtcdCompacted:
            logger.info("etcd has compacted what %s was to be read or watched at: it is read again", keyspace)
        except EtcdError as error:
            outage.met(error)
        await asyncio.sleep(RETRY_INTERVAL_S)


async def _whole(client: EtcdClient, prefix: bytes) -> AsyncGenerator[tuple[int, FollowedWrites], None]:
    """All that there is at one revision, which comes with each part."""
    size = PageSize()
    keys = after(prefix, None)
    revision = 0
    is_first = True
    while True:
        answer = await client.txn(Txn((), (Get(keys, size.rows, revision),)), READ_TIMEOUT_S)
        revision = revision or answer.revision
        pairs, more = answer.found[0]
        size.saw(pairs)
        writes = [Write(pair.key.removeprefix(prefix), pair.value) for pair in pairs]
        yield revision, FollowedWrites(writes, is_first, not more)
        if not more:
            return
        is_first = False
        keys = after(prefix, pairs[-1].key)


async def _watched(
    client: EtcdClient, prefix: bytes, revision: int, outage: _Outage
) -> AsyncGenerator[FollowedWrites, None]:
    """Each transaction after the revision. Ends never; raises EtcdCompacted."""
    while True:
        async with aclosing(client.watch([after(prefix, None)], revision + 1)) as watch:
            while (answer := await _answered(watch.__anext__, outage)) is not None:
                for at, events in groupby(answer.events, lambda event: event.mod_revision):
                    revision = at
                    writes = [Write(event.key.removeprefix(prefix), event.value) for event in events]
                    yield FollowedWrites(writes, is_whole=False, is_complete=True)
        await asyncio.sleep(RETRY_INTERVAL_S)
