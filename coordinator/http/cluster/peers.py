"""Requests to the other nodes of the cluster, over their own API.

A node that does not answer in time, refuses, or answers something else is no fault: whoever asked is told why in words.
The log says so once, and once more when the node answers again.
"""

import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

import aiohttp
from pydantic import ValidationError
from yarl import URL

from rallypoint.coordinator.http.limits.deadline import time_limit
from rallypoint.coordinator.runtime.contract import NodeAddress
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.operations import LIST_GROUPS

PEER_TIMEOUT_MS = 2_000
"""How long a peer may take to answer. Whoever lists groups waits for the slowest one."""
CONNECTIONS_PER_PEER_MAX = 8
"""Requests to a peer that are under way at once; others wait for their turn, within their time."""

log = logging.getLogger("rallypoint.http")


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A peer gave no answer. why: a clause that follows a colon, without its full stop."""

    why: str


class PeerClient:
    """Asks other nodes. Belongs to one event loop; connections are opened when they are needed, and kept."""

    def __init__(self, clock: Clock, token: str | None = None, *, timeout_ms: int = PEER_TIMEOUT_MS) -> None:
        """Open nothing yet.

        clock: measures the time for an answer.
        token: the bearer token that this node presents; None where the nodes require none.
        timeout_ms: how long a peer may take for an answer, from the first try to connect on.
        """
        self._clock = clock
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout_ms = timeout_ms
        self._session: aiohttp.ClientSession | None = None
        self._unanswered: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        """Open nothing yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections. What is under way ends without an answer."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def list_groups(
        self, peer: NodeAddress, request: admin.ListGroupsRequest
    ) -> admin.ListGroupsAnswer | Unanswered:
        """The page of the peer's own groups: `node_only` of the request is to be set."""
        answer = await self._ask(peer, _query_of(request))
        self._tell(peer, answer)
        return answer

    async def _ask(self, peer: NodeAddress, query: dict[str, str]) -> admin.ListGroupsAnswer | Unanswered:
        url = URL(peer.url).join(URL(LIST_GROUPS.path)).with_query(query)
        try:
            async with (
                time_limit(self._clock, self._timeout_ms),
                self._open().get(url, headers=self._headers, allow_redirects=False) as response,
            ):
                text = await response.read()
        except TimeoutError:
            return Unanswered(f"it gave no answer within {self._timeout_ms} ms")
        except (aiohttp.ClientError, OSError, RuntimeError) as error:  # RuntimeError: the session is being closed
            return Unanswered(f"{type(error).__name__}: {error}")
        return read_page(response.status, text)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, limit_per_host=CONNECTIONS_PER_PEER_MAX),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _tell(self, peer: NodeAddress, answer: admin.ListGroupsAnswer | Unanswered) -> None:
        before = self._unanswered.pop(peer.node_id, None)
        if isinstance(answer, Unanswered):
            self._unanswered[peer.node_id] = answer.why
            if answer.why != before:
                log.warning("node %r at %s cannot be asked: %s", peer.node_id, peer.url, answer.why)
        elif before is not None:
            log.info("node %r at %s answers again", peer.node_id, peer.url)


def read_page(status: int, text: bytes) -> admin.ListGroupsAnswer | Unanswered:
    """The page that a peer answered; Unanswered for a refusal, and for what is no page of a single node."""
    if status == HTTPStatus.UNAUTHORIZED:
        return Unanswered("it does not accept the token of this node; set cluster_token_file to one that it accepts")
    try:
        if status != HTTPStatus.OK:
            return Unanswered(f"it refuses: {m.Problem.model_validate_json(text).detail.rstrip('.')}")
        page = admin.ListGroupsAnswer.model_validate_json(text)
    except ValidationError:
        return Unanswered(f"it answers HTTP {status} with something that is no list of groups")
    if page.listed_shards is None:
        return Unanswered("its list does not say which shards it is of")
    return page


def _query_of(request: admin.ListGroupsRequest) -> dict[str, str]:
    # A node of an older release refuses parameters that it does not know, also where they say what is the default.
    values = request.model_dump(mode="json", exclude_defaults=True)
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
