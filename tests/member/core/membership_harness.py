"""A harness for one `Membership`: virtual time, numbered request ids, answers by hand. No asyncio, no network."""

from typing import Any

from pydantic import BaseModel

from rallypoint.assignors.contract import Assignor
from rallypoint.assignors.range import RangeAssignor
from rallypoint.assignors.roundrobin import RoundRobinAssignor
from rallypoint.member.assignment import Assignment
from rallypoint.member.core import events as ev
from rallypoint.member.core.actions import (
    Action,
    Assign,
    CallBack,
    CancelTimer,
    Done,
    Drop,
    Moved,
    Note,
    Send,
    SetTimer,
    Settle,
    Warn,
)
from rallypoint.member.core.events import Callback, Draw, Event
from rallypoint.member.core.machine import Membership
from rallypoint.member.core.outcomes import Answered, Outcome, Refused, Unreachable, Waiting
from rallypoint.member.core.states import State
from rallypoint.member.options import MemberOptions
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode, row
from rallypoint.protocol.opaque import EMPTY, OpaqueJson
from rallypoint.protocol.operations import Operation

NODE = "http://node-1"
CLICKS = OpaqueJson.of({"partitions": {"clicks": [0, 1]}})
GONE = Unreachable("connection refused")


def options(**changes: Any) -> MemberOptions:
    plain: dict[str, Any] = {
        "coordinator": NODE,
        "group_id": "g",
        "topics": ("clicks",),
        "rebalance_timeout_ms": 60_000,
    }
    return MemberOptions(**(plain | changes))


def refused(code: ErrorCode | int, *, retry_after_ms: int | None = None, **extra: Any) -> Refused:
    known = row(ErrorCode(code)) if isinstance(code, ErrorCode) else None
    fields: dict[str, Any] = {
        "type": f"{NODE}/errors/{known.slug if known else 'new'}",
        "title": "planted",
        "status": known.status if known else 400,
        "detail": "planted",
        "error_code": int(code),
        "error_name": ErrorCode(code).name if known else "NEW",
        "retriable": known.retriable if known else False,
    }
    return Refused(m.Problem(**(fields | extra)), retry_after_ms)


SUPERSEDED = refused(ErrorCode.REBALANCE_IN_PROGRESS, type=f"{NODE}/errors/superseded", retriable=False)


def located(url: str | None = NODE, code: ErrorCode = ErrorCode.NONE) -> Answered:
    entry = m.CoordinatorEntry(group_id="g", shard=1, node_id=None, url=url, error_code=int(code), error_name=code.name)
    return Answered(m.CoordinatorAnswer(coordinators=(entry,)))


def joined(
    generation_id: int = 1,
    member_id: str = "m-1",
    leader: str = "other",
    members: tuple[m.JoinedMember, ...] = (),
    skip: bool = False,
    interval_ms: int = 3000,
) -> Answered:
    return Answered(
        m.JoinAnswer(
            generation_id=generation_id,
            protocol_type="consumer",
            protocol_name="range",
            leader=leader,
            member_id=member_id,
            members=members,
            skip_assignment=skip,
            heartbeat_interval_ms=interval_ms,
        )
    )


def synced(assignment: OpaqueJson = CLICKS) -> Answered:
    return Answered(m.SyncAnswer(protocol_type="consumer", protocol_name="range", assignment=assignment))


def waiting(member_id: str | None = None) -> Waiting:
    return Waiting(m.WaitingAnswer(member_id=member_id))


BEATEN = Answered(m.HeartbeatAnswer())
LEFT = Answered(m.LeaveAnswer(members=()))
COMMIT = m.CommitRequest(generation_id=1, member_id="m-1", offsets={"clicks": {0: m.OffsetCommit(offset=1)}})
MEMBER_ID_REQUIRED = refused(ErrorCode.MEMBER_ID_REQUIRED, member_id="m-1")


class MembershipHarness:
    """`open` holds the calls on the wire, by operation name, `timers` what is set; the rest is what came so far."""

    def __init__(
        self,
        jitter: float = 0.0,
        offers: tuple[Assignor, ...] = (RangeAssignor(), RoundRobinAssignor()),
        **changes: Any,
    ) -> None:
        opts = options(**({"assignors": tuple(offer.name for offer in offers)} | changes))
        self.machine = Membership(opts, offers)
        self.jitter = jitter
        self.now = 0
        self.draws = 0
        self.open: dict[str, Send | Assign] = {}
        self.sends: list[Send] = []
        self.timers: dict[str, int] = {}
        self.callbacks: list[CallBack] = []
        self.moves: list[Moved] = []
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.settled: dict[int, Outcome] = {}
        self.done: Done | None = None

    def state(self) -> State:
        return self.machine.state

    def held(self) -> Assignment | None:
        return self.machine.assignment

    def feed(self, event: Event) -> list[Action]:
        self.draws += 1
        actions = self.machine.handle(event, self.now, Draw(f"r-{self.draws}", self.jitter))
        for action in actions:
            self._note(action)
        return actions

    def _note(self, action: Action) -> None:
        match action:
            case Send():
                assert action.operation.name not in self.open or action.operation.name in {"commit", "fetch"}, (
                    f"two {action.operation.name} at once"
                )
                self.open[action.operation.name] = action
                self.sends.append(action)
            case Assign():
                self.open["assign"] = action
            case Drop(call_id):
                (name,) = [name for name, call in self.open.items() if call.call_id == call_id]
                del self.open[name]
            case SetTimer(key, at_ms):
                self.timers[key] = at_ms
            case CancelTimer(key):
                del self.timers[key]
            case CallBack():
                self.callbacks.append(action)
            case Settle(ticket, outcome):
                self.settled[ticket] = outcome
            case Moved():
                self.moves.append(action)
            case Warn(text):
                self.warnings.append(text)
            case Note(text):
                self.notes.append(text)
            case Done():
                self.done = action

    def answer(self, name: str, outcome: Outcome) -> None:
        """The one open call of the operation ends so."""
        self.feed(ev.CallEnded(self.open.pop(name).call_id, outcome))

    def wait(self, ms: int) -> None:
        """Let time pass; timers come due in order."""
        until = self.now + ms
        while due := sorted((at, key) for key, at in self.timers.items() if at <= until):
            self.now, key = max(self.now, due[0][0]), due[0][1]
            del self.timers[key]
            self.feed(ev.TimerDue(key))
        self.now = until

    def body(self, name: str) -> Any:
        """The body of the open call."""
        call = self.open[name]
        assert isinstance(call, Send)
        return call.body

    def bodies(self, name: str) -> list[Any]:
        return [send.body for send in self.sends if send.operation.name == name]

    def url(self, name: str) -> str:
        call = self.open[name]
        assert isinstance(call, Send)
        return call.url

    def called(self) -> list[tuple[Callback, int]]:
        return [(call.callback, call.assignment.generation_id) for call in self.callbacks]

    def revoked_within_ms(self) -> int | None:
        """How long the group waits, as the callback wanted last was told."""
        return self.callbacks[-1].assignment.rejoin_within_ms

    def callback_ended(self, error: Exception | None = None) -> None:
        """The callback wanted last has ended."""
        last = self.callbacks[-1]
        self.feed(ev.CallbackEnded(last.callback, last.assignment.generation_id, error))

    def ask(self, ticket: int, operation: Operation, body: BaseModel) -> None:
        self.feed(ev.CallRequested(ticket, operation, body))

    def commit(self, ticket: int, generation_id: int | None = None, *partitions: int) -> None:
        """The user commits offset 1 of these partitions of clicks; of 0 where none is named."""
        offsets = {number: m.OffsetCommit(offset=1) for number in partitions or (0,)}
        body = m.CommitRequest(generation_id=-1, offsets={"clicks": offsets})
        self.feed(ev.CommitRequested(ticket, body, generation_id))

    # --- to states that most tests begin in ----------------------------------------------------------------------

    def to_joining(self) -> "MembershipHarness":
        """The first join, without an id, is on the wire."""
        self.feed(ev.Started())
        self.answer("coordinator", located())
        return self

    def to_rejoining(self) -> "MembershipHarness":
        """The join with the id m-1 is on the wire."""
        self.to_joining().answer("join", MEMBER_ID_REQUIRED)
        return self

    def to_syncing(self) -> "MembershipHarness":
        """A follower of generation 1 whose sync is on the wire."""
        self.to_rejoining().answer("join", joined())
        return self

    def to_assigning(self) -> "MembershipHarness":
        """The leader of generation 1, its assignor at work."""
        told = m.JoinedMember(member_id="m-1", metadata=EMPTY)
        self.to_rejoining().answer("join", joined(leader="m-1", members=(told,)))
        return self

    def to_stable(self) -> "MembershipHarness":
        """A follower with two partitions of generation 1, `on_assigned` has returned, a heartbeat is on the wire."""
        self.to_syncing().answer("sync", synced())
        self.callback_ended()
        return self

    def to_revoking(self) -> "MembershipHarness":
        """`on_revoked` runs, a plain heartbeat comes in 3 s."""
        self.to_stable().answer("heartbeat", refused(ErrorCode.REBALANCE_IN_PROGRESS))
        return self

    def to_leaving(self) -> "MembershipHarness":
        """The leave is on the wire."""
        self.to_stable().feed(ev.LeaveRequested("done", stay=False))
        self.callback_ended()
        return self
