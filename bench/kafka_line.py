"""A line to a Kafka broker: the members' calls in Kafka's own words, one after the other on a connection that stays.

The same members as on the other lines then share a group of a broker (`bench.crowd`). What lives here is how a call
becomes Kafka's bytes, and how the answer becomes that which the members know: an error's number is the same in both.
The versions are the last before the compact encoding of KIP-482, and ones that a broker of 4.x takes.

Source of the layouts: Kafka's protocol guide, requests JoinGroup 5, SyncGroup 3, Heartbeat 3, LeaveGroup 3,
OffsetCommit 7, OffsetFetch 5; ConsumerProtocolSubscription 0 and ConsumerProtocolAssignment 0.
"""

import asyncio
import json
import random
from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, NamedTuple

from bench.channel import HEARTBEAT_INTERVAL_S
from bench.line import Answer, ConnectionBrokenError, Line
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.operations import COMMIT, FETCH, HEARTBEAT, JOIN, LEAVE, SYNC, Operation

_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")
_HEAD = Struct(">ihhi")
"""Of a request: size, API key, version, number."""
_NULL_TEXT = _INT16.pack(-1)
_NULL_BYTES = _INT32.pack(-1)
_CLIENT_ID = "bench"


# --- Kafka's bytes ---------------------------------------------------------------------------------------------------


def text_of(text: str) -> bytes:
    """A STRING."""
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def bytes_of(content: bytes) -> bytes:
    """BYTES."""
    return _INT32.pack(len(content)) + content


def array_of(items: Iterable[bytes]) -> bytes:
    """An ARRAY of what is encoded already."""
    encoded = list(items)
    return _INT32.pack(len(encoded)) + b"".join(encoded)


class Reader:
    """Takes Kafka's values from the front of a response. Raises ConnectionBrokenError where it ends too soon."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def int16(self) -> int:
        """An INT16."""
        return int(_INT16.unpack(self._next(2))[0])

    def int32(self) -> int:
        """An INT32."""
        return int(_INT32.unpack(self._next(4))[0])

    def int64(self) -> int:
        """An INT64."""
        return int(_INT64.unpack(self._next(8))[0])

    def text(self) -> str | None:
        """A STRING or NULLABLE_STRING."""
        length = self.int16()
        return None if length < 0 else self._next(length).decode()

    def content(self) -> bytes:
        """BYTES; null is empty."""
        return self._next(max(0, self.int32()))

    def array(self, item: "Callable[[Reader], Any]") -> list[Any]:
        """An ARRAY; null is empty."""
        return [item(self) for _ in range(self.int32())]

    def _next(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length
        if self._at > len(self._content):
            raise ConnectionBrokenError(f"the response is too short: {self._content[:100]!r}")
        return self._content[start : self._at]


# --- the calls -------------------------------------------------------------------------------------------------------


class _Api(NamedTuple):
    """A request of Kafka: its key and version, how a body becomes its bytes, and how its response is read."""

    key: int
    version: int
    encode: Callable[[str, Mapping[str, Any]], bytes]
    decode: Callable[[Reader], Answer]


def _member_of(group_id: str, body: Mapping[str, Any]) -> bytes:
    """What most requests begin with: group, generation, member, no instance id."""
    head = text_of(group_id) + _INT32.pack(body["generation_id"]) + text_of(body["member_id"])
    return head + _NULL_TEXT


def _refusal(error_code: int, **more: Any) -> Answer:
    """An error as the members know it."""
    retriable = error_code in {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED}
    return Answer(409, json.dumps({"error_code": error_code, "retriable": retriable, **more}).encode())


def _success(body: Any) -> Answer:
    return Answer(200, json.dumps(body, separators=(",", ":")).encode())


def _encode_join(group_id: str, body: Mapping[str, Any]) -> bytes:
    times = _INT32.pack(body["session_timeout_ms"]) + _INT32.pack(body["rebalance_timeout_ms"])
    member = text_of(body["member_id"]) + _NULL_TEXT + text_of(body["protocol_type"])
    protocols = (text_of(each["name"]) + bytes_of(_subscription(each["metadata"])) for each in body["protocols"])
    return text_of(group_id) + times + member + array_of(protocols)


def _subscription(metadata: Mapping[str, Any]) -> bytes:
    user_data = json.dumps(metadata.get("user_data")).encode()
    return _INT16.pack(0) + array_of(map(text_of, metadata["topics"])) + bytes_of(user_data)


def _decode_join(response: Reader) -> Answer:
    response.int32()  # throttled for so long: never here
    error_code, generation_id = response.int16(), response.int32()
    response.text()  # the protocol
    leader, member_id = response.text(), response.text()
    if error_code:
        return _refusal(error_code, member_id=member_id)
    members = response.array(lambda each: {"member_id": each.text(), "instance": each.text(), "said": each.content()})
    told = [{"member_id": member["member_id"]} for member in members]
    return _success({"generation_id": generation_id, "leader": leader, "member_id": member_id, "members": told})


def _encode_sync(group_id: str, body: Mapping[str, Any]) -> bytes:
    given = (
        text_of(each["member_id"]) + bytes_of(_assignment(each["assignment"]["partitions"]))
        for each in body["assignments"]
    )
    return _member_of(group_id, body) + array_of(given)


def _assignment(partitions: Mapping[str, Iterable[int]]) -> bytes:
    topics = (text_of(topic) + array_of(map(_INT32.pack, numbers)) for topic, numbers in partitions.items())
    return _INT16.pack(0) + array_of(topics) + _NULL_BYTES


def _decode_sync(response: Reader) -> Answer:
    response.int32()
    if error_code := response.int16():
        return _refusal(error_code)
    assignment = Reader(response.content())
    assignment.int16()  # the version
    partitions = dict(assignment.array(lambda topic: (topic.text(), topic.array(Reader.int32))))
    return _success({"assignment": {"partitions": partitions}})


def _decode_heartbeat(response: Reader) -> Answer:
    response.int32()
    error_code = response.int16()
    return _refusal(error_code) if error_code else _HEARD


_HEARD = Answer(200, b"{}")


def _encode_leave(group_id: str, body: Mapping[str, Any]) -> bytes:
    return text_of(group_id) + array_of(text_of(each["member_id"]) + _NULL_TEXT for each in body["members"])


def _decode_leave(response: Reader) -> Answer:
    response.int32()
    if error_code := response.int16():
        return _refusal(error_code)
    members = response.array(
        lambda each: {"member_id": each.text(), "instance": each.text(), "error_code": each.int16()}
    )
    return _success({"members": members})


def _encode_commit(group_id: str, body: Mapping[str, Any]) -> bytes:
    return _member_of(group_id, body) + array_of(
        text_of(topic)
        + array_of(
            # The leader epoch is not known: -1.
            _INT32.pack(int(number)) + _INT64.pack(commit["offset"]) + _INT32.pack(-1) + text_of(commit["metadata"])
            for number, commit in numbers.items()
        )
        for topic, numbers in body["offsets"].items()
    )


def _decode_commit(response: Reader) -> Answer:
    response.int32()
    results = response.array(
        lambda topic: (topic.text(), dict(topic.array(lambda each: (each.int32(), {"error_code": each.int16()}))))
    )
    return _success({"offsets": dict(results)})


def _encode_fetch(group_id: str, body: Mapping[str, Any]) -> bytes:
    if "topics" not in body:
        return text_of(group_id) + _NULL_BYTES  # a null list of topics asks for all
    # The members of a load name topics; Kafka's name partitions, and each of these has committed its first one.
    return text_of(group_id) + array_of(text_of(topic) + array_of([_INT32.pack(0)]) for topic in body["topics"])


def _decode_fetch(response: Reader) -> Answer:
    response.int32()
    offsets = dict(response.array(lambda topic: (topic.text(), dict(topic.array(_fetched)))))
    error_code = response.int16()
    return _refusal(error_code) if error_code else _success({"offsets": offsets})


def _fetched(partition: Reader) -> tuple[int, dict[str, int]]:
    number, offset = partition.int32(), partition.int64()
    partition.int32()  # the leader epoch
    partition.text()  # the metadata
    return number, {"offset": offset, "error_code": partition.int16()}


_APIS: Mapping[str, _Api] = {
    COMMIT.name: _Api(8, 7, _encode_commit, _decode_commit),
    FETCH.name: _Api(9, 5, _encode_fetch, _decode_fetch),
    JOIN.name: _Api(11, 5, _encode_join, _decode_join),
    HEARTBEAT.name: _Api(12, 3, _member_of, _decode_heartbeat),
    LEAVE.name: _Api(13, 3, _encode_leave, _decode_leave),
    SYNC.name: _Api(14, 3, _encode_sync, _decode_sync),
}
_DECODERS = {api.key: api.decode for api in _APIS.values()}
FIND_COORDINATOR_KEY, FIND_COORDINATOR_VERSION = 10, 2


class KafkaLine(Line):
    """Sends requests and waits for their responses. A request's number is its API key: there is one at a time."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._beating_generation_id = -1

    def frame_of(self, operation: Operation, group_id: str, body: Any) -> bytes:
        """The request that does the same."""
        api = _APIS[operation.name]
        return request(api.key, api.version, api.encode(group_id, body), body.get("client_id", _CLIENT_ID))

    async def wait_for_rebalance(self, operation: Operation, group_id: str, body: Any) -> Answer:
        """The answer to a heartbeat an interval later: Kafka tells of a rebalance no other way.

        The first of a generation comes at any time within the interval: in a group that has been there for a while the
        members' heartbeats have drifted apart, while these here have all begun in the same moment.
        """
        is_first = self._beating_generation_id != body["generation_id"]
        self._beating_generation_id = body["generation_id"]
        await asyncio.sleep(HEARTBEAT_INTERVAL_S * (random.random() if is_first else 1.0))
        return await self.exchange(self.frame_of(operation, group_id, body))

    def _take(self) -> None:
        received = self._received
        if len(received) < 8 or len(received) < 4 + (size := _INT32.unpack_from(received)[0]):
            return
        key = _INT32.unpack_from(received, 4)[0]
        content = bytes(received[8 : 4 + size])
        del received[: 4 + size]
        if received:
            raise ConnectionBrokenError("more came than was asked for")
        decode = _DECODERS.get(key, _decode_coordinator)
        self._answered(decode(Reader(content)))


def request(key: int, version: int, body: bytes, client_id: str = _CLIENT_ID) -> bytes:
    """A request with its head."""
    named = text_of(client_id)
    return _HEAD.pack(8 + len(named) + len(body), key, version, key) + named + body


def coordinator_request(group_id: str) -> bytes:
    """FindCoordinator: a broker makes its topic of offsets when it is first asked."""
    return request(FIND_COORDINATOR_KEY, FIND_COORDINATOR_VERSION, text_of(group_id) + b"\x00")


def _decode_coordinator(response: Reader) -> Answer:
    response.int32()
    error_code = response.int16()
    return _refusal(error_code) if error_code else _success({})
