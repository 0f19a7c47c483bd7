"""The member's side of a channel's messages, against the words of `protocol.channel_messages`."""

import pytest

from rallypoint.member.channel.codec import AnswerText, call_text, read_message
from rallypoint.protocol import channel_messages as s
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.opaque import OpaqueJson

JOIN = m.JoinRequest(
    member_id="m-1",
    protocol_type="consumer",
    protocols=(m.JoinProtocol(name="range", metadata=OpaqueJson.of({"topics": ["k→"]})),),
    session_timeout_ms=1_000,
    rebalance_timeout_ms=1_000,
)


@pytest.mark.parametrize("group_id", ["g", 'a"b', "naïve \n group"])
def test_a_call_is_read_by_the_service_as_it_was_meant(group_id: str) -> None:
    call = s.CHANNEL_CALLS.validate_json(call_text(7, ops.JOIN, group_id, JOIN))
    assert isinstance(call, s.JoinCall)
    assert (call.id, call.group_id, call.body) == (7, group_id, JOIN)


def test_a_lookup_names_its_groups_in_the_body_alone() -> None:
    call = s.CHANNEL_CALLS.validate_json(call_text(1, ops.COORDINATOR, "g", m.CoordinatorRequest(group_ids=("g",))))
    assert isinstance(call, s.CoordinatorCall)
    assert call.body.group_ids == ("g",)


@pytest.mark.parametrize("operation", s.OPERATIONS_BY_OP.values(), ids=lambda operation: operation.name)
def test_every_operation_of_a_channel_can_be_called(operation: ops.Operation) -> None:
    assert operation.request is not None
    text = call_text(1, operation, "g", operation.request.model_construct())
    assert f'"op":"{operation.name}"' in text


def test_a_call_without_a_body_is_one() -> None:
    assert s.CHANNEL_CALLS.validate_json(call_text(1, ops.FETCH, "g", None)).id == 1


def test_answers_are_read_whatever_the_order_of_their_fields() -> None:
    body = b'{"a":[1,{"b":"x"}]}'
    assert read_message(b'{"id":3,"status":200,"body":' + body + b"}") == AnswerText(3, 200, body)
    assert read_message(b'{"body":' + body + b', "new": {}, "status": 409, "id": 3}') == AnswerText(3, 409, body)


def test_pushes_are_read_with_whatever_else_they_say() -> None:
    push = s.RebalancePush(group_id="g", generation_id=4, reason="why")
    assert read_message(push.model_dump_json().encode()) == push
    assert read_message(b'{"event":"unloaded","group_id":"g","more":1}') == s.UnloadedPush(group_id="g")
    assert read_message(b'{"event":"drain"}') == s.DrainPush()
    assert read_message(b'{"event":"topics","topics":["a"],"more":1}') == s.TopicsPush(topics=("a",))


@pytest.mark.parametrize(
    "text",
    [b"{}", b'{"event":"party"}', b'{"event":"rebalance"}', b'{"id":null,"status":400,"body":{}}',
     b'{"id":"mine","status":200,"body":{}}', b'{"id":1,"status":200}', b'{"id":1,"body":{}}'],
)  # fmt: skip
def test_what_is_not_known_is_left_alone(text: bytes) -> None:
    assert read_message(text) is None


@pytest.mark.parametrize("text", [b"", b"hello", b"[]", b"7", b'{"id":1', b"\xff\xfe"])
def test_what_is_no_message_at_all_is_told(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_message(text)
