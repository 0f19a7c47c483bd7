"""What must hold, one class for each law. A run tells every checker what it sees; a checker raises `Violation`.

Checkers look from four places: at the drive (what is durable), at the node's door (what is asked and answered), into
the node's memory (between two turns of the loop), and at what members believe.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from coordinator.core import invariants
from coordinator.core.commands import TimerKind
from coordinator.core.effects import Event, Failure, JoinPhaseEnded, RebalanceBegan
from coordinator.core.group import Group, State
from coordinator.runtime.timers import BUCKET_MS
from member.core.states import State as MemberState
from member.subscription import read_assignment
from protocol import messages as m
from protocol.errors import ErrorCode
from tests.simulation.client import Client
from tests.simulation.fold import Fold, FoldedGroup, OffsetKey, Share
from tests.simulation.network import Answer, Asked
from tests.simulation.node import Node, Seen
from tests.simulation.plan import Plan
from tests.simulation.trace import Violation

HEAD_START_MS = 100
"""What the loop, the wires and the timers' buckets may add to a wait."""


@dataclass(slots=True)
class Sight:
    """What checkers share: the log, the node that is up, the clients."""

    plan: Plan
    fold: Fold = field(default_factory=Fold)
    node: Node | None = None
    clients: list[Client] = field(default_factory=list)
    now_ms: int = 0
    number: int = 0


class Checker:
    """Hooks; each checker has those it needs."""

    def __init__(self, sight: Sight) -> None:
        self.sight = sight

    def fail(self, text: str) -> NoReturn:
        raise Violation(type(self).__name__, text)

    def stored(self, group_id: str, group: FoldedGroup) -> None:
        """An append that touched the group took effect."""

    def asked(self, asked: Asked) -> None:
        """A call is about to reach the service."""

    def answered(self, asked: Asked, answer: Answer) -> None:
        """The service answered it."""

    def hung_up(self, asked: Asked) -> None:
        """Nobody waits for it any more, or the node died."""

    def happened(self, event: Event) -> None:
        """The service let an event be seen."""

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        """Commands were applied; the loop is between two turns."""

    def node_began(self) -> None:
        """A new life of the coordinator begins; the one before is over."""

    def believed(self, client: Client) -> None:
        """A member may have changed what it believes to hold."""


class I1Generations(Checker):
    """The generation in the store never goes back, and no number serves two rounds, whatever was lost in between.

    What is stored as the assignment of a generation stays, except that a static member's new id takes its old one's
    seat. Nobody hears of a generation before its number is used up in the store.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._header: dict[str, tuple[int, int]] = {}
        self._shares: dict[str, tuple[int, dict[str, Share]]] = {}
        self._rounds: dict[str, int] = {}

    def stored(self, group_id: str, group: FoldedGroup) -> None:
        header = group.header
        if header is None:
            self.fail(f"{group_id}: records without a header")
        now = (header.generation_id, header.highest_generation_id)
        before = self._header.get(group_id, (0, 0))
        if now[0] < before[0] or now[1] < before[1] or now[0] > now[1]:
            self.fail(f"{group_id}: stored (generation, highest) went from {before} to {now}")
        self._header[group_id] = now
        shares = group.shares
        of_generation, known = self._shares.get(group_id, (-1, {}))
        if of_generation == header.generation_id and shares != known:
            self._check_take_over(group_id, known, shares)
        self._shares[group_id] = (header.generation_id, shares)

    def _check_take_over(self, group_id: str, before: dict[str, Share], after: dict[str, Share]) -> None:
        gone = {member_id: share for member_id, share in before.items() if after.get(member_id) != share}
        come = {member_id: share for member_id, share in after.items() if before.get(member_id) != share}
        left = {share.instance: share for share in gone.values()}
        right = {share.instance: share for share in come.values()}
        if None in left or None in right or left != right or len(left) != len(gone) or len(right) != len(come):
            self.fail(f"{group_id}: the stored assignment of a generation changed: {gone} became {come}")

    def happened(self, event: Event) -> None:
        if isinstance(event, JoinPhaseEnded):
            last = self._rounds.get(event.group_id, 0)
            if event.generation_id <= last:
                self.fail(f"{event.group_id}: a round ended as generation {event.generation_id} after {last}")
            self._rounds[event.group_id] = event.generation_id

    def answered(self, asked: Asked, answer: Answer) -> None:
        if isinstance(answer, m.JoinAnswer):
            header = self.sight.fold.group(asked.group_id).header
            if header is None or header.highest_generation_id < answer.generation_id:
                self.fail(
                    f"{asked.group_id}: generation {answer.generation_id} was told before it was used up: {header}"
                )


class I2SyncAnswers(Checker):
    """A sync that succeeds gets what is stored for that member in that generation, and nothing else."""

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self.given: dict[tuple[str, int], dict[str, Share]] = {}

    def stored(self, group_id: str, group: FoldedGroup) -> None:
        if group.header is not None:
            self.given.setdefault((group_id, group.header.generation_id), {}).update(group.shares)

    def answered(self, asked: Asked, answer: Answer) -> None:
        if isinstance(answer, m.SyncAnswer):
            request = asked.request
            share = self.given.get((asked.group_id, request.generation_id), {}).get(request.member_id)
            if share is None or share.assignment != answer.assignment:
                self.fail(
                    f"{asked.group_id}: {request.member_id} was given {answer.assignment} in generation"
                    f" {request.generation_id}; stored is {share}"
                )


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
    if group.state is State.COMPLETING_REBALANCE and isinstance(request, m.CommitRequest):
        return "the assignment of the generation is not made yet"
    if group.state is State.PREPARING_REBALANCE and not isinstance(request, m.CommitRequest):
        return "the group rebalances"
    return ""


class I5Instances(Checker):
    """One instance id is one member's: in memory, in the store, and for those who call. Who lost it is told FENCED.

    And only who lost it: an id that took the seat over is never fenced in favour of an older one.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._fenced: dict[Asked, str] = {}

    def stored(self, group_id: str, group: FoldedGroup) -> None:
        instances = [record.group_instance_id for record in group.members.values() if record.group_instance_id]
        if len(instances) != len(set(instances)):
            self.fail(f"{group_id}: two members with one instance id are stored: {sorted(group.members)}")

    def asked(self, asked: Asked) -> None:
        instance = getattr(asked.request, "group_instance_id", None)
        member_id = getattr(asked.request, "member_id", "")
        seen = None if self.sight.node is None else self.sight.node.group(asked.group_id)
        if instance and member_id and seen is not None and seen.is_idle:
            seated = seen.group.static_members.get(instance)
            if seated is not None and seated != member_id:
                self._fenced[asked] = seated

    def hung_up(self, asked: Asked) -> None:
        self._fenced.pop(asked, None)

    def answered(self, asked: Asked, answer: Answer) -> None:
        seated = self._fenced.pop(asked, None)
        if seated is None:
            return
        request = asked.request
        if isinstance(answer, Failure) and answer.code is ErrorCode.GROUP_MAX_SIZE_REACHED:
            return  # asked for before the seat
        if not isinstance(answer, Failure) or answer.code is not ErrorCode.FENCED_INSTANCE_ID:
            self.fail(f"{asked.group_id}: {request.member_id} lost its seat to {seated} and was answered {answer}")
        if _age(seated) < _age(request.member_id):
            self.fail(f"{asked.group_id}: {request.member_id} is fenced by the older id {seated}")


def _age(member_id: str) -> int:
    """Ids end with the number that was drawn for them."""
    return int(member_id.rsplit("-", 1)[-1]) if member_id.rsplit("-", 1)[-1].isdigit() else 0


class I6Answers(Checker):
    """Each call is answered once: at once, or within the shorter of its own wait and the service's limit.

    The limit grows by what the drive made everybody wait, and by nothing else.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._open: dict[Asked, int] = {}
        self._ended: set[int] = set()
        self.slack_ms = HEAD_START_MS + BUCKET_MS

    def asked(self, asked: Asked) -> None:
        self._open[asked] = _longest_wait_ms(asked.request, self.sight.plan.rules.parked_call_max_wait_ms)

    def hung_up(self, asked: Asked) -> None:
        self._open.pop(asked, None)

    def answered(self, asked: Asked, answer: Answer) -> None:
        if asked.number in self._ended:
            self.fail(f"call #{asked.number} was answered twice")
        self._ended.add(asked.number)
        limit_ms = self._open.pop(asked) + self.slack_ms
        if self.sight.now_ms - asked.at_ms > limit_ms:
            self.fail(f"call #{asked.number} was answered after {self.sight.now_ms - asked.at_ms} ms, not {limit_ms}")
        if isinstance(answer, Failure) and answer.code is ErrorCode.UNKNOWN_SERVER_ERROR:
            self.fail(f"call #{asked.number} met a fault of the service: {answer.detail}")

    def overdue(self) -> None:
        """No call may wait longer than it may."""
        for asked, limit_ms in self._open.items():
            if self.sight.now_ms - asked.at_ms > limit_ms + self.slack_ms:
                self.fail(f"call #{asked.number} waits for {self.sight.now_ms - asked.at_ms} ms: {asked.request!r}")

    def all_answered(self) -> None:
        """The node has drained: nobody may still wait."""
        for asked in self._open:
            self.fail(f"call #{asked.number} was not answered when the node drained: {asked.request!r}")

    def node_began(self) -> None:
        self._open.clear()


def _longest_wait_ms(request: Any, limit_ms: int) -> int:
    match request:
        case m.JoinRequest(max_wait_ms=wait_ms) | m.SyncRequest(max_wait_ms=wait_ms):
            return limit_ms if wait_ms is None else min(wait_ms, limit_ms)
        case m.HeartbeatRequest(wait_ms=wait_ms):
            return min(wait_ms, limit_ms)
        case _:
            return 0


class I7Liveness(Checker):
    """Once nothing fails and clients behave, the group is Stable soon: within three rebalance timeouts and a session.

    Then every member that runs has its assignment, and each partition of the group's topics has one owner.
    """

    def late(self, text: str) -> NoReturn:
        self.fail(text)


class I8Leaks(Checker):
    """Nothing is kept for what is not there: each timer belongs to a member, a pending id, a phase or a waiting call.

    A group that stands idle has an answer for every call but the parked ones; one without members has no timer but
    those of ids handed out; the process has no timer but its groups'.
    """

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        total = 0
        for one in seen:
            lane, group = one.lane, one.group
            total += len(lane._timers)
            if not one.is_idle:
                continue
            if lane._waiting.keys() != group.parked.keys():
                self.fail(f"{group.group_id}: waiting {sorted(lane._waiting)}, parked {sorted(group.parked)}")
            if lane._timers.keys() != set(_timers_of(group)):
                odd = sorted(lane._timers.keys() ^ set(_timers_of(group)))
                self.fail(f"{group.group_id} is {group.state}: timers too many or missing: {odd}")
        if node.timers_set != total:
            self.fail(f"the process has {node.timers_set} timers, its groups {total}")

    def idle(self, node: Node, group_ids: Iterable[str]) -> None:
        """Everyone has gone: nothing may be left."""
        for group_id in group_ids:
            seen = node.group(group_id)
            if seen is not None and (seen.lane._timers or seen.lane._waiting or seen.group.members):
                self.fail(f"{group_id}: left behind {seen.lane._timers} {seen.lane._waiting} {seen.group.members}")
        if node.service.parked_calls or node.timers_set:
            self.fail(f"{node.service.parked_calls} calls and {node.timers_set} timers are left")


def _timers_of(group: Group) -> Iterable[tuple[str, str, int]]:
    """Exactly the timers that a group as it stands must have."""
    for member_id in group.members:
        yield (TimerKind.SESSION, member_id, 0)
    for member_id in group.pending:
        yield (TimerKind.PENDING, member_id, 0)
    for call_id in group.parked:
        yield (TimerKind.CALL, str(call_id), 0)
    if group.state is State.PREPARING_REBALANCE:
        yield (TimerKind.JOIN, "", group.phase)
    if group.is_active and group.pending_sync:
        yield (TimerKind.SYNC, "", group.phase)


class I9Quiet(Checker):
    """A Stable group whose members do nothing new is never rebalanced."""

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self.is_quiet = False

    def happened(self, event: Event) -> None:
        if self.is_quiet and isinstance(event, RebalanceBegan):
            self.fail(f"{event.group_id}: {event.trigger}: {event.reason}")


class I10Store(Checker):
    """What is in memory of a group that stands idle is what its log comes to; so is what a load makes of it."""

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        for one in seen:
            if one.is_idle:
                self.compare(one.group)

    def compare(self, group: Group) -> None:
        """The durable part of a group against the fold."""
        folded = self.sight.fold.group(group.group_id)
        if group.header != folded.header:
            self.fail(f"{group.group_id}: header {group.header}, stored {folded.header}")
        if group.stored_members != folded.members:
            self.fail(f"{group.group_id}: members {group.stored_members}, stored {folded.members}")
        offsets = {(topic, p): record for topic, of in group.offsets.items() for p, record in of.items()}
        if offsets != folded.offsets:
            self.fail(f"{group.group_id}: offsets {offsets}, stored {folded.offsets}")

    def loaded(self, group: Group) -> None:
        """A group that has just been loaded, and nothing else."""
        self.compare(group)
        folded = self.sight.fold.group(group.group_id)
        invariants.check(group)
        header, shares = folded.header, folded.shares
        if header is None:
            self.fail(f"{group.group_id} was loaded without a header")
        state = State.STABLE if shares else State.EMPTY
        if (group.generation_id, group.highest_generation_id, group.leader) != (
            header.generation_id,
            header.highest_generation_id,
            header.leader,
        ):
            self.fail(f"{group.group_id}: loaded as {group.generation_id}, {group.leader}; stored {header}")
        loaded = {x.member_id: Share(x.group_instance_id, x.assignment) for x in group.members.values()}
        if group.state is not state or loaded != shares:
            self.fail(f"{group.group_id}: loaded {group.state} with {loaded}; stored {shares}")


class GroupInvariants(Checker):
    """The group's own counts, letter-boxes, state and identities agree between any two commands."""

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        for one in seen:
            if one.is_idle:
                try:
                    invariants.check(one.group)
                except AssertionError as error:
                    self.fail(f"{one.group.group_id}: {error}")


class MembersBelieve(Checker):
    """A member that holds an assignment was given it by what is stored for its generation; one that joins holds none.

    So within a generation a partition has one owner; a static member's old and new id are one.
    """

    def __init__(self, sight: Sight, i2: I2SyncAnswers) -> None:
        super().__init__(sight)
        self._given = i2.given
        self._owners: dict[tuple[str, int], dict[OffsetKey, str]] = {}
        self._checked: dict[str, object] = {}

    def believed(self, client: Client) -> None:
        held = client.held
        if held is not None and client.state not in (MemberState.STABLE, MemberState.REVOKING):
            self.fail(f"{client.name} is {client.state.value} and believes {held}")
        if held is None or self._checked.get(client.name) is held:
            return
        self._checked[client.name] = held
        share = self._given.get((client.group_id, held.generation_id), {}).get(held.member_id)
        if share is None or read_assignment(share.assignment)[0] != held.partitions:
            self.fail(f"{client.name} believes {held}; stored is {share}")
        owners = self._owners.setdefault((client.group_id, held.generation_id), {})
        for partition in sorted(held.partitions):
            if owners.setdefault(partition, client.seat) != client.seat:
                self.fail(
                    f"{client.group_id} {held.generation_id}: {partition} is {owners[partition]}'s and {client.seat}'s"
                )
