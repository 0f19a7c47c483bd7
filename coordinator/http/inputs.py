"""Reading what a client sent: a body within its limits, JSON into a model, a query into a model.

Every way in which it can be wrong raises `Refused` with the field's name. Compressed bodies are not taken: a small
one could unfold past every limit.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from aiohttp import web
from pydantic import ValidationError

from coordinator.http.errors import Refused, refuse, refuse_http
from coordinator.http.json_depth import is_deeper
from coordinator.http.routes import decode
from protocol.errors import ErrorCode
from protocol.messages import RequestModel
from protocol.request_limits import KEY_SHOWN_MAX, Excess, RequestChecks

JSON_TYPE = "application/json"
FIELD_PART_LENGTH_MAX = KEY_SHOWN_MAX
"""Characters of a field's name, or of one key of the client's own, that are repeated in an answer."""

LARGE_BYTES = 65_536
"""Texts above this are parsed beside the event loop: an assignment of 10,000 members takes 70 ms."""

Model = TypeVar("Model", bound=RequestModel)
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How large a body may be and how long it may take; the settings of the same names say why."""

    max_body_bytes: int = 1_048_576
    max_sync_bytes: int = 33_554_432
    body_timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The settings of the same names say why."""

    connections_max: int = 50_000
    max_url_bytes: int = 65_536
    max_header_bytes: int = 8_192
    headers_max: int = 128

    @property
    def line_bytes(self) -> int:
        """Where the parser gives up on a request's target. The door refuses what is above `max_url_bytes`; this is
        higher, and never the same as the parser's other limit, for its errors differ by the number alone.
        """
        return max(self.max_url_bytes, self.max_header_bytes) + 1


# --- bodies


async def read_body(
    request: web.BaseRequest, bytes_max: int, timeout_ms: int, setting: str = "max_body_bytes"
) -> bytes:
    """The whole body, which must be JSON by its headers. Raises Refused (400, 413, 415). `setting` sets `bytes_max`.

    A client that hangs up meanwhile raises ConnectionError, which is nobody's to answer.
    """
    check_media_type(request.headers)
    length = request.headers.get("Content-Length")
    if length is not None and int(length) > bytes_max:
        raise _too_large(bytes_max, setting)
    content = request.content
    try:
        if content.is_eof():  # it came with the head, as small ones do
            body = content.read_nowait()
        else:
            if request.headers.get("Expect", "").lower() == "100-continue":
                await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                request.writer.output_size = 0
            async with asyncio.timeout(timeout_ms / 1000):
                body = await _read_to_end(request, bytes_max)
    except TimeoutError as error:
        detail = f"The body did not arrive within {timeout_ms} ms; that is set by body_timeout_ms."
        code, setting = ErrorCode.INVALID_REQUEST, "body_timeout_ms"
        raise refuse(code, detail, limit=timeout_ms, setting=setting, close=True) from error
    except web.RequestPayloadError as error:
        raise refuse(ErrorCode.INVALID_REQUEST, "The body's framing is broken.", close=True) from error
    if len(body) > bytes_max:
        raise _too_large(bytes_max, setting)
    return body


async def _read_to_end(request: web.BaseRequest, bytes_max: int) -> bytes:
    body = bytearray()
    while chunk := await request.content.readany():
        body += chunk
        if len(body) > bytes_max:
            break
    return bytes(body)


def _too_large(bytes_max: int, setting: str) -> Refused:
    detail = f"The body has more than {bytes_max} bytes; that is set by {setting}."
    return refuse_http(413, detail, limit=bytes_max, setting=setting, close=True)


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
    depth_max = checks.limits.json_depth_max
    try:
        request = model.model_validate_json(body)
    except ValidationError as error:
        if "recursion limit" in str(error.errors(include_url=False, include_input=False)[0]["msg"]):
            raise too_deep(depth_max) from error
        raise refuse_fields(model, error, {}, checks) from error
    if checks.may_be_deep(model) and is_deeper(body, depth_max):
        raise too_deep(depth_max)
    check_limits(request, checks)
    return request


async def parse_beside(parse: Callable[[], Parsed]) -> Parsed:
    """Parse a large text on another thread, and raise what it raises. Others have their turn meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(None, parse)


def check_limits(request: RequestModel, checks: RequestChecks, names: Mapping[str, str] | None = None) -> None:
    """Refuse a request that holds more than it may. `names`: how fields are called in a query."""
    excess = checks.excess(request)
    if excess is not None:
        raise _over_limit(excess, names or {})


def _over_limit(excess: Excess, names: Mapping[str, str]) -> Refused:
    name = excess.field.partition(".")[0]
    field = names.get(name, excess.field)
    detail = excess.detail.replace(excess.field, field, 1)
    return refuse(excess.code, detail, field=field, limit=excess.limit, setting=excess.setting)


def too_deep(depth_max: int) -> Refused:
    """The refusal of a body with more levels than that."""
    detail = f"The body has more than {depth_max} levels of objects and lists; that is set by json_depth_max."
    return refuse(ErrorCode.INVALID_REQUEST, detail, limit=depth_max, setting="json_depth_max")


# --- queries


@lru_cache
def query_fields(model: type[RequestModel]) -> dict[str, tuple[str, bool, bool]]:
    """By the name of the query parameter: the model's field, whether it may be repeated, whether it is a number.

    A repeatable parameter has the singular of the field's name: `topic=a&topic=b` fills `topics`.
    """
    fields = {}
    for name, info in model.model_fields.items():
        repeatable = get_origin(info.annotation) is tuple
        fields[name.removesuffix("s") if repeatable else name] = (name, repeatable, _is_number(info.annotation))
    return fields


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
        name, repeatable, is_number = fields[parameter]
        if repeatable:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise refuse(ErrorCode.INVALID_REQUEST, f"{parameter} is given more than once.", field=parameter)
        else:
            values[name] = int(value) if is_number and _is_whole_number(value) else value
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
        detail = f"The query has more than {count_max} parameters; that is set by query_parameters_max."
        raise refuse(ErrorCode.INVALID_REQUEST, detail, limit=count_max, setting="query_parameters_max")


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
) -> Refused:
    """The first wrong field of a model, by its path, and how many more there are. No value is repeated.

    `skip`: so many names at the beginning of each path lead to the model.
    """
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = first["loc"][skip:]
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


def _shorten(text: str) -> str:
    return text if len(text) <= FIELD_PART_LENGTH_MAX else text[:FIELD_PART_LENGTH_MAX] + "…"
