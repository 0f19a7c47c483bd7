"""A sequence of raw requests, sent to Kafka and to the service at the same time, and the answers side by side.

Theory of operation: each side has the same steps and its own knowledge: the ids and generations that it was answered.
No request goes over a connection on which another waits, for it would wait, too. After each step both sides are left
alone until no answer has come for a while, and all that waits has a reason to: a join for others' joins, a sync for the
leader's. Then the same requests must have been answered, with the same words. Member ids are replaced by names in the
order in which they were handed out. The order of a group's members is nobody's promise, so lists of them are sorted;
nor is it which member leads after the leader has gone, so a sequence ends there if the two chose differently.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from struct import Struct
from typing import Any

from tests.judges.codec import encode
from tests.judges.group_apis import FIRST_TO_SKIP
from tests.judges.headers import RequestHeader, decode_response, encode_request
from tests.judges.opaque_bytes import SUBSCRIPTION
from tests.judges.raw_steps import (
    ALL_ARE_SHORT,
    CLIENTS,
    COMMIT,
    DELETE_GROUP,
    DELETE_OFFSETS,
    DESCRIBE,
    EXPIRE,
    FETCH,
    HEARTBEAT,
    JOIN,
    LEAVE,
    LIST_GROUPS,
    LONG_MS,
    SAID_MEANWHILE,
    SYNC,
    Difference,
    Step,
    Who,
    says_instance,
)

Address = tuple[str, int]
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Value = Mapping[str, Any]

TOPICS = ("judged", "judged-too")
"""Of the broker's: it commits offsets of topics alone that exist."""
ANSWER_SECONDS = 300.0
SETTLED = 10
"""How long the two may differ in what they have answered, in the time without an answer after which a step is over."""
SHORT_SESSION = 20
"""Of clients that expire, or might, in the time without an answer after which a step is over."""
EXPIRED, HEARTBEATS = 1.15, 7
"""How long a client is silent, in sessions, and how often the others say in one session that they live."""
NOT_READY = frozenset({14, 15, 16})
MEMBER_ID_REQUIRED, UNKNOWN_SERVER_ERROR, UNKNOWN_MEMBER_ID = 79, -1, 25
FENCED_INSTANCE_ID, GROUP_SUBSCRIBED_TO_TOPIC, GROUP_ID_NOT_FOUND, ILLEGAL_GENERATION = 82, 86, 69, 22
UNSAID = frozenset({"error_message"})
"""Fields of answers that no client decides by."""
EMPTY, DEAD, STABLE, PREPARING, COMPLETING = "Empty", "Dead", "Stable", "PreparingRebalance", "CompletingRebalance"
WAITS_IN = {JOIN: PREPARING, SYNC: COMPLETING}
"""The state of the group in which this waits for other members."""
STATES = ((), (STABLE,), (PREPARING, COMPLETING), ("empty", "DEAD"))
"""Of groups to be listed, by the step's form."""
FIRST_FILTERED = 4
"""The first version of ListGroups that can name states."""
FIRST_TO_MISS_GROUPS = 9
"""The first version of OffsetCommit that says of a generation in a group that does not exist that the group does not.
"""
WANTS_MORE, PREFERS_ANOTHER = 1, 2
"""Forms of a join."""
_MADE_UP = re.compile(r"^(c\d|instance-\d)-[0-9a-f-]{32,}$")
"""A member id that nobody has been told yet: the client's name or the instance id, and chance."""
_SIZE = Struct(">i")
_VERSION = Struct(">h")
_correlation_ids = count(1)


async def ask(address: Address, api: int, version: int, value: Value, client_id: str) -> Value:
    """One request over a connection of its own, and its answer."""
    connection = await asyncio.open_connection(*address)
    try:
        return await _exchange(connection, api, version, value, client_id)
    finally:
        connection[1].close()


async def _exchange(connection: _Connection, api: int, version: int, value: Value, client_id: str) -> Value:
    reader, writer = connection
    header = RequestHeader(api, version, next(_correlation_ids), client_id)
    data = encode_request(header, value)
    writer.write(_SIZE.pack(len(data)) + data)
    size: int = _SIZE.unpack(await reader.readexactly(_SIZE.size))[0]
    return decode_response(header, await reader.readexactly(size))


@dataclass
class _Client:
    """What a client of one side knows."""

    member_id: str = ""
    former_id: str = ""
    generation: int = -1
    leads: bool = False
    protocol_type: str = "consumer"
    protocol_name: str = "range"
    members: Sequence[str] = ()
    form: int = 0
    """Of its last join that was answered with a generation."""


@dataclass
class Side:
    """Kafka or the service, in one sequence."""

    address: Address
    group_id: str
    short_ms: int
    """The session of those that expire, or might."""
    short: frozenset[int] = frozenset()
    """Which clients these are: all others live as long as the sequence, whatever they say."""
    clients: list[_Client] = field(default_factory=lambda: [_Client() for _ in range(CLIENTS)])
    waiting: dict[int, "asyncio.Task[Value]"] = field(default_factory=dict)
    steps: dict[int, Step] = field(default_factory=dict)
    requests: dict[int, Value] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    connections: list[_Connection] = field(default_factory=list)
    """Those on which nothing waits."""
    generation: int = 0
    members: frozenset[str] = frozenset()
    """Of its last generation."""
    has_left: bool = False
    """Some member, since then."""

    async def prepare(self) -> None:
        """Return once the group's coordinator answers."""
        while True:
            found = await self.ask(10, 3, {"key": self.group_id, "key_type": 0})
            if not found["error_code"]:
                fetch = {"group_id": self.group_id, "topics": None}
                if (await self.ask(FETCH, 5, fetch))["error_code"] not in NOT_READY:
                    return
            await asyncio.sleep(0.1)

    async def ask(self, api: int, version: int, value: Value, client_id: str = "judge") -> Value:
        """One request, and its answer, over a connection on which nothing waits."""
        connection = self.connections.pop() if self.connections else await asyncio.open_connection(*self.address)
        try:
            answer = await _exchange(connection, api, version, value, client_id)
        except BaseException:
            # Cancelled, for one: its answer may be under way.
            connection[1].close()
            raise
        self.connections.append(connection)
        return answer

    def send(self, number: int, step: Step) -> None:
        """The step's request; its answer is in `answered` one day."""
        request = self.request_of(step)
        self._supersede(step.api, request)
        if step.api == LEAVE:
            self._supersede(SYNC, request, step.client)
        self.steps[number], self.requests[number] = step, request
        asking = asyncio.wait_for(self.ask(step.api, step.version, request, f"c{step.client}"), ANSWER_SECONDS)
        self.waiting[number] = asyncio.ensure_future(asking)

    def _supersede(self, api: int, request: Value, client: int | None = None) -> None:
        """A member that asks again waits no more for what it asked before, nor one that leaves for its part: Kafka
        forgets that call, and never answers it; the service does, so that nothing hangs.
        """
        named = {request.get("member_id"), *(member["member_id"] for member in request.get("members", ()))}
        # Who leaves by its instance id alone is the client itself.
        named |= {self.clients[client].member_id} if client is not None else set()
        for number in list(self.waiting):
            if self.steps[number].api == api and self.requests[number].get("member_id") in named - {"", None}:
                self.waiting.pop(number).cancel()

    def answered(self) -> dict[int, Any]:
        """What came since it was asked last, in plain words, by the step's number; the clients know it now."""
        done = sorted(number for number, task in self.waiting.items() if task.done())
        values = {number: self.waiting.pop(number).result() for number in done}
        for number, value in values.items():
            self._learn(self.steps[number], value)
        answers = {}
        for number, value in values.items():
            answers[number] = self._plain(value if self.steps[number].api != LIST_GROUPS else self._own(value))
        return answers

    def _learn(self, step: Step, value: Value) -> None:
        self.has_left |= step.api == LEAVE and _is_success(value)
        if step.api != JOIN:
            return
        client = self.clients[step.client]
        if value["error_code"] in (0, MEMBER_ID_REQUIRED):
            if value["member_id"] != client.member_id:
                client.former_id, client.member_id = client.member_id, value["member_id"]
            self.names.setdefault(value["member_id"], f"member-{len(self.names)}-of-client-{step.client}")
        if value["error_code"] == MEMBER_ID_REQUIRED:
            self.pending.add(value["member_id"])
        if value["error_code"] == 0:
            self.pending.discard(value["member_id"])
            client.generation = value["generation_id"]
            client.leads = value["leader"] == value["member_id"]
            client.protocol_name = value["protocol_name"] or client.protocol_name
            client.members = [member["member_id"] for member in value["members"]]
            client.form = step.variant
            self.members = frozenset(client.members) or self.members
            if value["generation_id"] > self.generation:
                self.generation, self.has_left = value["generation_id"], False

    def _own(self, listed: Value) -> Value:
        """The list without the groups of other sequences, which come and go."""
        return {**listed, "groups": [one for one in listed["groups"] if one["group_id"] == self.group_id]}

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self._plain(content) for name, content in value.items() if name not in UNSAID}
        if isinstance(value, list):
            return sorted((self._plain(one) for one in value), key=repr)
        if isinstance(value, str):
            return "the group" if value == self.group_id else self.names.get(value) or _MADE_UP.sub(r"new \1", value)
        return value

    def request_of(self, step: Step) -> Value:
        """What the client asks, as it knows things."""
        clients, group_id = self.clients, self.group_id
        client = clients[step.client]
        member_id = {
            Who.OWN: client.member_id,
            Who.NOBODY: "",
            Who.STRANGER: "stranger",
            Who.PEER: clients[(step.client + 1) % CLIENTS].member_id,
            Who.FORMER: client.former_id or client.member_id,
        }[step.who]
        instance = f"instance-{step.client}" if says_instance(step) else None
        generation = client.generation + step.ahead
        group: dict[str, Any] = {"group_id": group_id}
        member = group | {"member_id": member_id, "group_instance_id": instance}
        requests: dict[int, Callable[[], Value]] = {
            JOIN: lambda: member | _join_of(step, self.short_ms if step.client in self.short else LONG_MS),
            SYNC: lambda: member | {"generation_id": generation} | _sync_of(step, client),
            HEARTBEAT: lambda: member | {"generation_id": generation},
            LEAVE: lambda: group | _leave_of(step, member_id, instance),
            COMMIT: lambda: group | _commit_of(step, member_id, generation, instance),
            FETCH: lambda: _fetch_of(step, group_id),
            DESCRIBE: lambda: {"groups": [group_id]},
            LIST_GROUPS: lambda: _list_of(step),
            DELETE_GROUP: lambda: {"groups_names": [group_id]},
            DELETE_OFFSETS: lambda: group | _delete_of(step),
        }
        return requests[step.api]()

    async def gives_back(self, step: Step) -> bool:
        """Whether it gives back an id that was not used yet, while the others have a generation: Kafka starts a
        rebalance of them then, and the service does not.
        """
        if step.api != LEAVE:
            return False
        request = self.request_of(step)
        named = {request.get("member_id"), *(member["member_id"] for member in request.get("members", ()))}
        return not self.pending.isdisjoint(named) and await self.state() in (STABLE, COMPLETING)

    async def state(self) -> str:
        """Of the group, now."""
        described = await self.ask(DESCRIBE, 5, {"groups": [self.group_id]})
        state: str = described["groups"][0]["group_state"]
        return state

    async def close(self) -> None:
        """Nothing waits any more."""
        for task in self.waiting.values():
            task.cancel()
        await asyncio.gather(*self.waiting.values(), return_exceptions=True)
        for _, writer in self.connections:
            writer.close()


def _join_of(step: Step, session_timeout_ms: int) -> dict[str, Any]:
    """Forms: 0 and 1 differ in what is subscribed to, 2 prefers another protocol, 3 is no consumer."""
    subscribed = encode(SUBSCRIPTION, 1, {"topics": list(TOPICS[: 1 + (step.variant == 1)])})
    metadata = _VERSION.pack(1) + subscribed
    names = ("roundrobin", "range") if step.variant == 2 else ("range", "roundrobin")
    return {
        "session_timeout_ms": session_timeout_ms,
        "rebalance_timeout_ms": LONG_MS if step.version else -1,
        "protocol_type": "stranger" if step.variant == 3 else "consumer",
        "protocols": [{"name": name, "metadata": metadata} for name in names],
    }


def _sync_of(step: Step, client: _Client) -> dict[str, Any]:
    """Forms: 1 names another protocol, 2 none, 3 brings assignments whether it leads or not."""
    named: dict[str, Any] = {}
    if step.version >= 5:
        other = "stranger" if step.variant == 1 else client.protocol_name
        named = {"protocol_type": client.protocol_type, "protocol_name": other}
        if step.variant == 2:
            named = {}
    brings = client.leads or step.variant == 3
    members = client.members or [client.member_id]
    # Which other member gets which part would depend on the order of ids; so all others get the same.
    given = [
        {"member_id": one, "assignment": b"the leader's" if one == client.member_id else b"a follower's"}
        for one in members
    ]
    return named | {"assignments": given if brings else []}


def _leave_of(step: Step, member_id: str, instance: str | None) -> dict[str, Any]:
    """Forms: 1 says the instance id alone, where it has one."""
    if step.version < 3:
        return {"member_id": member_id}
    named = "" if step.variant == 1 and instance is not None else member_id
    return {"members": [{"member_id": named, "group_instance_id": instance}]}


def _commit_of(step: Step, member_id: str, generation: int, instance: str | None) -> dict[str, Any]:
    """Forms: 1 is the simple commit of nobody, 2 has metadata, 3 two partitions."""
    simple = step.variant == 1
    partitions = [
        {"partition_index": number, "committed_offset": 10 * number + step.client, "committed_metadata": text}
        for number, text in ((0, "remembered" if step.variant == 2 else ""), (1, None))[: 1 + (step.variant == 3)]
    ]
    return {
        "generation_id_or_member_epoch": -1 if simple else generation,
        "member_id": "" if simple else member_id,
        "group_instance_id": None if simple else instance,
        "topics": [{"name": TOPICS[0], "partitions": partitions}],
    }


def _delete_of(step: Step) -> dict[str, Any]:
    """Forms: 1 and 3 name two partitions, 2 and 3 the other topic."""
    partitions = [{"partition_index": number} for number in range(1 + step.variant % 2)]
    return {"topics": [{"name": TOPICS[step.variant // 2], "partitions": partitions}]}


def _list_of(step: Step) -> Value:
    return {"states_filter": list(STATES[step.variant])} if step.version >= FIRST_FILTERED else {}


def _fetch_of(step: Step, group_id: str) -> Value:
    """Forms: 1 asks for all that is committed, where the version can."""
    topics = None if step.variant == 1 and step.version >= 2 else [{"name": TOPICS[0], "partition_indexes": [0, 1, 2]}]
    if step.version >= 8:
        return {"groups": [{"group_id": group_id, "topics": topics}]}
    return {"group_id": group_id, "topics": topics}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a sequence. `answers`: how many were compared. `ended`: why before its end."""

    answers: int
    difference: Difference | None = None
    ended: "Verdict | None" = None


async def compare(
    kafka: Address, service: Address, steps: Sequence[Step], group_id: str, quiet_seconds: float
) -> Outcome:
    """Send the steps to both until an answer differs. `quiet_seconds`: after a step, how long without an answer."""
    silent = [step for step in steps if step.api == EXPIRE]
    is_all = any(step.variant == ALL_ARE_SHORT for step in silent)
    short = frozenset(range(CLIENTS) if is_all else (step.client for step in silent))
    short_ms = round(1000 * SHORT_SESSION * quiet_seconds)
    sides = Side(kafka, group_id, short_ms, short), Side(service, group_id, short_ms, short)
    state = EMPTY
    answers = 0
    try:
        await asyncio.gather(*(side.prepare() for side in sides))
        for number, step in enumerate(steps):
            if await sides[0].gives_back(step):
                continue
            heard: Sequence[Any] = ()
            if step.api == EXPIRE:
                heard = await asyncio.gather(*(_let_expire(side, step) for side in sides))
            else:
                for side in sides:
                    side.send(number, step)
            await _settle(sides, number if _is_answered_at_once(step, state) else None, quiet_seconds)
            state = await sides[0].state()
            if step.api == EXPIRE or (step.api == JOIN and state == DEAD):
                # A session's timer may be late. Kafka shows a group some time after it has handed out its first id.
                state = await _become_alike(sides, quiet_seconds)
            before = Before.of(sides[0], state)
            theirs, ours = (side.answered() for side in sides)
            for answered, one in zip((theirs, ours), heard, strict=False):
                answered[number] = one
            judgement = Judgement(sides[0], before, number, theirs)
            verdicts = {
                n: judgement.of(n, steps[n], theirs.get(n), ours.get(n)) for n in sorted(theirs.keys() | ours.keys())
            }
            answers += len(verdicts)
            different = [n for n, verdict in verdicts.items() if verdict is Verdict.DIFFERENT]
            free = [verdict for verdict in verdicts.values() if verdict.is_free]
            if different:
                first = different[0]
                return Outcome(answers, _difference(steps[: number + 1], first, theirs.get(first), ours.get(first)))
            if free:
                return Outcome(answers, ended=free[0])
        return Outcome(answers)
    finally:
        await asyncio.gather(*(side.close() for side in sides))


async def _let_expire(side: Side, step: Step) -> Value:
    """Time passes, and all members but the step's say that they live. What they all heard: the codes of each member's
    heartbeats without repetitions, and the answer to what the silent one said.
    """
    loop = asyncio.get_running_loop()
    begin = loop.time()
    meanwhile = asyncio.ensure_future(_say_meanwhile(side, step))
    heard: dict[str, list[int]] = {}
    while loop.time() < begin + EXPIRED * side.short_ms / 1000:
        for place, client in enumerate(side.clients):
            if place != step.client and client.member_id:
                value = {"group_id": side.group_id, "generation_id": client.generation, "member_id": client.member_id}
                answer = await side.ask(HEARTBEAT, 2, value, f"c{place}")
                codes = heard.setdefault(f"client {place}", [])
                codes += [code for code in (answer["error_code"],) if codes[-1:] != [code]]
        await asyncio.sleep(side.short_ms / 1000 / HEARTBEATS)
    side.short = frozenset()
    return {**heard, "silent": await meanwhile}


async def _say_meanwhile(side: Side, step: Step) -> Value | None:
    """What the silent one says once, by the step's form; it is a member of a generation, or says nothing."""
    client = side.clients[step.client]
    if step.variant not in SAID_MEANWHILE or client.generation < 0:
        return None
    await asyncio.sleep(side.short_ms / 2000)
    said = Step({1: COMMIT, 2: FETCH}[step.variant], step.client, 2)
    request = side.request_of(said)
    return await side.ask(said.api, said.version, request, f"c{step.client}")


async def _become_alike(sides: Sequence[Side], quiet_seconds: float) -> str:
    """Kafka's state, once both groups are in the same one, or have been in different ones for too long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLED * quiet_seconds
    while True:
        states = await asyncio.gather(*(side.state() for side in sides))
        if states[0] == states[1] or loop.time() > deadline:
            return states[0]
        await asyncio.sleep(quiet_seconds / 10)


def _is_answered_at_once(step: Step, state: str) -> bool:
    """Whether its answer waits for no other client, in a group that was in this state."""
    waits_in = {JOIN: (STABLE, PREPARING, COMPLETING), SYNC: (COMPLETING,)}
    return step.api != EXPIRE and state not in waits_in.get(step.api, ())


async def _settle(sides: Sequence[Side], at_once: int | None, quiet_seconds: float) -> None:
    """Return when nothing that waits has been answered for `quiet_seconds`, and all that waits has to: on a busy
    machine an answer may take much longer. `at_once`: the number of a step whose answer will come by itself.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLED * quiet_seconds
    while waiting := [task for side in sides for task in side.waiting.values() if not task.done()]:
        done, _ = await asyncio.wait(waiting, timeout=quiet_seconds, return_when=asyncio.FIRST_COMPLETED)
        if done:
            continue
        if await _has_settled(sides, at_once) or loop.time() > deadline:
            return


async def _has_settled(sides: Sequence[Side], at_once: int | None) -> bool:
    """Whether the two agree on what waits, and each group is in the state in which that has to wait."""
    theirs, ours = ({n for n, task in side.waiting.items() if not task.done()} for side in sides)
    if theirs != ours or at_once in theirs:
        return False
    states = await asyncio.gather(*(side.state() for side in sides))
    apis = {sides[0].steps[number].api for number in theirs}
    return {WAITS_IN.get(api) for api in apis} == set(states)


class Verdict(Enum):
    """Of two answers to one step. Those between are rows of docs/kafka-differences.md: the two differ as they may, and
    what follows need not be alike.
    """

    SAME = "the same"
    RENEWED = "a static member came back for other topics"
    TIED = "another protocol of a tie"
    LED = "another leader after one has gone"
    SUBSCRIBED = "a member that is about to join subscribes"
    DIFFERENT = "different"

    @property
    def is_free(self) -> bool:
        """Whether the sequence ends here, and no one is to blame."""
        return self not in (Verdict.SAME, Verdict.DIFFERENT)


@dataclass(frozen=True, slots=True)
class Before:
    """What Kafka's side knew before the answers came that are judged."""

    forms: Sequence[int]
    """Of each client's last join."""
    members: frozenset[str]
    has_left: bool
    state: str
    """Of the group."""

    @classmethod
    def of(cls, kafka: Side, state: str) -> "Before":
        return cls([client.form for client in kafka.clients], kafka.members, kafka.has_left, state)


class Judgement:
    """Of the answers that came after a step, whose number it is. What is free to differ is a row of
    docs/kafka-differences.md, and is free only where that row says so: all else is a difference.
    """

    def __init__(self, kafka: Side, before: Before, number: int, theirs: Mapping[int, Any]) -> None:
        self._kafka = kafka
        self._before = before
        self._number = number
        of = {n: (kafka.steps[n], answer) for n, answer in theirs.items() if n in kafka.steps}
        votes = [step.variant == PREFERS_ANOTHER for step, answer in of.values() if _is_joined(step, answer)]
        # A member whose call was replaced by one that was refused has joined, too, and nobody hears of it.
        self._is_tie = abs(2 * sum(votes) - len(votes)) <= len(kafka.members) - len(votes)
        has_left = before.has_left or any(step.api == LEAVE and _is_success(answer) for step, answer in of.values())
        self._has_lost_members = has_left or bool(before.members - kafka.members)

    def of(self, number: int, step: Step, theirs: Any, ours: Any) -> Verdict:
        """Kafka's answer to this step and the service's; None where there is none yet."""
        if theirs is None or ours is None:
            return Verdict.RENEWED if self._came_back_for_more(step, theirs) else Verdict.DIFFERENT
        if step.api == JOIN:
            return self._of_join(number, step, theirs, ours)
        if step.api == DESCRIBE:
            theirs = _without_assignments(theirs)
        if step.api == COMMIT and step.version >= FIRST_TO_MISS_GROUPS:
            theirs = _with_code(theirs, GROUP_ID_NOT_FOUND, ILLEGAL_GENERATION)
        if theirs == ours:
            return Verdict.SAME
        is_rebalancing = self._before.state == PREPARING
        if step.api == DELETE_OFFSETS and is_rebalancing and _subscribed_meanwhile(theirs, ours):
            return Verdict.SUBSCRIBED
        return Verdict.DIFFERENT

    def _came_back_for_more(self, step: Step, theirs: Any) -> bool:
        """Whether a static member is back, and wants other topics: Kafka compares the protocol's name alone."""
        if step.api != JOIN or not says_instance(step) or theirs is None or theirs["error_code"]:
            return False
        return (step.variant == WANTS_MORE) != (self._before.forms[step.client] == WANTS_MORE)

    def _of_join(self, number: int, step: Step, theirs: Value, ours: Value) -> Verdict:
        codes = theirs["error_code"], ours["error_code"]
        is_unused = self._kafka.requests[number]["member_id"] in self._kafka.pending and says_instance(step)
        if is_unused and codes[0] == UNKNOWN_SERVER_ERROR and codes[1] in (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID):
            # An id that was handed out without an instance id comes back with one: to Kafka an error of its own.
            theirs = {**theirs, "error_code": codes[1], "member_id": ours["member_id"]}
        if number != self._number and codes[0] == UNKNOWN_MEMBER_ID and theirs["member_id"] == "":
            # It waited, and left meanwhile. The door says the id that is refused, as Kafka does of all others.
            theirs = {**theirs, "member_id": ours["member_id"]}
        former_id = self._kafka.clients[step.client].former_id
        if step.version < FIRST_TO_SKIP and theirs["leader"] == self._kafka.names.get(former_id) and not ours["leader"]:
            # A leader that is back is told of an id that nobody has, so that it assigns nothing. The door knows none.
            theirs = {**theirs, "leader": ""}
        if theirs == ours:
            return Verdict.SAME
        same_generation = codes == (0, 0) and theirs["generation_id"] == ours["generation_id"]
        # Which member leads after the leader is gone, and which protocol wins with as many votes as another, is
        # nobody's promise.
        if same_generation and theirs["leader"] != ours["leader"] and self._has_lost_members:
            return Verdict.LED
        if same_generation and theirs["protocol_name"] != ours["protocol_name"] and self._is_tie:
            return Verdict.TIED
        return Verdict.DIFFERENT


def _is_joined(step: Step, answer: Value) -> bool:
    return step.api == JOIN and answer["error_code"] == 0


def _is_success(left: Value) -> bool:
    return not any(one["error_code"] for one in (left, *left["members"]))


def _subscribed_meanwhile(theirs: Value, ours: Value) -> bool:
    """Whether they differ in who subscribes: to the service who says so now, to Kafka who said so when the last join
    phase ended.
    """
    codes = [
        (a["error_code"], b["error_code"])
        for topics in zip(theirs["topics"], ours["topics"], strict=True)
        for a, b in zip(*(topic["partitions"] for topic in topics), strict=True)
        if a != b
    ]
    return bool(codes) and all(set(pair) == {0, GROUP_SUBSCRIBED_TO_TOPIC} for pair in codes)


def _with_code(answer: Value, code: int, instead: int) -> Value:
    """The answer to a commit with one code for another: Kafka says of a generation in a group that does not exist that
    the group does not.
    """
    return {
        **answer,
        "topics": [
            {
                **topic,
                "partitions": [
                    {**one, "error_code": instead if one["error_code"] == code else one["error_code"]}
                    for one in topic["partitions"]
                ],
            }
            for topic in answer["topics"]
        ],
    }


def _without_assignments(described: Any) -> Any:
    """Of groups that rebalance: Kafka shows those that are about to be replaced."""
    groups = [
        group
        if group["group_state"] == STABLE
        else {**group, "members": [{**member, "member_assignment": b""} for member in group["members"]]}
        for group in described["groups"]
    ]
    return {**described, "groups": groups}


def _difference(steps: Sequence[Step], number: int, theirs: Any, ours: Any) -> Difference:
    """Of the answers to one step, the fields that differ."""
    kafka, service = ("waits" if one is None else one for one in (theirs, ours))
    if isinstance(kafka, Mapping) and isinstance(service, Mapping):
        names = [name for name in kafka if kafka[name] != service.get(name)]
        kafka, service = ({name: one[name] for name in names} for one in (kafka, service))
    return Difference(steps, kafka, service, f"the answer to step {number + 1}")
