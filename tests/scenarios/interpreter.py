"""Reads a story of commands and tells what came of each: the language is described in README.md.

Everything is driven through a `GroupHarness`, so what is told is what the rules really do. Nothing here decides
anything.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, assert_never

from rallypoint.coordinator.core import effects as e
from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core.commands import (
    Command,
    HangUp,
    ListRebalancesRequest,
    Rules,
    TimerFired,
    TimerKey,
    TimerKind,
)
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.group_harness import GroupHarness, consumer

INDENT = "    "
OPERATOR = "operator"
NOBODY = "-"
"""Who commits without being a member."""

PHASE_TIMERS = (TimerKind.JOIN, TimerKind.SYNC, TimerKind.PENDING, TimerKind.HOLD, TimerKind.LINGER)
"""Timers worth a line whenever they are set, cancelled or fire; the others are shown by the command `timers`."""


class StoryError(Exception):
    """A command that cannot be read. The text says which line, and why."""


def retell(story: str) -> str:
    """The same commands and comments, each command followed by what comes of it now. Raises StoryError."""
    told: list[str] = []
    teller = Teller()
    for number, line in enumerate(story.splitlines(), start=1):
        if line.startswith(INDENT):
            continue
        told.append(line.rstrip())
        if line.strip() and not line.startswith("#"):
            try:
                said = teller.do(line.split())
            except (StoryError, ValueError, KeyError) as error:
                raise StoryError(f"line {number}, {line!r}: {error}") from error
            told.extend(f"{INDENT}{text}" for text in said or ["(nothing)"])
    return "\n".join(told).rstrip() + "\n"


# --- words -----------------------------------------------------------------------------------------------------------

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000}


def milliseconds(text: str) -> int:
    """`1500ms`, `1.5s`, `5m`."""
    found = re.fullmatch(r"([\d.]+)(ms|s|m)", text)
    if found is None:
        raise StoryError(f"{text!r} is no time such as 500ms, 3s or 5m")
    return round(float(found[1]) * _UNITS[found[2]])


def seconds(ms: int) -> str:
    """`1.5s`."""
    return f"{ms / 1_000:g}s"


def number(text: str) -> int:
    """A plain number, or a time in milliseconds."""
    return int(text) if re.fullmatch(r"-?\d+", text) else milliseconds(text)


def split(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Plain words, and those of the form key=value."""
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return [word for word in words if "=" not in word], options


def _how_it_went(record: r.RebalanceRecord) -> str:
    """What is known of a stored rebalance besides its outcome."""
    known = {
        "generation": record.generation_id,
        "members": record.member_count,
        "moved": record.partitions_moved,
        "further causes": record.further_count or None,
    }
    text = ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)
    return f": {text}" if text else ""


# --- who speaks ------------------------------------------------------------------------------------------------------


@dataclass
class Client:
    """One who speaks: what it remembers of the group, and the terms of its joins, which stay until it names others."""

    name: str
    member_id: str = ""
    generation_id: int = -1
    terms: dict[str, Any] = field(default_factory=dict)
    instance: str | None = None
    ids: int = 0


@dataclass(frozen=True)
class Said:
    """A call: whose, what, and when."""

    who: str
    what: str
    at_ms: int


@dataclass
class Watched(GroupHarness):
    """A harness that tells of each step right after it."""

    tell_of: Callable[[Command, "Before"], None] | None = None
    stored: list[Any] = field(default_factory=list)

    def tell(self, command: Command) -> None:
        before = Before(str(self.group.state), dict(self.timers), set(self.answers), len(self.events))
        self.stored.clear()
        super().tell(command)
        assert self.tell_of is not None
        self.tell_of(command, before)

    def _store(self, record: Any) -> None:
        super()._store(record)
        self.stored.append(record)


@dataclass(frozen=True)
class Before:
    """What was there before a step."""

    state: str
    timers: dict[TimerKey, int]
    answered: set[int]
    events: int


# --- the teller ------------------------------------------------------------------------------------------------------


class Teller:
    """One story on one harness. `do` takes a command's words and gives the lines of what came of it."""

    def __init__(self) -> None:
        self._harness = Watched(
            rules=Rules(group_min_session_timeout_ms=1_000, group_join_linger_ms=0), tell_of=self._tell_of
        )
        self._start_ms = self._harness.now_ms
        self._clients: dict[str, Client] = {}
        self._names: dict[str, str] = {}
        self._calls: dict[int, Said] = {}
        self._lines: list[str] = []
        self._time_passes = False

    def do(self, words: list[str]) -> list[str]:
        """Carry the command out; what came of it, a line each."""
        self._lines = []
        verb, rest = words[0], words[1:]
        if f"_do_{verb}" not in dir(self):
            known = ", ".join(sorted(name.removeprefix("_do_") for name in dir(self) if name.startswith("_do_")))
            raise StoryError(f"no such command; there are {known}")
        plain, options = split(rest)
        getattr(self, f"_do_{verb}")(plain, options)
        if options:
            raise StoryError(f"{verb} does not know {', '.join(options)}")
        invariants.check(self._harness.group)
        return self._lines

    # --- commands ----------------------------------------------------------------------------------------------------

    def _do_rules(self, _: list[str], options: dict[str, str]) -> None:
        if self._harness.calls:
            raise StoryError("the rules are made before anyone speaks")
        self._change_rules(options)

    def _change_rules(self, options: dict[str, str]) -> None:
        changes = {key: number(options.pop(key)) for key in list(options) if key in Rules.__dataclass_fields__}
        known = {name: getattr(self._harness.rules, name) for name in Rules.__dataclass_fields__}
        self._harness.rules = Rules(**{**known, **changes})
        self._lines += [f"{name} = {value}" for name, value in changes.items()]

    def _do_topics(self, _: list[str], options: dict[str, str]) -> None:
        counts = {topic: int(options.pop(topic)) for topic in list(options)}
        self._harness.topics(**counts)

    def _do_advance(self, plain: list[str], _: dict[str, str]) -> None:
        self._time_passes = True
        self._harness.advance(milliseconds(plain[0]))
        self._time_passes = False

    def _do_crash(self, _: list[str], options: dict[str, str]) -> None:
        self._change_rules(options)
        if options:
            # What the registry says when the group is loaded again; nobody was there to be told.
            self._harness.partition_counts = {topic: int(options.pop(topic)) for topic in list(options)}
        # Whoever waited hears nothing more: the process is gone.
        for call, said in self._waiting():
            self._line(f"{said.who} ({said.what}) is cut off")
            del self._calls[call]
        self._harness.crash()
        group = self._harness.group
        members = " ".join(self._name(x.member_id) for x in group.by_seniority()) or "nobody"
        self._line(f"loaded: {group.state}, generation {group.generation_id}, members {members}")

    def _do_restart(self, plain: list[str], _: dict[str, str]) -> None:
        """The client's process dies without a word and begins again: it remembers nothing."""
        for name in plain:
            client = self._client(name)
            for call, said in self._waiting():
                if said.who == name:
                    self._harness.hang_up(call)
                    del self._calls[call]
            client.member_id, client.generation_id = "", -1

    def _do_hangup(self, plain: list[str], _: dict[str, str]) -> None:
        for call, said in self._waiting():
            if said.who == plain[0]:
                self._harness.hang_up(call)
                del self._calls[call]
                self._line(f"{said.who} does not wait for its {said.what} any more")

    def _do_timers(self, _: list[str], __: dict[str, str]) -> None:
        for key, deadline_ms in sorted(self._harness.timers.items(), key=lambda item: (item[1], item[0])):
            self._line(f"{self._timer(key)} at {self._clock(deadline_ms)}")

    def _do_form(self, plain: list[str], options: dict[str, str]) -> None:
        """All of them join, the first one leads and gives each its place in the row; told in one line."""
        for name in plain:
            self._do_join([name], dict(options))
        for name in plain:
            self._do_join([name], {})
        waiting = [call for call, _ in self._waiting()]
        self._harness.advance_until_answered(*waiting)
        options.clear()
        for name in plain:
            self._do_sync([name], {who: f"[{place}]" for place, who in enumerate(plain)})
        parts = ", ".join(f"{name} [{place}]" for place, name in enumerate(plain))
        group = self._harness.group
        self._lines = [
            f"{group.state}, generation {group.generation_id}, leader {self._name(group.leader or '')}: {parts}"
        ]

    def _do_join(self, plain: list[str], options: dict[str, str]) -> None:
        client = self._client(plain[0])
        if "instance" in options:
            client.instance = options.pop("instance")
        for option, term in (("session", "session_ms"), ("rebalance", "rebalance_ms")):
            if option in options:
                client.terms[term] = milliseconds(options.pop(option))
        if "topics" in options:
            client.terms["topics"] = options.pop("topics").split(",")
        if "offers" in options:
            client.terms["offers"] = options.pop("offers").split(",")
        terms = client.terms
        metadata = consumer(*terms.get("topics", ["t"]))
        member_id, wait, request_id = (
            self._id(client, options),
            options.pop("wait", None),
            options.pop("request", None),
        )
        attempt, protocol_type = options.pop("attempt", None), options.pop("type", "consumer")
        self._say(
            client,
            "join",
            lambda: self._harness.join(
                member_id,
                instance=client.instance,
                protocols=tuple((name, metadata) for name in terms.get("offers", ["range"])),
                protocol_type=protocol_type,
                session_ms=terms.get("session_ms", 10_000),
                rebalance_ms=terms.get("rebalance_ms", 10_000),
                request_id=request_id,
                attempt=None if attempt is None else int(attempt),
                client_id=client.name,
                max_wait_ms=None if wait is None else milliseconds(wait),
            ),
        )

    def _do_sync(self, plain: list[str], options: dict[str, str]) -> None:
        client = self._client(plain[0])
        given = {key: options.pop(key) for key in list(options) if options[key].startswith("[")}
        assignments = {
            self._clients[who].member_id if who in self._clients else who: OpaqueJson(what).value
            for who, what in given.items()
        }
        wait = options.pop("wait", None)
        member_id, generation_id = self._id(client, options), self._generation(client, options)
        protocol_name = options.pop("protocol", self._harness.group.protocol_name)
        self._say(
            client,
            "sync",
            lambda: self._harness.sync(
                member_id,
                generation_id,
                instance=client.instance,
                assignments=assignments,
                protocol_name=protocol_name,
                max_wait_ms=None if wait is None else milliseconds(wait),
            ),
        )

    def _do_heartbeat(self, plain: list[str], options: dict[str, str]) -> None:
        wait_ms = milliseconds(options.pop("wait", "0ms"))
        for name in plain:
            client = self._client(name)
            member_id, generation_id = self._id(client, options), self._generation(client, options)

            def beat(client: Client = client, member_id: str = member_id, generation_id: int = generation_id) -> int:
                return self._harness.heartbeat(member_id, generation_id, instance=client.instance, wait_ms=wait_ms)

            self._say(client, "heartbeat", beat)

    def _do_leave(self, plain: list[str], options: dict[str, str]) -> None:
        instance = options.pop("instance", None)
        members = [self._client(name).member_id for name in plain] if instance is None else [""]
        who = Client("admin") if instance is not None else self._client(plain[0])
        self._say(who, "leave", lambda: self._harness.leave(*members, instance=instance))

    def _do_commit(self, plain: list[str], options: dict[str, str]) -> None:
        client = Client(NOBODY) if plain[0] == NOBODY else self._client(plain[0])
        member_id, generation_id = self._id(client, options), self._generation(client, options)
        where = next(key for key in options if "/" in key)
        topic, partition = where.split("/")
        offset = int(options.pop(where))
        self._say(
            client,
            "commit",
            lambda: self._harness.commit(
                member_id, generation_id, offset, instance=client.instance, topic=topic, partition=int(partition)
            ),
        )

    def _do_fetch(self, _: list[str], __: dict[str, str]) -> None:
        self._say(Client("anyone"), "fetch", lambda: self._harness.call(m.FetchRequest()))

    def _do_rebalances(self, _: list[str], __: dict[str, str]) -> None:
        self._say(Client("anyone"), "rebalances", lambda: self._harness.call(ListRebalancesRequest()))

    def _do_rebalance(self, plain: list[str], _: dict[str, str]) -> None:
        self._say(Client(OPERATOR), "rebalance", lambda: self._harness.start_rebalance(" ".join(plain) or None))

    def _do_freeze(self, plain: list[str], options: dict[str, str]) -> None:
        reason, until = " ".join(plain[1:]) or None, options.pop("until", "time")
        self._say(Client(OPERATOR), "freeze", lambda: self._harness.freeze(milliseconds(plain[0]), reason, until))

    def _do_proceed(self, plain: list[str], options: dict[str, str]) -> None:
        reason, is_dry = " ".join(plain) or None, bool(options.pop("dry", None))
        self._say(Client(OPERATOR), "proceed", lambda: self._harness.proceed(reason, dry_run=is_dry))

    def _do_joinwait(self, plain: list[str], _: dict[str, str]) -> None:
        wait_ms = None if plain[0] == "default" else milliseconds(plain[0])
        self._say(Client(OPERATOR), "join wait", lambda: self._harness.join_wait(wait_ms))

    def _do_thaw(self, _: list[str], __: dict[str, str]) -> None:
        self._say(Client(OPERATOR), "thaw", self._harness.thaw)

    def _do_cooldown(self, plain: list[str], _: dict[str, str]) -> None:
        self._say(Client(OPERATOR), "cooldown", lambda: self._harness.cooldown(milliseconds(plain[0])))

    def _do_remove(self, plain: list[str], options: dict[str, str]) -> None:
        """Clients by their ids, anything else as it is written."""
        is_dry = bool(options.pop("dry", None))
        reason = options.pop("because", None)
        names = [self._clients[name].member_id if name in self._clients else name for name in plain]
        self._say(Client(OPERATOR), "remove", lambda: self._harness.remove(*names, reason=reason, dry_run=is_dry))

    def _do_describe(self, _: list[str], __: dict[str, str]) -> None:
        self._say(Client("anyone"), "describe", self._harness.describe)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _client(self, name: str) -> Client:
        return self._clients.setdefault(name, Client(name))

    def _id(self, client: Client, options: dict[str, str]) -> str:
        """The id that the client speaks under: its own, unless `id=` names another, or `none`."""
        wanted = options.pop("id", None)
        if wanted is None:
            return client.member_id
        ids = {name: member_id for member_id, name in self._names.items()}
        return "" if wanted == "none" else ids.get(wanted, wanted)

    @staticmethod
    def _generation(client: Client, options: dict[str, str]) -> int:
        wanted = options.pop("generation", None)
        return client.generation_id if wanted is None else int(wanted)

    def _say(self, client: Client, what: str, send: Callable[[], int]) -> None:
        call = self._harness.calls + 1
        self._calls[call] = Said(client.name, what, self._harness.now_ms)
        sent = send()
        assert sent == call
        if self._harness.waits(call):
            self._lines.insert(0, f"{client.name} waits")

    def _waiting(self) -> list[tuple[int, Said]]:
        return [(call, said) for call, said in self._calls.items() if self._harness.waits(call)]

    # --- telling -----------------------------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self._lines.append(f"{self._clock(self._harness.now_ms)}: {text}" if self._time_passes else text)

    def _clock(self, at_ms: int) -> str:
        return seconds(at_ms - self._start_ms)

    def _tell_of(self, command: Command, before: Before) -> None:
        if isinstance(command, TimerFired) and command.key.kind in PHASE_TIMERS:
            self._line(f"fires: {self._timer(command.key)}")
        for call, answer in self._harness.answers.items():
            if call not in before.answered and call in self._calls:
                self._learn(self._calls[call], answer)
        for record in self._harness.stored:
            self._line(f"stored: {self._record(record)}")
        for call, answer in self._harness.answers.items():
            if call not in before.answered and call in self._calls:
                self._tell_answer(self._calls[call], answer, command)
        for event in self._harness.events[before.events :]:
            if (text := self._event(event)) is not None:
                self._line(text)
        self._tell_timers(command, before)
        if str(self._harness.group.state) != before.state:
            self._line(f"{before.state} -> {self._harness.group.state}")

    def _tell_answer(self, said: Said, answer: Any, command: Command) -> None:
        waited_ms = self._harness.now_ms - said.at_ms
        earlier = (
            isinstance(command, TimerFired | HangUp) or said is not self._calls.get(self._harness.calls) or waited_ms
        )
        who = f"{said.who} ({said.what}, waited {seconds(waited_ms)})" if earlier else said.who
        for text in self._answer(answer):
            self._line(f"{who} <- {text}")
            who = " " * len(who)

    def _learn(self, said: Said, answer: Any) -> None:
        """Every id that is handed out gets a name a person can read: the client's, then the client's with a number."""
        member_id = getattr(answer, "member_id", None)
        is_id = isinstance(answer, m.JoinAnswer | m.WaitingAnswer) or (
            isinstance(answer, e.Failure) and answer.code is ErrorCode.MEMBER_ID_REQUIRED
        )
        client = self._clients.get(said.who)
        if client is None or said.what != "join" or not is_id or not member_id:
            return
        client.member_id = member_id
        self._name(member_id)
        if isinstance(answer, m.JoinAnswer):
            client.generation_id = answer.generation_id

    def _name(self, member_id: str) -> str:
        if not member_id:
            return "nobody"
        if member_id not in self._names:
            prefix = member_id.rpartition("-")[0]
            owner = next((x for x in self._clients.values() if prefix in (x.instance, x.name)), None)
            if owner is None:
                return member_id
            owner.ids += 1
            self._names[member_id] = owner.name if owner.ids == 1 else f"{owner.name}.{owner.ids}"
        return self._names[member_id]

    def _named(self, text: str) -> str:
        """A sentence for people, with readable names in it."""
        for member in self._harness.group.members:
            self._name(member)
        for member_id, name in sorted(self._names.items(), key=lambda item: -len(item[0])):
            text = text.replace(member_id, name)
        return text

    def _tell_timers(self, command: Command, before: Before) -> None:
        now = self._harness.timers
        for key in sorted(before.timers.keys() | now.keys()):
            if key.kind not in PHASE_TIMERS or before.timers.get(key) == now.get(key):
                continue
            if key in now:
                self._line(f"timer: {self._timer(key)} at {self._clock(now[key])}")
            elif command != TimerFired(key):
                self._line(f"timer: {self._timer(key)} cancelled")

    def _timer(self, key: TimerKey) -> str:
        if key.kind in {TimerKind.JOIN, TimerKind.SYNC}:
            return f"{key.kind} phase"
        if key.kind is TimerKind.CALL:
            said = self._calls[int(key.subject)]
            return f"{said.what} of {said.who}"
        if key.kind is TimerKind.RETENTION:
            return "a look at what has expired"
        if key.kind is TimerKind.HOLD:
            return "end of the hold"
        if key.kind is TimerKind.LINGER:
            return "end of the linger"
        what = "unused id" if key.kind is TimerKind.PENDING else key.kind
        return f"{what} of {self._name(key.subject)}"

    def _record(self, record: r.GroupFact) -> str:
        match record:
            case r.GroupRecord():
                leader = "" if record.leader is None else f", leader {self._name(record.leader)}"
                return f"group of generation {record.generation_id}, highest {record.highest_generation_id}{leader}"
            case r.MemberRecord():
                name = self._name(record.member_id)
                removed = ", removed" if record.removed else ""
                return f"member {name} of generation {record.generation_id}: {record.assignment.text}{removed}"
            case r.MemberForgotten():
                return f"member {self._name(record.member_id)} of generation {record.generation_id} forgotten"
            case r.OffsetRecord():
                return f"offset {record.topic}/{record.partition}={record.offset}"
            case r.OffsetForgotten():
                return f"offset {record.topic}/{record.partition} forgotten"
            case r.GroupForgotten():
                return "group forgotten"
            case r.RebalanceRecord():
                return f"rebalance {record.rebalance_id} {record.outcome.replace('_', ' ')}{_how_it_went(record)}"
            case r.RebalanceForgotten():
                return f"rebalance {record.rebalance_id} forgotten"
            case r.HoldRecord():
                until_ms, cooldown_ms = record.frozen_until_ms, record.cooldown_ms
                frozen = "not frozen" if until_ms is None else f"frozen until {self._clock(until_ms)}"
                waited_for = ", ".join(map(self._name, record.freeze_roster))
                frozen += f" or {record.freeze_until} of {waited_for}" if waited_for else ""
                wait_ms = record.join_wait_max_ms
                frozen += "" if wait_ms is None else f", waits {seconds(wait_ms)} for joins"
                return frozen + ("" if cooldown_ms is None else f", cool-down {seconds(cooldown_ms)}")
            case r.HoldForgotten():
                return "not frozen, and no cool-down of its own"
            case r.DeletionsRecord():
                return f"offsets of topics deleted up to version {record.version} are newer"
            case r.DeletionsForgotten():
                return "nothing said of deleted topics"
        assert_never(record)

    def _event(self, event: e.Event) -> str | None:
        match event:
            case e.RebalanceBegan():
                return f"rebalance ({event.trigger}): {self._named(event.reason)}"
            case e.RebalanceHeld():
                return f"held until {self._clock(event.until_ms)} ({event.trigger}): {self._named(event.reason)}"
            case e.GroupFrozen():
                return f"frozen: {event.reason}"
            case e.GroupThawed():
                if event.members_came:
                    return "thawed, those whom it waited for have come"
                return "thawed" if event.lifted else "thawed, its time is over"
            case e.JoinPhaseEnded():
                took = seconds(event.duration_ms)
                return f"join phase ended after {took}: generation {event.generation_id}, members: {event.member_count}"
            case e.SyncPhaseEnded():
                return f"sync phase ended after {seconds(event.duration_ms)}"
            case e.SessionExpired():
                what = "unused id" if event.pending else "session"
                return f"{what} of {self._name(event.member_id)} expired"
            case e.MembersRemoved():
                who = ", ".join(map(self._name, event.member_ids))
                return f"removed {who}: {self._named(event.reason)}"
            case e.GroupRemoved():
                return f"the group is gone ({event.cause})"
            case e.OffsetsRemoved():
                return f"offsets removed ({event.cause}): {', '.join(f'{t}/{p}' for t, p in event.partitions)}"
            case (
                e.GroupCreated()
                | e.GroupChanged()
                | e.GroupUnloaded()
                | e.MemberReplaced()
                | e.OffsetsCommitted()
                | e.OffsetsLoaded()
                | e.OffsetsReset()
                | e.PartitionsMoved()
            ):
                # They repeat what the records and the state say.
                return None
        assert_never(event)

    def _answer(self, answer: e.GroupAnswer | e.Failure) -> Iterator[str]:
        match answer:
            case e.Failure():
                yield self._failure(answer)
            case m.JoinAnswer():
                yield self._join_answer(answer)
            case m.SyncAnswer():
                yield f"{answer.protocol_name}, assignment {answer.assignment.text}"
            case m.HeartbeatAnswer():
                yield "NONE"
            case m.LeaveAnswer():
                yield ", ".join(
                    f"{self._name(x.member_id) if x.member_id else x.group_instance_id or '?'} {x.error_name}"
                    for x in answer.members
                )
            case m.CommitAnswer():
                yield ", ".join(f"{t}/{p} {x.error_name}" for t, of in answer.offsets.items() for p, x in of.items())
            case m.FetchAnswer():
                yield self._offsets(answer.offsets)
            case m.WaitingAnswer():
                yield "202: go on waiting" + (f" as {self._name(answer.member_id)}" if answer.member_id else "")
            case admin.DescribeAnswer():
                yield from self._description(answer)
            case admin.ListRebalancesAnswer():
                yield from map(self._rebalance, answer.rebalances)
            case admin.StartedRebalance():
                began = "begins" if answer.started else "is under way"
                yield (
                    "nobody to rebalance" if answer.rebalance_id is None else f"rebalance {answer.rebalance_id} {began}"
                )
            case admin.FreezeAnswer():
                until_ms = answer.frozen_until_ms
                frozen = "not frozen" if until_ms is None else f"frozen until {self._clock(until_ms)}"
                yield f"{frozen}, held: {answer.held_count}{self._missing(answer)}"
            case admin.CooldownAnswer():
                yield f"cool-down {seconds(answer.cooldown_ms)}"
            case admin.RemoveMembersAnswer():
                yield self._removal(answer)
            case admin.ProceedAnswer():
                yield self._left_out(answer)
            case admin.JoinWaitAnswer():
                wait_ms = answer.join_wait_max_ms
                yield (
                    "waits for joins as long as members say" if wait_ms is None else f"waits {seconds(wait_ms)} at most"
                )
            case admin.DeletedGroup() | admin.DeleteOffsetsAnswer() | admin.ResetOffsetsAnswer():
                raise AssertionError("an operator's answer that no story asks for")
            case _:
                assert_never(answer)

    @staticmethod
    def _missing(answer: admin.FreezeAnswer | admin.DescribeAnswer) -> str:
        if answer.freeze_until in {None, "time"}:
            return ""
        names = ", ".join(answer.freeze_missing) or "nobody"
        return f", until {answer.freeze_until}, missing: {names} ({answer.freeze_missing_count})"

    def _left_out(self, answer: admin.ProceedAnswer) -> str:
        who = ", ".join(f"{x.awaited_for} of {self._name(x.member_id)}" for x in answer.left_out) or "nobody"
        text = (
            f"{'it would be' if answer.dry_run else 'goes on'} without the {who}"
            if answer.left_out
            else "without nobody"
        )
        return text + ("" if answer.rebalance_id is None else f"; rebalance {answer.rebalance_id}")

    def _removal(self, answer: admin.RemoveMembersAnswer) -> str:
        text = ", ".join(f"{self._name(x.member_id)} {x.error_name}" for x in answer.members)
        if answer.dry_run:
            return f"it would be: {text}"
        if answer.held_until_ms is not None:
            return f"{text}; the rebalance is held until {self._clock(answer.held_until_ms)}"
        return text if answer.rebalance_id is None else f"{text}; rebalance {answer.rebalance_id}"

    def _rebalance(self, listing: admin.RebalanceListing) -> str:
        after = "" if listing.generation_id is None else f" -> {listing.generation_id}"
        text = f"{listing.rebalance_id}, generation {listing.previous_generation_id}{after}, {listing.outcome}"
        text += f", {listing.trigger} ({self._named(listing.reason)})"
        for name, value in (("join", listing.join_phase_ms), ("sync", listing.sync_phase_ms)):
            text += "" if value is None else f", {name} {seconds(value)}"
        if listing.partitions_moved is not None:
            text += f", moved {listing.partitions_moved}"
        if listing.further_count:
            text += f", and for {listing.further_count} more"
        for awaited in listing.awaited:
            text += f", awaits {awaited.awaited_for} of {self._name(awaited.member_id)}"
        return text

    def _failure(self, failure: e.Failure) -> str:
        if failure.superseded:
            return "superseded: a newer call of the member waits"
        if failure.code is ErrorCode.MEMBER_ID_REQUIRED:
            return f"MEMBER_ID_REQUIRED, join as {self._name(failure.member_id or '')}"
        if failure.code is ErrorCode.ILLEGAL_GENERATION and failure.generation_id is not None:
            return f"ILLEGAL_GENERATION, it is {failure.generation_id}"
        return failure.code.name

    def _join_answer(self, answer: m.JoinAnswer) -> str:
        text = f"generation {answer.generation_id}, {answer.protocol_name}, leader {self._name(answer.leader)}"
        text += f", you are {self._name(answer.member_id)}"
        if answer.members:
            members = [f"{self._name(x.member_id)} {self._topics(x.metadata)}" for x in answer.members]
            text += f", members {', '.join(members)}"
        return text + (", skip the assignment" if answer.skip_assignment else "")

    @staticmethod
    def _topics(metadata: OpaqueJson) -> str:
        value = metadata.value
        topics = value.get("topics") if isinstance(value, dict) else None
        return f"[{' '.join(map(str, topics))}]" if isinstance(topics, list) else "[]"

    @staticmethod
    def _offsets(offsets: dict[str, dict[int, m.CommittedOffset]]) -> str:
        return ", ".join(f"{t}/{p}={x.offset}" for t, of in offsets.items() for p, x in of.items()) or "no offsets"

    def _description(self, answer: admin.DescribeAnswer) -> Iterator[str]:
        kind = "/".join(word for word in (answer.protocol_type, answer.protocol_name) if word) or "no protocol"
        leader = self._name(answer.leader or "")
        yield f"{answer.state}, generation {answer.generation_id}, {kind}, leader {leader}"
        for member in answer.members:
            place = "" if member.group_instance_id is None else f" (instance {member.group_instance_id})"
            yield f"member {self._name(member.member_id)}{place}: {member.assignment.text}"
        if answer.frozen_until_ms is not None:
            why = answer.freeze_reason or "no reason given"
            yield f"frozen until {self._clock(answer.frozen_until_ms)}: {why}{self._missing(answer)}"
        if answer.cooling_until_ms is not None:
            yield f"cooling until {self._clock(answer.cooling_until_ms)}"
        for cause in answer.held:
            yield f"held: {cause.trigger} ({self._named(cause.reason)})"
        if answer.offsets:
            yield f"offsets {self._offsets(answer.offsets)}"
