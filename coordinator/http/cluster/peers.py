"""Requests to the other nodes of the cluster, over their own API.

A node that does not answer in time, refuses, or answers something else is no fault: whoever asked is told why in words.
The log says so once, and once more when the node answers again.
"""

import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol, Self

import aiohttp
from multidict import CIMultiDict
from pydantic import ValidationError
from yarl import URL

from rallypoint.coordinator.access.principals import ANYBODY, Caller
from rallypoint.coordinator.http.limits.deadline import time_limit
from rallypoint.coordinator.http.security import caller_headers
from rallypoint.coordinator.runtime.contract import NodeAddress
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.operations import EVENTS, LIST_GROUPS
from rallypoint.protocol.tls_words import tls_words

PEER_TIMEOUT_MS = 2_000
"""How long a peer may take to answer. Whoever lists groups waits for the slowest one."""
CONNECTIONS_PER_PEER_MAX = 8
"""Requests to a peer that are under way at once; others wait for their turn, within their time."""

log = logging.getLogger("rallypoint.http")


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A peer gave no answer. why: a clause that follows a colon, without its full stop. field: what it refuses."""

    why: str
    field: str | None = None


class ClientContext(Protocol):
    """The TLS of connections to peers; `coordinator.http.tls` has the real one."""

    @property
    def client(self) -> ssl.SSLContext:
        """Whom to trust, and the certificate that this node shows: those of the moment."""


class PeerEvents:
    """An event stream of a peer, open until `close`."""

    def __init__(self, response: aiohttp.ClientResponse, clock: Clock) -> None:
        self._response = response
        self._clock = clock

    async def read(self, timeout_ms: int) -> bytes | Unanswered:
        """What comes next; nothing at the end of a whole stream. Unanswered where it breaks off or stays silent."""
        try:
            async with time_limit(self._clock, timeout_ms):
                return await self._response.content.readany()
        except TimeoutError:
            return Unanswered(f"it has said nothing for {timeout_ms} ms")
        except (aiohttp.ClientError, OSError) as error:
            return Unanswered(f"its stream broke off: {_words(error)}")

    def close(self) -> None:
        """Read no more."""
        self._response.close()


class PeerClient:
    """Asks other nodes. Belongs to one event loop; connections are opened when they are needed, and kept."""

    def __init__(
        self,
        clock: Clock,
        token: str | None = None,
        tls: ClientContext | None = None,
        *,
        timeout_ms: int = PEER_TIMEOUT_MS,
    ) -> None:
        """Open nothing yet.

        clock: measures the time for an answer.
        token: the bearer token that this node presents; None where the nodes require none.
        tls: of connections over https; None for the system's authorities, and no certificate.
        timeout_ms: how long a peer may take for an answer, from the first try to connect on.
        """
        self._clock = clock
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._tls = tls
        self._timeout_ms = timeout_ms
        self._session: aiohttp.ClientSession | None = None
        self._streaming: aiohttp.ClientSession | None = None
        self._unanswered: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        """Open nothing yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections. What is under way ends without an answer."""
        sessions, self._session, self._streaming = (self._session, self._streaming), None, None
        for session in sessions:
            if session is not None:
                await session.close()

    async def list_groups(
        self, peer: NodeAddress, request: admin.ListGroupsRequest, caller: Caller = ANYBODY
    ) -> admin.ListGroupsAnswer | Unanswered:
        """The page of the peer's own groups that the caller may see: `node_only` of the request is to be set."""
        headers = self._headers_for(caller)
        if isinstance(headers, Unanswered):
            return headers
        answer = await self._ask(peer, _query_of(request), headers)
        self._tell(peer, answer)
        return answer

    def _headers_for(self, caller: Caller) -> CIMultiDict[str] | Unanswered:
        """The peer answers what the caller may see, and not what this node may."""
        named = caller_headers(caller)
        if named is None:
            return Unanswered("the caller has more names than a request has room for")
        return CIMultiDict([*self._headers.items(), *named])

    async def open_events(
        self, peer: NodeAddress, query: Sequence[tuple[str, str]], caller: Caller = ANYBODY
    ) -> PeerEvents | Unanswered:
        """A stream of the peer's own events that the caller may see: `node_only` of the query is to be set.

        It is for whoever opens it to close.
        """
        url = URL(peer.url).join(URL(EVENTS.path)).with_query(query)
        headers = self._headers_for(caller)
        if isinstance(headers, Unanswered):
            return headers
        self._streaming = self._streaming or _session_of(connections_per_peer=0)
        try:
            async with time_limit(self._clock, self._timeout_ms):
                timeout = aiohttp.ClientTimeout(total=None)
                response = await self._streaming.get(
                    url, headers=headers, allow_redirects=False, timeout=timeout, ssl=self._ssl()
                )
                if response.status == HTTPStatus.OK:
                    self._tell(peer, None)
                    return PeerEvents(response, self._clock)
                async with response:
                    refused = read_refusal(response.status, await response.read(), "event stream")
        except TimeoutError:
            refused = Unanswered(f"it gave no answer within {self._timeout_ms} ms")
        except (aiohttp.ClientError, OSError, RuntimeError) as error:  # RuntimeError: the session is being closed
            refused = Unanswered(_words(error))
        self._tell(peer, refused)
        return refused

    async def _ask(
        self, peer: NodeAddress, query: dict[str, str], headers: CIMultiDict[str]
    ) -> admin.ListGroupsAnswer | Unanswered:
        url = URL(peer.url).join(URL(LIST_GROUPS.path)).with_query(query)
        try:
            async with (
                time_limit(self._clock, self._timeout_ms),
                self._open().get(url, headers=headers, allow_redirects=False, ssl=self._ssl()) as response,
            ):
                text = await response.read()
        except TimeoutError:
            return Unanswered(f"it gave no answer within {self._timeout_ms} ms")
        except (aiohttp.ClientError, OSError, RuntimeError) as error:  # RuntimeError: the session is being closed
            return Unanswered(_words(error))
        return read_page(response.status, text)

    def _ssl(self) -> ssl.SSLContext | bool:
        """For each request anew: the files may have changed, and a connection is kept under its own context alone."""
        return True if self._tls is None else self._tls.client

    def _open(self) -> aiohttp.ClientSession:
        self._session = self._session or _session_of(connections_per_peer=CONNECTIONS_PER_PEER_MAX)
        return self._session

    def _tell(self, peer: NodeAddress, answer: admin.ListGroupsAnswer | Unanswered | None) -> None:
        before = self._unanswered.pop(peer.node_id, None)
        if isinstance(answer, Unanswered):
            self._unanswered[peer.node_id] = answer.why
            if answer.why != before:
                log.warning("node %r at %s cannot be asked: %s", peer.node_id, peer.url, answer.why)
        elif before is not None:
            log.info("node %r at %s answers again", peer.node_id, peer.url)


@dataclass(frozen=True, slots=True)
class EventsForCaller:
    """Opens event streams of other nodes in the name of one caller."""

    peers: PeerClient
    caller: Caller

    async def open_events(self, peer: NodeAddress, query: Sequence[tuple[str, str]]) -> PeerEvents | Unanswered:
        """A stream of the peer's own events that the caller may see."""
        return await self.peers.open_events(peer, query, self.caller)


def read_page(status: int, text: bytes) -> admin.ListGroupsAnswer | Unanswered:
    """The page that a peer answered; Unanswered for a refusal, and for what is no page of a single node."""
    if status != HTTPStatus.OK:
        return read_refusal(status, text, "list of groups")
    try:
        page = admin.ListGroupsAnswer.model_validate_json(text)
    except ValidationError:
        return Unanswered(f"it answers HTTP {status} with something that is no list of groups")
    if page.listed_shards is None:
        return Unanswered("its list does not say which shards it is of")
    return page


def read_refusal(status: int, text: bytes, wanted: str) -> Unanswered:
    """Why a peer refused. wanted: what it was asked for, as a noun."""
    if status == HTTPStatus.UNAUTHORIZED:
        return Unanswered(
            "it accepts neither token nor certificate of this node; set cluster_token_file to a token that it accepts"
        )
    try:
        problem = m.Problem.model_validate_json(text)
    except ValidationError:
        return Unanswered(f"it answers HTTP {status} with something that is no {wanted}")
    return Unanswered(f"it refuses: {problem.detail.rstrip('.')}", problem.field)


def _session_of(*, connections_per_peer: int) -> aiohttp.ClientSession:
    """Connections to peers; 0: as many as there are requests."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, limit_per_host=connections_per_peer),
        cookie_jar=aiohttp.DummyCookieJar(),
    )


def _words(error: Exception) -> str:
    return tls_words(error, ca_option="tls_cluster_ca") or f"{type(error).__name__}: {error}"


def _query_of(request: admin.ListGroupsRequest) -> dict[str, str]:
    # A node of an older release refuses parameters that it does not know, also where they say what is the default.
    values = request.model_dump(mode="json", exclude_defaults=True)
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
