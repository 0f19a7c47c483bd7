"""What is durable, as keyed facts. A record replaces the one of the same key; a `…Forgotten` takes it away.

Written through `apply` like every other fact, live and at load; how they look on disk is the codec's business.
The highest generation ever handed out stands in the group's header, so that a generation lost in a crash is never
used again. A member's key carries the generation in which it was written: members of a generation that the header
does not name yet are invisible to a load, which lets a change larger than a batch be written in chunks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from rallypoint.protocol.opaque import OpaqueJson


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """Header of a group.

    generation_id: the last generation whose assignment was stored, or that emptied the group.
    partition_counts: the registered partitions of the subscribed topics that the assignment was made for. A difference
        found later, even after a crash, triggers a rebalance.
    state_at_ms: since when the group is in its state.
    """

    group_id: str
    protocol_type: str | None
    protocol_name: str | None
    generation_id: int
    highest_generation_id: int
    leader: str | None
    state_at_ms: int
    partition_counts: Mapping[str, int] = field(default_factory=dict)


class MemberRecord(NamedTuple):
    """A member with its assignment.

    generation_id: the generation in which the record was written.
    seniority: orders members by when they were added, lowest first.
    metadata: that of the chosen protocol.
    request_id: that of the member's last join.
    attempt: that of the same join; None where it had none, and where an older release has written the record.
    first_request_id: of the join that gave a static member its id, as far as it is known.
    removed: an operator has taken the member out since: a load leaves it out too, and shares out what it owned.
    """

    group_id: str
    member_id: str
    generation_id: int
    seniority: int
    group_instance_id: str | None
    client_id: str
    host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    disconnect_grace_ms: int | None
    metadata: OpaqueJson
    assignment: OpaqueJson
    request_id: str | None = None
    removed: bool = False
    attempt: int | None = None
    first_request_id: str | None = None


@dataclass(frozen=True, slots=True)
class MemberForgotten:
    """The member's record of that generation is gone."""

    group_id: str
    member_id: str
    generation_id: int


@dataclass(frozen=True, slots=True)
class MemberGone:
    """In that generation the member is no more. Stands for a `MemberForgotten` that came too early for its batch.

    Written only where a change is stored in chunks: invisible until the header names the generation, and taken away
    when the older record that it hides is gone. No group ever knows of it.
    """

    group_id: str
    member_id: str
    generation_id: int


class OffsetRecord(NamedTuple):
    """The committed offset of a partition: the next one to read."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str
    commit_at_ms: int


@dataclass(frozen=True, slots=True)
class OffsetForgotten:
    """The committed offset of a partition is gone."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupForgotten:
    """The group's header is gone."""

    group_id: str


class Outcome(StrEnum):
    """How a rebalance ended, as far as the store knows. One that is in progress in the store and not in memory was cut
    off by the end of the process.
    """

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    EMPTIED = "emptied"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason for a rebalance.

    trigger: what happened.
    reason: the same in a sentence.
    member_id, client_id, host: the member, which may be gone by now. None if no member is the cause.
    at_ms: when it happened.
    """

    trigger: str
    reason: str
    member_id: str | None
    client_id: str | None
    host: str | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class RebalanceRecord:
    """One rebalance of the group, written as it begins, when its generation is made, and as it ends.

    rebalance_id: grows by one with each rebalance of the group.
    cause: may be older than the beginning, since it may have been held back.
    generation_id: None until the generation is made.
    join_phase_ms, sync_phase_ms: None while the phase lasts, and if there was none.
    partitions_moved: None if the assignments cannot be read.
    further: the first causes that came besides.
    further_count: counts all causes that came besides.
    """

    group_id: str
    rebalance_id: int
    previous_generation_id: int
    began_at_ms: int
    cause: Cause
    generation_id: int | None = None
    join_phase_ms: int | None = None
    sync_phase_ms: int | None = None
    member_count: int | None = None
    partitions_moved: int | None = None
    outcome: Outcome = Outcome.IN_PROGRESS
    further: tuple[Cause, ...] = ()
    further_count: int = 0


@dataclass(frozen=True, slots=True)
class RebalanceForgotten:
    """The rebalance is older than those that are kept, or its group is gone."""

    group_id: str
    rebalance_id: int


@dataclass(frozen=True, slots=True)
class HoldRecord:
    """What an operator has set for the group's rebalances. None: not frozen; the cool-down, and the longest wait for a
    join, of the settings.

    freeze_until: what ends the freeze before its time (`roster`); None for nothing.
    freeze_roster: the members of when it began, id to name; empty where none are waited for.

    Apart from the header, which is written again with each rebalance and knows nothing of operators.
    """

    group_id: str
    frozen_until_ms: int | None
    freeze_reason: str | None
    cooldown_ms: int | None
    freeze_until: str | None = None
    freeze_roster: Mapping[str, str] = field(default_factory=dict)
    join_wait_max_ms: int | None = None


@dataclass(frozen=True, slots=True)
class HoldForgotten:
    """Nothing is set for the group's rebalances any more."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DeletionsRecord:
    """Offsets that the group has of topics deleted up to this version of the registry were committed afterwards.

    Written beside an offset that would otherwise be taken for one from before the deletion.
    """

    group_id: str
    version: int


@dataclass(frozen=True, slots=True)
class DeletionsForgotten:
    """It is not said any more, for the group is gone."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic of the registry. `version`: the registry's at the topic's last change.

    `replica_racks`: by partition the racks of its replicas, the leader's first, an empty entry where they are not
    known. It has as many entries as there are partitions, or none where nothing is known of any.
    """

    topic: str
    partitions: int
    version: int
    end_offsets: Mapping[int, int] = field(default_factory=dict)
    replica_racks: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class TopicForgotten:
    """The topic is gone from the registry."""

    topic: str


@dataclass(frozen=True, slots=True)
class EndsHistoryRecord:
    """Where the topic ended at each of these times, the oldest first: by partition, as far as it had been reported."""

    topic: str
    reported_at_ms: tuple[int, ...]
    ends: tuple[Mapping[int, int], ...]


@dataclass(frozen=True, slots=True)
class EndsHistoryForgotten:
    """Nothing is said of where the topic ended."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeletedTopicRecord:
    """The topic was deleted in that version of the registry, and perhaps not every group has heard of it yet.

    Stands beside a `TopicRecord` where the topic was registered again.
    """

    topic: str
    version: int


@dataclass(frozen=True, slots=True)
class DeletedTopicForgotten:
    """Every group has heard of the topic's deletion."""

    topic: str


@dataclass(frozen=True, slots=True)
class RegistryRecord:
    """Header of the topic registry: its version, which grows by one with each change."""

    version: int


class Pause(NamedTuple):
    """Between the two nobody served the shard. Each is told by the clock of its side: the second may be the earlier
    one, where that clock was put back meanwhile.
    """

    ran_until_ms: int
    ran_again_ms: int


@dataclass(frozen=True, slots=True)
class RunningTimeRecord:
    """When a shard was served: at most until `ran_until_ms`, and not in the pauses, the oldest first. The first of all
    is where counting began, and takes no time.

    Written ahead: no instant that is stored in the shard is later than `ran_until_ms`.
    """

    ran_until_ms: int
    pauses: tuple[Pause, ...]


NEVER_PAUSED = RunningTimeRecord(0, ())
"""If nothing is known of pauses."""


@dataclass(frozen=True, slots=True)
class FormatRecord:
    """The newest format in which anything of the store was written, and the release that was the first to do so.

    How this record looks never changes, so that every release can read what every other one says.
    """

    major: int
    minor: int
    release: str


UNFINISHED_COPY = 0
"""For the major version in a `FormatRecord`: the store is being copied to, or that was cut off. No release reads it."""


@dataclass(frozen=True, slots=True)
class LayoutRecord:
    """How the store is divided, written when it is made: a group is looked for in the shard that this number gives."""

    shards: int


@dataclass(frozen=True, slots=True)
class GenerationFloorRecord:
    """The store was restored from a backup: any generation up to this one may have been handed out, of any group."""

    generation_id: int


GroupFact = (
    GroupRecord
    | MemberRecord
    | MemberForgotten
    | OffsetRecord
    | OffsetForgotten
    | GroupForgotten
    | RebalanceRecord
    | RebalanceForgotten
    | HoldRecord
    | HoldForgotten
    | DeletionsRecord
    | DeletionsForgotten
)
RegistryFact = (
    TopicRecord
    | TopicForgotten
    | EndsHistoryRecord
    | EndsHistoryForgotten
    | DeletedTopicRecord
    | DeletedTopicForgotten
    | RegistryRecord
    | GenerationFloorRecord
)
Record = GroupFact | MemberGone | RunningTimeRecord | RegistryFact | LayoutRecord | FormatRecord
"""Everything that the store keeps. A group's records live in the group's shard, beside the shard's running time; the
registry's, the layout and the floor of generations in a keyspace of their own."""
