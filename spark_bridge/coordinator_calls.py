"""Single calls to the service by code that is no member of the group. They block. They are retried only for the few
seconds of a hand-over between nodes.
"""

from collections.abc import Iterable
from typing import TypeVar

from pydantic import BaseModel

from rallypoint.member.coordinator_client import PATIENCE_MS, CoordinatorClient, sentence_of
from rallypoint.member.core.outcomes import Answered, Outcome, Refused, Unreachable
from rallypoint.member.loop_thread import run_in_thread
from rallypoint.member.tls_files import TlsFiles
from rallypoint.member.tokens import Token
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.spark_bridge.errors import BridgeError
from rallypoint.spark_bridge.member_options import member_options

REQUEST_TIMEOUT_MS = 5_000
"""For each node that is asked."""

A = TypeVar("A", bound=BaseModel)


class NotAnswered(BridgeError):  # noqa: N818
    """The service did not execute the call. `final`: retrying is useless, because it is forbidden or invalid."""

    def __init__(self, detail: str, *, final: bool) -> None:
        self.final = final
        super().__init__(detail)


def coordinators_for(coordinator: str, group: str, token: Token | None, tls: TlsFiles | None = None) -> "Coordinators":
    """The nodes at `coordinator`, one URL or several separated by commas, for calls about a group.

    Raises OptionError, as a member of the group would, if one of the parameters cannot be used.
    """
    urls = tuple(url.strip() for url in coordinator.split(",") if url.strip())
    member_options({"coordinator": urls, "group_id": group, "token": token, "topics_pattern": ".*"})
    return Coordinators(urls, token, tls)


class Coordinators:
    """The nodes of a service, tried one after another until one answers. Thread-safe; works inside an event loop.

    A node that did not answer is tried last by later calls. `patience_ms`: as that of `CoordinatorClient`.

    Each method raises `NotAnswered` with the last node's error, or with the reason why no request could be made.
    """

    def __init__(
        self,
        urls: tuple[str, ...],
        token: Token | None,
        tls: TlsFiles | None = None,
        *,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        self._urls = urls
        self._token = token
        self._tls = tls
        self._patience_ms = patience_ms

    def fetch(self, group_id: str, topics: Iterable[str] = ()) -> m.FetchAnswer:
        """The group's committed offsets of these topics, or of all topics if none is given."""
        return self._ask(ops.FETCH, m.FetchRequest(topics=tuple(topics)), m.FetchAnswer, group_id=group_id)

    def commit(self, group_id: str, body: m.CommitRequest) -> m.CommitAnswer:
        """Commit. The answer contains a result for each partition."""
        return self._ask(ops.COMMIT, body, m.CommitAnswer, group_id=group_id)

    def put_topic(self, topic: str, body: m.PutTopicRequest) -> None:
        """Report to the topic registry."""
        self._ask(ops.PUT_TOPIC, body, m.Topic, topic=topic)

    def _ask(
        self, operation: ops.Operation, body: BaseModel, answer: type[A], *, group_id: str = "", topic: str = ""
    ) -> A:
        async def call() -> Outcome:
            client = CoordinatorClient(
                self._urls,
                timeout_ms=REQUEST_TIMEOUT_MS,
                patience_ms=self._patience_ms,
                token=self._token,
                tls=self._tls,
            )
            async with client:
                outcome = await client.call(operation, body, group_id=group_id, topic=topic)
                self._urls = client.urls
                return outcome

        outcome = run_in_thread(call)
        if isinstance(outcome, Answered):
            assert isinstance(outcome.answer, answer)
            return outcome.answer
        assert isinstance(outcome, Refused | Unreachable), "none of these operations waits"
        final = isinstance(outcome, Refused) and 400 <= outcome.problem.status < 500 and not outcome.problem.retriable
        raise NotAnswered(sentence_of(outcome), final=final)
