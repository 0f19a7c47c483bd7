"""Calls to the first node that can answer: several URLs, a group's coordinator, refusals as sentences.

A read is repeated at the next node. A change is sent once: it is repeated only where no node has taken it.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rallypoint.cli.calls.curl import curl_line
from rallypoint.cli.calls.failures import CallFailed, NotAllowed, RequestPrinted, Unreachable, UsageError
from rallypoint.cli.calls.operations import Query, target_of
from rallypoint.cli.calls.transport import NoReply, NotSent, Reply, Tls, Transport
from rallypoint.cli.output.text import shown
from rallypoint.member.core.route import may_go_on_at

Json = dict[str, Any]
Token = Callable[[], str | None]

RETRY_PAUSE_S = 0.25
PAGE_ROWS = 1_000
HOPS_MAX = 3
"""How often in a row nodes may send a call on to each other."""

_NAMED_IN_WORDS = frozenset({"group_id", "topic", "node_id"})
"""Fields that are arguments of the command: the sentence has their value, and nobody wrote the field."""
_OF_THIS_NODE = frozenset({"COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"})
"""Refusals after which another node may answer, or the same one later: nothing was done."""


def _no_token() -> str | None:
    return None


class Client:
    """Speaks to the nodes of a service."""

    def __init__(
        self,
        urls: tuple[str, ...],
        token: Token = _no_token,
        tls: Tls | None = None,
        *,
        timeout_s: float = 10.0,
        prints: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Connect to nobody yet.

        urls: of nodes, asked in this order.
        token: gives the bearer token when the first request needs it; None for none.
        tls: for https.
        timeout_s: how long a node may take to answer, and how long a call is repeated at nodes that cannot yet.
        prints: raise RequestPrinted in place of sending a request.
        """
        self._given = self._urls = urls
        self._token = token
        self._tls = tls or Tls()
        self._transport = Transport(self._tls, timeout_s=timeout_s)
        self._timeout_s = timeout_s
        self._prints = prints
        self._clock = clock
        self._sleep = sleep
        self._answers = urls[0]
        self._coordinators: dict[str, str] = {}

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def call(self, name: str, *, body: Json | None = None, query: Query | None = None, **ids: str) -> Json:
        """The answer of the operation of this name. Raises CallFailed.

        `ids`: of the path, such as `group_id`.
        """
        return self._call(name, body, query or {}, ids)

    def _call(self, name: str, body: Json | None, query: Query, ids: Mapping[str, str]) -> Json:
        try:
            method, target = target_of(name, query, ids)
            data = None if body is None else json.dumps(body).encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{shown(error.object)!r} is no text in UTF-8.") from error
        headers = self._headers("application/json" if data is not None else None)
        if self._prints:
            raise RequestPrinted(self._curl(method, target, headers, data))
        until = self._clock() + self._timeout_s
        while True:
            reasons: dict[str, str] = {}
            answer = self._round(method, target, headers, data, ids.get("group_id"), reasons)
            if answer is not None:
                return answer
            may_answer_later = any(reason.startswith("it says: ") for reason in reasons.values())
            if not may_answer_later or self._clock() >= until:
                raise Unreachable(_nobody_answers(reasons, is_heard=may_answer_later))
            self._sleep(RETRY_PAUSE_S)

    def pages(self, name: str, *, query: Query | None = None, **ids: str) -> Iterator[Json]:
        """The answers of a list, page by page."""
        cursor = None
        while True:
            page = self._call(name, None, {"limit": PAGE_ROWS, **(query or {}), "cursor": cursor}, ids)
            yield page
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    @contextmanager
    def stream(self, url: str, query: Query) -> Iterator[Iterator[bytes]]:
        """The event stream of one node: the lines as they come. Raises CallFailed, also while they are read."""
        _, target = target_of("events", query, {})
        headers = self._headers(None) | {"Accept": "text/event-stream"}
        if self._prints:
            raise RequestPrinted(self._curl("GET", target, headers, None))
        try:
            with self._transport.stream(url, target, headers) as (reply, lines):
                _check_sender(reply)
                if reply.status != 200:
                    failure = refusal(url, reply)
                    if failure.error_name in _OF_THIS_NODE:  # while it starts, or stops
                        raise Unreachable(f"{url}: {failure}", failure.problem)
                    raise failure
                kind = reply.headers.get("content-type", "")
                if not kind.startswith("text/event-stream"):
                    raise CallFailed(f"{url} answers without events: it is no Rallypoint service; check the URL.")
                yield lines
        except (NotSent, NoReply) as error:
            raise Unreachable(f"{url}: {error}.") from error

    @property
    def urls(self) -> tuple[str, ...]:
        """Of the nodes, as they were given and announced, but the one that answered last comes first."""
        return (self._answers, *(url for url in self._urls if url != self._answers))

    def know(self, announced: Iterable[str]) -> None:
        """Ask these nodes as well, in place of those that were announced before, when no other one answers."""
        self._urls = tuple(dict.fromkeys([*self._given, *announced]))

    def _headers(self, content_type: str | None) -> dict[str, str]:
        headers = {} if content_type is None else {"Content-Type": content_type}
        token = None if self._prints else self._token()
        return headers if token is None else headers | {"Authorization": f"Bearer {token}"}

    def _curl(self, method: str, target: str, headers: Mapping[str, str], data: bytes | None) -> str:
        return curl_line(method, self._urls[0] + target, headers, data, self._tls, has_token=self._token() is not None)

    def _round(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        data: bytes | None,
        group_id: str | None,
        reasons: dict[str, str],
    ) -> Json | None:
        """Ask the nodes one after the other. None if none could answer: `reasons` says why, by URL."""
        urls = list(self.urls)
        if group_id in self._coordinators:
            urls.insert(0, self._coordinators.pop(group_id or ""))
        hops = 0
        while urls:
            url = urls.pop(0)
            if url in reasons:
                continue
            try:
                reply = self._transport.send(url, method, target, headers, data)
                _check_sender(reply)
            except NotSent as error:
                reasons[url] = str(error)
                continue
            except NoReply as error:
                if method != "GET":
                    raise Unreachable(
                        f"{url}: {error}. Whether the change was made is not known: look, then repeat it."
                    ) from error
                reasons[url] = str(error)
                continue
            if reply.status < 300:
                self._answers = url if url in self._urls else self._answers
                if group_id is not None:
                    self._coordinators[group_id] = url
                return parsed(url, reply)
            failure = refusal(url, reply)
            if failure.error_name not in _OF_THIS_NODE:
                raise failure
            reasons[url] = f"it says: {failure.problem['detail'] if failure.problem else failure}"
            further = failure.problem.get("url") if failure.problem else None
            if isinstance(further, str) and further not in reasons and hops < HOPS_MAX:
                hops += 1
                if not may_go_on_at(url, further):
                    raise CallFailed(f"{url} sends the call on to {shown(further)}, where the token could be read.")
                urls.insert(0, further.rstrip("/"))
        return None


def _nobody_answers(reasons: Mapping[str, str], *, is_heard: bool) -> str:
    """Each node with its reason; nodes that all say the same, once. `is_heard`: a node is there, and cannot answer."""
    if len(reasons) > 1 and len(set(reasons.values())) == 1:
        reasons = {", ".join(reasons): next(iter(reasons.values()))}
    tried = " ".join(f"{urls}: {reason.rstrip('.')}." for urls, reason in reasons.items())
    if is_heard:
        return f"No node can answer now. {tried}"
    return f"No node answers. {tried} Check --coordinator, and whether the service runs."


def parsed(url: str, reply: Reply) -> Json:
    """The object that an answer holds. Raises CallFailed."""
    try:
        answer = json.loads(reply.body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise CallFailed(f"{url} answers with {reply.status} and no JSON: it is no Rallypoint service; check the URL.")
    return answer


def refusal(url: str, reply: Reply) -> CallFailed:
    """What a refusal says, as a failure: the sentence of the service, the field, and what to do."""
    if 300 <= reply.status < 400:
        to = shown(reply.headers.get("location", "nowhere"))
        return CallFailed(f"{url} redirects to {to}. Redirects are not followed; name the right URL.")
    problem = _problem_in(reply)
    if problem is None:
        kind = NotAllowed if reply.status in {401, 403} else CallFailed
        return kind(f"{url} answers with status {reply.status} and no problem document; check the URL.")
    text = shown(problem["detail"]).rstrip(".") + "."
    for place in ("field", "setting"):
        name = problem.get(place)
        if name and str(name) not in text and name not in _NAMED_IN_WORDS:
            text += f" The {place} is {shown(str(name))}."
    if reply.status == 401:
        text += " --token-file, or RALLYPOINT_TOKEN in the environment, names one that the service knows."
    if reply.status in {401, 403}:
        return NotAllowed(text, problem)
    return CallFailed(text, problem)


def _check_sender(reply: Reply) -> None:
    """Raise NoReply for an error that is not the service's own: a proxy's, which says nothing of the call."""
    if reply.status >= 500 and _problem_in(reply) is None:
        raise NoReply(f"it answers with status {reply.status} and no problem document, as a proxy does")


def _problem_in(reply: Reply) -> Json | None:
    try:
        problem = json.loads(reply.body)
    except ValueError:
        return None
    return problem if isinstance(problem, dict) and isinstance(problem.get("detail"), str) else None
