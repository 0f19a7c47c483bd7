"""The service as a process: settings → store → service → door, and the way back.

The start: the store is opened, the port is bound, and calls are answered (with COORDINATOR_LOAD_IN_PROGRESS) while
the groups load; when they are there, the one line `listening on URL` goes to standard output.

The stop (SIGTERM or SIGINT): sessions are warned, readiness is false and new calls are refused, calls that wait are
answered, appends under way finish, sessions are closed, the listener and the connections close, the store closes. A
second signal ends the process at once.

Garbage is collected by `Collector`, from before the groups load.
"""

import asyncio
import errno
import logging
import os
import resource
import secrets
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields
from time import monotonic

import uvloop
from aiohttp import web

from coordinator.collector import Collector
from coordinator.core.commands import Rules
from coordinator.core.effects import Event
from coordinator.http.app import Door
from coordinator.http.connections import DoorServer
from coordinator.http.event_stream import StreamLimits
from coordinator.http.hosts import host_of_authority
from coordinator.http.inputs import BodyLimits, ConnectionLimits
from coordinator.http.security import SecurityPolicy
from coordinator.http.session import SessionLimits
from coordinator.logs import EventLog, write_log
from coordinator.metrics import Metrics
from coordinator.runtime.capacity import NodeCapacity
from coordinator.runtime.clock import SystemClock
from coordinator.runtime.feed import EventFeed
from coordinator.runtime.observer import Observer
from coordinator.runtime.ownership import NodeAddress, SoleOwner
from coordinator.runtime.service import Service
from coordinator.settings import Settings
from coordinator.storage.contract import AppendFigures, BatchLimits, StorageError
from coordinator.storage.engines import open_store
from protocol.request_limits import RequestLimits

LISTEN_BACKLOG = 4096
"""Connections that may wait to be taken; the system may cut it lower. A deploy reconnects every member at once."""
CLOSE_SECONDS = 1.0
"""How long connections may take to send their last answers, once the service has answered everything."""

log = logging.getLogger("rallypoint")


class StartError(Exception):
    """The service cannot start. The text is one sentence for the person who starts it."""


@dataclass(frozen=True, slots=True)
class Observers:
    """Tells each of several observers."""

    members: tuple[Observer, ...]

    def event(self, event: Event) -> None:
        """Something happened to a group."""
        for member in self.members:
            member.event(event)

    def appended(self, figures: AppendFigures) -> None:
        """The store wrote something."""
        for member in self.members:
            member.appended(figures)

    def parked(self, delta: int) -> None:
        """So many more calls wait."""
        for member in self.members:
            member.parked(delta)


def run(settings: Settings, version: str) -> None:
    """Serve until a signal comes. Raises StartError, and SettingsError for a token file that cannot be used."""
    write_log(settings.log_level, settings.log_format)
    raise_file_limit()
    uvloop.run(serve(settings, version, lambda url: print(f"listening on {url}", flush=True)))


async def serve(settings: Settings, version: str, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `announce` gets the URL once groups are served."""
    stop = watch_signals()
    token_hashes = settings.token_hashes()
    async with AsyncExitStack() as open_parts:
        metrics = Metrics(version, settings.metrics_groups_max)
        clock = SystemClock()
        feed = EventFeed(secrets.token_hex(4), settings.events_kept_max, clock.now_ms)
        observers = Observers((metrics, EventLog(), feed))
        try:
            store = await open_store(settings.storage, batch_limits_of(settings), observers.appended)
        except StorageError as error:
            raise StartError(f"The storage {settings.storage} cannot be opened: {error}.") from error
        open_parts.push_async_callback(store.close)
        listeners = bind(settings.host, settings.port)
        for listener in listeners:
            give_up_the_unreachable(listener, settings.connection_unreachable_timeout_ms)
        port = listeners[0].getsockname()[1]
        local_url = f"http://{bracketed(settings.host)}:{port}"
        url = settings.advertised_url or advertised_url(settings.host, port)
        address = NodeAddress(settings.node_id, url)
        service = Service(
            store,
            clock=clock,
            ownership=SoleOwner(address),
            address=address,
            rules=rules_of(settings),
            shards=settings.shards,
            draw_id=lambda: secrets.token_hex(16),
            observer=observers,
            preview_size_max=settings.preview_size_max,
            capacity=capacity_of(settings),
        )
        metrics.watch(service)
        door = Door(
            service,
            metrics,
            policy=policy_of(settings, url, token_hashes),
            limits=BodyLimits(settings.max_body_bytes, settings.max_sync_bytes, settings.body_timeout_ms),
            feed=feed,
            stream_limits=stream_limits_of(settings),
            version=version,
            metrics_need_token=settings.metrics_need_token,
            requests=request_limits_of(settings),
            connections=connection_limits_of(settings),
            session_limits=session_limits_of(settings),
        )
        server = DoorServer(door)
        runner = web.ServerRunner(server, shutdown_timeout=CLOSE_SECONDS)
        await runner.setup()
        open_parts.push_async_callback(runner.cleanup)
        await open_parts.enter_async_context(Collector(server, monotonic))
        for listener in listeners:
            await web.SockSite(runner, listener, backlog=LISTEN_BACKLOG).start()
        if await started(service, stop):
            announce(local_url)
            log.info("serving %s as node %s, advertised as %s", settings.storage, settings.node_id, url)
            await stop.wait()
        door.sessions.warn_of_drain()
        await drain(service, settings.drain_timeout_ms)
        await door.sessions.close()
        feed.close()
    log.info("stopped")


async def started(service: Service, stop: asyncio.Event) -> bool:
    """Load the groups; False if a signal came first. Raises StartError."""
    loading = asyncio.create_task(service.start())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not loading.done():
        loading.cancel()
        await asyncio.wait((loading,))
        return False
    stopping.cancel()
    try:
        loading.result()
    except StorageError as error:
        raise StartError(f"The groups cannot be loaded: {error}.") from error
    return True


async def drain(service: Service, timeout_ms: int) -> None:
    """Let the service finish, for so long; what is not answered by then is cut off with its connection."""
    log.info("stopping: new calls are refused, %d waiting calls are answered", service.parked_calls)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await service.drain()
    except TimeoutError:
        log.error("the service did not drain within %d ms; what was not acknowledged may be lost", timeout_ms)


# --- what the parts need


def rules_of(settings: Settings) -> Rules:
    """The settings that the rules of groups ask for."""
    return Rules(
        group_pending_max=settings.group_pending_max,
        group_offsets_max=settings.group_offsets_max,
        subscription_topics_max=settings.subscription_topics_max,
        request_partitions_max=settings.request_partitions_max,
        topics_max=settings.topics_max,
        topics_partitions_max=settings.topics_partitions_max,
        topics_racks_max_bytes=settings.topics_racks_max_bytes,
        group_min_session_timeout_ms=settings.group_min_session_timeout_ms,
        group_max_session_timeout_ms=settings.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        group_max_size=settings.group_max_size,
        new_member_join_timeout_ms=settings.new_member_join_timeout_ms,
        offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
        parked_call_max_wait_ms=settings.parked_call_max_wait_ms,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        disconnect_grace_ms=settings.disconnect_grace_ms,
        rebalance_history_max=settings.rebalance_history_max,
        rebalance_cooldown_ms=settings.rebalance_cooldown_ms,
        rebalance_cooldown_max_ms=settings.rebalance_cooldown_max_ms,
        rebalance_freeze_max_ms=settings.rebalance_freeze_max_ms,
        offsets_retention_ms=settings.offsets_retention_ms,
        offsets_retention_check_interval_ms=settings.offsets_retention_check_interval_ms,
    )


def stream_limits_of(settings: Settings) -> StreamLimits:
    """The settings of event streams."""
    return StreamLimits(
        settings.event_streams_max, settings.events_heartbeat_interval_ms, settings.events_write_timeout_ms
    )


def batch_limits_of(settings: Settings) -> BatchLimits:
    """What one write of the store may hold."""
    return BatchLimits(writes_max=settings.storage_batch_writes_max, bytes_max=settings.storage_batch_bytes_max)


def request_limits_of(settings: Settings) -> RequestLimits:
    """How much a request may hold."""
    return RequestLimits(**_of_the_same_names(RequestLimits, settings))


def connection_limits_of(settings: Settings) -> ConnectionLimits:
    """How many connections there may be, and how large the head of a request."""
    return ConnectionLimits(**_of_the_same_names(ConnectionLimits, settings))


def session_limits_of(settings: Settings) -> SessionLimits:
    """How many sessions, and how much of each."""
    return SessionLimits(**_of_the_same_names(SessionLimits, settings))


def capacity_of(settings: Settings) -> NodeCapacity:
    """How much the node takes on."""
    return NodeCapacity(**_of_the_same_names(NodeCapacity, settings))


def _of_the_same_names(limits: type, settings: Settings) -> dict[str, int]:
    return {field.name: getattr(settings, field.name) for field in fields(limits)}


def policy_of(settings: Settings, url: str, token_hashes: tuple[str, ...]) -> SecurityPolicy:
    """Whom to let in: by the advertised URL and the address listened on besides what the settings name."""
    names = {host_of_authority(url.partition("://")[2]), host_of_authority(bracketed(settings.host))}
    return SecurityPolicy(
        hosts=frozenset(name for name in names if name) | frozenset(settings.allowed_hosts),
        origins=frozenset({url, *settings.allowed_origins}),
        token_hashes=token_hashes,
    )


def advertised_url(host: str, port: int) -> str:
    """The URL to tell where none is set: that of the address listened on, or of the machine where it is all of them."""
    return f"http://{bracketed(socket.gethostname().lower() if host in {'0.0.0.0', '::'} else host)}:{port}"


def bracketed(host: str) -> str:
    """An IPv6 address as it stands in a URL."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets bound to every address of the host; to the first alone where the port is left to the system.

    Raises StartError.
    """
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise StartError(f"The host {host} cannot be resolved: {error.strerror}.") from error
    sockets: list[socket.socket] = []
    for family, _, _, _, address in found if port else found[:1]:
        listener = socket.socket(family, socket.SOCK_STREAM)
        sockets.append(listener)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            listener.bind(address)
            listener.listen(LISTEN_BACKLOG)
        except OSError as error:
            for opened in sockets:
                opened.close()
            raise StartError(_why_not_bound(host, port, error)) from error
    return sockets


def give_up_the_unreachable(listener: socket.socket, timeout_ms: int) -> None:
    """Let the system cut connections of this listener whose other side it has not reached for so long.

    They inherit the options, and aiohttp switches the probes on. Probes begin after half of the time, and are known in
    whole seconds; how many are lost does not count, since the time does.
    """
    if sys.platform == "linux":
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, timeout_ms // 2_000))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, timeout_ms // 8_000))


def _why_not_bound(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"The port {port} of {host} is in use by another program; choose another with --port."
    if error.errno == errno.EACCES:
        return f"The port {port} is one that only privileged programs may use; choose one from 1024 with --port."
    return f"The address {host}, port {port}, cannot be listened on: {os.strerror(error.errno or 0)}."


# --- the process


def watch_signals() -> asyncio.Event:
    """An event that the first SIGTERM or SIGINT sets. The second ends the process, with status 1."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            log.warning("a second signal: stopping at once")
            os._exit(1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    return stop


def raise_file_limit() -> None:
    """Allow as many open files as the system lets this process have: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d: %s", soft, error)
