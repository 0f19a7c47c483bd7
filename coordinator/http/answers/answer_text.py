"""Successful answers as JSON: the same bytes over HTTP and on a channel.

msgspec encodes an answer's fields as they are, in the order of its model. Opaque JSON is copied, not parsed.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from pydantic import BaseModel

from rallypoint.coordinator.core.effects import LARGE_ANSWERS
from rallypoint.protocol import messages as m
from rallypoint.protocol.opaque import OpaqueJson

_WITHOUT_NULLS = frozenset((m.PartitionResult, m.HeartbeatResult, m.WaitingAnswer, m.JoinAnswer))
"""Models without their null fields in an answer: what belongs to an error, a limit, another owner, or a channel."""


def _fields_of(value: Any) -> Any:
    """What msgspec encodes for a value that it does not know: a model, or opaque JSON."""
    kind = type(value)
    if kind is OpaqueJson:
        return msgspec.Raw(value.text)
    if kind is m.PartitionResult and value.limit is None and value.setting is None:
        return {"error_code": value.error_code, "error_name": value.error_name}  # as below, of nearly all, and faster
    if kind in _WITHOUT_NULLS:
        return {name: field for name, field in value.__dict__.items() if field is not None}
    return value.__dict__


def _fetched_fields_of(value: Any) -> Any:
    """The same for a fetch, which has fewer fields of an offset than a description."""
    if type(value) is m.CommittedOffset:
        return {"offset": value.offset, "leader_epoch": value.leader_epoch, "metadata": value.metadata}
    return _fields_of(value)


encode = msgspec.json.Encoder(enc_hook=_fields_of).encode
"""An answer, or a part of one. A fetch is encoded by `_encode_fetch`."""
_encode_fetch = msgspec.json.Encoder(enc_hook=_fetched_fields_of).encode


def _refuse_large(answer: BaseModel) -> bytes:
    raise AssertionError("a large answer is put into words in slices")


_TEXTS: dict[type, Callable[[Any], bytes]] = {
    m.HeartbeatAnswer: lambda _: b"{}",
    m.CommitAnswer: lambda answer: encode(answer.__dict__),  # as `_fields_of` would have it, and sooner
    m.FetchAnswer: lambda answer: _encode_fetch(answer.__dict__),
    **dict.fromkeys(LARGE_ANSWERS, _refuse_large),
}
"""What makes the text of each model; of all others it is `encode`."""


def text_of(answer: BaseModel) -> bytes:
    """The answer's body. `large_answers` has those that are too large for one go."""
    return _TEXTS.get(type(answer), encode)(answer)


def status_of(answer: BaseModel) -> int:
    """200, or 202 for `WaitingAnswer`."""
    return 202 if type(answer) is m.WaitingAnswer else 200
