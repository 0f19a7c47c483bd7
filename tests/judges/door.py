"""A door for Kafka's clients: group calls go to the service, everything else to one real broker.

Theory of operation: a client connects here as to a broker. Whatever it asks of groups is answered by the service's
HTTP API; what names brokers is answered by the broker, with the door's address in place of the broker's, so that the
client never leaves; all else is passed on as bytes, over a connection to the broker of this client alone. As with a
broker, the next request of a connection is looked at when the one before is answered, and what a client asked before
it went is carried out. A join or a sync that waits is the exception: the client takes it along.

It is an instrument of tests: one broker, no TLS, no passwords.

`python -m tests.judges.door --broker HOST:PORT --service URL [--port PORT]` prints `listening on HOST:PORT`.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

from rallypoint.protocol.errors import ErrorCode
from tests.judges.codec import CodecError, decode_first
from tests.judges.group_apis import GROUP_APIS, KEYS_OF_GROUPS, Value, look_up_coordinators
from tests.judges.group_service import GroupService
from tests.judges.headers import (
    API_VERSIONS,
    APIS,
    MESSAGES,
    RequestHeader,
    decode_header,
    decode_request,
    decode_response,
    encode_response,
    read_key_and_version,
)

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, JOIN, SYNC, DESCRIBE_CLUSTER = 0, 1, 3, 10, 11, 14, 60
UNSUPPORTED_VERSION = 35
REQUEST_BYTES_MAX = 100 << 20
"""Kafka's own limit (`socket.request.max.bytes`)."""

VERSIONS_MAX: Mapping[int, int] = {PRODUCE: 9, FETCH: 15, 8: 9, 9: 9}
"""Later ones of Produce and Fetch name brokers in fields of their own; those of offsets name topics by their ids."""
NOT_OFFERED = frozenset({24, 25, 26, 28, 68, 69, *range(76, 80), *range(83, 93)})
"""Of what the broker has: transactions, the newer consumer protocol, share groups and streams groups. They are groups
of the broker, of which the service would know nothing. Who asks for them all the same is refused."""
PRODUCE_FLEXIBLE = 9
REQUESTS_MAX = 32
"""Of one client, read before they are answered. The end of a client that has sent more is seen later."""

_INT16, _INT32 = Struct(">h"), Struct(">i")
_SIZE = _INT32


class Address(NamedTuple):
    """Where something listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        host, _, port = text.rpartition(":")
        return cls(host, int(port))


class Door:
    """Listens for clients. `node_id`: the broker's, which is the one node that clients know."""

    def __init__(self, broker: Address, service: GroupService, node_id: int = 1) -> None:
        self._broker = broker
        self._service = service
        self._node_id = node_id
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.address = Address("127.0.0.1", 0)

    async def start(self, port: int = 0) -> None:
        """Listen on loopback; `address` says where."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])

    async def stop(self) -> None:
        """Close every connection."""
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        connection = _Connection(self, reader, writer)
        try:
            await connection.serve()
        except CodecError as error:
            # As a broker does: whoever sends what is no request is closed.
            print(f"door: {error}", file=sys.stderr, flush=True)
        except (OSError, EOFError, asyncio.CancelledError):
            return  # it goes, or the door does
        finally:
            self._connections.discard(task)
            connection.close()

    async def connect_to_broker(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self._broker, limit=REQUEST_BYTES_MAX)

    async def answer_here(self, data: bytes) -> bytes:
        """The answer to a request that is the service's."""
        header, asked = decode_request(data)
        service = self._service.for_one_request()
        if header.api_key == FIND_COORDINATOR:
            answered = await self._find_coordinator(service, header.api_version, asked)
        else:
            api = GROUP_APIS[header.api_key]
            answered = await api(service, header.api_version, asked, header.client_id)
        return encode_response(header, {**answered, "throttle_time_ms": service.throttle_time_ms})

    async def _find_coordinator(self, service: GroupService, version: int, asked: Mapping[str, Any]) -> Value:
        group_ids = asked["coordinator_keys"] if version >= 4 else [asked["key"]]
        if asked["key_type"] == KEYS_OF_GROUPS:
            codes = await look_up_coordinators(service, group_ids)
        else:
            codes = dict.fromkeys(group_ids, int(ErrorCode.INVALID_REQUEST))
        found = [{"key": group_id, **self._node(codes[group_id])} for group_id in group_ids]
        if version >= 4:
            return {"coordinators": found}
        return {name: value for name, value in found[0].items() if name != "key"}

    def _node(self, error_code: int) -> Mapping[str, Any]:
        if error_code:
            return {"error_code": error_code, "node_id": -1, "host": "", "port": -1}
        return {"error_code": 0, "node_id": self._node_id, "host": self.address.host, "port": self.address.port}

    def rewrite(self, header: RequestHeader, data: bytes) -> bytes:
        """The broker's answer with the door in the broker's place."""
        answered = decode_response(header, data)
        if header.api_key == API_VERSIONS:
            answered["api_keys"] = _offered(answered["api_keys"])
        else:
            for broker in answered["brokers"]:
                broker |= {"host": self.address.host, "port": self.address.port}
        return encode_response(header, answered)


def is_answered_here(key: int) -> bool:
    """Whether the service answers it, and not the broker."""
    return key in GROUP_APIS or key == FIND_COORDINATOR


def is_rewritten(key: int) -> bool:
    """Whether the broker's answer names brokers, or what they speak."""
    return key in (METADATA, DESCRIBE_CLUSTER, API_VERSIONS)


def _offered(of_broker: Sequence[Mapping[str, int]]) -> list[Mapping[str, int]]:
    """What the door speaks: of the broker's APIs those that it passes on, and its own in the versions it has."""
    offered: list[Mapping[str, int]] = []
    for api in of_broker:
        key, first, last = api["api_key"], api["min_version"], api["max_version"]
        if key in NOT_OFFERED:
            continue
        if key in APIS:
            versions = APIS[key].request.versions
            first, last = (versions[0] if is_answered_here(key) else first), versions[-1]
        last = min(last, VERSIONS_MAX.get(key, last))
        offered.append({"api_key": key, "min_version": first, "max_version": last})
    return offered


def check_offered(data: bytes) -> None:
    """Raise CodecError for a request that `_offered` leaves out: a client that asks all the same is none of Kafka's."""
    key, version = read_key_and_version(data)
    if key in NOT_OFFERED or version > VERSIONS_MAX.get(key, version):
        raise CodecError(f"API {key} in version {version} is not offered")


def wants_no_answer(data: bytes) -> bool:
    """Whether it is a Produce with acks 0: the broker says nothing to that. CodecError for one in a transaction."""
    key, version = read_key_and_version(data)
    if key != PRODUCE:
        return False
    flexible = version >= PRODUCE_FLEXIBLE
    _, rest = decode_first(MESSAGES["RequestHeader"], 2 if flexible else 1, data)
    # First comes the transaction's name, which is null, for transactions are not offered.
    no_name = b"\0" if flexible else b"\xff\xff"
    if not rest.startswith(no_name):
        raise CodecError("a Produce of a transaction")
    return _int_at(_INT16, rest, len(no_name)) == 0


def _int_at(form: Struct, data: bytes, place: int) -> int:
    if len(data) < place + form.size:
        raise CodecError(f"a request of {len(data)} bytes")
    number: int = form.unpack_from(data, place)[0]
    return number


class _Connection:
    """One client's, and the one to the broker that belongs to it."""

    def __init__(self, door: Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._door = door
        self._reader = reader
        self._writer = writer
        self._broker: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._places = asyncio.Semaphore(REQUESTS_MAX)
        self._gone = asyncio.Event()

    async def serve(self) -> None:
        """Until the client goes. Errors: EOFError and OSError when it does, or the broker; CodecError for nonsense."""
        reading = asyncio.ensure_future(self._read())
        try:
            while (data := await self._requests.get()) is not None:
                self._places.release()
                answer = await self._answer(data)
                if answer is not None and not self._gone.is_set():
                    self._writer.write(_SIZE.pack(len(answer)) + answer)
                    await self._writer.drain()
            await reading
        finally:
            await _cancel(reading)

    async def _read(self) -> None:
        """Take requests in, until the client goes: it is how the end of a client is seen that waits for an answer."""
        try:
            while True:
                await self._places.acquire()
                self._requests.put_nowait(await read_message(self._reader))
        finally:
            self._gone.set()
            self._requests.put_nowait(None)

    async def _unless_it_goes(self, data: bytes) -> bytes | None:
        answering = asyncio.ensure_future(self._door.answer_here(data))
        going = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait({answering, going}, return_when=asyncio.FIRST_COMPLETED)
            return answering.result() if answering.done() else None
        finally:
            await _cancel(answering, going)

    async def _answer(self, data: bytes) -> bytes | None:
        check_offered(data)
        key, version = read_key_and_version(data)
        if key in (JOIN, SYNC):
            return await self._unless_it_goes(data)
        if is_answered_here(key):
            return await self._door.answer_here(data)
        if key == API_VERSIONS and version not in APIS[key].request.versions:
            return unsupported_version(data)
        if not is_rewritten(key):
            return await self._pass_on(data, silent=wants_no_answer(data))
        header, _ = decode_header(data)
        answer = await self._pass_on(data, silent=False)
        assert answer is not None
        return self._door.rewrite(header, answer)

    async def _pass_on(self, data: bytes, *, silent: bool) -> bytes | None:
        if self._broker is None:
            self._broker = await self._door.connect_to_broker()
        reader, writer = self._broker
        writer.write(_SIZE.pack(len(data)) + data)
        await writer.drain()
        return None if silent else await read_message(reader)

    def close(self) -> None:
        for writer in (self._writer, self._broker and self._broker[1]):
            if writer is not None:
                writer.close()


async def _cancel(*tasks: "asyncio.Future[Any]") -> None:
    """Return when they are gone, whatever became of them."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def unsupported_version(data: bytes) -> bytes:
    """What a broker says to an ApiVersions of a version that it lacks: in version 0, which every client can read."""
    header = RequestHeader(API_VERSIONS, 0, _int_at(_INT32, data, 4), None)
    versions = APIS[API_VERSIONS].request.versions
    known = {"api_key": API_VERSIONS, "min_version": versions[0], "max_version": versions[-1]}
    return encode_response(header, {"error_code": UNSUPPORTED_VERSION, "api_keys": [known]})


async def read_message(reader: asyncio.StreamReader) -> bytes:
    """One request or answer without its size. Errors: EOFError at the end; CodecError for a size that cannot be."""
    size: int = _SIZE.unpack(await reader.readexactly(_SIZE.size))[0]
    if not 0 < size <= REQUEST_BYTES_MAX:
        raise CodecError(f"a message of {size} bytes")
    return await reader.readexactly(size)


async def run(broker: Address, service_url: str, port: int) -> None:
    """Until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with GroupService(service_url) as service:
        door = Door(broker, service)
        await door.start(port)
        print(f"listening on {door.address}", flush=True)
        await stopped.wait()
        await door.stop()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Let Kafka's clients into groups of a Rallypoint service.")
    parser.add_argument("--broker", required=True, type=Address.parse, help="HOST:PORT of the one broker")
    parser.add_argument("--service", required=True, help="URL of the service")
    parser.add_argument("--port", type=int, default=0, help="where to listen; 0, the default: a free one")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.broker, arguments.service, arguments.port))


if __name__ == "__main__":
    main()
