"""Reading what a client sent: a body within its limits, JSON into a model, a query into a model.

Every way in which it can be wrong raises `Refused` with the field's name. Compressed bodies are not taken: a small
one could unfold past every limit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from aiohttp import web
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rallypoint.coordinator.http.errors import Refused, problem_of, refuse, refuse_http
from rallypoint.coordinator.http.limits.deadline import time_limit
from rallypoint.coordinator.http.requests.json_shape import Excess as ShapeExcess
from rallypoint.coordinator.http.requests.json_shape import excess as shape_excess
from rallypoint.coordinator.http.requests.large_bodies import LargeBodies
from rallypoint.coordinator.http.requests.routes import decode
from rallypoint.coordinator.runtime.event_loop.clock import Clock
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.limits import REQUEST_BYTES_MAX, SYNC_BYTES_MAX
from rallypoint.protocol.messages import RequestModel
from rallypoint.protocol.request_limits import KEY_SHOWN_MAX, Excess, RequestChecks

JSON_TYPE = "application/json"
FIELD_PART_LENGTH_MAX = KEY_SHOWN_MAX
"""Characters of a field's name, or of one key of the client's own, that are repeated in an answer."""

SHAPED_BYTES = 16_384
"""Texts above this are looked at before anything is made of them; what a smaller one can cost is some 5 ms."""
ERRORS_READ_MAX = 5_000
"""Wrong fields of which the first is named. Of more, only their number is said: each costs a microsecond to read."""

Model = TypeVar("Model", bound=RequestModel)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How large a body may be and how long it may take. `bodies_max_bytes` is a setting; the others are fixed."""

    max_body_bytes: int = REQUEST_BYTES_MAX
    max_sync_bytes: int = SYNC_BYTES_MAX
    body_timeout_ms: int = 30_000
    """Time for a slow line; stalled clients do not hold memory for longer."""
    bodies_max_bytes: int = 134_217_728


# --- bodies


@dataclass(frozen=True, slots=True)
class MoreBytes:
    """A body may have more bytes than others: so many, by this limit. `begin` raises Refused where not now."""

    bytes_max: int
    limit_name: str
    begin: Callable[[], None]


async def read_body(
    request: web.BaseRequest, limits: BodyLimits, bodies: LargeBodies, clock: Clock, more: MoreBytes | None = None
) -> bytes:
    """The whole body, which must be JSON by its headers. Raises Refused (400, 413, 415, 429).

    Its connection holds it in `bodies`, until the caller releases that there. A client that hangs up meanwhile raises
    ConnectionError, which is nobody's to answer.
    """
    check_media_type(request.headers)
    length = request.headers.get("Content-Length")
    allowed = _Allowed(limits.max_body_bytes, more)
    if length is not None:
        allowed.check(int(length))
    content = request.content
    try:
        if content.is_eof():  # it came with the head, as small ones do
            body = content.read_nowait()
            allowed.check(len(body))
            return body
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        async with time_limit(clock, limits.body_timeout_ms):
            return await _read_to_end(request, allowed, bodies)
    except TimeoutError as error:
        timeout_ms = limits.body_timeout_ms
        detail = f"The body did not arrive within {timeout_ms} ms; body_timeout_ms is fixed."
        code, limit_name = ErrorCode.INVALID_REQUEST, "body_timeout_ms"
        raise refuse(code, detail, limit=timeout_ms, limit_name=limit_name, close=True) from error
    except web.RequestPayloadError as error:
        raise refuse(ErrorCode.INVALID_REQUEST, "The body's framing is broken.", close=True) from error


class _Allowed:
    """How many bytes a body may have: more than others, once that was asked for and granted."""

    __slots__ = ("_bytes_max", "_limit_name", "_more", "has_more")

    def __init__(self, bytes_max: int, more: MoreBytes | None) -> None:
        self._bytes_max = bytes_max
        self._limit_name = "max_body_bytes"
        self._more = more
        self.has_more = False

    def check(self, size_bytes: int) -> None:
        """Raise Refused for a body of so many bytes that may not have them."""
        if size_bytes <= self._bytes_max:
            return
        more, self._more = self._more, None
        if more is not None:
            self._bytes_max, self._limit_name = more.bytes_max, more.limit_name
            if size_bytes <= self._bytes_max:
                more.begin()
                self.has_more = True
                return
        raise _too_large(self._bytes_max, self._limit_name)


async def _read_to_end(request: web.BaseRequest, allowed: _Allowed, bodies: LargeBodies) -> bytes:
    body = bytearray()
    while chunk := await request.content.readany():
        body += chunk
        allowed.check(len(body))
        # Anyone with a token may send the others; half of the room is kept for who is waited for.
        if not bodies.hold(request.protocol, len(body), half=not allowed.has_more):
            raise Refused(problem_of(bodies.refusal()), close=True)
    return bytes(body)


def _too_large(bytes_max: int, limit_name: str) -> Refused:
    detail = f"The body has more than {bytes_max} bytes; {limit_name} is fixed."
    return refuse_http(413, detail, limit=bytes_max, limit_name=limit_name, close=True)


def check_media_type(headers: Mapping[str, str]) -> None:
    """Refuse (415) a body that is not said to be JSON in UTF-8, sent as it is.

    A page of another origin cannot send this type without asking first, which is half of what keeps browsers out.
    """
    content_type = headers.get("Content-Type", "")
    if content_type != JSON_TYPE:
        media_type, _, parameters = content_type.partition(";")
        if media_type.strip().lower() != JSON_TYPE:
            raise refuse_http(415, f"A body needs `Content-Type: {JSON_TYPE}`.", field="Content-Type")
        name, _, value = parameters.strip().partition("=")
        if name.lower() == "charset" and value.strip('"').lower() not in {"utf-8", "utf8"}:
            raise refuse_http(415, "JSON is read in UTF-8 alone.", field="Content-Type")
    if headers.get("Content-Encoding", "identity").lower() != "identity":
        raise refuse_http(415, "A body must come without a `Content-Encoding`.", field="Content-Encoding")


def refuse_body(request: web.BaseRequest) -> None:
    """Refuse a body where the operation takes none."""
    if request.body_exists:
        check_media_type(request.headers)
        raise refuse(ErrorCode.INVALID_REQUEST, "This operation takes no body.")


def parse_body(model: type[Model], body: bytes, checks: RequestChecks) -> Model:
    """The request in the body, within its limits. Raises Refused, which names the first wrong field."""
    is_shaped = len(body) > SHAPED_BYTES
    if is_shaped:
        check_shape(body, checks)
    try:
        request = model.model_validate_json(body)
    except ValidationError as error:
        raise refuse_fields(model, error, {}, checks) from error
    if not is_shaped and checks.may_be_deep(model):
        check_shape(body, checks)
    check_limits(request, checks)
    return request


def check_shape(text: bytes, checks: RequestChecks, extra_depth: int = 0) -> None:
    """Refuse a text of more levels or more parts than it may have. `extra_depth`: of what stands around the body."""
    depth_max, parts_max = checks.limits.json_depth_max, checks.limits.json_parts_max
    found = shape_excess(text, depth_max + extra_depth, parts_max)
    if found is None:
        return
    if found is ShapeExcess.DEPTH:
        raise too_deep(depth_max)
    if found is ShapeExcess.PARTS:
        detail = f"The body has more than {parts_max} objects, lists and keys; json_parts_max is fixed."
        raise refuse(ErrorCode.INVALID_REQUEST, detail, limit=parts_max, limit_name="json_parts_max")


def check_limits(request: RequestModel, checks: RequestChecks, names: Mapping[str, str] | None = None) -> None:
    """Refuse a request that holds more than it may. `names`: how fields are called in a query."""
    excess = checks.excess(request)
    if excess is not None:
        raise _over_limit(excess, names or {})


def over_ceiling(model: type[RequestModel], field: str, checks: RequestChecks) -> Refused:
    """The refusal of a field of the model that is over the limit of its row."""
    excess = checks.ceiling_excess(model, (field,), field)
    assert excess is not None, f"{field} of {model.__name__} has no row"
    return _over_limit(excess, {})


def _over_limit(excess: Excess, names: Mapping[str, str]) -> Refused:
    name = excess.field.partition(".")[0]
    field = names.get(name, excess.field)
    detail = excess.detail.replace(excess.field, field, 1)
    return refuse(excess.code, detail, field=field, limit=excess.limit, limit_name=excess.limit_name)


def too_deep(depth_max: int) -> Refused:
    """The refusal of a body with more levels than that."""
    detail = f"The body has more than {depth_max} levels of objects and lists; json_depth_max is fixed."
    return refuse(ErrorCode.INVALID_REQUEST, detail, limit=depth_max, limit_name="json_depth_max")


# --- queries


@lru_cache
def query_fields(model: type[RequestModel]) -> dict[str, tuple[str, bool, "ReadsText"]]:
    """By the name of the query parameter: the model's field, whether it may be repeated, and what reads its text.

    A repeatable parameter has the singular of the field's name: `topic=a&topic=b` fills `topics`.
    """
    fields = {}
    for name, info in model.model_fields.items():
        repeatable = get_origin(info.annotation) is tuple
        fields[name.removesuffix("s") if repeatable else name] = (name, repeatable, _reader_of(info.annotation))
    return fields


ReadsText = Callable[[str], str | int | bool]
"""Makes a value of the text of a parameter. Text of another form is left as it is, for the model to refuse it."""


def _reader_of(annotation: Any) -> ReadsText:
    if annotation is bool or bool in get_args(annotation):
        return _read_flag
    return _read_number if _is_number(annotation) else str


def _read_flag(text: str) -> str | bool:
    return text == "true" if text in {"true", "false"} else text


def _read_number(text: str) -> str | int:
    return int(text) if _is_whole_number(text) else text


def _is_number(annotation: Any) -> bool:
    """`int`, also where it may be left out (`int | None`) or has limits."""
    choices = get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)
    return any(choice is int or get_args(choice)[:1] == (int,) for choice in choices)


def parse_query(model: type[Model], query: str, checks: RequestChecks) -> Model:
    """The request in the query, within its limits. Raises Refused for an unknown, repeated or wrong parameter."""
    fields = query_fields(model)
    values: dict[str, Any] = {}
    _check_parameters(query, checks.limits.query_parameters_max)
    for parameter, value in _pairs(query):
        if parameter not in fields:
            raise _refuse_unknown(parameter)
        name, repeatable, read = fields[parameter]
        if repeatable:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise refuse(ErrorCode.INVALID_REQUEST, f"{parameter} is given more than once.", field=parameter)
        else:
            values[name] = read(value)
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    names = {name: parameter for parameter, (name, _, _) in fields.items()}
    try:
        request = model.model_validate(values)
    except ValidationError as error:
        raise refuse_fields(model, error, names, checks) from error
    check_limits(request, checks, names)
    return request


def _check_parameters(query: str, count_max: int) -> None:
    if query.count("&") >= count_max:
        detail = f"The query has more than {count_max} parameters; query_parameters_max is fixed."
        raise refuse(ErrorCode.INVALID_REQUEST, detail, limit=count_max, limit_name="query_parameters_max")


def refuse_query(query: str) -> None:
    """Refuse a query where the operation takes none."""
    for parameter, _ in _pairs(query):
        raise _refuse_unknown(parameter)


def _pairs(query: str) -> list[tuple[str, str]]:
    pairs = []
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        pairs.append((decode(name, plus=True), decode(value, plus=True)))
    return pairs


def _is_whole_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10


def _refuse_unknown(parameter: str) -> Refused:
    name = _shorten(parameter)
    return refuse(ErrorCode.INVALID_REQUEST, f"There is no query parameter `{name}` here.", field=name)


# --- what is wrong, in words

_CEILING_ERRORS = frozenset({"string_too_long", "too_long", "less_than_equal"})
"""With these pydantic refuses what is above a bound of the model."""


def refuse_fields(
    model: type[RequestModel],
    error: ValidationError,
    names: Mapping[str, str],
    checks: RequestChecks,
    *,
    skip: int = 0,
    within: tuple[str, int] | None = None,
) -> Refused:
    """The first wrong field of a model, by its path, and how many more there are. No value is repeated.

    `skip`: so many names at the beginning of each path lead to the model. `within`: what was read are entries of this
    list of the model, and so many of its entries were before them.
    """
    first = first_error(error)
    if first is None:
        detail = f"The body has {error.error_count()} wrong fields, too many to name the first."
        return refuse(ErrorCode.INVALID_REQUEST, detail)
    if "recursion limit" in first["msg"]:
        return too_deep(checks.limits.json_depth_max)
    place = first["loc"][skip:]
    if within is not None:
        place = (within[0], within[1] + place[0], *place[1:]) if place and isinstance(place[0], int) else within[:1]
    parts = [_shorten(str(part)) for part in place if part != "[key]"]
    if parts and parts[0] in names:
        parts = [names[parts[0]]]
    field = ".".join(parts) or None
    if first["type"] in _CEILING_ERRORS:
        excess = checks.ceiling_excess(model, place, field or "")
        if excess is not None:
            return _over_limit(excess, {})
    others = error.error_count() - 1
    more = "" if not others else f" ({others} more wrong field{'s' if others > 1 else ''})"
    return refuse(ErrorCode.INVALID_REQUEST, f"{field or 'The body'}: {first['msg'].rstrip('.')}{more}.", field=field)


def first_error(error: ValidationError) -> ErrorDetails | None:
    """The first of the errors; None where there are too many to read them, which pydantic does all at once."""
    if error.error_count() > ERRORS_READ_MAX:
        return None
    return error.errors(include_url=False, include_context=False, include_input=False)[0]


def _shorten(text: str) -> str:
    return text if len(text) <= FIELD_PART_LENGTH_MAX else text[:FIELD_PART_LENGTH_MAX] + "…"
