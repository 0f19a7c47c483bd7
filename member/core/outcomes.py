"""How one request ended, in the four ways that matter. The transport makes them, the rules read them."""

from dataclasses import dataclass

from pydantic import BaseModel

from rallypoint.protocol.messages import Problem, WaitingAnswer


@dataclass(frozen=True, slots=True)
class Answered:
    """Success, as the operation's answer model."""

    answer: BaseModel


@dataclass(frozen=True, slots=True)
class Waiting:
    """202: nothing has happened yet, send the same request again."""

    answer: WaitingAnswer


@dataclass(frozen=True, slots=True)
class Refused:
    """A problem document. `retry_after_ms`: what the service asked for, if it did."""

    problem: Problem
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No answer of the service: refused, reset, timed out, or not in its language. The request may have been done."""

    reason: str


Outcome = Answered | Waiting | Refused | Unreachable
