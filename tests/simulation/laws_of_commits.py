"""Laws of progress: I3, what was committed stays; I4, who may commit at all."""

import json
from dataclasses import dataclass
from typing import Any

from rallypoint.coordinator.core.commands import DeleteGroupRequest
from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.group import Group, State
from rallypoint.coordinator.core.records import MemberRecord, OffsetRecord
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.simulation.checker import Checker, Sight, TopicDeletion
from tests.simulation.fold import FoldedGroup, OffsetKey
from tests.simulation.network import Answer, ApiCall

OfPartition = tuple[str, str, int]
"""Group, topic, partition."""


@dataclass(slots=True, eq=False)
class _Writing:
    """What would put a partition's offset there, or take it away (None). `ended_at`: None while it may still happen."""

    offset: int | None
    asked_at: int
    asked_at_ms: int
    ended_at: int | None = None
    is_acknowledged: bool = False


class I3Commits(Checker):
    """What was acknowledged is what every later fetch returns, until a later commit, reset, deletion or expiry; crashes
    included.

    Each of these that has an unknown outcome may show or not. One that was refused for what it says never shows, nor
    does a dry run. What is acknowledged is durable before. An offset goes by itself only when it is older than the
    retention, and no member that is stored and still there subscribes to its topic. With a topic of the registry goes
    what was asked for before its deletion was answered, wherever it was committed, and nothing that was acknowledged
    later.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._writings: dict[OfPartition, list[_Writing]] = {}
        self._open: dict[ApiCall | TopicDeletion, list[tuple[OfPartition, _Writing]]] = {}
        self._deletions: list[ApiCall] = []
        self._of_topics: list[TopicDeletion] = []
        self._topics_gone: dict[str, int] = {}
        self._first_asked: dict[tuple[OfPartition, int], int] = {}
        self._began_at_ms: dict[OffsetRecord, int] = {}
        self._stood: dict[str, dict[OffsetKey, OffsetRecord]] = {}
        self._members_before: dict[str, dict[str, MemberRecord]] = {}

    # --- what is asked -----------------------------------------------------------------------------------------------

    def on_call(self, api_call: ApiCall) -> None:
        match api_call.request:
            case m.CommitRequest(offsets=offsets):
                for topic, partitions in offsets.items():
                    for partition, commit in partitions.items():
                        self._begin(api_call, (api_call.group_id, topic, partition), commit.offset)
            case admin.ResetOffsetsRequest(dry_run=False, offsets=dict() as offsets_of):
                for topic, put in offsets_of.items():
                    for partition, offset in put.items():
                        self._begin(api_call, (api_call.group_id, topic, partition), offset)
            case admin.ResetOffsetsRequest(dry_run=False, topics=topics) as request:
                for topic, named in (topics or {}).items():
                    for partition in named or ():
                        self._begin(api_call, (api_call.group_id, topic, partition), request.offset or 0)
            case admin.DeleteOffsetsRequest() | DeleteGroupRequest():
                self._deletions.append(api_call)
                for where in self._writings:
                    if _takes_away(api_call, where):
                        self._add(api_call, where, None)

    def _begin(self, api_call: ApiCall, where: OfPartition, offset: int) -> None:
        if where not in self._writings:
            self._writings[where] = []
            for deletion in self._deletions:
                if _takes_away(deletion, where):
                    self._add(deletion, where, None)
            for of_topic in self._of_topics:
                if of_topic.topic == where[1]:
                    self._add(of_topic, where, None)
        self._first_asked.setdefault((where, offset), api_call.number)
        self._add(api_call, where, offset)

    def deleting(self, deletion: TopicDeletion) -> None:
        self._of_topics.append(deletion)
        for where in self._writings:
            if where[1] == deletion.topic:
                self._add(deletion, where, None)

    def _add(self, api_call: ApiCall | TopicDeletion, where: OfPartition, offset: int | None) -> None:
        entry = _Writing(offset, api_call.number, self.sight.now_ms)
        self._writings[where].append(entry)
        self._open.setdefault(api_call, []).append((where, entry))

    def hung_up(self, api_call: ApiCall, connection_lost: bool = False) -> None:
        self._open.pop(api_call, None)

    # --- what is answered --------------------------------------------------------------------------------------------

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        if isinstance(answer, m.FetchAnswer):
            self._check(api_call, answer)
            return
        if api_call in self._deletions:
            self._deletions.remove(api_call)
        for where, entry in self._open.pop(api_call, ()):
            outcome = _outcome(answer, where, entry)
            if outcome is False:
                self._writings[where].remove(entry)
            elif outcome:
                entry.ended_at = self.sight.number
                entry.is_acknowledged = True
                self._check_durable(where, entry)

    def deleted(self, deletion: TopicDeletion, is_done: bool | None, *, is_under_way: bool = False) -> None:
        if is_done is not None or not (is_under_way or self._is_stored(deletion)):
            self._end(deletion, is_done=bool(is_done))
        # Else it is done when its write is, or heard of when the registry reads its store again; nobody knows when.

    def _is_stored(self, deletion: TopicDeletion) -> bool:
        return self.sight.fold.deleted.get(deletion.topic, 0) > deletion.before

    def _end(self, deletion: TopicDeletion, *, is_done: bool) -> None:
        self._of_topics.remove(deletion)
        if is_done:
            self._topics_gone[deletion.topic] = self.sight.number
        for where, entry in self._open.pop(deletion, ()):
            if is_done:
                entry.ended_at = self.sight.number
                entry.is_acknowledged = True
            else:
                self._writings[where].remove(entry)

    def _check_durable(self, where: OfPartition, entry: _Writing) -> None:
        group_id, topic, partition = where
        folded = self.sight.fold.group(group_id)
        if entry.offset is not None:
            if not self._is_written(folded, where, entry):
                self.fail(f"{group_id}: {topic}-{partition} at {entry.offset} is acknowledged, not stored")
            return
        stands = folded.offsets.get((topic, partition))
        if stands is None:
            return
        by = [x for x in self._writings[where] if x.offset == stands.offset]
        if by and all(x.ended_at is not None and x.ended_at < entry.asked_at for x in by):
            self.fail(f"{group_id}: {topic}-{partition} was deleted, and {stands.offset} is stored still")

    def _is_written(self, folded: FoldedGroup, where: OfPartition, entry: _Writing) -> bool:
        return entry.offset in folded.written.get(where[1:], set())

    def _check(self, api_call: ApiCall, answer: m.FetchAnswer) -> None:
        for topic, partitions in answer.offsets.items():
            for partition in partitions:
                if (api_call.group_id, topic, partition) not in self._writings:
                    self.fail(f"{api_call.group_id}: {topic}-{partition} shows what nobody committed")
        for (group_id, topic, partition), writings in self._writings.items():
            if group_id != api_call.group_id:
                continue
            done = [x.asked_at for x in writings if x.is_acknowledged and (x.ended_at or 0) < api_call.number]
            last = max(done, default=0)
            allowed = {x.offset for x in writings if x.ended_at is None or x.ended_at >= last}
            if not done:
                allowed.add(None)
            found = answer.offsets.get(topic, {}).get(partition)
            offset = None if found is None else found.offset
            if offset not in allowed:
                may_be = sorted(str(x) for x in allowed)
                self.fail(f"{group_id}: {topic}-{partition} shows {offset}; it may be {', '.join(may_be)}")
            # What a later acknowledged writing has overwritten never comes back.
            writings[:] = [x for x in writings if x.ended_at is None or x.ended_at >= last]

    # --- what is stored ----------------------------------------------------------------------------------------------

    def stored(self, group_id: str, group: FoldedGroup) -> None:
        before = self._stood.get(group_id, {})
        for (topic, partition), record in before.items():
            if (topic, partition) not in group.offsets:
                self._gone(record)
        self._stood[group_id] = dict(group.offsets)
        for record in group.offsets.values():
            if record not in self._began_at_ms:
                self._began_at_ms[record] = self._asked_at_ms(record)
        self._members_before[group_id] = group.members

    def _asked_at_ms(self, record: OffsetRecord) -> int:
        """When what is stored now was asked for, at the earliest: its age counts from before its append began."""
        entries = self._writings.get((record.group_id, record.topic, record.partition), ())
        asked = (x.asked_at_ms for x in entries if x.offset == record.offset and x.ended_at is None)
        return min(asked, default=self.sight.now_ms)

    def _gone(self, record: OffsetRecord) -> None:
        """An operator took it, it went with its topic, or it is old enough to have expired; where more than one can be,
        each may be it.
        """
        where = (record.group_id, record.topic, record.partition)
        entries = self._writings[where]
        is_asked_for = any(x.offset is None and x.ended_at is None for x in entries) or self._goes_with_topic(record)
        began_ms = self._began_at_ms[record]
        rules = self.sight.plan.rules
        steps = sum(at_ms >= began_ms for at_ms in self.sight.clock_steps)
        # No step of a clock makes it older; but a node whose clock was put elsewhere cannot tell when the one before
        # ended, by so much.
        age_ms = self.sight.now_ms - began_ms + steps * 2 * rules.offsets_retention_check_interval_ms
        is_old = age_ms >= rules.offsets_retention_ms - CLOCK_MS
        if is_old and not self._is_read(record):
            number = self.sight.number
            entries.append(_Writing(None, number, self.sight.now_ms, number, is_acknowledged=not is_asked_for))
        elif not is_asked_for:
            self.fail(f"{record.group_id}: {record.topic}-{record.partition} is gone after {age_ms} ms, unasked")

    def _goes_with_topic(self, record: OffsetRecord) -> bool:
        """Whether it was asked for before the last deletion of its topic had an answer; or is a chunk of a commit that
        broke off before it was written down that the group has heard of the deletion, so that a load cannot tell.
        """
        where = (record.group_id, record.topic, record.partition)
        gone_at = self._topics_gone.get(record.topic, 0)
        if self._first_asked[where, record.offset] < gone_at:
            return True
        is_taken = any(x.offset == record.offset and x.is_acknowledged for x in self._writings[where])
        heard_of = self.sight.fold.group(record.group_id).deletions
        return gone_at > 0 and not is_taken and heard_of < self.sight.fold.deleted[record.topic]

    def _is_read(self, record: OffsetRecord) -> bool:
        """Whether a member subscribes to the topic, by what was stored before and by what is in memory now."""
        seen = None if self.sight.node is None else self.sight.node.group(record.group_id)
        stored = self._members_before.get(record.group_id, {})
        now = {} if seen is None else seen.group.members
        return any(
            member_id in now and record.topic in (now[member_id].topics or ()) and record.topic in _topics(of.metadata)
            for member_id, of in stored.items()
        )

    def node_began(self) -> None:
        """What the last life had not done by its end was never done; what it did stands in the store."""
        for deletion in list(self._of_topics):
            # Whoever loads a group has read the registry before.
            self._end(deletion, is_done=self._is_stored(deletion))
        self._open.clear()
        self._deletions.clear()
        for (group_id, topic, partition), writings in self._writings.items():
            stands = self.sight.fold.group(group_id).offsets.get((topic, partition))
            offset = None if stands is None else stands.offset
            for entry in [x for x in writings if x.ended_at is None]:
                if entry.offset == offset:
                    entry.ended_at = self.sight.number
                else:
                    writings.remove(entry)


class I3JoinedCommits(I3Commits):
    """I3 over an engine that joins appends into one transaction: of the offsets in it for a partition the last is
    stored, and the others are acknowledged with it.
    """

    def _is_written(self, folded: FoldedGroup, where: OfPartition, entry: _Writing) -> bool:
        written = folded.written.get(where[1:], set())
        later = (x.offset for x in self._writings[where] if x.asked_at >= entry.asked_at)
        return any(offset in written for offset in later)


def _takes_away(api_call: ApiCall, where: OfPartition) -> bool:
    if api_call.group_id != where[0]:
        return False
    request = api_call.request
    if isinstance(request, DeleteGroupRequest):
        return True
    return where[1] in request.topics or f"{where[1]}:{where[2]}" in request.partitions


def _outcome(answer: Answer, where: OfPartition, entry: _Writing) -> bool | None:
    """Whether it was done; None where nobody can tell."""
    _, topic, partition = where
    match answer:
        case m.CommitAnswer() | admin.ResetOffsetsAnswer():
            return answer.offsets[topic][partition].error_code == ErrorCode.NONE
        case admin.DeleteOffsetsAnswer():
            # Where nothing was, nothing is.
            result = answer.offsets.get(topic, {}).get(partition)
            return result is None or result.error_code == ErrorCode.NONE
        case admin.DeletedGroup():
            return True
        case Failure(code=code) if code in _SAYS_NO:
            return False
    return None


def _topics(metadata: OpaqueJson) -> list[str]:
    return list(json.loads(metadata.text)["topics"])


CLOCK_MS = 5
"""What the node's clock and the run's may differ by."""

_SAYS_NO = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.NON_EMPTY_GROUP,
    }
)


class I4Fencing(Checker):
    """No commit is taken, and no heartbeat or sync succeeds, from a member or a generation that is not the current one.

    Judged where the group stood idle when the call came: then the call is the next thing that happens to it.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._verdicts: dict[ApiCall, str] = {}

    def on_call(self, api_call: ApiCall) -> None:
        if isinstance(api_call.request, m.CommitRequest | m.HeartbeatRequest | m.SyncRequest):
            seen = None if self.sight.node is None else self.sight.node.group(api_call.group_id)
            if seen is not None and seen.is_idle and (why := _objection(seen.group, api_call.request)):
                self._verdicts[api_call] = why

    def hung_up(self, api_call: ApiCall, connection_lost: bool = False) -> None:
        self._verdicts.pop(api_call, None)

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        why = self._verdicts.pop(api_call, None)
        if why and isinstance(answer, m.CommitAnswer | m.HeartbeatAnswer | m.SyncAnswer):
            self.fail(f"{api_call.group_id}: {api_call.request!r} was taken although {why}")


def _objection(group: Group, request: Any) -> str:
    if isinstance(request, m.CommitRequest) and request.generation_id < 0 and not group.members:
        return ""
    member = group.members.get(request.member_id)
    if member is None:
        return f"{request.member_id!r} is no member"
    if request.group_instance_id not in (None, member.group_instance_id):
        return f"{request.member_id!r} is not {request.group_instance_id!r}"
    if request.generation_id != group.generation_id:
        return f"the generation is {group.generation_id}"
    if group.is_active and member.is_new:
        return f"{request.member_id!r} waits for its first generation"
    if group.state is State.COMPLETING_REBALANCE and isinstance(request, m.CommitRequest):
        return "the assignment of the generation is not made yet"
    if group.state is State.PREPARING_REBALANCE and not isinstance(request, m.CommitRequest):
        return "the group rebalances"
    return ""
