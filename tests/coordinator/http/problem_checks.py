"""What every problem document must be, whatever led to it."""

from typing import Any

from rallypoint.coordinator.http.errors import ERROR_PAGES
from rallypoint.coordinator.http.reference.openapi import problems_of
from rallypoint.coordinator.limits import NAMES
from rallypoint.coordinator.settings import Settings
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.operations import Operation
from tests.fakes.api_server import Answer


def check_problem(answer: Answer) -> dict[str, Any]:
    """Assert that the answer is a coded problem whose words agree with each other; return it."""
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json
    assert problem["status"] == answer.status
    assert problem["error_name"] == ErrorCode(problem["error_code"]).name
    page = ERROR_PAGES[problem["type"].removeprefix("/errors/")]
    assert (page.status, page.code, page.retriable, page.title) == (
        answer.status,
        problem["error_code"],
        problem["retriable"],
        problem["title"],
    )
    assert problem["detail"].endswith(".")
    assert "input" not in problem
    name = problem.get("limit_name")
    assert ("limit" in problem) == (name is not None)
    assert name is None or name in NAMES, name
    assert problem.get("setting") == (name if name in Settings.model_fields else None)
    waits = answer.status in {429, 503}
    assert ("Retry-After" in answer.headers, "throttle_time_ms" in problem) == (waits, waits)
    if waits:
        assert problem["throttle_time_ms"] == 1_000 * int(answer.headers["Retry-After"]) >= 1_000
    return problem


def check_documented(operation: Operation, problem: dict[str, Any]) -> None:
    """Assert that the OpenAPI document says that the operation can answer this problem."""
    assert problem["type"].removeprefix("/errors/") in problems_of(operation)
