"""The answers that are put together by hand say what their models say."""

import json
from dataclasses import dataclass

import pytest
from pydantic import BaseModel, JsonValue

from rallypoint.coordinator.http.answers.answer_text import text_of
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import EMPTY, OpaqueJson

OF_A_CHANNEL = {"channel_keeps_session"}
"""What a channel adds."""
AWKWARD = 'a"b\\c\n\x00\x7f/ü€😀'
VALUES: tuple[JsonValue, ...] = (
    None,
    {},
    {AWKWARD: [AWKWARD, 1, -1.5, True, None]},
    [],
    "",
    10**30,
    {"b": 1, "a": {"d": []}},
)


@dataclass(frozen=True)
class Case:
    name: str
    answer: BaseModel


def cases() -> list[Case]:
    made = [
        Case(f"sync {number}", m.SyncAnswer(protocol_type=AWKWARD, protocol_name="p", assignment=OpaqueJson.of(value)))
        for number, value in enumerate(VALUES)
    ]
    listing = tuple(
        m.JoinedMember(member_id=f"{AWKWARD}{number}", group_instance_id=instance_id, metadata=OpaqueJson.of(value))
        for number, value in enumerate(VALUES)
        for instance_id in (None, AWKWARD)
    )
    for number, members in enumerate(((), listing[:1], listing)):
        for skip in (False, True):
            joined = m.JoinAnswer(
                generation_id=2**31 - 1, protocol_type="consumer", protocol_name=AWKWARD, leader=AWKWARD,
                member_id="", skip_assignment=skip, members=members, heartbeat_interval_ms=7,
            )  # fmt: skip
            made.append(Case(f"join {number} {skip}", joined))
    return made


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_it_is_what_the_model_says(case: Case) -> None:
    text = text_of(case.answer)
    assert json.loads(text) == json.loads(case.answer.model_dump_json(exclude=OF_A_CHANNEL))
    assert list(json.loads(text)) == [name for name in type(case.answer).model_fields if name not in OF_A_CHANNEL], (
        "no field is forgotten, and each has its place"
    )
    assert type(case.answer).model_validate_json(text) == case.answer


def test_nothing_is_null() -> None:
    answer = m.SyncAnswer(protocol_type="consumer", protocol_name="range", assignment=EMPTY)
    assert text_of(answer) == b'{"protocol_type":"consumer","protocol_name":"range","assignment":null}'


TAKEN = m.PartitionResult(error_code=ErrorCode.NONE, error_name="NONE")
REFUSED = m.PartitionResult(
    error_code=ErrorCode.OFFSET_METADATA_TOO_LARGE,
    error_name="OFFSET_METADATA_TOO_LARGE",
    limit=4096,
    setting="offset_metadata_max_bytes",
)


@pytest.mark.parametrize(
    "offsets",
    [
        {"t": {0: TAKEN}},
        {"t": {7: TAKEN}},
        {'grün/"😀"': {0: TAKEN}},
        {"t": {0: REFUSED}},
        {"t": {0: TAKEN, 1: REFUSED}},
        {"t": {0: TAKEN}, "u": {0: TAKEN}},
        {"t": {}},
        {},
    ],
)
def test_a_commit_is_told_as_if_its_text_were_made_anew(offsets: dict[str, dict[int, m.PartitionResult]]) -> None:
    answer = m.CommitAnswer(offsets=offsets)
    for _ in range(2):
        text = text_of(answer)
        assert m.CommitAnswer.model_validate_json(text) == answer
        assert b"null" not in text
        assert list(json.loads(text)) == ["offsets"]
