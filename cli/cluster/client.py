"""Calls of operators to a cluster: to the first of its nodes that answers."""

from collections.abc import Sequence
from typing import Self, TypeVar

import aiohttp
from pydantic import BaseModel
from yarl import URL

from rallypoint.member.core.outcomes import Answered, Outcome, Refused, Unreachable
from rallypoint.member.http import read_answer
from rallypoint.member.tokens import Token, TokenUnavailable, headers_of
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import operations
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.operations import Operation, path_of

CALL_TIMEOUT_S = 10.0
"""How long a node may take to answer. A change of the placement waits for the store, which has its own time."""
CONNECT_TIMEOUT_S = 3.0

_OF_THIS_NODE = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""Refusals after which another node may answer."""

Answer = TypeVar("Answer", bound=BaseModel)


class CallFailed(Exception):  # noqa: N818 - it says what happened
    """No node did what was asked. The text is one or more whole sentences."""


class ClusterClient:
    """Speaks to the nodes. Belongs to one event loop; use as `async with`."""

    def __init__(self, urls: Sequence[str], token: Token | None = None) -> None:
        """`urls`: of the nodes, asked in this order. `token`: the bearer token, if the service requires one."""
        self._urls = tuple(urls)
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the session; connections come with the calls."""
        timeout = aiohttp.ClientTimeout(total=CALL_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
        self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        assert self._session is not None
        await self._session.close()

    async def describe(self) -> admin.ClusterAnswer:
        """The cluster, as the node that answers sees it. Raises CallFailed, as all calls do."""
        return await self._call(operations.DESCRIBE_CLUSTER, admin.ClusterAnswer)

    async def drain(self, node_id: str) -> admin.ClusterNode:
        """Let a node hand over everything."""
        return await self._call(operations.DRAIN_NODE, admin.ClusterNode, node_id=node_id)

    async def resume(self, node_id: str) -> admin.ClusterNode:
        """End the drain of a node."""
        return await self._call(operations.RESUME_NODE, admin.ClusterNode, node_id=node_id)

    async def remove(self, node_id: str) -> admin.ClusterNode:
        """Take a node that does not run out of the cluster."""
        return await self._call(operations.REMOVE_NODE, admin.ClusterNode, node_id=node_id)

    async def move(self, shard: int, node_id: str) -> admin.ClusterShard:
        """Make a node the preferred one for a shard."""
        wanted = admin.MoveShardRequest(node_id=node_id)
        return await self._call(operations.MOVE_SHARD, admin.ClusterShard, wanted, shard=str(shard))

    async def _call(
        self, operation: Operation, answer: type[Answer], body: BaseModel | None = None, **ids: str
    ) -> Answer:
        """Ask one node after the other until one says something that is not about itself alone.

        Each of the changes may be asked for twice: the second time it has been made, or is refused.
        """
        reasons = []
        for url in self._urls:
            outcome = await self._send(url, operation, body, ids)
            if isinstance(outcome, Answered) and isinstance(outcome.answer, answer):
                return outcome.answer
            assert isinstance(outcome, Refused | Unreachable), f"{operation.name} does not wait"
            if isinstance(outcome, Refused) and outcome.problem.error_code not in _OF_THIS_NODE:
                raise CallFailed(_sentence(outcome.problem.detail))
            reasons.append(f"{url}: {_sentence(_reason(outcome))}")
        raise CallFailed(" ".join(("No node answers.", *reasons)))

    async def _send(self, url: str, operation: Operation, body: BaseModel | None, ids: dict[str, str]) -> Outcome:
        assert self._session is not None, "the client is not open"
        data = None if body is None else body.model_dump_json().encode()
        try:
            target = URL(url + path_of(operation, **ids), encoded=True)
            headers = headers_of(self._token)
            if data is not None:
                headers["Content-Type"] = "application/json"
            request = self._session.request(operation.method, target, data=data, headers=headers, allow_redirects=False)
            async with request as response:
                text = await response.read()
        except TimeoutError:
            return Unreachable(f"it gave no answer within {CALL_TIMEOUT_S:g} seconds")
        except TokenUnavailable as error:
            raise CallFailed(_sentence(str(error))) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: of a name that has no UTF-8
            return Unreachable(f"{type(error).__name__}: {error}")
        return read_answer(operation, response.status, response.headers, text)


def _reason(outcome: Refused | Unreachable) -> str:
    return outcome.problem.detail if isinstance(outcome, Refused) else outcome.reason


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
