"""Problem documents: the form of a refusal on the wire. The words come from the table in `protocol.errors`.

Two kinds of refusal get one form: a `Failure`, which the service answers to a call, and a `Refused`, which the API
raises for a request that never reaches the service. Any part of the API raises `Refused`; one place catches it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from rallypoint.coordinator.core.effects import Failure
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ERRORS, HTTP_SLUGS, SUPERSEDED, ErrorCode, row
from rallypoint.protocol.limits import setting_of

PROBLEM_TYPE = "application/problem+json"

THROTTLE_TIME_MS: Mapping[ErrorCode, int] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: 1_000,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: 1_000,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: 1_000,
    # Not retriable by itself: a member has to leave first, so there is no hurry.
    ErrorCode.GROUP_MAX_SIZE_REACHED: 30_000,
}
"""Every problem of status 429 or 503 carries one of these as `throttle_time_ms`, over HTTP as `Retry-After`, too."""


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """What stands behind a problem's `type`: everything a person needs who met it."""

    slug: str
    code: ErrorCode
    status: int
    retriable: bool
    title: str
    action: str


_HTTP_WORDS = {
    401: ("Not authenticated", "Send `Authorization: Bearer TOKEN` with a token that the service knows."),
    404: ("No such path", "Check the path; `/docs` lists all of them. An id in a path is percent-encoded once."),
    405: ("The path does not take this method", "Use one of the methods that the `Allow` header names."),
    413: (
        "The body is too large",
        "Send less in one request: at most `max_body_bytes` (of a sync: `max_sync_bytes`).",
    ),
    415: (
        "The body is not JSON as it must be sent",
        "Send JSON in UTF-8 with `Content-Type: application/json` and without a `Content-Encoding`.",
    ),
}


def _pages() -> dict[str, ErrorPage]:
    pages = {
        table_row.slug: ErrorPage(
            table_row.slug, code, table_row.status, table_row.retriable, table_row.title, table_row.action
        )
        for code, table_row in ERRORS.items()
        if code is not ErrorCode.NONE
    }
    pages[SUPERSEDED] = ErrorPage(
        SUPERSEDED,
        ErrorCode.REBALANCE_IN_PROGRESS,
        row(ErrorCode.REBALANCE_IN_PROGRESS).status,
        False,
        "The member has called again",
        "Drop this call: a newer one of the same member stands. Do not join again because of it.",
    )
    for status, slug in HTTP_SLUGS.items():
        code = ErrorCode.SASL_AUTHENTICATION_FAILED if status == 401 else ErrorCode.INVALID_REQUEST
        title, action = _HTTP_WORDS[status]
        pages[slug] = ErrorPage(slug, code, status, False, title, action)
    del pages[row(ErrorCode.SASL_AUTHENTICATION_FAILED).slug]  # it goes by the slug of its status
    return pages


ERROR_PAGES: Mapping[str, ErrorPage] = _pages()
"""Every problem there is, by the last segment of its `type`."""


def slug_of(failure: Failure) -> str:
    """The last segment of the `type` of the failure's problem."""
    if failure.superseded:
        return SUPERSEDED
    if failure.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
        return HTTP_SLUGS[401]
    return row(failure.code).slug


def problem_of(failure: Failure) -> m.Problem:
    """The problem document of a call that the service refused."""
    return m.Problem(**problem_fields(failure))


def problem_fields(failure: Failure) -> dict[str, Any]:
    """The fields of that document that say something: without a model, for most failures are of usual calls."""
    page = ERROR_PAGES[slug_of(failure)]
    fields = {
        "type": f"/errors/{page.slug}",
        "title": page.title,
        "status": page.status,
        "detail": failure.detail,
        "error_code": int(page.code),
        "error_name": page.code.name,
        "retriable": page.retriable,
        "field": failure.field,
        "member_id": failure.member_id,
        "generation_id": failure.generation_id,
        "node_id": failure.node_id,
        "url": failure.url,
        "limit": failure.limit,
        "limit_name": failure.limit_name,
        "setting": setting_of(failure.limit_name),
        "rejoin_within_ms": failure.rejoin_within_ms,
        "throttle_time_ms": THROTTLE_TIME_MS.get(failure.code),
    }
    return {name: value for name, value in fields.items() if value is not None}


class Refused(Exception):  # noqa: N818 - it is an answer on its way, not a fault
    """The API refuses the request: this problem, with these headers, is the answer.

    is_guess: for a token that is not known, as of somebody who guesses: the answer may have to wait.
    """

    def __init__(self, problem: m.Problem, headers: Mapping[str, str] | None = None, *, close: bool = False) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.headers = headers or {}
        self.close = close
        self.is_guess = False


def refuse(
    code: ErrorCode,
    detail: str,
    *,
    field: str | None = None,
    limit: int | None = None,
    limit_name: str | None = None,
    close: bool = False,
) -> Refused:
    """A refusal by a row of the table. `close`: the connection cannot be used further."""
    return Refused(problem_of(Failure(code, detail, field=field, limit=limit, limit_name=limit_name)), close=close)


def refuse_http(
    status: int,
    detail: str,
    *,
    field: str | None = None,
    limit: int | None = None,
    limit_name: str | None = None,
    headers: Mapping[str, str] | None = None,
    close: bool = False,
) -> Refused:
    """A refusal that has a status of HTTP's own: 401, 404, 405, 413 or 415."""
    page = ERROR_PAGES[HTTP_SLUGS[status]]
    problem = m.Problem(
        type=f"/errors/{page.slug}",
        title=page.title,
        status=status,
        detail=detail,
        error_code=page.code,
        error_name=page.code.name,
        retriable=page.retriable,
        field=field,
        limit=limit,
        limit_name=limit_name,
        setting=setting_of(limit_name),
    )
    return Refused(problem, headers, close=close)


def unauthenticated(detail: str, challenge: str = "", field: str | None = None, *, close: bool = False) -> Refused:
    """A refusal (401) of a caller that is not known. `challenge`: what the header says beside the scheme."""
    headers = {"WWW-Authenticate": f'Bearer realm="rallypoint"{challenge}'}
    return refuse_http(401, detail, field=field, headers=headers, close=close)


def respond_problem(
    problem: m.Problem, request_id: str, headers: Mapping[str, str] | None = None, *, close: bool = False
) -> web.Response:
    """The HTTP response of a problem, with the headers that its code asks for. `request_id`: of what is refused."""
    problem = problem.model_copy(update={"request_id": request_id})
    all_headers = {
        "Content-Type": PROBLEM_TYPE,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Server": "rallypoint",
        **(headers or {}),
    }
    if problem.throttle_time_ms is not None:
        all_headers["Retry-After"] = str(problem.throttle_time_ms // 1_000)
    elif problem.status == 421 and problem.url is not None:
        all_headers["Location"] = problem.url
    response = web.Response(
        status=problem.status, body=problem.model_dump_json(exclude_none=True).encode(), headers=all_headers
    )
    if close:
        response.force_close()
    return response
