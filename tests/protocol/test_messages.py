"""What the models take, refuse and keep."""

import pytest
from pydantic import JsonValue, ValidationError

from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ERRORS, ErrorCode
from rallypoint.protocol.opaque import EMPTY, OpaqueJson
from rallypoint.protocol.operations import JOIN, OPERATIONS, path_of

JOIN_BODY = {
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": {"topics": ["a"]}}],
    "session_timeout_ms": 45_000,
    "rebalance_timeout_ms": 300_000,
}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ('{"generation_id":1,"offsets":{"t":{"01":{"offset":3}}}}', ("offsets", "t", "01", "[key]")),
        ('{"generation_id":1,"offsets":{"t":{"-1":{"offset":3}}}}', ("offsets", "t", "-1", "[key]")),
        ('{"generation_id":1,"offsets":{"t":{"2147483648":{"offset":3}}}}', ("offsets", "t", "2147483648", "[key]")),
        ('{"generation_id":1,"offsets":{"t":{"0":{"offset":"3"}}}}', ("offsets", "t", "0", "offset")),
        ('{"generation_id":true,"offsets":{}}', ("generation_id",)),
        ('{"generation_id":1.0,"offsets":{}}', ("generation_id",)),
        ('{"generation_id":1,"offsets":{},"offset":1}', ("offset",)),
        ('{"offsets":{}}', ("generation_id",)),
        ('{"generation_id":1,"offsets":{"t":{"0":{"offset":9223372036854775808}}}}', ("offsets", "t", "0", "offset")),
    ],
)
def test_a_request_is_strict_and_says_where_it_is_wrong(body: str, where: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError) as caught:
        m.CommitRequest.model_validate_json(body)
    assert caught.value.errors()[0]["loc"] == where


def test_an_answer_ignores_what_it_does_not_know() -> None:
    answer = m.JoinAnswer.model_validate_json(
        '{"generation_id":1,"protocol_type":"c","protocol_name":"r","leader":"l","member_id":"m","since":"tomorrow"}'
    )
    assert answer.members == ()


def test_metadata_goes_through_unchanged() -> None:
    value = {"topics": ["a", "é", "😀"], "user_data": {"b": [1, 1.0, None, True]}}
    body = {**JOIN_BODY, "protocols": [{"name": "range", "metadata": value}]}
    request = m.JoinRequest.model_validate(body | {"protocols": ({"name": "range", "metadata": value},)})
    assert request.protocols[0].metadata.value == value
    assert m.JoinRequest.model_validate_json(request.model_dump_json()) == request


def test_opaque_values_are_compared_as_json() -> None:
    assert OpaqueJson.of({"a": 1, "b": 2}) == OpaqueJson.of({"b": 2, "a": 1})
    values: list[JsonValue] = [1, 1.0, True, "1", None, [1]]
    different = [OpaqueJson.of(value) for value in values]
    assert len(set(different)) == len(different)
    assert EMPTY.value is None


@pytest.mark.parametrize("body", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_no_json_number_is_refused(body: str) -> None:
    text = '{"name":"range","metadata":{"x":' + body + "}}"
    with pytest.raises(ValidationError):
        m.JoinProtocol.model_validate_json(text)


def test_every_code_has_one_row_and_every_row_its_own_page() -> None:
    assert ERRORS.keys() == set(ErrorCode)
    slugs = [row.slug for row in ERRORS.values()]
    assert len(set(slugs)) == len(slugs)
    assert all(row.title and row.action.endswith(".") for row in ERRORS.values())


def test_paths_encode_each_id_once() -> None:
    assert path_of(JOIN, group_id="a/b %2F😀") == "/v1/groups/a%2Fb%20%252F%F0%9F%98%80/join"
    assert len({(operation.method, operation.path) for operation in OPERATIONS}) == len(OPERATIONS)
