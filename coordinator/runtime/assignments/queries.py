"""Queries about assignments that cost more than a step of a group may take: answered beside the event loop.

The group's executor describes the group, as for any call. The rest is pure computation and runs on a thread, so the
event loop goes on answering heartbeats.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from rallypoint.assignors import registry
from rallypoint.assignors.placement.partitioners import partition_for_key
from rallypoint.coordinator.core.commands import AssignmentRequest
from rallypoint.coordinator.core.effects import Failure, GroupAnswer
from rallypoint.coordinator.core.topics import Registry
from rallypoint.coordinator.runtime.assignments.partition_owners import Made, OwnerIndexes, index_of
from rallypoint.coordinator.runtime.assignments.preview import preview
from rallypoint.coordinator.runtime.event_loop.worker_thread import WorkThread
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode

AskGroup = Callable[[str, AssignmentRequest], Awaitable[GroupAnswer | Failure]]


class AssignmentQueries:
    """Answers them. Belongs to one event loop; `close` it at the end."""

    def __init__(
        self, ask: AskGroup, registry: Callable[[], Registry], indexes: OwnerIndexes, preview_size_max: int
    ) -> None:
        """`ask` calls a group, `registry` gives the topics as they stand, `indexes` are dropped by others."""
        self._ask = ask
        self._registry = registry
        self._indexes = indexes
        self._preview_size_max = preview_size_max
        # Two, so that the owner of a partition need not wait for somebody's large supposition.
        self._reading = WorkThread("rallypoint-owners")
        self._supposing = WorkThread("rallypoint-preview")

    def close(self) -> None:
        """Answer everyone who waits, and begin nothing more."""
        self._reading.close()
        self._supposing.close()

    async def find_owner(self, group_id: str, request: admin.OwnerRequest) -> admin.OwnerAnswer | Failure:
        """The owner of the partition, by what is durable. Only the first query of a new generation costs much."""
        partition = partition_of(request, self._registry().partition_counts)
        if isinstance(partition, Failure):
            return partition
        index = await self.index_of(group_id)
        if isinstance(index, Failure):
            return index
        return admin.OwnerAnswer(
            group_id=group_id,
            topic=request.topic,
            partition=partition,
            state=index.state,
            generation_id=index.generation_id,
            owner=index.find(request.topic, partition),
        )

    async def index_of(self, group_id: str) -> Made:
        """The owners of all partitions of the group. Only the first query of a new generation costs much."""
        return await self._indexes.get(group_id, partial(self._make_index, group_id))

    async def _make_index(self, group_id: str) -> Made:
        group = await self._ask(group_id, AssignmentRequest())
        if not isinstance(group, admin.DescribeAnswer):
            assert isinstance(group, Failure)
            return group
        return await self._reading.run(partial(index_of, group))

    async def preview(self, group_id: str, request: admin.PreviewRequest) -> admin.PreviewAnswer | Failure:
        """What the assignment would be. Changes nothing."""
        group = await self._ask(group_id, AssignmentRequest())
        if not isinstance(group, admin.DescribeAnswer):
            assert isinstance(group, Failure)
            return group
        counts, racks = self._registry().partition_counts, self._registry().replica_racks
        return await self._supposing.run(
            partial(preview, group, request, counts, racks, registry.find, self._preview_size_max)
        )


def partition_of(request: admin.OwnerRequest, counts: Mapping[str, int]) -> int | Failure:
    """The partition that is asked about. `counts`: partitions of the registered topics.

    Errors: INVALID_REQUEST unless exactly one of partition and keys is given; UNKNOWN_TOPIC_OR_PARTITION for one beyond
    the topic's, and for a key of a topic that nobody registered, since nobody knows among how many it is placed.
    """
    if sum(given is not None for given in (request.partition, request.key, request.key_base64)) != 1:
        return Failure(ErrorCode.INVALID_REQUEST, "Name one of partition, key and key_base64.", field="partition")
    count = counts.get(request.topic)
    if request.partition is not None:
        if count is not None and request.partition >= count:
            detail = f"{request.topic} has {count} partitions, numbered from 0."
            return Failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail, field="partition")
        return request.partition
    key = _key_of(request)
    if isinstance(key, Failure):
        return key
    if count is None:
        detail = f"Topic {request.topic} is not registered, so nobody knows in which partition a key is."
        return Failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail, field="topic")
    return partition_for_key(key, count)


def _key_of(request: admin.OwnerRequest) -> bytes | Failure:
    if request.key is not None:
        return request.key.encode()
    text = (request.key_base64 or "").translate(_URL_SAFE)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        detail = "key_base64 is no base64; in a query, + is written %2B, or - of the alphabet for URLs."
        return Failure(ErrorCode.INVALID_REQUEST, detail, field="key_base64")


_URL_SAFE = str.maketrans("-_", "+/")
