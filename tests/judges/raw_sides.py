"""A sequence of raw requests, sent to Kafka and to the service at the same time, and the answers side by side.

Theory of operation: each side has the same steps and its own knowledge: the ids and generations that it was answered.
A request goes over a connection of its own, for one that waits keeps those behind it on its connection waiting. After
each step both sides are left alone until no answer has come for a while; then the same requests must have been
answered, with the same words. Member ids are replaced by names in the order in which they were handed out. The order of
a group's members is nobody's promise, so lists of them are sorted; nor is it which member leads after the leader has
gone, so a sequence ends there if the two chose differently.
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
from tests.judges.headers import RequestHeader, decode_response, encode_request
from tests.judges.opaque_bytes import SUBSCRIPTION
from tests.judges.raw_steps import (
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
    REBALANCE_MS,
    SESSION_MS,
    SYNC,
    Difference,
    Step,
    Who,
    says_instance,
)

Address = tuple[str, int]
Value = Mapping[str, Any]

TOPICS = ("judged", "judged-too")
"""Of the broker's: it commits offsets of topics alone that exist."""
ANSWER_SECONDS = 120.0
HEARTBEAT_PAUSE_SECONDS = 1.5
EXPIRED_SECONDS = SESSION_MS / 1000 + 1.5
NOT_READY = frozenset({14, 15, 16})
MEMBER_ID_REQUIRED, UNKNOWN_SERVER_ERROR, UNKNOWN_MEMBER_ID = 79, -1, 25
FENCED_INSTANCE_ID, GROUP_SUBSCRIBED_TO_TOPIC, GROUP_ID_NOT_FOUND, ILLEGAL_GENERATION = 82, 86, 69, 22
UNSAID = frozenset({"throttle_time_ms", "error_message", "client_host"})
"""Fields of answers that no client decides by."""
_MADE_UP = re.compile(r"^(c\d|instance-\d)-[0-9a-f-]{32,}$")
"""A member id that nobody has been told yet: the client's name or the instance id, and chance."""
_SIZE = Struct(">i")
_VERSION = Struct(">h")
_correlation_ids = count(1)


async def ask(address: Address, api: int, version: int, value: Value, client_id: str) -> Value:
    """One request over a connection of its own, and its answer."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        header = RequestHeader(api, version, next(_correlation_ids), client_id)
        data = encode_request(header, value)
        writer.write(_SIZE.pack(len(data)) + data)
        size: int = _SIZE.unpack(await reader.readexactly(_SIZE.size))[0]
        return decode_response(header, await reader.readexactly(size))
    finally:
        writer.close()


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


@dataclass
class Side:
    """Kafka or the service, in one sequence."""

    address: Address
    group_id: str
    clients: list[_Client] = field(default_factory=lambda: [_Client() for _ in range(CLIENTS)])
    waiting: dict[int, "asyncio.Task[Value]"] = field(default_factory=dict)
    steps: dict[int, Step] = field(default_factory=dict)
    requests: dict[int, Value] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)

    async def prepare(self) -> None:
        """Return once the group's coordinator answers."""
        while True:
            found = await ask(self.address, 10, 3, {"key": self.group_id, "key_type": 0}, "judge")
            if not found["error_code"]:
                fetch = {"group_id": self.group_id, "topics": None}
                if (await ask(self.address, FETCH, 5, fetch, "judge"))["error_code"] not in NOT_READY:
                    return
            await asyncio.sleep(0.1)

    def send(self, number: int, step: Step) -> None:
        """The step's request, unless docs/kafka-differences.md excuses it; its answer is in `answered` one day."""
        request = request_of(step, self.clients, self.group_id)
        if step.api == LEAVE and self._leaves_before_it_joined(request):
            return
        self._supersede(step.api, request)
        if step.api == LEAVE:
            self._supersede(SYNC, request, step.client)
        self.steps[number], self.requests[number] = step, request
        asking = asyncio.wait_for(ask(self.address, step.api, step.version, request, f"c{step.client}"), ANSWER_SECONDS)
        self.waiting[number] = asyncio.ensure_future(asking)

    def _leaves_before_it_joined(self, request: Value) -> bool:
        """Whether an id is given back that was not used yet, to a group whose members have all joined: Kafka starts a
        rebalance then, and the service does not.
        """
        is_joining = any(self.steps[number].api == JOIN for number in self.waiting)
        named = [request.get("member_id"), *(member["member_id"] for member in request.get("members", ()))]
        return not is_joining and not self.pending.isdisjoint(named)

    def _supersede(self, api: int, request: Value, client: int | None = None) -> None:
        """A member that asks again waits no more for what it asked before, nor one that leaves for its part: Kafka
        forgets that call, and never answers it; the service does, so that nothing hangs.
        """
        named = {request.get("member_id"), *(member["member_id"] for member in request.get("members", ()))}
        # Who leaves by its instance id alone is the client itself.
        named |= {self.clients[client].member_id} if client is not None else set()
        for number in list(self.waiting):
            if self.steps[number].api == api and self.requests[number]["member_id"] in named - {"", None}:
                self.waiting.pop(number).cancel()

    def answered(self) -> dict[int, Any]:
        """What came since it was asked last, in plain words, by the step's number; the clients know it now."""
        done = sorted(number for number, task in self.waiting.items() if task.done())
        answers = {}
        for number in done:
            value = self.waiting.pop(number).result()
            self._learn(self.steps[number], value)
            answers[number] = self._plain(value)
        return answers

    def _learn(self, step: Step, value: Value) -> None:
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

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self._plain(content) for name, content in value.items() if name not in UNSAID}
        if isinstance(value, list):
            return sorted((self._plain(one) for one in value), key=repr)
        if isinstance(value, str):
            return "the group" if value == self.group_id else self.names.get(value) or _MADE_UP.sub(r"new \1", value)
        return value

    async def close(self) -> None:
        """Nothing waits any more."""
        for task in self.waiting.values():
            task.cancel()
        await asyncio.gather(*self.waiting.values(), return_exceptions=True)


def request_of(step: Step, clients: Sequence[_Client], group_id: str) -> Value:
    """What the client asks, as it knows things."""
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
        JOIN: lambda: member | _join_of(step),
        SYNC: lambda: member | {"generation_id": generation} | _sync_of(step, client),
        HEARTBEAT: lambda: member | {"generation_id": generation},
        LEAVE: lambda: group | _leave_of(step, member_id, instance),
        COMMIT: lambda: group | _commit_of(step, member_id, generation, instance),
        FETCH: lambda: _fetch_of(step, group_id),
        DESCRIBE: lambda: {"groups": [group_id]},
        DELETE_GROUP: lambda: {"groups_names": [group_id]},
        DELETE_OFFSETS: lambda: group | _delete_of(step),
    }
    return requests[step.api]()


def _join_of(step: Step) -> dict[str, Any]:
    """Forms: 0 and 1 differ in what is subscribed to, 2 prefers another protocol, 3 is no consumer."""
    subscribed = encode(SUBSCRIPTION, 1, {"topics": list(TOPICS[: 1 + (step.variant == 1)])})
    metadata = _VERSION.pack(1) + subscribed
    names = ("roundrobin", "range") if step.variant == 2 else ("range", "roundrobin")
    return {
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS if step.version else -1,
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


def _fetch_of(step: Step, group_id: str) -> Value:
    """Forms: 1 asks for all that is committed, where the version can."""
    topics = None if step.variant == 1 and step.version >= 2 else [{"name": TOPICS[0], "partition_indexes": [0, 1, 2]}]
    if step.version >= 8:
        return {"groups": [{"group_id": group_id, "topics": topics}]}
    return {"group_id": group_id, "topics": topics}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a sequence. `answers`: how many were compared. `ended`: before its end, where the two were free to differ."""

    answers: int
    difference: Difference | None = None
    ended: bool = False


async def compare(
    kafka: Address, service: Address, steps: Sequence[Step], group_id: str, quiet_seconds: float
) -> Outcome:
    """Send the steps to both until an answer differs. `quiet_seconds`: after a step, how long without an answer."""
    sides = Side(kafka, group_id), Side(service, group_id)
    answers = 0
    try:
        await asyncio.gather(*(side.prepare() for side in sides))
        for number, step in enumerate(steps):
            if step.api == EXPIRE:
                await asyncio.gather(*(_let_expire(side, step) for side in sides))
            else:
                for side in sides:
                    side.send(number, step)
            await _settle(sides, quiet_seconds)
            theirs, ours = (side.answered() for side in sides)
            verdicts = {n: judge(steps[n], theirs.get(n), ours.get(n)) for n in sorted(theirs.keys() | ours.keys())}
            answers += len(verdicts)
            different = [n for n, verdict in verdicts.items() if verdict is Verdict.DIFFERENT]
            if Verdict.FREE in verdicts.values():
                return Outcome(answers, ended=True)
            if different:
                first = different[0]
                return Outcome(answers, _difference(steps[: number + 1], first, theirs.get(first), ours.get(first)))
        return Outcome(answers)
    finally:
        await asyncio.gather(*(side.close() for side in sides))


async def _let_expire(side: Side, step: Step) -> None:
    """Time passes, and all members but the step's say that they live."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    meanwhile = asyncio.ensure_future(_say_meanwhile(side, step))
    while loop.time() < begin + EXPIRED_SECONDS:
        for place, client in enumerate(side.clients):
            if place != step.client and client.member_id:
                value = {"group_id": side.group_id, "generation_id": client.generation, "member_id": client.member_id}
                await ask(side.address, HEARTBEAT, 2, value, f"c{place}")
        await asyncio.sleep(HEARTBEAT_PAUSE_SECONDS)
    await meanwhile


async def _say_meanwhile(side: Side, step: Step) -> None:
    """What the silent one says once, by the step's form; it is a member of a generation, or says nothing."""
    client = side.clients[step.client]
    if step.variant == 0 or client.generation < 0:
        return
    await asyncio.sleep(SESSION_MS / 2000)
    said = Step({1: COMMIT, 2: FETCH}[step.variant], step.client, 2)
    request = request_of(said, side.clients, side.group_id)
    await ask(side.address, said.api, said.version, request, f"c{step.client}")


async def _settle(sides: Sequence[Side], quiet_seconds: float) -> None:
    """Return when nothing that waits has been answered for `quiet_seconds`, on either side."""
    while waiting := [task for side in sides for task in side.waiting.values() if not task.done()]:
        done, _ = await asyncio.wait(waiting, timeout=quiet_seconds, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return


class Verdict(Enum):
    """Of two answers to one step."""

    SAME = "same"
    FREE = "free"
    """They differ as they may: docs/kafka-differences.md says where. What follows need not be alike."""
    DIFFERENT = "different"


def judge(step: Step, theirs: Any, ours: Any) -> Verdict:
    """Kafka's answer and the service's; None where there is none yet."""
    if theirs is None or ours is None:
        came_back = step.api == JOIN and says_instance(step) and theirs is not None and theirs["error_code"] == 0
        # A static member that comes back with other topics: Kafka compares the protocol's name alone.
        return Verdict.FREE if came_back else Verdict.DIFFERENT
    if step.api == JOIN:
        return _judge_join(theirs, ours)
    if step.api == DESCRIBE:
        theirs, ours = _described(theirs), _described(ours)
    if step.api == COMMIT:
        theirs = _with_code(theirs, GROUP_ID_NOT_FOUND, ILLEGAL_GENERATION)
    if theirs == ours:
        return Verdict.SAME
    if step.api == DELETE_OFFSETS and _subscribed_meanwhile(theirs, ours):
        return Verdict.FREE
    return Verdict.DIFFERENT


def _judge_join(theirs: Value, ours: Value) -> Verdict:
    codes = theirs["error_code"], ours["error_code"]
    if codes[0] == UNKNOWN_SERVER_ERROR and codes[1] in (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID):
        # An id that was handed out without an instance id comes back with one: to Kafka an error of its own.
        return Verdict.FREE
    same_generation = codes == (0, 0) and theirs["generation_id"] == ours["generation_id"]
    if same_generation and any(theirs[name] != ours[name] for name in ("leader", "protocol_name")):
        # Who leads after a leader is gone, and which protocol wins with as many votes as another, is nobody's promise.
        return Verdict.FREE
    if codes[0] not in (0, MEMBER_ID_REQUIRED):
        # Clients read of a refusal the code alone; Kafka says some id there, or none.
        theirs, ours = {**theirs, "member_id": ""}, {**ours, "member_id": ""}
    return Verdict.SAME if theirs == ours else Verdict.DIFFERENT


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
    """The answer to a commit with one code for another: since version 9 Kafka says of a generation in a group that does
    not exist that the group does not.
    """
    return {
        "topics": [
            {
                **topic,
                "partitions": [
                    {**one, "error_code": instead if one["error_code"] == code else one["error_code"]}
                    for one in topic["partitions"]
                ],
            }
            for topic in answer["topics"]
        ]
    }


def _described(answer: Any) -> Any:
    """Without the assignments of a group that rebalances: Kafka shows those that are about to be replaced. A group of
    which there is no more than an id that was handed out is Dead to Kafka before version 6, and Empty to the service.
    """
    groups = []
    for group in answer["groups"]:
        members = group["members"]
        if group["group_state"] != "Stable":
            members = [{**member, "member_assignment": b""} for member in members]
        state = "Empty" if group["group_state"] == "Dead" else group["group_state"]
        groups.append({**group, "group_state": state, "members": members})
    return {"groups": groups}


def _difference(steps: Sequence[Step], number: int, theirs: Any, ours: Any) -> Difference:
    """Of the answers to one step, the fields that differ."""
    kafka, service = ("waits" if one is None else one for one in (theirs, ours))
    if isinstance(kafka, Mapping) and isinstance(service, Mapping):
        names = [name for name in kafka if kafka[name] != service.get(name)]
        kafka, service = ({name: one[name] for name in names} for one in (kafka, service))
    return Difference(steps, kafka, service, f"the answer to step {number + 1}")
