"""The service as a process: settings → store → service → API, and the way back.

The start: the store is opened, the port is bound, and calls are answered (with COORDINATOR_LOAD_IN_PROGRESS) while
the groups load; when they are there, the one line `listening on URL` goes to standard output.

The stop (SIGTERM or SIGINT): channels are warned, readiness is false and new calls are refused, calls that wait are
answered, appends under way finish, channels are closed, the listener and the connections close, the store closes. That
takes `drain_timeout_ms` and `REST_SECONDS` at the most, counted from the signal: then the process ends as it is,
whatever the disk does. What was acknowledged is durable. A second signal ends the process at once.

Garbage is collected by `Collector`, from before the groups load.
"""

import asyncio
import errno
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from time import monotonic_ns, sleep, time_ns
from typing import TYPE_CHECKING, cast

from aiohttp import web

from rallypoint.coordinator.collector import Collector
from rallypoint.coordinator.core.cluster.records import NodeAnnouncement
from rallypoint.coordinator.core.effects import Event
from rallypoint.coordinator.http.access.audit import Audit, AuditFile
from rallypoint.coordinator.http.access.control import AccessControl
from rallypoint.coordinator.http.access.watch import AccessFiles, AccessWatch, Issuers
from rallypoint.coordinator.http.access.watched_files import FileProblem
from rallypoint.coordinator.http.api import HttpApi
from rallypoint.coordinator.http.cluster.peers import PeerClient
from rallypoint.coordinator.http.connections import HttpServer
from rallypoint.coordinator.http.hosts import host_of_authority
from rallypoint.coordinator.http.limits.admission import ConnectionLimits, limits_within
from rallypoint.coordinator.http.security import SecurityPolicy
from rallypoint.coordinator.http.tls.certificates import Certificates, TlsFiles, TlsFilesInvalid
from rallypoint.coordinator.limits import limits_of
from rallypoint.coordinator.logs import EventLog, FaultCounter, name_node, write_log
from rallypoint.coordinator.metrics import Metrics
from rallypoint.coordinator.runtime.cluster.member_node import MemberNode
from rallypoint.coordinator.runtime.cluster.sole_node import SoleNode
from rallypoint.coordinator.runtime.contract import NodeAddress, Observer
from rallypoint.coordinator.runtime.event_loop.clock import SystemClock
from rallypoint.coordinator.runtime.event_loop.faults import each, survives
from rallypoint.coordinator.runtime.events.feed import EventFeed
from rallypoint.coordinator.runtime.service import Service
from rallypoint.coordinator.settings import Settings, SettingsError
from rallypoint.coordinator.storage.codec import MINOR_VERSION, VERSION
from rallypoint.coordinator.storage.contract import AppendMetrics, StorageError, Store
from rallypoint.coordinator.storage.engines import is_shared, open_store
from rallypoint.coordinator.storage.shared_contract import SharedStore

if TYPE_CHECKING:
    from rallypoint.coordinator.tracing.provider import Tracing

try:
    import resource
except ImportError:  # of a system that is not like Unix
    IS_LIKE_UNIX = False
else:
    IS_LIKE_UNIX = True
try:
    import uvloop
except ImportError:  # it is not made for every system
    HAS_UVLOOP = False
else:
    HAS_UVLOOP = True

LISTEN_BACKLOG = 4096
"""Connections that may wait to be taken; the system may cut it lower. A deploy reconnects every member at once."""
CLOSE_SECONDS = 1.0
"""How long connections may take to send their last answers, once the service has answered everything."""

SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""What asks the service to stop."""
REST_SECONDS = 1.5
"""How much longer than its drain a stop may take: for the last answers, and for the store to close."""
LAST_WORDS_SECONDS = 0.1
"""How long the line that says that a stop took too long may take to be written."""

log = logging.getLogger("rallypoint")


class StartError(Exception):
    """The service cannot start. The text is one sentence for the person who starts it."""


@dataclass(frozen=True, slots=True)
class Observers:
    """Tells each of several observers, whatever becomes of one."""

    members: tuple[Observer, ...]

    def event(self, event: Event) -> None:
        """Something happened to a group."""
        for member in self.members:
            survives(member.event, event)

    def appended(self, append_metrics: AppendMetrics) -> None:
        """The store wrote something."""
        each(self.members, lambda member: member.appended(append_metrics))


def run(settings: Settings, version: str, given: Mapping[str, int] | None = None) -> None:
    """Serve until a signal comes. `given`: limits by name, for tests, as `limits_of` takes them.

    Raises StartError, and SettingsError for a token file that cannot be used.
    """
    if not IS_LIKE_UNIX:
        raise StartError("The service runs on Linux, macOS and systems like them. Members run here, too.")
    write_log(settings.log_level, settings.log_format)
    files_max = raise_file_limit()
    serving = serve(settings, version, lambda url: print(f"listening on {url}", flush=True), files_max, given)
    with restored_signals():
        if HAS_UVLOOP:
            uvloop.run(serving)
        else:
            log.warning("uvloop is not installed, so the service runs on asyncio's own event loop, which is slower")
            asyncio.run(serving)


async def serve(
    settings: Settings,
    version: str,
    announce: Callable[[str], None],
    files_max: int | None,
    given: Mapping[str, int] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; `announce` gets the URL once groups are served. `files_max`: of open files."""
    stop = watch_signals(settings.drain_timeout_ms / 1000 + REST_SECONDS)
    cluster_token = settings.cluster_token()
    limits = limits_of(settings, given)
    async with AsyncExitStack() as open_parts:
        metrics = Metrics(version, settings.metrics_groups_max, settings.storage.partition(":")[0])
        open_parts.enter_context(FaultCounter(metrics.met_fault))
        clock = SystemClock(metrics.stalled)
        access = open_access(settings, open_parts, metrics)
        feed = EventFeed(secrets.token_hex(4), settings.events_kept_max, clock.shown_ms)
        listeners = bind(settings.host, settings.port)
        for listener in listeners:
            open_parts.callback(listener.close)
            give_up_the_unreachable(listener, settings.connection_unreachable_timeout_ms)
        port = listeners[0].getsockname()[1]
        certificates = await open_parts.enter_async_context(certificates_of(settings, metrics))
        scheme = "http" if certificates is None else "https"
        local_url = f"{scheme}://{bracketed(settings.host)}:{port}"
        url = settings.advertised_url or advertised_url(scheme, settings.host, port)
        address = NodeAddress(node_id_of(settings, url), url)
        name_node(address.node_id)
        tracing = opened_tracing(open_parts, address.node_id, version) if settings.tracing else None
        observers = Observers((metrics, EventLog(), feed, *(() if tracing is None else (tracing.rebalances,))))
        try:
            store = await open_store(
                settings.storage, limits.batch, observers.appended, node_id=address.node_id, identity=url.encode()
            )
        except StorageError as error:
            raise StartError(f"The storage {settings.storage} cannot be opened: {error}.") from error
        open_parts.push_async_callback(store.close)
        node = node_of(settings, store, address, version, clock, metrics)
        open_parts.push_async_callback(node.close)
        service = Service(
            store,
            clock=clock,
            ownership=node,
            address=address,
            rules=limits.rules,
            shards=settings.shards,
            draw_id=lambda: secrets.token_hex(16),
            observer=observers,
            preview_size_max=limits.preview_size_max,
            capacity=limits.capacity,
            release=version,
            member_calls=None if tracing is None else tracing.rebalances,
            wall_ms=wall_ms,
        )
        metrics.watch(service)
        api = HttpApi(
            service,
            node,
            metrics,
            policy=policy_of(settings, url),
            limits=limits.bodies,
            feed=feed,
            stream_limits=limits.streams,
            version=version,
            metrics_need_token=settings.metrics_need_token,
            requests=limits.requests,
            connections=connections_within(limits.connections, files_max, settings.model_fields_set),
            channel_limits=limits.channels,
            peers=await open_parts.enter_async_context(PeerClient(clock, cluster_token, certificates)),
            tracer=None if tracing is None else tracing.requests,
            access=access.control,
            audit=access.audit,
            shown_ms=wall_ms,
        )
        open_parts.push_async_callback(watch_access(access, api, service, settings).close)
        metrics.watch_connections(api.admission)
        server = HttpServer(api, files_max, certificates)
        runner = web.ServerRunner(server, shutdown_timeout=CLOSE_SECONDS)
        await runner.setup()
        open_parts.push_async_callback(runner.cleanup)
        await open_parts.enter_async_context(Collector(server))
        for listener in listeners:
            await web.SockSite(runner, listener, backlog=LISTEN_BACKLOG).start()
        if await started(service, stop):
            announce(local_url)
            tell_what_is_served(settings, address, access.control)
            await stop.wait()
        await stop_serving(node, service, store, api, settings.drain_timeout_ms)
        feed.close()
    log.info("stopped")


def opened_tracing(open_parts: AsyncExitStack, node_id: str, version: str) -> "Tracing":
    """What makes spans until `open_parts` are closed. Raises StartError."""
    try:
        from rallypoint.coordinator.tracing.provider import (  # noqa: PLC0415 - an extra, for this setting alone
            TracingUnsuitable,
            open_tracing,
        )
    except ImportError as error:
        raise StartError(
            f"The setting tracing needs packages that are not here: pip install 'rallypoint[opentelemetry]' ({error})."
        ) from error
    try:
        tracing = open_tracing(node_id, version)
    except TracingUnsuitable as error:
        raise StartError(str(error)) from error
    open_parts.push_async_callback(tracing.close)
    return tracing


def tell_what_is_served(settings: Settings, address: NodeAddress, access: AccessControl) -> None:
    """Say in the log what this node is, and warn if it cannot ask the others."""
    log.info("serving %s as node %s, advertised as %s", settings.storage, address.node_id, address.url)
    if not is_shared(settings.storage):
        return
    has_no_name = settings.cluster_token_file is None and settings.tls_client_ca is None
    if access.needs_credential and has_no_name:
        log.warning("tokens are set, but cluster_token_file is not: nodes with the same settings refuse this one")
    if access.policy is not None and not access.policy.nodes:
        log.warning("the policy file has no `nodes`: nodes with the same file refuse this one")


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


async def stop_serving(
    node: SoleNode | MemberNode, service: Service, store: Store, api: HttpApi, timeout_ms: int
) -> None:
    """Hand over, answer what waits, give up what is left, say goodbye. `timeout_ms`: for the first two."""
    began_ns = monotonic_ns()
    hand_over_ms = timeout_ms * 3 // 4
    is_whole = await hand_over_everything(node, hand_over_ms)
    await api.channels.warn_of_drain()
    spent_ms = (monotonic_ns() - began_ns) // 1_000_000
    is_whole &= await drain(service, max(timeout_ms - spent_ms, timeout_ms - hand_over_ms))
    async with asyncio.TaskGroup() as last:
        last.create_task(say_goodbye(api))
        if not is_whole:
            last.create_task(give_up_everything(node, store))


async def hand_over_everything(node: SoleNode | MemberNode, timeout_ms: int) -> bool:
    """Let other nodes take over, for so long; what they have not taken by then they take when the service drains. False
    where something is left that other nodes should have.

    Members move within five sixths of it: the store needs some of it, too.
    """
    if isinstance(node, SoleNode):
        return True
    if node.has_successor:
        log.info("stopping: %d shards are handed over to other nodes", node.owned_shards())
    else:
        log.info("stopping: no other node runs that could take the %d shards of this one", node.owned_shards())
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await node.drain(timeout_ms * 5 // 6)
    except TimeoutError:
        log.warning(
            "%d shards were not handed over within %d ms, three quarters of drain_timeout_ms; they are given up, and "
            "other nodes take them",
            node.shards_left(),
            timeout_ms,
        )
        return False
    return True


async def drain(service: Service, timeout_ms: int) -> bool:
    """Let the service finish, for so long; what is not answered by then is cut off with its connection. False where
    something is.
    """
    log.info("stopping: new calls are refused, %d waiting calls are answered", service.parked_calls)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await service.drain()
    except TimeoutError:
        log.error("the service did not drain within %d ms; what was not acknowledged may be lost", timeout_ms)
        return False
    return True


async def give_up_everything(node: SoleNode | MemberNode, store: Store) -> None:
    """In a cluster: end the lease, and with it all that this node could not hand over or give up in time, so that other
    nodes need not wait until the lease runs out. Before connections close, since that takes time, too.
    """
    if not isinstance(node, SoleNode):
        await node.close()
        await store.close()


async def say_goodbye(api: HttpApi) -> None:
    """Close the channels; whoever does not answer in time is cut off with the connection."""
    try:
        async with asyncio.timeout(REST_SECONDS - CLOSE_SECONDS):
            await api.channels.close()
    except TimeoutError:
        log.info("some clients do not answer the goodbye of their channel; their connections are cut")


# --- what the parts need


def wall_ms() -> int:
    """The wall clock, in milliseconds since the epoch: what tokens and audit lines speak of."""
    return time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Access:
    """What decides about access, and where that comes from and goes to."""

    control: AccessControl
    files: AccessFiles
    audit: Audit
    audit_file: AuditFile | None


def open_access(settings: Settings, open_parts: AsyncExitStack, metrics: Metrics) -> Access:
    """Read who is known, and who may do what. Raises SettingsError for a file that cannot be used."""
    control, files = read_access_files(settings)
    metrics.watch_access(files.refused)
    metrics.watch_issuers(files.issuer_statuses)
    audit_file = open_audit_file(settings, open_parts)
    audit = Audit(wall_ms, None if audit_file is None else audit_file.write)
    return Access(control, files, audit, audit_file)


def watch_access(access: Access, api: HttpApi, service: Service, settings: Settings) -> AccessWatch:
    """Follow what changes from now on, until what is returned is closed."""
    watch = AccessWatch(
        access.files,
        access.control,
        api,
        api.members,
        partial(service.call, host=""),
        access.audit,
        wall_ms,
        audit_file=access.audit_file,
        members_age_ms=settings.group_max_session_timeout_ms,
    )
    watch.start()
    return watch


def read_access_files(settings: Settings) -> tuple[AccessControl, AccessFiles]:
    """What the files say, and what reads them again. Raises SettingsError for one that cannot be used."""
    entries = settings.token_entries()
    takes_certificates = settings.tls_client_ca is not None
    access = AccessControl(entries, key=secrets.token_bytes(32), takes_certificates=takes_certificates)
    files = AccessFiles(access, entries, settings.token_file, settings.access, partial(open_issuers, access.look_again))
    try:
        files.load()
    except FileProblem as problem:
        raise SettingsError(str(problem)) from problem
    return access, files


def open_issuers(on_change: Callable[[], None]) -> Issuers:
    """What checks the tokens of issuers. `on_change`: is called when other keys count. Raises FileProblem."""
    try:
        from rallypoint.coordinator.http.access.issuer_documents import (  # noqa: PLC0415 - an extra, for them alone
            IssuerDocuments,
        )
        from rallypoint.coordinator.http.access.issuer_tokens import IssuerTokens  # noqa: PLC0415
    except ImportError as error:
        raise FileProblem(
            "The policy file names an [[issuer]], for which packages are needed that are not here: "
            f"pip install 'rallypoint[oidc]' ({error})."
        ) from error
    return IssuerTokens(IssuerDocuments(), lambda: monotonic_ns() // 1_000_000, on_change)


def open_audit_file(settings: Settings, open_parts: AsyncExitStack) -> AuditFile | None:
    """The file that audit lines go to, if they do not go to the log. Raises SettingsError."""
    if settings.audit_log is None:
        logging.getLogger("rallypoint.audit").setLevel(logging.INFO)
        return None
    try:
        file = AuditFile(settings.audit_log)
    except OSError as error:
        raise SettingsError(f"audit_log {settings.audit_log} cannot be opened: {error.strerror}.") from error
    open_parts.callback(file.close)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, file.reopen)
    open_parts.callback(loop.remove_signal_handler, signal.SIGHUP)
    return file


def policy_of(settings: Settings, url: str) -> SecurityPolicy:
    """Which callers to accept: by the advertised URL, the address listened on, and the settings."""
    names = {host_of_authority(url.partition("://")[2]), host_of_authority(bracketed(settings.host))}
    return SecurityPolicy(
        hosts=frozenset(name for name in names if name) | frozenset(settings.allowed_hosts),
        origins=frozenset({url, *settings.allowed_origins}),
    )


def certificates_of(settings: Settings, metrics: Metrics) -> AbstractAsyncContextManager[Certificates | None]:
    """The certificate and the authorities that the settings name, which `metrics` shows; None without TLS.

    Raises StartError.
    """
    if settings.tls_certificate is None or settings.tls_key is None:
        return nullcontext()
    files = TlsFiles(
        settings.tls_certificate,
        settings.tls_key,
        settings.tls_client_ca,
        is_client_required=settings.tls_client_auth == "required",
        cluster_ca=settings.tls_cluster_ca,
    )
    try:
        certificates = Certificates(files)
    except TlsFilesInvalid as error:
        raise StartError(str(error)) from error
    metrics.watch_certificates(certificates)
    return certificates


def node_of(
    settings: Settings, store: Store, address: NodeAddress, version: str, clock: SystemClock, metrics: Metrics
) -> SoleNode | MemberNode:
    """The only node, or one among others, which `metrics` shows, by what the storage is."""
    started_at_ms = clock.shown_ms()
    if not is_shared(settings.storage):
        return SoleNode(address, shards=settings.shards, release=version, started_at_ms=started_at_ms)
    announcement = NodeAnnouncement(
        address.node_id, address.url, settings.rack, version, VERSION, MINOR_VERSION, started_at_ms
    )
    node = MemberNode(cast(SharedStore, store), announcement, shards=settings.shards, clock=clock)
    metrics.watch_node(node)
    return node


def node_id_of(settings: Settings, url: str) -> str:
    """The name of this node. Nodes that share a store need different ones, so the default is made of the URL."""
    if is_shared(settings.storage) and "node_id" not in settings.model_fields_set:
        return url.partition("://")[2]
    return settings.node_id


def advertised_url(scheme: str, host: str, port: int) -> str:
    """The URL to tell where none is set: that of the address listened on, or of the machine where it is all of them."""
    return f"{scheme}://{bracketed(socket.gethostname().lower() if host in {'0.0.0.0', '::'} else host)}:{port}"


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


def watch_signals(stop_within_s: float) -> asyncio.Event:
    """An event that the first SIGTERM or SIGINT sets. The process ends with status 1 if it has not ended by itself so
    many seconds later, and at once if a second one comes.
    """
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            log.warning("a second signal: stopping at once")
            os._exit(1)
        end_within(stop_within_s)
        stop.set()

    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    return stop


@contextmanager
def restored_signals() -> Iterator[None]:
    """Afterwards signals do what they did before. Around the event loop, whose end leaves handlers behind."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def connections_within(
    limits: ConnectionLimits, files_max: int | None, given: Collection[str] = ()
) -> ConnectionLimits:
    """The limits of connections that the process can keep. What it lowers stands in the log, as a warning where the
    setting is among those that somebody has `given`.
    """
    if files_max is None:
        return limits
    lowered = limits_within(limits, files_max)
    kept = (lowered.connections_max, lowered.unauthenticated_connections_max, files_max)
    taken = (
        "at most %d connections are taken, and %d more that have not authenticated: the process may have %d open files"
    )
    if "connections_max" in given and limits.connections_max > lowered.connections_max:
        log.warning(f"{taken}, and connections_max is set to %d", *kept, limits.connections_max)
    elif lowered != limits:
        log.info(taken, *kept)
    return lowered


def end_within(seconds: float) -> None:
    """End the process with status 1 after that time, if it is there still.

    By a thread, since the event loop, or the interpreter in its own end, may wait for a thread that waits for a disk.
    """

    def end() -> None:
        # The log may be on the same disk.
        threading.Thread(target=log.error, args=("the stop took too long: ending as it is",), daemon=True).start()
        sleep(LAST_WORDS_SECONDS)
        os._exit(1)

    timer = threading.Timer(seconds - LAST_WORDS_SECONDS, end)
    timer.daemon = True
    timer.start()


def raise_file_limit() -> int | None:
    """Allow as many open files as the system lets this process have: each connection is one.

    Returns how many; None where there is no limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d: %s", soft, error)
            hard = soft
    return None if hard == resource.RLIM_INFINITY else hard
