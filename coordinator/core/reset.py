"""Resets of committed offsets by an operator. Only a group without members can be reset, so no work is undone.

A reset writes offsets without metadata: the old metadata belongs to the old offset.
"""

from collections.abc import Mapping

from rallypoint.coordinator.core import ends_history
from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core.capacity import offsets_room, over_limit
from rallypoint.coordinator.core.commands import Call, DecisionContext
from rallypoint.coordinator.core.decision import Draft
from rallypoint.coordinator.core.deletion import keep_apart
from rallypoint.coordinator.core.effects import Failure, OffsetsReset
from rallypoint.coordinator.core.group import Group, check_empty
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import limits
from rallypoint.protocol.errors import ErrorCode


def reset(group: Group, call: Call, request: admin.ResetOffsetsRequest, context: DecisionContext, draft: Draft) -> None:
    """Put the offsets of the partitions asked for where the request says. Each partition has a result.

    Errors of the whole: INVALID_REQUEST, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP. A partition that has an error keeps what
    it has; the others are reset all the same.
    """
    failure = _check_values(request) or check_empty(group)
    if failure is not None:
        draft.reply(call, failure)
        return
    asked = _partitions(group, request, context)
    if isinstance(asked, Failure):
        draft.reply(call, asked)
        return
    results = {
        topic: {partition: _reset_one(group, topic, partition, request, context) for partition in partitions}
        for topic, partitions in asked.items()
    }
    failure = _check_room(group, results, context)
    if failure is not None:
        draft.reply(call, failure)
        return
    draft.reply(call, admin.ResetOffsetsAnswer(dry_run=request.dry_run, offsets=results))
    if not request.dry_run:
        _write(group, request, results, context, draft)


def _check_values(request: admin.ResetOffsetsRequest) -> Failure | None:
    """`offset`, `shift` and `offsets` stand where `to` names them, and nowhere else."""
    for name, value in (("offset", request.offset), ("shift", request.shift), ("offsets", request.offsets)):
        if request.to == name and value is None:
            return Failure(ErrorCode.INVALID_REQUEST, f"A reset to {name!r} needs the field {name}.", field=name)
        if request.to != name and value is not None:
            detail = f"The field {name} has no meaning in a reset to {request.to!r}."
            return Failure(ErrorCode.INVALID_REQUEST, detail, field=name)
    if (request.to == "time") != (request.at_ms is not None):
        detail = "A reset to 'time' needs the field at_ms, and no other reset has it."
        return Failure(ErrorCode.INVALID_REQUEST, detail, field="at_ms")
    if request.offsets is not None and request.topics is not None:
        detail = "A reset to 'offsets' names its partitions in offsets, not in topics."
        return Failure(ErrorCode.INVALID_REQUEST, detail, field="topics")
    return None


def _partitions(
    group: Group, request: admin.ResetOffsetsRequest, context: DecisionContext
) -> dict[str, list[int]] | Failure:
    """What is to be reset. Of a whole topic: its registered partitions, and those that the group has committed."""
    if request.offsets is not None:
        # The models bound how many there are.
        return {topic: sorted(partitions) for topic, partitions in request.offsets.items()}
    topics = dict.fromkeys(sorted(group.offsets)) if request.topics is None else request.topics
    found: dict[str, list[int]] = {}
    limit = left = context.rules.request_partitions_max
    for topic, named in topics.items():
        count = context.partition_counts.get(topic, 0)
        beyond = [partition for partition in group.offsets.get(topic, ()) if partition >= count]
        left -= count + len(beyond) if named is None else len(named)
        if left < 0:
            detail = "The reset has too many partitions: name fewer"
            code = ErrorCode.INVALID_REQUEST
            return over_limit("request_partitions_max", limit, detail, code=code, field="topics")
        found[topic] = sorted(set(named)) if named is not None else [*range(count), *sorted(beyond)]
    return found


def _check_room(
    group: Group, results: Mapping[str, Mapping[int, admin.PartitionReset]], context: DecisionContext
) -> Failure | None:
    """A reset also writes offsets of partitions that had none; there may be no room for them."""
    added = sum(result.before is None and result.after is not None for of in results.values() for result in of.values())
    if added <= max(0, offsets_room(group, context.rules)):
        return None
    detail = f"The group has {group.offset_count} committed partitions, and the reset would add {added}"
    return over_limit("group_offsets_max", context.rules.group_offsets_max, detail, field="topics")


def _reset_one(
    group: Group, topic: str, partition: int, request: admin.ResetOffsetsRequest, context: DecisionContext
) -> admin.PartitionReset:
    held = group.offsets.get(topic, {}).get(partition)
    before = None if held is None else held.offset
    registered = context.topics.get(topic)
    if registered is not None and partition >= registered.partitions:
        return _refused(before, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    end = None if registered is None else registered.end_offsets.get(partition)
    reported_at_ms: int | None = None
    target: int | None
    if request.at_ms is not None:
        history = context.ends_history.get(topic)
        found = ends_history.end_at(history, partition, request.at_ms, end)
        if found is None:
            detail = ends_history.why_unknown(history, topic, partition, request.at_ms)
            return _refused(before, ErrorCode.OFFSET_NOT_AVAILABLE, detail)
        reported_at_ms, target = found
    else:
        target = _target(request, before, end) if request.offsets is None else request.offsets[topic][partition]
    if target is None:
        return _refused(before, ErrorCode.OFFSET_NOT_AVAILABLE)
    after = max(0, min(target, limits.OFFSET_MAX if end is None else end))
    return admin.PartitionReset(
        before=before,
        after=after,
        clamped=after != target,
        error_code=ErrorCode.NONE,
        error_name=ErrorCode.NONE.name,
        at_ms=reported_at_ms,
    )


def _target(request: admin.ResetOffsetsRequest, before: int | None, end: int | None) -> int | None:
    """The offset that the request asks for; None if it depends on an end or a commit that is not known."""
    match request.to:
        case "earliest":
            return 0
        case "latest":
            return end
        case "offset":
            return request.offset
        case "shift":
            return None if before is None or request.shift is None else before + request.shift
        case "offsets" | "time":
            raise AssertionError("each partition has its own")


def _refused(before: int | None, code: ErrorCode, detail: str | None = None) -> admin.PartitionReset:
    return admin.PartitionReset(before=before, after=before, error_code=code, error_name=code.name, detail=detail)


def _write(
    group: Group,
    request: admin.ResetOffsetsRequest,
    results: dict[str, dict[int, admin.PartitionReset]],
    context: DecisionContext,
    draft: Draft,
) -> None:
    written: list[tuple[str, int, int]] = []
    for topic, partitions in results.items():
        for partition, result in partitions.items():
            if result.error_code != ErrorCode.NONE or result.after is None:
                continue
            draft.fact(
                r.OffsetRecord(
                    group_id=group.group_id,
                    topic=topic,
                    partition=partition,
                    offset=result.after,
                    leader_epoch=None,
                    metadata="",
                    commit_at_ms=context.now_ms,
                )
            )
            written.append((topic, partition, result.after))
    if written:
        keep_apart(group, {topic for topic, _, _ in written}, context, draft)
        draft.notify(OffsetsReset(group.group_id, request.to, tuple(written), context.now_ms))
