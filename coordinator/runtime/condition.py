"""The node's condition in numbers, and whether it is ready for calls. Pure.

Load balancers ask for readiness, and take out a node that is not ready. So a node is ready as long as it serves any of
its shards: no other node can serve them, and one shard of fifty that cannot be loaded is no reason to refuse the calls
for forty-nine. While nothing can be stored, the node changes nothing for anybody and is not ready. The same answer
names what the node cannot serve, and so do metrics, for an alert.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.storage.contract import StoreStatus
from rallypoint.protocol.errors import ErrorCode

READY = "ready"
"""The phase in which groups are served."""


class ShardState(StrEnum):
    """Of a shard on this node; `shard.py` says what each means."""

    ABSENT = "Absent"
    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class UnavailableShard:
    """A shard of this node that is not served now. `kind` is the type of `error`, which is None while it loads first.

    The kind can be shown to anybody; the error names files and keys.
    """

    number: int
    state: ShardState
    error: str | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of the node.

    phase: the phase of its life.
    shards: how many shards are in which state.
    unavailable: its own shards that it does not serve now.
    damaged_groups: groups that are shut off, each by itself.
    stray_records: stored records that belong to no group that can be identified.
    unreadable_topics: topics whose record cannot be read.
    records_passed_over: stored records of kinds that only a newer release knows.
    append_age_ms: for how long the oldest append has been under way; 0 if none is.
    metadata_bytes: what the metadata of all members takes in memory.
    store: the condition of the store.
    """

    phase: str
    shards: Mapping[ShardState, int]
    unavailable: tuple[UnavailableShard, ...] = ()
    damaged_groups: int = 0
    stray_records: int = 0
    unreadable_topics: int = 0
    records_passed_over: int = 0
    append_age_ms: int = 0
    metadata_bytes: int = 0
    store: StoreStatus = field(default_factory=StoreStatus)


def why_not_serving(phase: str) -> Failure | None:
    """What to answer while groups are not served: not while they load first, nor once the service stops."""
    if phase == READY:
        return None
    if phase in {"starting", "loading"}:
        return Failure(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The service is loading its groups.")
    return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The service is {phase}.")


def why_not_ready(condition: Condition) -> Failure | None:
    """Why the node should be sent no calls; None where it should, even if some of its shards are not served."""
    failure = why_not_serving(condition.phase)
    if failure is not None:
        return failure
    if condition.store.trouble is not None:
        return Failure(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"Nothing can be stored now: {condition.store.trouble}. The log says more.",
        )
    if not condition.unavailable or condition.shards[ShardState.ACTIVE]:
        return None
    failed = [shard for shard in condition.unavailable if shard.state is ShardState.FAILED]
    if failed:
        detail = f"No shard can be loaded; shard {failed[0].number}: {failed[0].kind}. The log says more."
        return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail)
    return Failure(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "All shards are being reloaded.")
