"""A leader's sync, which may be thirty times as large as any other request: its assignments are parsed in chunks.

As a whole, ten thousand assignments would be a tree of ten times their bytes, made in one go that no other thread can
interrupt. With chunks there is never more than one chunk's tree, and others have their turn between any two.
"""

from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from rallypoint.coordinator.http.errors import Refused, refuse, refuse_http
from rallypoint.coordinator.http.requests.inputs import (
    BodyLimits,
    check_limits,
    check_shape,
    over_ceiling,
    parse_body,
    refuse_fields,
)
from rallypoint.coordinator.http.requests.long_list import CHUNK_BYTES, LongList
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.request_limits import RequestChecks

ASSIGNMENTS = "assignments"
_CHUNK: TypeAdapter[tuple[m.SyncAssignment, ...]] = TypeAdapter(
    Annotated[tuple[m.SyncAssignment, ...], Field(fail_fast=True)]
)


def parse_sync(body: bytes, checks: RequestChecks, sizes: BodyLimits) -> m.SyncRequest:
    """The sync in a large body, within its limits. Raises Refused, which names the first wrong field."""
    listed = LongList(body, ASSIGNMENTS, 1, checks.limits.json_parts_max)
    assignments = read_assignments(listed, checks, sizes, levels_around=1)
    check_rest(listed, sizes, "body")
    return with_assignments(parse_body(m.SyncRequest, listed.rest, checks), assignments, checks)


def read_assignments(
    listed: LongList, checks: RequestChecks, sizes: BodyLimits, *, levels_around: int
) -> tuple[m.SyncAssignment, ...]:
    """The list's entries. `levels_around`: of the body, around the list. To be called on a thread of its own.

    Each entry may have as many parts as another body, and as many bytes: `max_body_bytes`, or twice what an assignment
    may have as it is kept.
    """
    limits = checks.limits
    entry_bytes_max = max(sizes.max_body_bytes, 2 * limits.assignment_max_bytes)
    assignments: list[m.SyncAssignment] = []
    for count, chunk in listed.chunks():
        if len(chunk) > CHUNK_BYTES + entry_bytes_max:
            field, name, limit = f"{ASSIGNMENTS}.{count}", "assignment_max_bytes", limits.assignment_max_bytes
            detail = f"{field} has more than {limit} bytes; {name} is fixed."
            raise refuse(ErrorCode.INVALID_REQUEST, detail, field=field, limit=limit, limit_name=name)
        check_shape(chunk, checks, -levels_around)
        try:
            assignments.extend(_CHUNK.validate_json(chunk))
        except ValidationError as error:
            raise refuse_fields(m.SyncRequest, error, {}, checks, within=(ASSIGNMENTS, count)) from error
        if len(assignments) > limits.sync_assignments_max:
            raise over_ceiling(m.SyncRequest, ASSIGNMENTS, checks)
    return tuple(assignments)


def check_rest(listed: LongList, sizes: BodyLimits, what: str) -> None:
    """Refuse (413) what is larger than any other body, but for its assignments."""
    if len(listed.rest) > sizes.max_body_bytes:
        raise too_much_else(sizes, what, but_assignments=listed.is_there)


def too_much_else(sizes: BodyLimits, what: str, *, but_assignments: bool = False) -> Refused:
    """The refusal of a body or message that is too large for what it is."""
    but = " beside its assignments" if but_assignments else ""
    detail = f"The {what} has more than {sizes.max_body_bytes} bytes{but}; max_body_bytes is fixed."
    return refuse_http(413, detail, limit=sizes.max_body_bytes, limit_name="max_body_bytes")


def with_assignments(
    request: m.SyncRequest, assignments: tuple[m.SyncAssignment, ...], checks: RequestChecks
) -> m.SyncRequest:
    """The request, of which `assignments` were read before. Raises Refused where it has others, or has too much."""
    if request.assignments and assignments:
        detail = f"{ASSIGNMENTS} is given more than once."
        raise refuse(ErrorCode.INVALID_REQUEST, detail, field=ASSIGNMENTS)
    if assignments:
        request = request.model_copy(update={ASSIGNMENTS: assignments})
        check_limits(request, checks)
    return request
