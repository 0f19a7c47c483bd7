"""The client of real etcd servers, over gRPC. The only place that knows gRPC, the servers' addresses and deadlines.

It stays with one server, and goes to the next when a call finds the server away or silent. Calls are futures of gRPC's
own threads, so they work in any event loop. A watch has a thread of its own, as gRPC's streams are read by waiting.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import grpc

from rallypoint.coordinator.storage.etcd import rallypoint_etcd_pb2 as pb
from rallypoint.coordinator.storage.etcd.client import (
    Compare,
    Delete,
    EtcdCompacted,
    EtcdError,
    EtcdLeaseNotFound,
    EtcdNoSpace,
    EtcdRefused,
    EtcdUnknown,
    Found,
    Get,
    KeyRange,
    KeyValue,
    LeaseAnswer,
    ModEquals,
    Operation,
    Put,
    ServerStatus,
    Trouble,
    Txn,
    TxnAnswer,
    WatchAnswer,
    WatchEvent,
)

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

SILENT_CALLS_MAX = 3
"""Calls one after the other that a server leaves without an answer, until its connection is made anew."""

WATCH_ASK_INTERVAL_S = 3.0
"""How long a watch hears nothing before it asks the server for its progress."""
WATCH_SILENCE_MAX_S = 8.0
"""How long a watch hears nothing at all before it is over."""

ANSWER_BYTES_MAX = 256 * 1024 * 1024
CONNECT_TIMEOUT_MS = 1_000

CHANNEL_OPTIONS: Sequence[tuple[str, int]] = (
    # Each channel has its own connection, so a new channel is a new connection.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    # A retry would be a second copy of a transaction that nobody knows of.
    ("grpc.enable_retries", 0),
)


class TlsFiles(NamedTuple):
    """The contents of PEM files. Without `ca` the system's authorities count."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None


class Login(NamedTuple):
    """A user of etcd. `password` is asked for anew at each login, so that a changed file counts."""

    user: str
    password: Callable[[], str]


class _Method(NamedTuple):
    path: str
    answer: Any


TXN = _Method("/etcdserverpb.KV/Txn", pb.TxnResponse)
LEASE_GRANT = _Method("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantResponse)
LEASE_REVOKE = _Method("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeResponse)
# A stream by its definition. One request and one answer look the same on the wire, whatever a call is said to be.
LEASE_KEEP_ALIVE = _Method("/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveResponse)
AUTHENTICATE = _Method("/etcdserverpb.Auth/Authenticate", pb.AuthenticateResponse)
STATUS = _Method("/etcdserverpb.Maintenance/Status", pb.StatusResponse)
WATCH = "/etcdserverpb.Watch/Watch"

STALE_TOKEN = ("invalid auth token", "revision of auth store is old", "user name is empty")
"""What etcd says where a login, or another one, helps."""


class _Server:
    """A server, and the connection to it."""

    def __init__(self, address: str, connect: Callable[[str], grpc.Channel]) -> None:
        self.address = address
        self.silent_calls = 0
        self._connect = connect
        self._channel: grpc.Channel | None = None
        self._lock = threading.Lock()

    def channel(self) -> grpc.Channel:
        with self._lock:
            if self._channel is None:
                self._channel = self._connect(self.address)
            return self._channel

    def disconnect(self) -> None:
        """End the calls under way on it; the next call makes a new connection."""
        with self._lock:
            channel, self._channel = self._channel, None
            self.silent_calls = 0
        if channel is not None:
            channel.close()


class GrpcEtcdClient:
    """An `EtcdClient` of real servers."""

    def __init__(self, addresses: Sequence[str], tls: TlsFiles | None = None, login: Login | None = None) -> None:
        """Connects to nothing yet. `addresses` are HOST:PORT; without `tls` the connections are plain."""
        self._servers = [_Server(address, lambda at: _connect(at, tls)) for address in addresses]
        self._at = 0
        self._login = login
        self._token: str | None = None
        self._log_ins: dict[asyncio.AbstractEventLoop, asyncio.Future[EtcdError | None]] = {}
        self._is_closed = False

    # --- the calls of the protocol -----------------------------------------------------------------------------------

    async def txn(self, txn: Txn, timeout_s: float) -> TxnAnswer:
        """Carry out a transaction."""
        request = pb.TxnRequest(
            compare=[_compare(compare) for compare in txn.compares],
            success=[_operation(operation) for operation in txn.success],
            failure=[_operation(operation) for operation in txn.failure],
        )
        answer = await self._call(TXN, request, timeout_s)
        found = tuple(_found(one.range) for one in answer.responses if one.HasField("range"))
        return TxnAnswer(answer.succeeded, answer.header.revision, found)

    async def lease_grant(self, ttl_s: int, timeout_s: float) -> LeaseAnswer:
        """A new lease."""
        answer = await self._call(LEASE_GRANT, pb.LeaseGrantRequest(ttl_s=ttl_s), timeout_s)
        return LeaseAnswer(answer.lease, answer.ttl_s)

    async def lease_keep_alive(self, lease: int, timeout_s: float) -> LeaseAnswer:
        """Renew a lease."""
        answer = await self._call(LEASE_KEEP_ALIVE, pb.LeaseKeepAliveRequest(lease=lease), timeout_s)
        return LeaseAnswer(answer.lease, answer.ttl_s)

    async def lease_revoke(self, lease: int, timeout_s: float) -> None:
        """End a lease."""
        await self._call(LEASE_REVOKE, pb.LeaseRevokeRequest(lease=lease), timeout_s)

    async def status(self, timeout_s: float) -> ServerStatus:
        """How the server stands that is asked just now."""
        answer = await self._call(STATUS, pb.StatusRequest(), timeout_s)
        return ServerStatus(
            answer.version, tuple(answer.errors), answer.db_size_bytes, max(0, answer.db_size_quota_bytes)
        )

    async def watch(self, ranges: Sequence[KeyRange], start_revision: int) -> AsyncGenerator[WatchAnswer, None]:
        """The changes of the ranges; see the protocol."""
        token = await self._logged_in(WATCH_ASK_INTERVAL_S)
        server = self._server()
        stream = _WatchStream(server.channel(), _metadata(token), ranges, start_revision)
        try:
            while True:
                try:
                    answer = await stream.next()
                except EtcdRefused as error:
                    self._forget_token(token, str(error))
                    raise
                except EtcdUnknown as error:
                    self._go_on_from(server, error)
                    raise
                if answer is not None:
                    yield answer
        finally:
            stream.close()

    async def close(self) -> None:
        """Give up every call under way, and close the connections."""
        self._is_closed = True
        for server in self._servers:
            # gRPC waits for its own threads.
            await asyncio.to_thread(server.disconnect)

    # --- one call ----------------------------------------------------------------------------------------------------

    async def _call(self, method: _Method, request: Any, timeout_s: float) -> Any:
        token = await self._logged_in(timeout_s)
        try:
            return await self._send(method, request, timeout_s, token)
        except EtcdRefused as error:
            if not self._forget_token(token, str(error)):
                raise
        # It was refused, so nothing has come of it, and a second one is no second copy.
        return await self._send(method, request, timeout_s, await self._logged_in(timeout_s))

    def _forget_token(self, token: str, text: str) -> bool:
        """Whether another token than this helps against this refusal. One that came meanwhile stays."""
        if self._login is None or not any(words in text for words in STALE_TOKEN):
            return False
        if self._token == token:
            self._token = None
        return True

    async def _logged_in(self, timeout_s: float) -> str:
        """The token for a call; empty without one.

        Whoever comes first logs in, and the others of its event loop wait for that: a server takes much of its time to
        check a password, and is not to do so for each of the calls that an old token was refused to.
        """
        if self._login is None:
            return ""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while (token := self._token) is None:
            under_way = self._log_ins.get(loop)
            if under_way is None:
                await self._log_in_for_all(loop, until - loop.time())
                continue
            await asyncio.wait([under_way], timeout=until - loop.time())
            if not under_way.done():
                raise EtcdUnknown("the log-in has no answer yet", Trouble.SLOW)
            if (error := under_way.result()) is not None:
                raise error
        return token

    async def _log_in_for_all(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        """Log in. If it is cancelled, the next of those that wait does it."""
        under_way = self._log_ins[loop] = loop.create_future()
        error: EtcdError | None = None
        try:
            await self._log_in(timeout_s)
        except EtcdError as failed:
            error = failed
            raise
        finally:
            del self._log_ins[loop]
            under_way.set_result(error)

    async def _log_in(self, timeout_s: float) -> None:
        assert self._login is not None
        try:
            password = self._login.password()
        except (OSError, UnicodeDecodeError) as error:
            raise EtcdRefused(f"the password's file cannot be read: {error}", Trouble.CREDENTIALS) from error
        request = pb.AuthenticateRequest(name=self._login.user, password=password)
        try:
            self._token = (await self._send(AUTHENTICATE, request, timeout_s, "")).token
        except EtcdRefused as error:
            if "authentication is not enabled" not in str(error):
                raise
            # Users can be prepared before etcd asks for them.
            self._token = ""

    async def _send(self, method: _Method, request: Any, timeout_s: float, token: str) -> Any:
        server = self._server()
        try:
            channel = server.channel()
            call = channel.unary_unary(
                method.path,
                request_serializer=type(request).SerializeToString,
                response_deserializer=method.answer.FromString,
            ).future(request, timeout=timeout_s, metadata=_metadata(token))
        except ValueError as error:  # the channel was closed meanwhile
            raise EtcdUnknown(f"{server.address}: {error}", Trouble.AWAY) from error
        await _ended(call)
        try:
            answer = call.result()
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            fault = error_of(*_code_and_details(call), server.address)
            if isinstance(fault, EtcdUnknown):
                self._go_on_from(server, fault)
            raise fault from error
        server.silent_calls = 0
        return answer

    def _server(self) -> _Server:
        if self._is_closed:
            raise EtcdUnknown("the client is closed", Trouble.AWAY)
        return self._servers[self._at]

    def _go_on_from(self, server: _Server, error: EtcdUnknown) -> None:
        """Let the next call go to the next server, unless another call has moved on already."""
        if self._servers[self._at] is server:
            self._at = (self._at + 1) % len(self._servers)
            logger.debug("etcd: %s; the next call goes to %s", error, self._servers[self._at].address)
        if error.trouble is Trouble.SLOW:
            server.silent_calls += 1
            if server.silent_calls >= SILENT_CALLS_MAX:
                # The peer may be gone without a word. gRPC closes without waiting for an answer of it.
                threading.Thread(target=server.disconnect, name="etcd disconnect", daemon=True).start()


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (("token", token),) if token else ()


async def _ended(call: Any) -> None:
    """Wait for the end of a call. Whoever stops waiting cancels it."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def tell(_: object) -> None:
        try:
            loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(None))
        except RuntimeError:
            logger.debug("an event loop closed before the answer came that it waited for")

    call.add_done_callback(tell)
    try:
        await ended
    except asyncio.CancelledError:
        call.cancel()
        raise


def _connect(address: str, tls: TlsFiles | None) -> grpc.Channel:
    if tls is None:
        return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate)
    return grpc.secure_channel(address, credentials, options=CHANNEL_OPTIONS)


# --- what a status means ---------------------------------------------------------------------------------------------


def _code_and_details(call: Any) -> tuple[grpc.StatusCode, str]:
    return call.code() or grpc.StatusCode.UNKNOWN, call.details() or ""


REFUSED_BY_CODE = {
    grpc.StatusCode.INVALID_ARGUMENT: Trouble.REFUSED,
    grpc.StatusCode.FAILED_PRECONDITION: Trouble.REFUSED,
    grpc.StatusCode.NOT_FOUND: Trouble.REFUSED,
    grpc.StatusCode.OUT_OF_RANGE: Trouble.REFUSED,
    grpc.StatusCode.PERMISSION_DENIED: Trouble.PERMISSION,
    grpc.StatusCode.UNAUTHENTICATED: Trouble.CREDENTIALS,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Trouble.BUSY,
}
"""Definite if etcd itself says so. Any other code leaves the outcome open, whoever says it."""

TROUBLE_BY_WORDS = (
    ("request is too large", Trouble.TOO_LARGE),
    ("too many operations", Trouble.TOO_LARGE),
    ("authentication failed", Trouble.CREDENTIALS),
    ("user name is empty", Trouble.CREDENTIALS),
    ("revision of auth store is old", Trouble.CREDENTIALS),
)
TLS_WORDS = ("ssl", "certificate", "handshake", "tls")


def error_of(code: grpc.StatusCode, details: str, address: str) -> EtcdError:
    """What a call has come to that ended with this status.

    etcd says that it refused a request before proposing it, or that every server refuses it where it stands in the log:
    both are definite. Timeouts, a lost connection, a leader that changed and faults inside are not. gRPC itself uses
    the same codes, so a refusal counts only in etcd's words, or in those of its gRPC server for a request too large.
    """
    text = f"{address}: {details or code.name}"
    if details.startswith("CLIENT: Received message larger") or details.startswith("Received message larger"):
        # Of a read. A transaction that writes has no large answer; it is sent again as it is.
        return EtcdRefused(text, Trouble.TOO_LARGE)
    if details.startswith("grpc: received message larger") and code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return EtcdRefused(text, Trouble.TOO_LARGE)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return EtcdRefused(f"{text}; is it etcd 3.6?")
    if details.startswith("etcdserver: ") and code in REFUSED_BY_CODE:
        if "lease not found" in details:
            return EtcdLeaseNotFound(text)
        if "has been compacted" in details:
            return EtcdCompacted(text)
        if "database space exceeded" in details:
            return EtcdNoSpace(text)
        trouble = next((found for words, found in TROUBLE_BY_WORDS if words in details), REFUSED_BY_CODE[code])
        return EtcdRefused(text, trouble)
    return EtcdUnknown(text, _trouble_without_answer(code, details))


def _trouble_without_answer(code: grpc.StatusCode, details: str) -> Trouble:
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Trouble.SLOW
    if details.startswith("etcdserver: "):
        return Trouble.NO_LEADER
    if any(words in details.lower() for words in TLS_WORDS):
        return Trouble.TLS
    return Trouble.AWAY


# --- requests and answers --------------------------------------------------------------------------------------------


def _compare(compare: Compare) -> pb.Compare:
    if isinstance(compare, ModEquals):
        return pb.Compare(target=pb.Compare.MOD, key=compare.key, mod_revision=compare.revision)
    return pb.Compare(target=pb.Compare.LEASE, key=compare.key, lease=compare.lease)


def _operation(operation: Operation) -> pb.RequestOp:
    if isinstance(operation, Get):
        keys, limit, revision = operation
        return pb.RequestOp(range=pb.RangeRequest(key=keys.key, range_end=keys.end, limit=limit, revision=revision))
    if isinstance(operation, Put):
        return pb.RequestOp(put=pb.PutRequest(key=operation.key, value=operation.value, lease=operation.lease))
    assert isinstance(operation, Delete)
    return pb.RequestOp(delete_range=pb.DeleteRangeRequest(key=operation.key))


def _found(answer: pb.RangeResponse) -> Found:
    return Found(
        tuple(
            KeyValue(pair.key, pair.value, pair.create_revision, pair.mod_revision, pair.lease) for pair in answer.kvs
        ),
        answer.more,
    )


# --- a watch ---------------------------------------------------------------------------------------------------------


class _End(NamedTuple):
    error: EtcdError


class _WatchStream:
    """A stream with a watch for each range. A thread reads it, and hands on what comes to the event loop."""

    def __init__(
        self,
        channel: grpc.Channel,
        metadata: tuple[tuple[str, str], ...],
        ranges: Sequence[KeyRange],
        start_revision: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._requests: queue.SimpleQueue[pb.WatchRequest | None] = queue.SimpleQueue()
        self._answers: asyncio.Queue[pb.WatchResponse | _End] = asyncio.Queue()
        for keys in ranges:
            create = pb.WatchCreateRequest(key=keys.key, range_end=keys.end, start_revision=start_revision)
            self._requests.put(pb.WatchRequest(create=create))
        stream = channel.stream_stream(
            WATCH,
            request_serializer=pb.WatchRequest.SerializeToString,
            response_deserializer=pb.WatchResponse.FromString,
        )
        # A server that has no leader ends the stream, instead of keeping it and saying nothing.
        try:
            self._call = stream(self._requests_to_send(), metadata=(*metadata, ("hasleader", "true")))
        except ValueError as error:  # the channel was closed meanwhile
            raise EtcdUnknown(f"the watch cannot begin: {error}", Trouble.AWAY) from error
        self._heard_at_s = self._loop.time()
        threading.Thread(target=self._read, name="etcd watch", daemon=True).start()

    def _requests_to_send(self) -> Iterator[pb.WatchRequest]:
        while (request := self._requests.get()) is not None:
            yield request

    def _read(self) -> None:
        try:
            for answer in self._call:
                self._hand_on(answer)
            error: EtcdError = EtcdUnknown("etcd has ended the watch", Trouble.AWAY)
        except grpc.RpcError:
            error = error_of(*_code_and_details(self._call), "watch")
        self._hand_on(_End(error))

    def _hand_on(self, answer: pb.WatchResponse | _End) -> None:
        try:
            self._loop.call_soon_threadsafe(self._answers.put_nowait, answer)
        except RuntimeError:
            self._call.cancel()

    async def next(self) -> WatchAnswer | None:
        """The next answer; None where the server was asked for its progress, or has only begun to watch."""
        try:
            async with asyncio.timeout(WATCH_ASK_INTERVAL_S):
                answer = await self._answers.get()
        except TimeoutError:
            if self._loop.time() - self._heard_at_s > WATCH_SILENCE_MAX_S:
                raise EtcdUnknown("the watch has heard nothing", Trouble.SLOW) from None
            self._requests.put(pb.WatchRequest(progress=pb.WatchProgressRequest()))
            return None
        self._heard_at_s = self._loop.time()
        if isinstance(answer, _End):
            raise answer.error
        if answer.compact_revision:
            raise EtcdCompacted(f"compacted up to {answer.compact_revision}")
        if answer.canceled:
            raise _cancelled(answer.cancel_reason)
        if answer.created:
            return None
        return WatchAnswer(answer.header.revision, tuple(_event(event) for event in answer.events))

    def close(self) -> None:
        """End the stream, and with it the thread."""
        self._requests.put(None)
        self._call.cancel()


def _cancelled(reason: str) -> EtcdError:
    if "permission denied" in reason:
        return EtcdRefused(f"etcd refuses the watch: {reason}", Trouble.PERMISSION)
    if any(words in reason for words in STALE_TOKEN):
        return EtcdRefused(f"etcd refuses the watch: {reason}", Trouble.CREDENTIALS)
    return EtcdUnknown(f"etcd has ended the watch: {reason}", Trouble.NO_LEADER)


def _event(event: pb.Event) -> WatchEvent:
    value = None if event.type == pb.Event.DELETE else event.kv.value
    return WatchEvent(event.kv.key, value, event.kv.mod_revision)
