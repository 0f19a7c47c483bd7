"""From a request's method and target to its route, with the ids of the path decoded exactly once.

The frameworks' own routers decode, normalise or drop empty segments before a handler can see them; here an empty
segment is an id like any other, `a%2Fb` is the id `a/b`, and `%252F` the id `%2F`.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from aiohttp import web
from pydantic import BaseModel

from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.http.access.requirements import Requirement
from rallypoint.coordinator.http.errors import refuse, refuse_http
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.ids import PATH_IDS_REFUSED
from rallypoint.protocol.request_limits import RequestLimits

Answer = BaseModel | Failure | web.StreamResponse
Handler = Callable[[web.BaseRequest, Mapping[str, str], str], Awaitable[Answer]]
"""Gets the request, the decoded ids of its path by name, and the undecoded query."""

_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Route:
    """The handler of one method of one path.

    name: the operation in metrics.
    handler: answers the request.
    public: answered without a token even if tokens are set.
    any_host: answered whatever `Host` says, for probes that call by an address.
    is_large: it may be much work, however short the request.
    requirement: the rights that it needs; None: it is of no contract, and public.
    """

    name: str
    handler: Handler
    public: bool = False
    any_host: bool = False
    is_large: bool = False
    requirement: Requirement | None = None


@dataclass(slots=True)
class _Node:
    literals: dict[str, "_Node"] = field(default_factory=dict)
    id_name: str = ""
    id_node: "_Node | None" = None
    routes: dict[str, Route] = field(default_factory=dict)


class Routes:
    """All routes, as a tree of path segments. A literal segment goes before an id."""

    def __init__(self, limits: RequestLimits) -> None:
        self._root = _Node()
        self._limits = limits

    def add(self, method: str, template: str, route: Route) -> None:
        """`template` is a path whose ids stand as `{name}`. A GET answers HEAD too."""
        node = self._root
        for segment in template.split("/")[1:]:
            if segment.startswith("{"):
                node.id_name = segment[1:-1]
                node.id_node = node.id_node or _Node()
                node = node.id_node
            else:
                node = node.literals.setdefault(segment, _Node())
        node.routes[method] = route
        if method == "GET":
            node.routes["HEAD"] = route

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route of an undecoded path, and its ids. Raises Refused: 400, 404, 405.

        Cost: one dictionary look-up a segment.
        """
        segments = path.split("/")
        if "%" in path or not path.isascii():
            segments = [decode(segment, plus=False) for segment in segments]
        node: _Node | None = self._root
        ids: dict[str, str] = {}
        if segments[0]:
            node = None  # not a path: the `*` of OPTIONS, the authority of CONNECT
        for segment in segments[1:]:
            if node is None:
                break
            literal = node.literals.get(segment)
            if literal is not None:
                node = literal
                continue
            ids[node.id_name] = segment
            node = node.id_node
        if node is None or not node.routes:
            raise refuse_http(404, "There is nothing at this path.")
        route = node.routes.get(method)
        if route is None:
            raise refuse_http(
                405, "The path does not take this method.", headers={"Allow": ", ".join(sorted(node.routes))}
            )
        for name, value in ids.items():
            check_id(name, value, self._limits)
        return route, ids


def check_id(name: str, value: str, limits: RequestLimits) -> None:
    """Refuse ids that could not be addressed or are too long. What an empty one means, the rules say."""
    length_max = limits.topic_length_max if name == "topic" else limits.id_length_max
    if value not in PATH_IDS_REFUSED and len(value) <= length_max:
        return
    code = ErrorCode.INVALID_GROUP_ID if name == "group_id" else ErrorCode.INVALID_REQUEST
    if value in PATH_IDS_REFUSED:
        detail = f"{name} must not be `{value}`: clients take such a segment out of a path."
        raise refuse(code, detail, field=name)
    limit_name = "topic_length_max" if name == "topic" else "id_length_max"
    detail = f"{name} has more than {length_max} characters; {limit_name} is fixed."
    raise refuse(code, detail, field=name, limit=length_max, limit_name=limit_name)


def decode(text: str, *, plus: bool) -> str:
    """Percent-decode once; with `plus`, a plus is a space, as in a query. Raises Refused where it is not UTF-8."""
    if _BAD_PERCENT.search(text):
        raise refuse(ErrorCode.INVALID_REQUEST, "A % in the request's target is not followed by two hex digits.")
    if plus:
        text = text.replace("+", " ")
    try:
        return unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode()
    except UnicodeDecodeError as error:
        raise refuse(ErrorCode.INVALID_REQUEST, "The request's target is not percent-encoded UTF-8.") from error
