"""Successful answers as JSON: the same bytes over HTTP and on a channel.

The answers of a rebalance are put together here, for what is opaque in them is JSON already: a model would parse the
text of each member to write the same text again, and the leader's list of 10,000 would hold up everyone else.
"""

from functools import lru_cache
from json.encoder import encode_basestring

from pydantic import BaseModel

from rallypoint.coordinator.core.effects import LARGE_ANSWERS
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode

NOT_FETCHED = {"offsets": {"__all__": {"__all__": {"commit_at_ms", "end_offset", "lag"}}}}
"""Fields of a committed offset that only a description shows."""

_HEARD = b"{}"


def text_of(answer: BaseModel) -> bytes:
    """The answer's body; of a large one, see `large_answers`."""
    assert not isinstance(answer, LARGE_ANSWERS), "a large answer is put into words in slices"
    if isinstance(answer, m.HeartbeatAnswer):
        return _HEARD
    if isinstance(answer, m.CommitAnswer):
        return _commit_text(answer)
    if isinstance(answer, m.SyncAnswer):
        return _sync_text(answer).encode()
    if isinstance(answer, m.JoinAnswer):
        return _join_text(answer).encode()
    if isinstance(answer, m.FetchAnswer):
        return answer.model_dump_json(exclude=NOT_FETCHED).encode()
    if isinstance(answer, m.WaitingAnswer | admin.DeleteOffsetsAnswer | m.HeartbeatsAnswer):
        # What belongs to an error, the limit of a partition or the owner of a group, stands only with one.
        return answer.model_dump_json(exclude_none=True).encode()
    return answer.model_dump_json().encode()


def _commit_text(answer: m.CommitAnswer) -> bytes:
    """Most commits are of one partition, and taken; such a text is kept."""
    if len(answer.offsets) == 1:
        ((topic, partitions),) = answer.offsets.items()
        if len(partitions) == 1:
            ((partition, result),) = partitions.items()
            if result.error_code == ErrorCode.NONE:
                return _taken_text(topic, partition)
    return answer.model_dump_json(exclude_none=True).encode()


@lru_cache(maxsize=4096)
def _taken_text(topic: str, partition: int) -> bytes:
    taken = m.PartitionResult(error_code=ErrorCode.NONE, error_name=ErrorCode.NONE.name)
    return m.CommitAnswer(offsets={topic: {partition: taken}}).model_dump_json(exclude_none=True).encode()


def status_of(answer: BaseModel) -> int:
    """200, or 202 for `WaitingAnswer`."""
    return 202 if isinstance(answer, m.WaitingAnswer) else 200


_quote = encode_basestring


def _sync_text(answer: m.SyncAnswer) -> str:
    return (
        f'{{"protocol_type":{_quote(answer.protocol_type)},"protocol_name":{_quote(answer.protocol_name)},'
        f'"assignment":{answer.assignment.text}}}'
    )


def _join_text(answer: m.JoinAnswer) -> str:
    members = ",".join(map(joined_member_text, answer.members))
    return (
        f'{{"generation_id":{answer.generation_id},"protocol_type":{_quote(answer.protocol_type)},'
        f'"protocol_name":{_quote(answer.protocol_name)},"leader":{_quote(answer.leader)},'
        f'"member_id":{_quote(answer.member_id)},"skip_assignment":{"true" if answer.skip_assignment else "false"},'
        f'"members":[{members}],"heartbeat_interval_ms":{answer.heartbeat_interval_ms}}}'
    )


def joined_member_text(member: m.JoinedMember) -> str:
    """A member as its leader is told of it."""
    instance_id = "null" if member.group_instance_id is None else _quote(member.group_instance_id)
    member_id, metadata = _quote(member.member_id), member.metadata.text
    return f'{{"member_id":{member_id},"group_instance_id":{instance_id},"metadata":{metadata}}}'
