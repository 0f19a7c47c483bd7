"""`rallypoint assign --jsonl`: answers a stream of questions, one a line, in the same order.

If a line cannot be answered, its answer contains an error, and the stream continues. Each answer is flushed before the
next question is read, so that a program can wait for it.
"""

import json
from typing import Any, BinaryIO, TextIO

from pydantic import JsonValue

from rallypoint.cli.assign.algorithms import answer
from rallypoint.cli.assign.questions import QuestionError


def answer_lines(questions: BinaryIO, answers: TextIO) -> int:
    """Answer all lines until the end. Returns how many got an error."""
    unanswered = 0
    for number, line in enumerate(iter(questions.readline, b""), start=1):
        answered = answer_line(line, number)
        unanswered += "error" in answered
        answers.write(json.dumps(answered, separators=(",", ":")) + "\n")
        answers.flush()
    return unanswered


def answer_line(line: bytes, number: int) -> dict[str, JsonValue]:
    """`id` and `output`, or `id` and `error`. Without a valid id, the answer has the line number, from 1."""
    try:
        case = read_line(line)
        case_id = case.get("id")
        if not isinstance(case_id, str | int | None):
            raise QuestionError("id: it must be a text or a whole number")
    except QuestionError as error:
        return {"id": None, "line": number, "error": str(error)}
    try:
        return {"id": case_id, "output": answer_case(case)}
    except QuestionError as error:
        return {"id": case_id, "error": str(error)}


def read_line(line: bytes) -> dict[str, Any]:
    """The JSON object of a line. Raises QuestionError."""
    try:
        case = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except RecursionError as error:
        raise QuestionError("the line is not JSON that can be read: it is nested too deeply") from error
    except ValueError as error:
        raise QuestionError(f"the line is not JSON: {error}") from error
    if not isinstance(case, dict):
        raise QuestionError("the line is JSON, but not an object with id, algorithm and input")
    return case


def answer_case(case: dict[str, Any]) -> JsonValue:
    """The answer to one question. Raises QuestionError."""
    algorithm = case.get("algorithm")
    if not isinstance(algorithm, str):
        raise QuestionError("algorithm: a name is required")
    if not isinstance(case.get("input"), dict):
        raise QuestionError("input: an object is required")
    return answer(algorithm, case["input"])


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON number")
