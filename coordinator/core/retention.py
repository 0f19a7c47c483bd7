"""What time takes away: committed offsets that nobody uses any more, and a group of which nothing is left.

Each group is looked at every `offsets_retention_check_interval_ms`, by a timer of its own that goes with it. An offset
expires `offsets_retention_ms` after

    a group without a protocol type   its commit
    a typed group that is Empty       its commit, or the moment when the group became Empty: what came later
    consumers, Stable, readable       its commit, where nobody subscribes to the topic
    anything else                     never: while a group rebalances its subscription may look empty (KAFKA-13636)

Time in which the group's shard was not served does not count (`running_time`): a service that was off for a week, or
began again with its clock years ahead, forgets nothing because of it.

Kafka counts a typed Empty group's offsets from the moment alone, so that what is committed to a group that has been
Empty for long, or reset by an operator, would be gone at the next look.
"""

from collections.abc import Iterator
from itertools import islice

from rallypoint.coordinator.core.commands import DecisionContext
from rallypoint.coordinator.core.decision import Draft, retention_timer
from rallypoint.coordinator.core.deletion import forget_offsets, remove_group, subscribes
from rallypoint.coordinator.core.effects import OffsetsRemoved, Removal
from rallypoint.coordinator.core.group import Group, State
from rallypoint.coordinator.core.running_time import ran_ms
from rallypoint.protocol.group_hash import java_string_hash

EXPIRED_AT_ONCE_MAX = 10_000
"""Offsets that expire in one step, so that it fits in a batch and keeps nobody waiting; the others follow at once."""


def arm_after_load(group: Group, context: DecisionContext, draft: Draft) -> None:
    """Look at the group within one interval. Groups that are loaded together are spread over the second half of it."""
    interval_ms = context.rules.offsets_retention_check_interval_ms
    early_ms = java_string_hash(group.group_id) % (interval_ms // 2 + 1)
    draft.set_timer(retention_timer(), context.now_ms + interval_ms - early_ms)


def check(group: Group, context: DecisionContext, draft: Draft) -> None:
    """Forget what has expired; then the group too, if it is Empty and nothing is left of it.

    Cost: a look at each committed offset of a group in which some can expire.
    """
    if group.state is State.DEAD:
        return
    found = list(islice(_expired(group, context), EXPIRED_AT_ONCE_MAX + 1))
    expired = found[:EXPIRED_AT_ONCE_MAX]
    left_count = sum(map(len, group.offsets.values())) - len(expired)
    # An id that was handed out is about to join this very group.
    if group.state is State.EMPTY and not left_count and not group.pending:
        if expired:
            draft.notify(OffsetsRemoved(group.group_id, tuple(expired), Removal.EXPIRED))
        remove_group(group, Removal.EXPIRED, context, draft)
        return
    forget_offsets(group, expired, Removal.EXPIRED, draft)
    wait_ms = 0 if len(found) > len(expired) else context.rules.offsets_retention_check_interval_ms
    draft.set_timer(retention_timer(), context.now_ms + wait_ms)


def _expired(group: Group, context: DecisionContext) -> Iterator[tuple[str, int]]:
    began_ms = _count_from(group)
    if began_ms is None:
        return
    retention_ms = context.rules.offsets_retention_ms
    if context.now_ms - began_ms < retention_ms:
        return
    at_ms, is_old = None, False
    for topic, partitions in group.offsets.items():
        if subscribes(group, topic):
            continue
        for partition, record in partitions.items():
            # Those of one commit have one time.
            if record.commit_at_ms != at_ms:
                at_ms = record.commit_at_ms
                is_old = ran_ms(at_ms, context.now_ms, context.running) >= retention_ms
            if is_old:
                yield topic, partition


def _count_from(group: Group) -> int | None:
    """The moment from which all the group's offsets count at the earliest; None where none of them expires now."""
    if group.protocol_type is None:
        return 0
    if group.state is State.EMPTY:
        return group.state_at_ms
    # Members of another type are none whose subscription can be read.
    return 0 if group.state is State.STABLE else None
