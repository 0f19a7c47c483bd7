"""Successful answers as JSON: the same bytes over HTTP and on a session."""

from pydantic import BaseModel

from protocol import messages as m

NOT_FETCHED = {"offsets": {"__all__": {"__all__": {"commit_at_ms", "end_offset", "lag"}}}}
"""Fields of a committed offset that only a description shows."""

_HEARD = b"{}"


def text_of(answer: BaseModel) -> bytes:
    """The answer's body."""
    if isinstance(answer, m.HeartbeatAnswer):
        return _HEARD
    if isinstance(answer, m.FetchAnswer):
        return answer.model_dump_json(exclude=NOT_FETCHED).encode()
    if isinstance(answer, m.WaitingAnswer | m.CommitAnswer | m.DeleteOffsetsAnswer | m.HeartbeatsAnswer):
        # What belongs to an error, the limit of a partition or the owner of a group, stands only with one.
        return answer.model_dump_json(exclude_none=True).encode()
    return answer.model_dump_json().encode()


def status_of(answer: BaseModel) -> int:
    """200, or 202 for `WaitingAnswer`."""
    return 202 if isinstance(answer, m.WaitingAnswer) else 200
