"""Laws of channels: who is carried by which (I13), who is taken for dead when one ends (I14), that each call on one has
its one answer (I15), and what is pushed (I16).

Each keeps books of its own, made of what is seen at the API, and holds the service's against them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from rallypoint.coordinator.core.effects import (
    Event,
    Failure,
    GroupRemoved,
    GroupUnloaded,
    MemberReplaced,
    MembersWent,
    RebalanceBegan,
    SessionExpired,
)
from rallypoint.coordinator.core.group import Group
from rallypoint.coordinator.http.answers.answer_text import status_of, text_of
from rallypoint.coordinator.http.errors import problem_of
from rallypoint.coordinator.runtime.event_loop.timers import BUCKET_MS
from rallypoint.member.core.states import State
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.simulation.checker import Checker, Sight
from tests.simulation.client import Client
from tests.simulation.laws_of_rest import HEAD_START_MS
from tests.simulation.network import Answer, ApiCall
from tests.simulation.node import Node, Seen

MemberKey = tuple[str, str]
"""Group id and member id."""

_NOBODY = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED}


class I13Connections(Checker):
    """A member is carried by the channel on which it called last, and by none where that was over HTTP, where it is out
    of its group, and where that channel has ended. But one that had called on a newer channel too, which goes on, is
    that one's then: what it said on the old one came late. Nothing is left at the end.

    A call counts when it is made, unless it is refused at once; a rebalance in progress is no refusal, but an overtaken
    join is one. A first join counts when it is answered, for nobody knew its id before.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self.carried: dict[MemberKey, int | None] = {}
        self._newer: dict[MemberKey, int] = {}
        self.lost: tuple[MemberKey, ...] = ()
        """Whom the channel that ends now carried to its end."""

    def node_began(self) -> None:
        self.carried.clear()
        self._newer.clear()

    def _count(self, key: MemberKey, line: int | None) -> None:
        """The member calls there. Lines are numbered by their beginning."""
        known = (self.carried.get(key), self._newer.pop(key, None))
        newer = [one for one in known if one is not None and line is not None and one > line]
        if newer:
            self._newer[key] = max(newer)
        self.carried[key] = line

    def _forget(self, key: MemberKey) -> None:
        self.carried.pop(key, None)
        self._newer.pop(key, None)

    def waits(self, api_call: ApiCall) -> None:
        if member_id := speaker_of(api_call):
            self._count((api_call.group_id, member_id), api_call.line)

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        member_id = speaker_of(api_call)
        key = (api_call.group_id, member_id)
        if isinstance(answer, m.LeaveAnswer):
            for left in answer.members:
                if left.error_code == ErrorCode.NONE:
                    self._forget((api_call.group_id, left.member_id))
        elif isinstance(answer, Failure):
            if answer.code in _NOBODY and api_call.line is not None and self.carried.get(key) == api_call.line:
                self._forget(key)
            elif _is_no_refusal(answer) and member_id and not api_call.waits:
                self._count(key, api_call.line)
        elif member_id and not api_call.waits:
            self._count(key, api_call.line)
        elif not member_id and isinstance(answer, m.JoinAnswer | m.WaitingAnswer) and answer.member_id:
            self._count((api_call.group_id, answer.member_id), api_call.line)

    def happened(self, event: Event) -> None:
        if isinstance(event, MemberReplaced):
            self._forget((event.group_id, event.old_member_id))
        elif isinstance(event, SessionExpired):
            self._forget((event.group_id, event.member_id))
        elif isinstance(event, GroupRemoved):
            for key in [key for key in self.carried if key[0] == event.group_id]:
                self._forget(key)

    def went(self, event: MembersWent) -> None:
        for names in event.members:
            self._forget((event.group_id, names.member_id))

    def dropped(self, line: int, group_id: str, member_id: str) -> None:
        if self.carried.get((group_id, member_id)) == line:
            self._forget((group_id, member_id))

    def channel_ended(self, line: int, by_client: bool) -> None:
        self._newer = {key: newer for key, newer in self._newer.items() if newer != line}
        ended = [key for key, carrying in self.carried.items() if carrying == line]
        self.lost = tuple(key for key in ended if key not in self._newer)
        for key in ended:
            newer = self._newer.pop(key, None)
            if newer is None:
                del self.carried[key]
            else:
                self.carried[key] = newer

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        connections = node.service.connections
        lines = node.api.numbers()
        told: dict[str, dict[str, int]] = {}
        for (group_id, member_id), line in self.carried.items():
            if line is not None:
                told.setdefault(group_id, {})[member_id] = line
        for one in seen:
            if one.is_idle:
                group_id = one.group.group_id
                carried = {
                    member_id: lines.get(connection, -1)
                    for member_id in connections.members_of(group_id)
                    if (connection := connections.connection_of(group_id, member_id)) is not None
                }
                if carried != told.get(group_id, {}):
                    self.fail(f"{group_id}: carried are {carried}, called last on {told.get(group_id, {})}")

    def nothing_left(self, node: Node) -> None:
        """The node has drained: every channel has ended."""
        connections, tally = node.service.connections, node.api.tally
        if (
            len(connections)
            or connections.group_count
            or connections._counts
            or connections._newer
            or connections._newer_of
            or node.api.lines
            or tally.open
        ):
            self.fail(
                f"{len(connections)} channels carry members of {connections.group_count} groups, {tally.open} are open,"
                f" {len(node.api.lines)} lines"
            )


class I17Attempts(Checker):
    """What a member says at a join stands until a later attempt of it: an older one that was held up on its way, on
    another connection, replaces nothing. A load takes the number back to that which was stored.

    Left out are members for whom somebody has joined without a number: after such a join any number counts.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._last: dict[MemberKey, int] = {}
        self._spoken_for: set[MemberKey] = set()

    def on_call(self, api_call: ApiCall) -> None:
        if isinstance(api_call.request, m.JoinRequest) and api_call.request.attempt is None:
            self._spoken_for.add((api_call.group_id, api_call.request.member_id))

    def node_began(self) -> None:
        self._last.clear()

    def happened(self, event: Event) -> None:
        if isinstance(event, GroupUnloaded):
            self._last = {key: last for key, last in self._last.items() if key[0] != event.group_id}

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        for group in (one.group for one in seen if one.is_idle):
            for member in group.members.values():
                key, attempt = (group.group_id, member.member_id), member.terms.attempt
                if attempt is None or key in self._spoken_for:
                    self._last.pop(key, None)
                elif attempt < self._last.get(key, attempt):
                    self.fail(f"{group.group_id}: attempt {attempt} of {member.member_id} replaces {self._last[key]}")
                else:
                    self._last[key] = attempt


def _is_no_refusal(answer: Failure) -> bool:
    return answer.code is ErrorCode.REBALANCE_IN_PROGRESS and not answer.superseded


def speaker_of(api_call: ApiCall) -> str:
    """The member that calls, by what it says; "" where it says none."""
    return str(getattr(api_call.request, "member_id", ""))


@dataclass(slots=True)
class Loss:
    """A member's connection was lost; `at_ms` is None while its group is being loaded, for it is told then.

    `grace_ms`: None where the group's books were not open to look at. `waits`: when it was looked at last, a call of it
    waited on another connection. `is_sharp`: the grace began at that instant, and not perhaps a little before.
    """

    at_ms: int | None
    grace_ms: int | None
    waits: bool = False
    is_sharp: bool = True

    @property
    def is_unknown(self) -> bool:
        """Whether nobody can tell what is to come of it: its group was busy, perhaps with the member's death."""
        return self.at_ms is not None and self.grace_ms is None

    def is_over(self, now_ms: int) -> bool:
        """Whether the grace may have come to its end."""
        if self.at_ms is None or self.grace_ms is None:
            return False
        return now_ms >= self.at_ms + self.grace_ms - HEAD_START_MS


class I14Graces(Checker):
    """A member whose side ended its channel is dead after its grace, and not before, unless it has called since; then
    it is not dead at all. Where the service ended the channel, and for a static member that has asked for no grace, no
    loss is counted. So a connection that is lost and made again in time moves nothing.
    """

    def __init__(self, sight: Sight, i13: I13Connections) -> None:
        super().__init__(sight)
        self._i13 = i13
        self._lost: dict[MemberKey, Loss] = {}
        self._nameless: dict[str, int] = {}
        """Of each group: when the channel of a first join ended last, whose member nobody knows by name."""

    def node_began(self) -> None:
        self._lost.clear()
        self._nameless.clear()

    def channel_ended(self, line: int, by_client: bool) -> None:
        if not by_client:
            return
        for key in self._i13.lost:
            if self.sight.node is not None and self.sight.node.is_loading(key[0]):
                self._lost[key] = Loss(None, None)
            else:
                self._begin(key, self._group(key[0]))

    def _begin(self, key: MemberKey, group: Group | None) -> None:
        """The grace of the member begins, if it has one."""
        self._lost.pop(key, None)
        if group is None:
            self._lost[key] = Loss(self.sight.now_ms, None)
        elif (member := group.members.get(key[1])) is not None:
            grace_ms = member.terms.disconnect_grace_ms
            if grace_ms is None and member.group_instance_id is None:
                grace_ms = self.sight.plan.rules.disconnect_grace_ms
            if grace_ms is not None:
                self._lost[key] = Loss(self.sight.now_ms, grace_ms)

    def _group(self, group_id: str) -> Group | None:
        """The group, where nothing of it is under way."""
        seen = None if self.sight.node is None else self.sight.node.group(group_id)
        return seen.group if seen is not None and seen.is_idle else None

    def on_call(self, api_call: ApiCall) -> None:
        member_id = speaker_of(api_call)
        if member_id:
            lost = self._lost.pop((api_call.group_id, member_id), None)
            may_be_dead = lost is not None and (lost.is_unknown or lost.is_over(self.sight.now_ms))
            if may_be_dead and self._group(api_call.group_id) is None:
                # Its death may be on its way to the store: nobody can tell from here.
                self._lost[api_call.group_id, member_id] = Loss(self.sight.now_ms, None)
        elif isinstance(api_call.request, m.JoinRequest):
            # One that comes again, perhaps, and does not know its id: whose it is stands in the group's books alone.
            group = self._group(api_call.group_id)
            known = None if group is None else group.requests.get(api_call.request.request_id or "")
            for key in [key for key in self._lost if key[0] == api_call.group_id]:
                if group is None or key[1] == known:
                    # Nobody can tell from here.
                    self._lost[key] = Loss(self.sight.now_ms, None)

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        if (
            isinstance(answer, Failure)
            and answer.limit_name == "group_mailbox_max"
            and (member_id := speaker_of(api_call))
        ):
            # The group was never asked, so that it may not count; and what it would have said nobody can tell.
            self._lost[api_call.group_id, member_id] = Loss(self.sight.now_ms, None)

    def hung_up(self, api_call: ApiCall, connection_lost: bool = False) -> None:
        if connection_lost:
            self._nameless[api_call.group_id] = self.sight.now_ms

    def happened(self, event: Event) -> None:
        if isinstance(event, GroupUnloaded):
            # What is in memory alone is forgotten; what was lost since is told to the group when it is there. One that
            # was there already, if only for a moment, was told.
            is_loading = self.sight.node is not None and self.sight.node.is_loading(event.group_id)
            for key in [key for key in self._lost if key[0] == event.group_id]:
                known = self._lost[key]
                if not is_loading or (known.at_ms is not None and known.grace_ms is not None):
                    del self._lost[key]
        elif isinstance(event, SessionExpired):
            lost = self._lost.pop((event.group_id, event.member_id), None)
            if event.disconnected:
                self._check_expiry(event, lost)

    def _check_expiry(self, event: SessionExpired, lost: Loss | None) -> None:
        who = f"{event.group_id}: {event.member_id}"
        if lost is None:
            if event.group_id not in self._nameless:
                self.fail(f"{who} is taken for dead by its connection, which it has not lost, or come back since")
        elif lost.at_ms is not None and lost.grace_ms is not None and lost.is_sharp:
            had_ms = self.sight.stalls.ran_ms(lost.at_ms, self.sight.now_ms)
            if had_ms < lost.grace_ms - HEAD_START_MS:
                self.fail(f"{who} had {had_ms} ms of {lost.grace_ms} to come back")

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        slack_ms = HEAD_START_MS + BUCKET_MS + self.sight.plan.clock_jitter_ms
        if not self._lost:
            return
        groups = {one.group.group_id: one.group for one in seen if one.is_idle}
        for (group_id, member_id), lost in list(self._lost.items()):
            group = groups.get(group_id)
            member = None if group is None else group.members.get(member_id)
            if group is not None and lost.at_ms is None and not node.is_loading(group_id):
                self._begin((group_id, member_id), group)
                if (begun := self._lost.get((group_id, member_id))) is not None:
                    begun.is_sharp = False
            if member is None or lost.grace_ms is None or lost.at_ms is None:
                continue
            late_ms = self.sight.now_ms - lost.at_ms - lost.grace_ms
            lost_ms = self.sight.stalls.lost_ms(lost.at_ms, self.sight.now_ms)
            if late_ms >= -1 and lost.waits:
                # It was never away.
                del self._lost[group_id, member_id]
            elif late_ms > slack_ms + lost_ms:
                self.fail(f"{group_id}: {member_id} lost its connection, and lives {late_ms} ms beyond its grace")
            lost.waits = member.is_connected


class I15Letters(Checker):
    """Each call on a channel has one answer, its own, by its id, as long as the channel lasts; and when it has ended,
    none of its calls waits at the service.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._open: dict[int, set[int | str]] = {}
        self._asked: dict[int, dict[int | str, ApiCall]] = {}
        self._due: dict[tuple[int, int | str], tuple[int, bytes]] = {}

    def node_began(self) -> None:
        self._open.clear()
        self._asked.clear()
        self._due.clear()

    def framed(self, line: int, call_id: int | str) -> None:
        self._open.setdefault(line, set()).add(call_id)

    def waits(self, api_call: ApiCall) -> None:
        if api_call.line is not None and api_call.call_id is not None:
            self._asked.setdefault(api_call.line, {})[api_call.call_id] = api_call

    def hung_up(self, api_call: ApiCall, connection_lost: bool = False) -> None:
        self._forget(api_call)

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        if api_call.line is None or api_call.call_id is None:
            return
        self._forget(api_call)
        if isinstance(answer, Failure):
            problem = problem_of(answer)
            due = problem.status, problem.model_dump_json(exclude_none=True).encode()
        else:
            due = status_of(answer), text_of(answer)
        self._due[api_call.line, api_call.call_id] = due

    def _forget(self, api_call: ApiCall) -> None:
        if api_call.line is not None and api_call.call_id is not None:
            self._asked.get(api_call.line, {}).pop(api_call.call_id, None)

    def sent(self, line: int, said: dict[str, Any]) -> None:
        if "event" in said:
            return
        call_id = said["id"]
        if call_id not in self._open.get(line, ()):
            self.fail(f"line {line}: an answer for {call_id!r}, which is not asked or has its answer")
        self._open[line].discard(call_id)
        if call_id in self._asked.get(line, {}):
            self.fail(f"line {line}: {call_id!r} is answered, and the service has not answered it")
        due = self._due.pop((line, call_id), None)
        # Whether the channel keeps the session is no word of the service: I23 holds it against what comes of it.
        body = {name: value for name, value in said["body"].items() if name != "channel_keeps_session"}
        if due is not None and (said["status"], body) != (due[0], from_json(due[1])):
            self.fail(f"line {line}: {call_id!r} is answered {said}; the service said {due}")

    def rested(self, line: int) -> None:
        for call_id in self._open.get(line, set()) - self._asked.get(line, {}).keys():
            self.fail(f"line {line}: {call_id!r} has no answer, and does not wait for one")

    def channel_ended(self, line: int, by_client: bool) -> None:
        self._open.pop(line, None)
        self._due = {key: due for key, due in self._due.items() if key[0] != line}
        for api_call in self._asked.pop(line, {}).values():
            self.fail(f"line {line} has ended, and its call #{api_call.number} waits for ever: {api_call.request!r}")


class I16Pushes(Checker):
    """What begins in a group, or ends it here, is pushed to each channel that carries a member of the group, once, in
    its own words; and nothing else is, but that the node stops, and what is of no group. Of a rebalance nothing is
    pushed to a channel on which a join of each of its members of the group waits.

    Who hears of the end of the generation that it lives in joins again; of the end of an older one, it does nothing.
    """

    def __init__(self, sight: Sight, i13: I13Connections) -> None:
        super().__init__(sight)
        self._i13 = i13
        self._due: list[tuple[int, dict[str, Any]]] = []
        self._joining: dict[int, ApiCall] = {}
        """Joins that wait, by the number of the call."""

    def node_began(self) -> None:
        self._due.clear()
        self._joining.clear()

    def waits(self, api_call: ApiCall) -> None:
        if isinstance(api_call.request, m.JoinRequest):
            self._joining[api_call.number] = api_call

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        self._joining.pop(api_call.number, None)

    def hung_up(self, api_call: ApiCall, connection_lost: bool = False) -> None:
        self._joining.pop(api_call.number, None)

    def _has_come(self, group_id: str, line: int) -> bool:
        carried = {key[1] for key, carrying in self._i13.carried.items() if key[0] == group_id and carrying == line}
        joining = {
            speaker_of(api_call)
            for api_call in self._joining.values()
            if (api_call.group_id, api_call.line) == (group_id, line)
        }
        return carried <= joining

    def happened(self, event: Event) -> None:
        node = self.sight.node
        if node is None or not isinstance(event, RebalanceBegan | GroupUnloaded):
            return
        push: dict[str, Any] = {"event": "unloaded", "group_id": event.group_id}
        if isinstance(event, GroupUnloaded):
            push["url"] = event.url
        else:
            push = {
                "event": "rebalance",
                "group_id": event.group_id,
                "generation_id": event.generation_id,
                "reason": event.reason,
                "rejoin_within_ms": event.rejoin_within_ms,
            }
        lines = {line for (group_id, _), line in self._i13.carried.items() if group_id == event.group_id}
        if isinstance(event, RebalanceBegan):
            lines = {line for line in lines if line is None or not self._has_come(event.group_id, line)}
        self._due.extend((line, push) for line in sorted(filter(None, lines & node.api.listening())))

    def sent(self, line: int, said: dict[str, Any]) -> None:
        if "event" not in said or said["event"] in {"topics", "dropped"}:
            return
        if (line, said) in self._due:
            self._due.remove((line, said))
        elif said != {"event": "drain"} or self.sight.node is None or not self.sight.node.api.is_draining:
            self.fail(f"line {line} is told {said}, which has not happened, or is nothing to it")

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        due, self._due = self._due, []
        listening = node.api.listening() if due else set()
        for line, push in due:
            if line in listening:
                self.fail(f"line {line} carries a member of {push['group_id']}, and was not told {push}")

    def heard(self, client: Client, generation_id: int, state: State, before_id: int) -> None:
        has_moved = client.state is not state
        if has_moved and generation_id < before_id:
            self.fail(f"{client.name} is of generation {before_id}, and moves since {generation_id} has ended")
        if not has_moved and state is State.STABLE and generation_id >= before_id:
            self.fail(f"{client.name} is told that its generation {generation_id} ends, and stays {state.value}")
