"""One group on a virtual clock: says what a client would say, and keeps every answer.

It drives the real rules through `step` and does by hand what the runtime does: timers, the log, a crash and a load.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from rallypoint.coordinator.core import running_time
from rallypoint.coordinator.core.apply import apply
from rallypoint.coordinator.core.commands import (
    Call,
    Command,
    ConnectionLost,
    DecisionContext,
    DeleteGroupRequest,
    DescribeRequest,
    GroupLoaded,
    GroupRequest,
    HangUp,
    ListRebalancesRequest,
    Rules,
    ThawRequest,
    TimerFired,
    TimerKey,
    TimerKind,
    TopicsChanged,
)
from rallypoint.coordinator.core.decide import renew_session, step
from rallypoint.coordinator.core.effects import (
    VIEW_EVENTS,
    CancelTimer,
    Event,
    Failure,
    GroupAnswer,
    Notify,
    Reply,
    SetTimer,
    singly,
)
from rallypoint.coordinator.core.group import Group, State
from rallypoint.coordinator.core.records import (
    NEVER_PAUSED,
    DeletionsForgotten,
    DeletionsRecord,
    EndsHistoryRecord,
    GroupForgotten,
    GroupRecord,
    HoldForgotten,
    HoldRecord,
    MemberForgotten,
    MemberRecord,
    OffsetForgotten,
    OffsetRecord,
    RebalanceForgotten,
    RebalanceRecord,
    RunningTimeRecord,
    TopicRecord,
)
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson

CONSUMER = "consumer"


def consumer(*topics: str, **more: Any) -> OpaqueJson:
    """A consumer's subscription as it stands on the wire."""
    return OpaqueJson.of({"topics": list(topics), **more})


@dataclass
class GroupHarness:
    """A group, its timers, its log, and the answers it gave, by call. `heard_at_ms`: whose call waits to be told."""

    rules: Rules = field(default_factory=lambda: Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0))
    now_ms: int = 1_000_000
    group: Group = field(default_factory=lambda: Group("g"))
    partition_counts: dict[str, int] = field(default_factory=dict)
    ends: dict[str, dict[int, int]] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    running: RunningTimeRecord = NEVER_PAUSED
    generation_floor: int = 0
    ends_history: dict[str, EndsHistoryRecord] = field(default_factory=dict)
    timers: dict[TimerKey, int] = field(default_factory=dict)
    heard_at_ms: dict[str, int] = field(default_factory=dict)
    log: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    answers: dict[int, GroupAnswer | Failure] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    calls: int = 0
    host: str = "127.0.0.1"

    def tell(self, command: Command) -> None:
        """One step of the group, and what the runtime makes of it."""
        counts = dict(self.partition_counts)
        topics = {topic: TopicRecord(topic, count, 1, self.ends.get(topic, {})) for topic, count in counts.items()}
        newest = max(self.deleted.values(), default=0)
        context = DecisionContext(
            self.now_ms,
            self.rules,
            counts,
            topics,
            dict(self.deleted),
            newest,
            self.running,
            generation_floor=self.generation_floor,
            ends_history=self.ends_history,
        )
        decision = step(self.group, command, context)
        for record in decision.records:
            self._store(record)
        for effect in singly(decision.effects):
            match effect:
                case Reply(call_id=call_id, answer=answer):
                    assert call_id not in self.answers, f"call {call_id} answered twice"
                    self.answers[call_id] = answer
                case SetTimer(key=key, deadline_ms=deadline_ms):
                    self.timers[key] = deadline_ms
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case Notify(event=event) if not isinstance(event, VIEW_EVENTS):  # those are for the runtime's view
                    self.events.append(event)
        if decision.again is not None:
            self.tell(decision.again)

    def _store(self, record: Any) -> None:
        match record:
            case GroupRecord():
                self.log["header",] = record
            case GroupForgotten():
                self.log.pop(("header",), None)
            case MemberRecord():
                self.log["member", record.member_id, record.generation_id] = record
            case MemberForgotten():
                self.log.pop(("member", record.member_id, record.generation_id), None)
            case OffsetRecord():
                self.log["offset", record.topic, record.partition] = record
            case OffsetForgotten():
                self.log.pop(("offset", record.topic, record.partition), None)
            case RebalanceRecord():
                self.log["rebalance", record.rebalance_id] = record
            case RebalanceForgotten():
                self.log.pop(("rebalance", record.rebalance_id), None)
            case HoldRecord():
                self.log["hold",] = record
            case DeletionsRecord():
                self.log["deletions",] = record
            case DeletionsForgotten():
                self.log.pop(("deletions",), None)
            case HoldForgotten():
                self.log.pop(("hold",), None)
            case _:
                raise AssertionError(f"no such record: {record!r}")

    def advance(self, ms: int) -> None:
        """Let time pass; timers fire in order, at their time."""
        until = self.now_ms + ms
        while self.timers:
            key = min(self.timers, key=lambda name: self.timers[name])
            if self.timers[key] > until:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self._fire(key)
        self.now_ms = until

    def _fire(self, key: TimerKey) -> None:
        """A session that goes on is renewed without a step, as the runtime does it."""
        heard_at_ms = self.heard_at_ms.get(key.subject)
        next_ms = (
            renew_session(self.group, key.subject, heard_at_ms, self.now_ms) if key.kind is TimerKind.SESSION else None
        )
        if next_ms is None:
            self.tell(TimerFired(key, heard_at_ms))
        else:
            self.timers[key] = next_ms

    def advance_until_answered(self, *calls: int) -> None:
        """Let time pass to the very moment at which all of the calls have their answers."""
        while any(self.waits(call) for call in calls):
            assert any(key.kind is not TimerKind.RETENTION for key in self.timers), "a call waits and no timer is set"
            self.advance(max(0, min(self.timers.values()) - self.now_ms))

    def restart(self, clock_moves_ms: int = 0) -> None:
        """As a crash, after which the wall clock says something else, and the shard knows when it was served."""
        ran_until_ms = running_time.renewed(self.running, self.now_ms, self.rules)
        self.now_ms += clock_moves_ms
        self.running = running_time.go_on(ran_until_ms if self.running.pauses else None, self.now_ms, self.rules)
        self.crash()

    def crash(self) -> None:
        """Lose all that is in memory and load the group from what was stored."""
        self.group = Group(self.group.group_id)
        self.timers.clear()
        for record in self.log.values():
            apply(self.group, record)
        self.tell(GroupLoaded())

    def call(self, request: GroupRequest) -> int:
        """Send a request; its number finds the answer, once there is one."""
        self.calls += 1
        self.tell(Call(self.calls, request, host=self.host, random_part=f"r{self.calls}"))
        return self.calls

    def hang_up(self, call_id: int, *, connection_lost: bool = False) -> None:
        self.tell(HangUp(call_id, connection_lost))

    def lose_connection(self, member_id: str) -> None:
        self.tell(ConnectionLost(member_id))

    def topics(self, **counts: int) -> None:
        """The registry now says this."""
        self.partition_counts = counts
        self.tell(TopicsChanged())

    def waits(self, call_id: int) -> bool:
        return call_id not in self.answers

    def answer(self, call_id: int) -> Any:
        return self.answers[call_id]

    def code(self, call_id: int) -> ErrorCode:
        """NONE for a success."""
        answer = self.answers[call_id]
        return answer.code if isinstance(answer, Failure) else ErrorCode.NONE

    def state(self) -> State:
        """A method, since it changes with each call."""
        return self.group.state

    # --- what clients say ----------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, OpaqueJson], ...] = (("range", consumer("t")),),
        protocol_type: str = CONSUMER,
        session_ms: int = 10_000,
        rebalance_ms: int = 10_000,
        request_id: str | None = None,
        attempt: int | None = None,
        client_id: str = "c",
        max_wait_ms: int | None = 10_000_000,
        grace_ms: int | None = None,
    ) -> int:
        return self.call(
            m.JoinRequest(
                member_id=member_id,
                group_instance_id=instance,
                client_id=client_id,
                protocol_type=protocol_type,
                protocols=tuple(m.JoinProtocol(name=name, metadata=metadata) for name, metadata in protocols),
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                disconnect_grace_ms=grace_ms,
                request_id=request_id,
                attempt=attempt,
                max_wait_ms=max_wait_ms,
            )
        )

    def join_new(self, **more: Any) -> tuple[str, int]:
        """Get an id and join with it: (member id, the second call)."""
        member_id = self.answer(self.join(**more)).member_id
        return member_id, self.join(member_id, **more)

    def sync(
        self,
        member_id: str,
        generation_id: int | None = None,
        *,
        instance: str | None = None,
        assignments: dict[str, Any] | None = None,
        protocol_type: str | None = CONSUMER,
        protocol_name: str | None = "range",
        max_wait_ms: int | None = None,
    ) -> int:
        return self.call(
            m.SyncRequest(
                generation_id=self.group.generation_id if generation_id is None else generation_id,
                member_id=member_id,
                group_instance_id=instance,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=tuple(
                    m.SyncAssignment(member_id=who, assignment=OpaqueJson.of(what))
                    for who, what in (assignments or {}).items()
                ),
                max_wait_ms=max_wait_ms,
            )
        )

    def heartbeat(
        self, member_id: str, generation_id: int | None = None, *, instance: str | None = None, wait_ms: int = 0
    ) -> int:
        return self.call(
            m.HeartbeatRequest(
                generation_id=self.group.generation_id if generation_id is None else generation_id,
                member_id=member_id,
                group_instance_id=instance,
                wait_ms=wait_ms,
            )
        )

    def leave(self, *members: str, instance: str | None = None) -> int:
        entries = tuple(m.LeaveMember(member_id=member_id, group_instance_id=instance) for member_id in members)
        return self.call(m.LeaveRequest(members=entries))

    def commit(
        self,
        member_id: str = "",
        generation_id: int | None = None,
        offset: int = 1,
        *,
        instance: str | None = None,
        topic: str = "t",
        partition: int = 0,
        metadata: str = "",
    ) -> int:
        return self.call(
            m.CommitRequest(
                generation_id=self.group.generation_id if generation_id is None else generation_id,
                member_id=member_id,
                group_instance_id=instance,
                offsets={topic: {partition: m.OffsetCommit(offset=offset, metadata=metadata)}},
            )
        )

    def commit_code(self, call_id: int, topic: str = "t", partition: int = 0) -> int:
        """The code of one partition of a commit that was answered."""
        answer = self.answer(call_id)
        assert isinstance(answer, m.CommitAnswer)
        return answer.offsets[topic][partition].error_code

    def fetch(self) -> dict[str, dict[int, int]]:
        """Committed offsets as they would be answered now."""
        answer = self.answer(self.call(m.FetchRequest()))
        return {topic: {p: o.offset for p, o in of.items()} for topic, of in answer.offsets.items()}

    def describe(self) -> int:
        return self.call(DescribeRequest())

    def reset(self, to: str, **more: Any) -> int:
        return self.call(admin.ResetOffsetsRequest.model_validate_json(json.dumps({"to": to, **more})))

    def delete_offsets(self, *topics: str, partitions: tuple[str, ...] = (), dry_run: bool = False) -> int:
        return self.call(admin.DeleteOffsetsRequest(topics=topics, partitions=partitions, dry_run=dry_run))

    def delete_group(self) -> int:
        return self.call(DeleteGroupRequest())

    def rebalances(self) -> tuple[admin.RebalanceListing, ...]:
        """The group's rebalances as they would be answered now, the newest first."""
        answer = self.answer(self.call(ListRebalancesRequest()))
        assert isinstance(answer, admin.ListRebalancesAnswer), answer
        return answer.rebalances

    def start_rebalance(self, reason: str | None = None) -> int:
        return self.call(admin.StartRebalanceRequest(reason=reason))

    def freeze(self, duration_ms: int, reason: str | None = None, until: str = "time") -> int:
        body = {"duration_ms": duration_ms, "reason": reason, "until": until}
        return self.call(admin.FreezeRequest.model_validate(body))

    def proceed(self, reason: str | None = None, *, dry_run: bool = False) -> int:
        return self.call(admin.ProceedRequest(reason=reason, dry_run=dry_run))

    def join_wait(self, join_wait_max_ms: int | None) -> int:
        return self.call(admin.JoinWaitRequest(join_wait_max_ms=join_wait_max_ms))

    def thaw(self) -> int:
        return self.call(ThawRequest())

    def cooldown(self, cooldown_ms: int | None) -> int:
        return self.call(admin.CooldownRequest(cooldown_ms=cooldown_ms))

    def remove(self, *members: str, reason: str | None = None, dry_run: bool = False) -> int:
        return self.call(admin.RemoveMembersRequest(members=members, reason=reason, dry_run=dry_run))

    def removed(self, call_id: int) -> list[str]:
        """What became of each entry of a removal that was answered."""
        answer = self.answer(call_id)
        assert isinstance(answer, admin.RemoveMembersAnswer), answer
        return [entry.error_name for entry in answer.members]

    # --- a beginning ---------------------------------------------------------------------------------------------

    def stable(self, **second: Any) -> tuple[str, str]:
        """A Stable group of a leader and a follower, in generation 1: S2 of the conformance table."""
        first_id, first = self.join_new(**{k: v for k, v in second.items() if k in ("session_ms", "rebalance_ms")})
        if second.get("instance") is None:
            other_id, other = self.join_new(**second)
        else:
            other = self.join(**second)
            other_id = next(iter(self.group.static_members.values()))
        self.advance_until_answered(first, other)
        assert self.answer(first).leader == first_id
        assert self.answer(other).generation_id == self.group.generation_id
        self.settle_generation(first_id, other_id)
        return first_id, other_id

    def settle_generation(self, leader: str, *followers: str) -> None:
        """The leader submits, the followers ask; the group is Stable."""
        what = {member: {"partitions": {"t": [at]}} for at, member in enumerate((leader, *followers))}
        self.sync(leader, assignments=what)
        for follower in followers:
            instance = self.group.members[follower].group_instance_id
            assert self.code(self.sync(follower, instance=instance)) is ErrorCode.NONE
        assert self.state() is State.STABLE
