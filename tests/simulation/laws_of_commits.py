"""Laws of progress: I3, what was committed stays; I4, who may commit at all."""

from dataclasses import dataclass
from typing import Any

from coordinator.core.effects import Failure
from coordinator.core.group import Group, State
from protocol import messages as m
from protocol.errors import ErrorCode
from tests.simulation.checker import Checker, Sight
from tests.simulation.fold import OffsetKey
from tests.simulation.network import Answer, Asked


@dataclass(slots=True)
class _Committing:
    offset: int
    asked_at: int
    ended_at: int | None = None
    is_acknowledged: bool = False


class I3Commits(Checker):
    """What was acknowledged as committed is what every later fetch returns, until a later commit; crashes included.

    A commit of unknown outcome may show or not. One that was refused for what it says never shows. A commit is durable
    before it is acknowledged.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._commits: dict[tuple[str, str, int], list[_Committing]] = {}
        self._open: dict[Asked, list[tuple[OffsetKey, _Committing]]] = {}

    def asked(self, asked: Asked) -> None:
        if not isinstance(asked.request, m.CommitRequest):
            return
        begun = self._open[asked] = []
        for topic, partitions in asked.request.offsets.items():
            for partition, commit in partitions.items():
                entry = _Committing(commit.offset, asked.number)
                self._commits.setdefault((asked.group_id, topic, partition), []).append(entry)
                begun.append(((topic, partition), entry))

    def hung_up(self, asked: Asked) -> None:
        self._open.pop(asked, None)

    def answered(self, asked: Asked, answer: Answer) -> None:
        if isinstance(answer, m.FetchAnswer):
            self._check(asked, answer)
            return
        for (topic, partition), entry in self._open.pop(asked, ()):
            entry_list = self._commits[asked.group_id, topic, partition]
            if isinstance(answer, m.CommitAnswer):
                if answer.offsets[topic][partition].error_code != ErrorCode.NONE:
                    entry_list.remove(entry)
                    continue
                entry.ended_at = self.sight.number
                entry.is_acknowledged = True
                written = self.sight.fold.group(asked.group_id).written.get((topic, partition), set())
                if entry.offset not in written:
                    self.fail(f"{asked.group_id}: {topic}-{partition} at {entry.offset} is acknowledged, not stored")
            elif isinstance(answer, Failure) and answer.code in _SAYS_NO:
                entry_list.remove(entry)

    def _check(self, asked: Asked, answer: m.FetchAnswer) -> None:
        for (group_id, topic, partition), commits in self._commits.items():
            if group_id != asked.group_id:
                continue
            done = [c.asked_at for c in commits if c.is_acknowledged and (c.ended_at or 0) < asked.number]
            last = max(done, default=0)
            allowed = {c.offset for c in commits if c.ended_at is None or c.ended_at >= last}
            found = answer.offsets.get(topic, {}).get(partition)
            if found is None:
                if done:
                    self.fail(f"{group_id}: {topic}-{partition} was committed, and a fetch shows nothing")
            elif found.offset not in allowed:
                self.fail(f"{group_id}: {topic}-{partition} shows {found.offset}; it may be {sorted(allowed)}")
            # What a later acknowledged commit has overwritten never comes back.
            commits[:] = [c for c in commits if c.ended_at is None or c.ended_at >= last]

    def node_began(self) -> None:
        """What the last life had not done by its end was never done; what it did stands in the store."""
        self._open.clear()
        for (group_id, topic, partition), commits in self._commits.items():
            stands = self.sight.fold.group(group_id).offsets.get((topic, partition))
            for entry in [c for c in commits if c.ended_at is None]:
                if stands is not None and stands.offset == entry.offset:
                    entry.ended_at = self.sight.number
                else:
                    commits.remove(entry)


_SAYS_NO = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class I4Fencing(Checker):
    """No commit is taken, and no heartbeat or sync succeeds, from a member or a generation that is not the current one.

    Judged where the group stood idle when the call came: then the call is the next thing that happens to it.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._verdicts: dict[Asked, str] = {}

    def asked(self, asked: Asked) -> None:
        if isinstance(asked.request, m.CommitRequest | m.HeartbeatRequest | m.SyncRequest):
            seen = None if self.sight.node is None else self.sight.node.group(asked.group_id)
            if seen is not None and seen.is_idle and (why := _objection(seen.group, asked.request)):
                self._verdicts[asked] = why

    def hung_up(self, asked: Asked) -> None:
        self._verdicts.pop(asked, None)

    def answered(self, asked: Asked, answer: Answer) -> None:
        why = self._verdicts.pop(asked, None)
        if why and isinstance(answer, m.CommitAnswer | m.HeartbeatAnswer | m.SyncAnswer):
            self.fail(f"{asked.group_id}: {asked.request!r} was taken although {why}")


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
