"""Single calls to a coordinator by code that is no member: one node is asked after another until one answers.

Where nodes answer and none of them can serve the call yet, as during a hand-over, they are asked again for a while. The
calls go over the members' HTTP, so its rules hold here: a redirect of HTTP is not followed,
the token is not sent over plain HTTP after HTTPS, and every answer becomes an outcome.
"""

import asyncio
import random
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from pydantic import BaseModel

from rallypoint.member.core.backoff import backoff_ms
from rallypoint.member.core.dispatch import REDIRECTS_MAX, describe
from rallypoint.member.core.outcomes import Outcome, Refused, Unreachable
from rallypoint.member.core.reactions import SAME_REQUEST, Reaction, reaction_to
from rallypoint.member.core.route import may_go_on_at
from rallypoint.member.http import HttpTransport
from rallypoint.member.tls import Tls
from rallypoint.member.tokens import Token
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.operations import Operation

PATIENCE_MS = 3_000
"""A planned hand-over takes half a second. One after a node was killed takes longer, and its call may fail."""

PAUSE_MS, PAUSE_MAX_MS = 100, 1_000
"""Before all nodes are asked again, doubling from one to the other."""


class CoordinatorClient:
    """The nodes of a service. Use it as a context manager, in one event loop; its connections serve all its calls.

    `urls`: in the order in which the nodes are asked. One that did not answer is asked last from then on.

    Args:
        urls: The base URL of each node, in the order in which they are asked.
        timeout_ms: For the answer of each node.
        patience_ms: How long the nodes are asked again and again where one of them answers that the call can be served
            by nobody yet, or by another one that cannot. 0: not at all.
        token: Bearer token, or a function that gives the present one.
        tls: For https: files, or a context; None is Python's default.
    """

    def __init__(
        self,
        urls: Iterable[str],
        *,
        timeout_ms: int,
        patience_ms: int = PATIENCE_MS,
        token: Token | None = None,
        tls: Tls = None,
    ) -> None:
        self.urls = tuple(url.rstrip("/") for url in urls)
        self._timeout_ms = timeout_ms
        self._patience_ms = patience_ms
        self._http = HttpTransport(token, tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.close()

    async def call(
        self, operation: Operation, body: BaseModel | None, *, group_id: str = "", topic: str = ""
    ) -> Outcome:
        """The first answer that no other node could change, or the last node's failure, which names the node.

        `group_id` and `topic` are for operations that have them in their path. The call may be done twice, which must
        do no harm. Raises nothing for what a peer does.
        """
        ends_at = asyncio.get_running_loop().time() + self._patience_ms / 1000
        failures = 0
        while True:
            outcome, may_pass = await self._ask_each(operation, body, group_id, topic)
            failures += 1
            pause_ms = backoff_ms(failures, PAUSE_MS, PAUSE_MAX_MS, random.random())
            if not may_pass or asyncio.get_running_loop().time() + pause_ms / 1000 >= ends_at:
                return outcome
            await asyncio.sleep(pause_ms / 1000)

    async def _ask_each(
        self, operation: Operation, body: BaseModel | None, group_id: str, topic: str
    ) -> tuple[Outcome, bool]:
        """Ask each node once, until one serves the call. Whether what came instead may soon be over: a node is there,
        and says that it cannot.
        """
        outcome: Outcome = Unreachable("no coordinator is named")
        may_pass = False
        for url in self.urls:
            asked, outcome = await self._follow(url, operation, body, group_id, topic)
            if not _is_of_this_node(outcome):
                return outcome, False
            if isinstance(outcome, Unreachable) and asked == url:
                self.urls = (*(other for other in self.urls if other != url), url)
            if isinstance(outcome, Unreachable):
                outcome = Unreachable(f"{asked}: {outcome.reason}")
            may_pass |= asked != url or (isinstance(outcome, Refused) and outcome.problem.error_code in _HAND_OVER)
        return outcome, may_pass

    async def _follow(
        self, url: str, operation: Operation, body: BaseModel | None, group_id: str, topic: str
    ) -> tuple[str, Outcome]:
        """Ask the node at `url`, then those that the answers name. The last node that was asked, and its outcome."""
        for redirects in range(REDIRECTS_MAX + 1):
            outcome = await self._http.call(
                url, operation, body, group_id=group_id, topic=topic, timeout_ms=self._timeout_ms
            )
            named = _coordinator_named_by(url, outcome)
            if named is None or redirects == REDIRECTS_MAX:
                break
            url = named
        return url, outcome


_HAND_OVER = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}


def sentence_of(outcome: Refused | Unreachable) -> str:
    """What came in place of an answer, in one line."""
    return f"HTTP {outcome.problem.status}: {describe(outcome)}" if isinstance(outcome, Refused) else outcome.reason


def _coordinator_named_by(url: str, outcome: Outcome) -> str | None:
    """The node at which the call is to go on, if any."""
    if not isinstance(outcome, Refused) or reaction_to(outcome.problem) is not Reaction.FOLLOW:
        return None
    named = outcome.problem.url
    return named.rstrip("/") if named is not None and may_go_on_at(url, named) else None


def _is_of_this_node(outcome: Outcome) -> bool:
    """Whether another node may give another answer."""
    return isinstance(outcome, Unreachable) or (
        isinstance(outcome, Refused) and reaction_to(outcome.problem) in SAME_REQUEST
    )
