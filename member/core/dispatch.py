"""Getting a request to the coordinator: the look-up, redirects, repeats, timers. What a request means is
not known here.

Each slot holds one intent at a time and keeps it, byte for byte, until it is settled or replaced: a repeat of a join
carries the same `request_id`. (Only a heartbeat says in advance what else to say at a repeat.) Whatever
`reactions.SAME_REQUEST` covers is dealt with here; the rest is settled.
"""

from dataclasses import dataclass

from pydantic import BaseModel

from rallypoint.member.core.actions import Action, CancelTimer, Drop, Note, Send, SetTimer, Warn
from rallypoint.member.core.backoff import backoff_ms
from rallypoint.member.core.outcomes import Answered, Outcome, Refused, Unreachable
from rallypoint.member.core.reactions import SAME_REQUEST, Reaction, reaction_to
from rallypoint.member.core.route import Route, is_usable, lowers_scheme, may_go_on_at
from rallypoint.member.options import MemberOptions
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.operations import Operation

LOOKUP = "lookup"
RETRY = "retry:"
DEADLINE = "deadline:"
REDIRECTS_MAX = 3
"""Redirects followed in a row; one more means that the nodes disagree, and a look-up asks again, after a back-off."""

LOOK_UP_TIMEOUT_MS = 3_000
"""For a look-up where another node can be asked: any node answers one from memory, so one that is later is as good as
gone. A sixth of the session timeout bounds it too."""

FAIL_OVER_BACKOFF_MAX_MS = 1_000
"""The longest wait before the coordinator is looked for again while some node answers. Of a node that died the others
know when its lease runs out; until then they name it, or nobody. Then another one coordinates the group."""

LATE = "late"
"""The timer until a call without an answer is late."""
LATE_AFTER_MS = 2_000
"""How long a node may take for an answer, beyond the time for which it was asked to hold it back, until another node is
asked whether the group has moved. A node that is paused or cut off ends no connection."""
LATE_AGAIN_MS = 1_000
"""From such a question to the next one, as long as there is no answer."""

MOVING_UNTOLD_MAX = 5
"""Refusals in a row, some two seconds, for which nodes may load the group or send the member to each other before
anybody is told: a planned move takes less, and is told when it is over.
"""

RETRY_AFTER_MAX_MS = 60_000
"""A longer `Retry-After` is cut to this: the service may be back sooner than it said."""

MISSED = "missed"
"""The timer until it is told that the coordinator is missed."""
MISSED_UNTOLD_MS = 10_000
"""So long nobody is told of that where another node may take over, which takes a node's lease and a look-up: then one
line says both.
"""
TRYING_AGAIN = "trying again"


@dataclass(frozen=True, slots=True)
class Intent:
    """What is to be said. `held_ms`: how long the service is asked to hold the answer back.

    `timeout_ms`: for the answer, beyond `held_ms`. `again`: what to say instead once this was late or failed.
    """

    operation: Operation
    body: BaseModel | None
    timeout_ms: int
    held_ms: int = 0
    again: "Intent | None" = None


@dataclass(slots=True)
class RequestSlot:
    """One intent on its way, or none. `failures` in a row lengthen the back-off until `reset_failures`.

    `sent`: the intent was on the wire at least once, so it may have been done. `blocked`: it waits for the coordinator
    to be found. `is_told`: the log has a failure of this row.
    """

    name: str
    intent: Intent | None = None
    call_id: int | None = None
    url: str = ""
    sent_at_ms: int = 0
    sent: bool = False
    blocked: bool = False
    failures: int = 0
    is_told: bool = False
    redirects: int = 0
    last: Refused | Unreachable | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """A slot's intent came to an end that only its owner can judge. `intent` is what was asked."""

    slot: str
    intent: Intent
    outcome: Outcome


@dataclass(slots=True)
class _Missed:
    """What happened when the coordinator was missed first, and whether an operator knows."""

    text: str
    since_ms: int
    is_told: bool = False

    def lasted(self, until_ms: int) -> str:
        """How long it was missed, and why if nobody was told: the end of the line that one answers."""
        lasted = f" after {_seconds(until_ms - self.since_ms)}"
        return lasted if self.is_told else f"{lasted}: {self.text}"


class Dispatcher:
    """All slots of one member, its route and its timers. Actions are appended to `actions`, which the owner takes.

    `channels`: the nodes with which a channel is open. `moved`: a look-up named another coordinator than the one known
    before, or one after the coordinator was missed, so that it is to hear of the member; the owner takes the flag down.
    """

    def __init__(self, options: MemberOptions) -> None:
        self._options = options
        self._slots: dict[str, RequestSlot] = {}
        self._next_call = 1
        self.actions: list[Action] = []
        self.timers: dict[str, int] = {}
        self.route = Route(options.coordinators)
        self.channels: set[str] = set()
        self.moved = False
        self.last_failure: str | None = None
        self._served_by: str | None = None
        self._missed: _Missed | None = None

    # --- timers ------------------------------------------------------------------------------------------------------

    def set_timer(self, key: str, at_ms: int) -> None:
        """Set or move a timer."""
        self.timers[key] = at_ms
        self.actions.append(SetTimer(key, at_ms))

    def cancel_timer(self, key: str) -> None:
        """Cancel a timer, if it is set."""
        if self.timers.pop(key, None) is not None:
            self.actions.append(CancelTimer(key))

    def take_timer(self, key: str, now_ms: int) -> bool:
        """Whether the timer is really due; then it is set no more. False for one that was moved or cancelled."""
        if key not in self.timers or self.timers[key] > now_ms:
            return False
        del self.timers[key]
        return True

    # --- slots -------------------------------------------------------------------------------------------------------

    def slot(self, name: str) -> RequestSlot:
        """The slot of this name, made at the first use."""
        return self._slots.setdefault(name, RequestSlot(name))

    def is_open(self, name: str) -> bool:
        """Whether a call of the slot is on the wire."""
        return name in self._slots and self._slots[name].call_id is not None

    def open(
        self, name: str, intent: Intent, now_ms: int, *, delay_ms: int = 0, deadline_ms: int | None = None
    ) -> None:
        """Say `intent` in the slot, in place of whatever it said before. After `deadline_ms` it is settled as it is."""
        slot = self.slot(name)
        self._stop(slot)
        slot.intent = intent
        slot.redirects = 0
        slot.sent = False
        if deadline_ms is not None:
            self.set_timer(DEADLINE + name, deadline_ms)
        self._send_after(slot, delay_ms, now_ms)

    def reserve(self, name: str) -> int:
        """Give the slot to work that is not a request (the leader's assigning), and get a call id for it."""
        slot = self.slot(name)
        self._stop(slot)
        slot.intent = None
        slot.call_id = self._new_call_id()
        return slot.call_id

    def release(self, name: str, call_id: int) -> bool:
        """The reserved work ended. False if the slot was given to something else meanwhile."""
        slot = self.slot(name)
        if slot.call_id != call_id or slot.intent is not None:
            return False
        slot.call_id = None
        return True

    def close(self, name: str) -> None:
        """Say nothing more in the slot, forget its failures, and drop what is on the wire."""
        if (slot := self._slots.pop(name, None)) is not None:
            self._stop(slot)

    def close_all(self) -> None:
        """Close every slot and cancel every timer. A loss that nobody knows of yet is told."""
        self._tell_missed("no coordinator has answered since")
        for name in list(self._slots):
            self.close(name)
        for key in list(self.timers):
            self.cancel_timer(key)

    def reset_failures(self, name: str) -> None:
        """The next failure is the first in a row."""
        slot = self.slot(name)
        slot.failures = 0
        slot.is_told = False

    def count_failure(self, name: str, jitter: float) -> int:
        """Count a failure that asks for another intent rather than the same one. Returns how many ms to wait before it.

        The first is answered at once.
        """
        slot = self.slot(name)
        slot.failures += 1
        slot.is_told = True
        return 0 if slot.failures == 1 else self._backoff_ms(slot.failures - 1, jitter)

    # --- what comes in -----------------------------------------------------------------------------------------------

    def ended(self, call_id: int, outcome: Outcome, now_ms: int, jitter: float) -> Settled | None:
        """A call ended. None if it is stale or dealt with here."""
        slot = next((slot for slot in self._slots.values() if slot.call_id == call_id), None)
        if slot is None or slot.intent is None:
            return None
        slot.call_id = None
        if isinstance(outcome, Unreachable):
            self.route.not_heard(slot.url)
            self._failed(slot, outcome, now_ms, jitter)
            return None
        self.route.heard(slot.url)
        if isinstance(outcome, Refused):
            reaction = reaction_to(outcome.problem)
            if reaction in SAME_REQUEST:
                self._refused(slot, outcome, reaction, now_ms, jitter)
                return None
        elif slot.name == LOOKUP and isinstance(outcome, Answered):
            return self._looked_up(slot, slot.intent, outcome, now_ms, jitter)
        if slot.name != LOOKUP:
            self._note_served(slot, now_ms)
        return self._settle(slot, slot.intent, outcome)

    def timer_due(self, key: str, now_ms: int) -> Settled | None:
        """A timer of this module (`owns`) came due."""
        if key == LATE:
            self._look_for_late_answers(now_ms)
            return None
        if key == MISSED:
            self._look_for_coordinator(now_ms)
            return None
        if key.startswith(RETRY):
            slot = self._slots.get(key.removeprefix(RETRY))
            if slot is not None and slot.intent is not None and slot.call_id is None:
                self._send(slot, now_ms)
            return None
        slot = self._slots.get(key.removeprefix(DEADLINE))
        if slot is None or slot.intent is None:
            return None
        # What has never been sent waited for the coordinator: why that was not found says more than that it was late.
        why = self.last_failure if slot.blocked else None
        return self._settle(slot, slot.intent, slot.last or Unreachable(why or "no answer in time"))

    @staticmethod
    def owns(key: str) -> bool:
        """Whether a timer is this module's."""
        return key in {LATE, MISSED} or key.startswith((RETRY, DEADLINE))

    def repeat(self, name: str, intent: Intent, now_ms: int) -> None:
        """Say it again after a 202: at once, unless the answer came so fast that repeats would make a storm (a
        service that shuts down answers all that waits).
        """
        slot = self.slot(name)
        early_ms = slot.sent_at_ms + self._options.retry_backoff_ms - now_ms
        self.reset_failures(name)
        self.open(name, intent, now_ms, delay_ms=max(0, early_ms))

    def try_now(self, now_ms: int) -> None:
        """A node is there again: what nobody answered, and waits for its next try, is said at once. What a node asked
        to wait for goes on waiting.
        """
        for slot in sorted(self._slots.values(), key=lambda slot: slot.name != LOOKUP):
            if RETRY + slot.name in self.timers and isinstance(slot.last, Unreachable):
                self.cancel_timer(RETRY + slot.name)
                self._send(slot, now_ms)

    def look_elsewhere(self, now_ms: int) -> None:
        """The coordinator is about to stop: ask another node, if there is one, who comes after it. Calls still go to
        the coordinator until another is named.
        """
        if self.route.url is not None and self.route.knows_another(self.route.url):
            self._look_up(now_ms)

    def go_on_at(self, said_by: str, url: str, now_ms: int) -> None:
        """The node at `said_by` has made the one at `url` the coordinator: nobody has to be asked. Whoever may not
        follow it there looks the coordinator up.
        """
        if may_go_on_at(said_by, url):
            self._go_on(url, now_ms)

    def miss(self, text: str, going_on: str, now_ms: int) -> None:
        """Tell an operator that the coordinator is missed, once until one answers, which is then told, too.

        Where another node may take the group over, nothing is told for `MISSED_UNTOLD_MS`: the line that one answers
        says all. `text` is what happened, and `going_on` what is done about it.
        """
        if self._missed is not None:
            return
        self._missed = _Missed(text, now_ms)
        if self._served_by is not None and any(url != self._served_by for url in self.route.nodes):
            self.set_timer(MISSED, now_ms + MISSED_UNTOLD_MS)
        else:
            self._tell_missed(going_on)

    def misses(self, url: str) -> bool:
        """Whether the node at `url` was the coordinator until it was missed."""
        return self._missed is not None and self._served_by == url

    def tell_missed(self, now_ms: int) -> None:
        """Let an operator know now that the coordinator is missed, if it is and nobody knows."""
        if self._missed is not None:
            self._tell_missed(f"no coordinator has answered for {_seconds(now_ms - self._missed.since_ms)}")

    def _tell_missed(self, meanwhile: str) -> None:
        if self._missed is not None and not self._missed.is_told:
            self._missed.is_told = True
            self.actions.append(Warn(f"{self._missed.text}; {meanwhile}"))

    def _look_for_coordinator(self, now_ms: int) -> None:
        """Tell that it is missed, unless a call is open at the next one that is not late yet: it may hold that back."""
        late_at_ms = [
            _late_at_ms(slot)
            for slot in self._slots.values()
            if slot.call_id is not None
            and slot.intent is not None
            and slot.name != LOOKUP
            and slot.url == self.route.url
        ]
        due_ms = max(late_at_ms, default=now_ms)
        if due_ms > now_ms:
            self.set_timer(MISSED, due_ms)
        else:
            self.tell_missed(now_ms)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _new_call_id(self) -> int:
        self._next_call += 1
        return self._next_call - 1

    def _backoff_ms(self, failures: int, jitter: float, most_ms: int | None = None) -> int:
        # One wait may not use up the session in which the request should get through.
        most_ms = min(most_ms or self._options.retry_backoff_max_ms, max(1, self._options.session_timeout_ms // 6))
        return backoff_ms(failures, min(self._options.retry_backoff_ms, most_ms), most_ms, jitter)

    def _stop(self, slot: RequestSlot) -> None:
        self._stop_sending(slot)
        self.cancel_timer(DEADLINE + slot.name)

    def _settle(self, slot: RequestSlot, intent: Intent, outcome: Outcome) -> Settled:
        self._stop(slot)
        slot.intent = None
        return Settled(slot.name, intent, outcome)

    def _send_after(self, slot: RequestSlot, delay_ms: int, now_ms: int) -> None:
        if delay_ms > 0:
            self.set_timer(RETRY + slot.name, now_ms + delay_ms)
        else:
            self._send(slot, now_ms)

    def _send(self, slot: RequestSlot, now_ms: int) -> None:
        url = self.route.next_node() if slot.name == LOOKUP else self.route.url
        if url is None:
            slot.blocked = True
            self._look_up(now_ms)
            return
        assert slot.intent is not None
        if slot.intent.again is not None and (slot.sent or slot.blocked):
            slot.intent = slot.intent.again
        intent = slot.intent
        slot.blocked = False
        slot.call_id = self._new_call_id()
        slot.url = url
        slot.sent_at_ms = now_ms
        slot.sent = True
        self._listen_for(slot)
        self.actions.append(Send(slot.call_id, url, intent.operation, intent.body, intent.held_ms + intent.timeout_ms))

    def _look_up(self, now_ms: int) -> None:
        if self.slot(LOOKUP).intent is None:
            timeout_ms = self._options.request_timeout_ms
            if len(self.route.nodes) > 1:
                timeout_ms = min(timeout_ms, LOOK_UP_TIMEOUT_MS, max(500, self._options.session_timeout_ms // 6))
            body = m.CoordinatorRequest(group_ids=(self._options.group_id,))
            self.route.begin_round()
            self.open(LOOKUP, Intent(ops.COORDINATOR, body, timeout_ms), now_ms)

    def _listen_for(self, slot: RequestSlot) -> None:
        """One timer is enough for all calls: at its time it is looked which of them are late, or when the next is."""
        if slot.name == LOOKUP or len(self.route.nodes) < 2:
            return
        late_at_ms = _late_at_ms(slot)
        if self.timers.get(LATE, late_at_ms + 1) > late_at_ms:
            self.set_timer(LATE, late_at_ms)

    def _look_for_late_answers(self, now_ms: int) -> None:
        """Take the coordinator for silent if it is late with an answer, and ask another node where the group is."""
        waiting = [slot for slot in self._slots.values() if slot.call_id is not None and slot.url == self.route.url]
        waiting = [slot for slot in waiting if slot.name != LOOKUP and slot.intent is not None]
        if not waiting:
            return
        due_ms = min(_late_at_ms(slot) for slot in waiting)
        if due_ms <= now_ms:
            due_ms = now_ms + LATE_AGAIN_MS
            self.route.not_heard(waiting[0].url)
            if self.route.knows_another(waiting[0].url):
                self._look_up(now_ms)
        self.set_timer(LATE, due_ms)

    def _failed(self, slot: RequestSlot, outcome: Refused | Unreachable, now_ms: int, jitter: float) -> None:
        """The node did not answer, or is not the coordinator: look up again, at once the first time."""
        self._count(slot, outcome, now_ms)
        self.route.forget(slot.url)
        at_once = len(self.route.nodes) - 1 if slot.name == LOOKUP else 1  # a look-up asks every node before it waits
        beyond = slot.failures - at_once
        most_ms = self._options.retry_backoff_max_ms
        if self.route.some_node_answers:
            most_ms = min(most_ms, FAIL_OVER_BACKOFF_MAX_MS)
        self._send_after(slot, self._backoff_ms(beyond, jitter, most_ms) if beyond > 0 else 0, now_ms)

    def _refused(self, slot: RequestSlot, outcome: Refused, reaction: Reaction, now_ms: int, jitter: float) -> None:
        url = outcome.problem.url
        if reaction is Reaction.FOLLOW and url is not None and self._may_follow(slot, url):
            slot.redirects += 1
            slot.last = outcome
            self.route.learn(url)
            self._send(slot, now_ms)
        elif reaction is Reaction.BACK_OFF:
            if self._missed is not None and not _misses_coordinator(outcome):
                self._note_served(slot, now_ms)
            self._count(slot, outcome, now_ms)
            asked_ms = 0 if _is_loading(outcome) else min(outcome.retry_after_ms or 0, RETRY_AFTER_MAX_MS)
            self._send_after(slot, max(asked_ms, self._backoff_ms(slot.failures, jitter)), now_ms)
        else:
            slot.redirects = 0
            self._failed(slot, outcome, now_ms, jitter)

    def _may_follow(self, slot: RequestSlot, url: str) -> bool:
        return slot.name != LOOKUP and slot.redirects < REDIRECTS_MAX and may_go_on_at(slot.url, url)

    def _looked_up(
        self, slot: RequestSlot, intent: Intent, outcome: Answered, now_ms: int, jitter: float
    ) -> Settled | None:
        entry = _entry_of(outcome.answer, self._options.group_id)
        if entry is not None and entry.error_code == ErrorCode.NONE and entry.url and is_usable(entry.url):
            if lowers_scheme(slot.url, entry.url):
                return self._settle(slot, intent, outcome)
            self._found(slot, entry.url, now_ms)
            return None
        refused = _refusal_of(entry, slot.url)
        if isinstance(refused, Refused) and reaction_to(refused.problem) is Reaction.FAIL:
            return self._settle(slot, intent, refused)
        self._failed(slot, refused, now_ms, jitter)
        return None

    def _found(self, lookup: RequestSlot, url: str, now_ms: int) -> None:
        """The coordinator is known: send what waits for it, and what may wait in vain at a node that fell silent."""
        self.route.found_by(lookup.url)
        self._go_on(url, now_ms)

    def _go_on(self, url: str, now_ms: int) -> None:
        before = self._served_by if self.route.url is None else self.route.url
        self.route.learn(url)
        # Missed, and named again: nothing else may be on its way there that would say so.
        self.moved = before not in {None, self.route.url} or self._missed is not None
        self.close(LOOKUP)
        for slot in list(self._slots.values()):
            if slot.blocked:
                slot.redirects = 0
                self._send(slot, now_ms)
            elif self._waits_in_vain(slot):
                self._stop_sending(slot)
                self._send(slot, now_ms)

    def _waits_in_vain(self, slot: RequestSlot) -> bool:
        """Whether its call is open at a silent node, or waits for a repeat after no answer, and the coordinator is
        another node now.
        """
        if slot.intent is None or slot.url in {"", self.route.url}:
            return False
        if slot.call_id is not None:
            return self.route.is_silent(slot.url)
        return RETRY + slot.name in self.timers and isinstance(slot.last, Unreachable)

    def _stop_sending(self, slot: RequestSlot) -> None:
        """As `_stop`, but the intent's deadline stays."""
        if slot.call_id is not None:
            self.actions.append(Drop(slot.call_id))
        slot.call_id = None
        slot.blocked = False
        self.cancel_timer(RETRY + slot.name)

    def _note_served(self, slot: RequestSlot, now_ms: int) -> None:
        """The node at the slot's URL did what a coordinator does. It is told where it is another one, or was missed.

        Where the coordinator was missed and has moved, that is a warning: it is as loud as the loss. It was missed
        until the call was sent, for the node may have held the answer back.
        """
        url = slot.url
        if url != self.route.url:
            return  # a late answer of the one before
        missed, before = self._missed, self._served_by
        self._served_by, self._missed = url, None
        lasted = ""
        if missed is not None:
            self.cancel_timer(MISSED)
            for other in self._slots.values():
                other.is_told = False
            lasted = missed.lasted(slot.sent_at_ms if slot.sent_at_ms >= missed.since_ms else now_ms)
        if before not in {None, url}:
            moved = f"coordinator moved from {before} to {url}{lasted}"
            self.actions.append(Note(moved) if missed is None else Warn(moved))
        elif missed is not None:
            answers = f"coordinator {url} answers{lasted}"
            self.actions.append(Note(answers) if missed.is_told else Warn(answers))

    def _count(self, slot: RequestSlot, outcome: Refused | Unreachable, now_ms: int) -> None:
        slot.failures += 1
        slot.last = outcome
        self.last_failure = f"{slot.url}: {describe(outcome)}"
        looks_ahead = slot.name == LOOKUP and self.route.url is not None
        moves = _is_loading(outcome) or _names_another(outcome)
        if (
            slot.is_told
            or (moves and slot.failures <= MOVING_UNTOLD_MAX)
            or slot.url in self.route.draining
            or looks_ahead
        ):
            return
        slot.is_told = True
        operation = slot.intent.operation.name if slot.intent is not None else slot.name
        text = f"{operation} at {self.last_failure.removesuffix('.').removesuffix('; try again')}"
        if not _misses_coordinator(outcome):
            self.actions.append(Warn(f"{text}; {TRYING_AGAIN}"))
        else:
            self.miss(text, TRYING_AGAIN, now_ms)


def _seconds(passed_ms: int) -> str:
    return f"{passed_ms / 1000:.1f} s"


def _late_at_ms(slot: RequestSlot) -> int:
    """When the answer to the call of the slot is late."""
    assert slot.intent is not None
    return slot.sent_at_ms + slot.intent.held_ms + LATE_AFTER_MS


def describe(outcome: Refused | Unreachable) -> str:
    """A failure in one line."""
    if isinstance(outcome, Unreachable):
        return outcome.reason
    return f"{outcome.problem.error_name}: {outcome.problem.detail}"


def _is_loading(outcome: Refused | Unreachable) -> bool:
    """Whether the node is about to serve the group. `Retry-After` counts whole seconds, which is longer than that
    takes after a planned hand-over; the back-off is short at first.
    """
    return isinstance(outcome, Refused) and outcome.problem.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def _names_another(outcome: Refused | Unreachable) -> bool:
    return isinstance(outcome, Refused) and reaction_to(outcome.problem) is Reaction.FOLLOW


def _misses_coordinator(outcome: Refused | Unreachable) -> bool:
    """Whether there was no coordinator at the place; else there was one, which has no time."""
    if isinstance(outcome, Unreachable):
        return True
    return _is_loading(outcome) or reaction_to(outcome.problem) in {Reaction.FOLLOW, Reaction.REDISCOVER}


def named_url(outcome: Outcome, group_id: str) -> str | None:
    """The coordinator that a look-up's answer names, if any."""
    entry = _entry_of(outcome.answer, group_id) if isinstance(outcome, Answered) else None
    return None if entry is None else entry.url


def _entry_of(answer: BaseModel, group_id: str) -> m.CoordinatorEntry | None:
    assert isinstance(answer, m.CoordinatorAnswer)
    return next((entry for entry in answer.coordinators if entry.group_id == group_id), None)


def _refusal_of(entry: m.CoordinatorEntry | None, url: str) -> Refused | Unreachable:
    if entry is None or entry.error_code == ErrorCode.NONE:
        return Unreachable("the look-up's answer names no coordinator")
    return Refused(
        m.Problem(
            type=f"{url}/errors/{entry.error_name.lower().replace('_', '-')}",
            title="The look-up was refused",
            status=503,
            detail=f"the look-up of group {entry.group_id!r} was refused",
            error_code=entry.error_code,
            error_name=entry.error_name,
            retriable=True,
        )
    )
