"""How a record looks in the store: a readable key, and a JSON value with a version. No engine and no waiting here.

    l                                     the layout: how many shards there are
    r                                     the registry's header
    t/<topic>                             a topic of the registry
    x/<topic>                             that a topic was deleted, as long as not all groups have heard of it
    g/<group>/h                           a group's header
    g/<group>/m/<member>/<generation>     a member with its assignment, as written in that generation; or that it is
                                          gone in that generation
    g/<group>/o/<topic>/<partition>       a committed offset
    g/<group>/r/<rebalance>               a rebalance, one of the last
    g/<group>/s                           what an operator has set: a freeze, a cool-down
    g/<group>/d                           of which deletions of topics the group has heard

Ids stand in the key alone and everything else in the value alone, so that the two cannot disagree. All keys of a
group share a prefix, and its header sorts before its members, which a load relies on. In an id only "/", "%" and
control characters are percent-encoded: every id within the wire's limits then fits in 4 KiB, whatever its characters.

What is opaque on the wire is stored as the text it is, inside a JSON string: nothing looks inside it at a load.
"""

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn
from urllib.parse import unquote_to_bytes

from coordinator.core import records as r
from coordinator.storage.contract import StoredDataInvalid, Write
from protocol.opaque import OpaqueJson

VERSION = 1
"""Of the values. It grows when a program that knows only the older form could misread the newer one."""

_ESCAPES = {ord(char): f"%{ord(char):02X}" for char in ("/", "%", "\x7f", *map(chr, range(0x20)))}
_ESCAPED = re.compile(r"[/%\x00-\x1f\x7f]")
_NUMBER = re.compile("0|[1-9][0-9]*")

_text_to_json: Callable[[str], str] = json.encoder.encode_basestring
"""As `_to_json` does it."""
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def group_prefix(group_id: str) -> bytes:
    """Prefix of all keys of the group, and of no other group's."""
    return _to_bytes(f"g/{_quote(group_id)}/")


def encode(record: r.Record) -> Write:
    """The one write that stores the record, or takes it away."""
    if isinstance(record, r.OffsetRecord):
        return _offset_write(record)
    if isinstance(record, r.MemberRecord):
        return _member_write(record)
    path, fields = _ENCODERS[type(record)](record)
    return Write(_to_bytes(path), None if fields is None else _to_bytes(_to_json({"v": VERSION, **fields})))


def decode(key: bytes, value: bytes) -> r.Record:
    """The record of a stored key and value. Raises StoredDataInvalid, naming the key, for anything else."""
    try:
        parsed = json.loads(_to_text(value))
        if not isinstance(parsed, dict):
            _refuse("the value is no JSON object")
        version = parsed.pop("v", None)
        if type(version) is not int or version != VERSION:
            _refuse(f"the value is of version {version!r}; this program reads version {VERSION}")
        fields = _Fields(parsed)
        record = _decode(_to_text(key).split("/"), fields)
        fields.refuse_the_rest()
    except (ValueError, RecursionError) as error:
        raise StoredDataInvalid(f"the stored record {key!r} cannot be read: {error}") from error
    return record


def _refuse(reason: str) -> NoReturn:
    raise ValueError(reason)


# --- keys ------------------------------------------------------------------------------------------------------------


def _to_bytes(text: str) -> bytes:
    # A lone surrogate has no UTF-8 form, but JSON can carry one; it must not be what stops a commit.
    return text.encode("utf-8", "surrogatepass")


def _to_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _quote(text: str) -> str:
    return text.translate(_ESCAPES) if _ESCAPED.search(text) else text


def _unquote(text: str) -> str:
    if "%" not in text:
        return text
    raw = _to_text(unquote_to_bytes(_to_bytes(text)))
    if _quote(raw) != text:
        _refuse(f"{text!r} is not how an id is written in a key")
    return raw


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        _refuse(f"{text!r} is no number")
    return int(text)


# --- records to fields -----------------------------------------------------------------------------------------------

_Encoded = tuple[str, dict[str, Any] | None]


def _encode_group(record: r.GroupRecord) -> _Encoded:
    return f"g/{_quote(record.group_id)}/h", {
        "protocol_type": record.protocol_type,
        "protocol_name": record.protocol_name,
        "generation_id": record.generation_id,
        "highest_generation_id": record.highest_generation_id,
        "leader": record.leader,
        "state_at_ms": record.state_at_ms,
        "partition_counts": dict(record.partition_counts),
    }


def _member_write(record: r.MemberRecord) -> Write:
    """Put together by hand, for an assignment is as many of them as there are members."""
    grace_ms = "null" if record.disconnect_grace_ms is None else record.disconnect_grace_ms
    value = (
        f'{{"v":{VERSION},"seniority":{record.seniority},"group_instance_id":{_maybe_text(record.group_instance_id)},'
        f'"client_id":{_text_to_json(record.client_id)},"host":{_text_to_json(record.host)},'
        f'"session_timeout_ms":{record.session_timeout_ms},"rebalance_timeout_ms":{record.rebalance_timeout_ms},'
        f'"disconnect_grace_ms":{grace_ms},"metadata":{_text_to_json(record.metadata.text)},'
        f'"assignment":{_text_to_json(record.assignment.text)},"request_id":{_maybe_text(record.request_id)}}}'
    )
    return Write(_to_bytes(_member_path(record)), _to_bytes(value))


def _maybe_text(text: str | None) -> str:
    return "null" if text is None else _text_to_json(text)


def _member_path(record: r.MemberRecord | r.MemberGone | r.MemberForgotten) -> str:
    return f"g/{_quote(record.group_id)}/m/{_quote(record.member_id)}/{record.generation_id}"


def _offset_write(record: r.OffsetRecord) -> Write:
    """Put together by hand, for each commit is one: the encoder takes ten times as long."""
    epoch = "null" if record.leader_epoch is None else record.leader_epoch
    value = (
        f'{{"v":{VERSION},"offset":{record.offset},"leader_epoch":{epoch},'
        f'"metadata":{_text_to_json(record.metadata)},"commit_at_ms":{record.commit_at_ms}}}'
    )
    return Write(_to_bytes(_offset_path(record)), _to_bytes(value))


def _offset_path(record: r.OffsetRecord | r.OffsetForgotten) -> str:
    return f"{_offsets_path(record.group_id, record.topic)}{record.partition}"


@lru_cache(maxsize=4096)
def _offsets_path(group_id: str, topic: str) -> str:
    return f"g/{_quote(group_id)}/o/{_quote(topic)}/"


def _encode_rebalance(record: r.RebalanceRecord) -> _Encoded:
    return _rebalance_path(record), {
        "previous_generation_id": record.previous_generation_id,
        "began_at_ms": record.began_at_ms,
        "cause": _encode_cause(record.cause),
        "generation_id": record.generation_id,
        "join_phase_ms": record.join_phase_ms,
        "sync_phase_ms": record.sync_phase_ms,
        "member_count": record.member_count,
        "partitions_moved": record.partitions_moved,
        "outcome": record.outcome.value,
        "further": [_encode_cause(cause) for cause in record.further],
        "further_count": record.further_count,
    }


def _rebalance_path(record: r.RebalanceRecord | r.RebalanceForgotten) -> str:
    return f"g/{_quote(record.group_id)}/r/{record.rebalance_id}"


def _encode_cause(cause: r.Cause) -> dict[str, Any]:
    return {
        "trigger": cause.trigger,
        "reason": cause.reason,
        "member_id": cause.member_id,
        "client_id": cause.client_id,
        "host": cause.host,
        "at_ms": cause.at_ms,
    }


def _encode_hold(record: r.HoldRecord) -> _Encoded:
    return f"g/{_quote(record.group_id)}/s", {
        "frozen_until_ms": record.frozen_until_ms,
        "freeze_reason": record.freeze_reason,
        "cooldown_ms": record.cooldown_ms,
    }


def _encode_topic(record: r.TopicRecord) -> _Encoded:
    fields: dict[str, Any] = {
        "partitions": record.partitions,
        "version": record.version,
        "end_offsets": dict(record.end_offsets),
    }
    if record.replica_racks:
        # Added to version 1: a program of before refuses the field, so it cannot misread it.
        fields["replica_racks"] = record.replica_racks
    return f"t/{_quote(record.topic)}", fields


_ENCODERS: dict[type, Callable[[Any], _Encoded]] = {
    r.GroupRecord: _encode_group,
    r.MemberGone: lambda record: (_member_path(record), {"gone": True}),
    r.RebalanceRecord: _encode_rebalance,
    r.HoldRecord: _encode_hold,
    r.TopicRecord: _encode_topic,
    r.DeletionsRecord: lambda record: (f"g/{_quote(record.group_id)}/d", {"version": record.version}),
    r.DeletedTopicRecord: lambda record: (f"x/{_quote(record.topic)}", {"version": record.version}),
    r.LayoutRecord: lambda record: ("l", {"shards": record.shards}),
    r.RegistryRecord: lambda record: ("r", {"version": record.version}),
    r.GroupForgotten: lambda record: (f"g/{_quote(record.group_id)}/h", None),
    r.MemberForgotten: lambda record: (_member_path(record), None),
    r.OffsetForgotten: lambda record: (_offset_path(record), None),
    r.RebalanceForgotten: lambda record: (_rebalance_path(record), None),
    r.HoldForgotten: lambda record: (f"g/{_quote(record.group_id)}/s", None),
    r.DeletionsForgotten: lambda record: (f"g/{_quote(record.group_id)}/d", None),
    r.DeletedTopicForgotten: lambda record: (f"x/{_quote(record.topic)}", None),
    r.TopicForgotten: lambda record: (f"t/{_quote(record.topic)}", None),
}


# --- fields to records -----------------------------------------------------------------------------------------------


class _Fields:
    """The fields of a value, each of which must be there, of its type, and taken exactly once."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def number(self, name: str) -> int:
        value = self.number_or_none(name)
        return _refuse(f"{name} is null") if value is None else value

    def number_or_none(self, name: str) -> int | None:
        value = self._take(name)
        if value is not None and type(value) is not int:
            _refuse(f"{name} is no whole number: {value!r}")
        return value

    def text(self, name: str) -> str:
        value = self.text_or_none(name)
        return _refuse(f"{name} is null") if value is None else value

    def text_or_none(self, name: str) -> str | None:
        value = self._take(name)
        if value is not None and type(value) is not str:
            _refuse(f"{name} is no text: {value!r}")
        return value

    def numbers(self, name: str) -> dict[str, int]:
        value = self._take(name)
        if not isinstance(value, dict) or any(type(number) is not int for number in value.values()):
            _refuse(f"{name} is no object of whole numbers: {value!r}")
        return value

    def lists_of_texts(self, name: str) -> tuple[tuple[str, ...], ...]:
        value = self._take(name)
        if not isinstance(value, list) or any(
            not isinstance(entry, list) or any(type(text) is not str for text in entry) for entry in value
        ):
            _refuse(f"{name} is no list of lists of texts")
        return tuple(tuple(entry) for entry in value)

    def fields(self, name: str) -> "_Fields":
        return _Fields(self._object(name, self._take(name)))

    def each(self, name: str) -> "list[_Fields]":
        value = self._take(name)
        if not isinstance(value, list):
            _refuse(f"{name} is no list: {value!r}")
        return [_Fields(self._object(name, entry)) for entry in value]

    @staticmethod
    def _object(name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            _refuse(f"{name} is no object: {value!r}")
        return value

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def mark(self, name: str) -> None:
        value = self._take(name)
        if value is not True:
            _refuse(f"{name} is not true: {value!r}")

    def refuse_the_rest(self) -> None:
        if self._fields:
            _refuse(f"there are fields that nobody knows: {', '.join(sorted(self._fields))}")

    def _take(self, name: str) -> Any:
        if name not in self._fields:
            _refuse(f"{name} is missing")
        return self._fields.pop(name)


def _decode(path: list[str], fields: _Fields) -> r.Record:
    match path:
        case ["g", group_id, "o", topic, partition]:
            return r.OffsetRecord(
                group_id=_unquote(group_id),
                topic=_unquote(topic),
                partition=_number(partition),
                offset=fields.number("offset"),
                leader_epoch=fields.number_or_none("leader_epoch"),
                metadata=fields.text("metadata"),
                commit_at_ms=fields.number("commit_at_ms"),
            )
        case ["g", group_id, "m", member_id, generation_id] if "gone" in fields:
            fields.mark("gone")
            return r.MemberGone(
                group_id=_unquote(group_id), member_id=_unquote(member_id), generation_id=_number(generation_id)
            )
        case ["g", group_id, "m", member_id, generation_id]:
            return r.MemberRecord(
                group_id=_unquote(group_id),
                member_id=_unquote(member_id),
                generation_id=_number(generation_id),
                seniority=fields.number("seniority"),
                group_instance_id=fields.text_or_none("group_instance_id"),
                client_id=fields.text("client_id"),
                host=fields.text("host"),
                session_timeout_ms=fields.number("session_timeout_ms"),
                rebalance_timeout_ms=fields.number("rebalance_timeout_ms"),
                disconnect_grace_ms=fields.number_or_none("disconnect_grace_ms"),
                metadata=OpaqueJson(fields.text("metadata")),
                assignment=OpaqueJson(fields.text("assignment")),
                request_id=fields.text_or_none("request_id"),
            )
        case ["g", group_id, "r", rebalance_id]:
            return r.RebalanceRecord(
                group_id=_unquote(group_id),
                rebalance_id=_number(rebalance_id),
                previous_generation_id=fields.number("previous_generation_id"),
                began_at_ms=fields.number("began_at_ms"),
                cause=_decode_cause(fields.fields("cause")),
                generation_id=fields.number_or_none("generation_id"),
                join_phase_ms=fields.number_or_none("join_phase_ms"),
                sync_phase_ms=fields.number_or_none("sync_phase_ms"),
                member_count=fields.number_or_none("member_count"),
                partitions_moved=fields.number_or_none("partitions_moved"),
                outcome=r.Outcome(fields.text("outcome")),
                further=tuple(_decode_cause(cause) for cause in fields.each("further")),
                further_count=fields.number("further_count"),
            )
        case ["g", group_id, "s"]:
            return r.HoldRecord(
                group_id=_unquote(group_id),
                frozen_until_ms=fields.number_or_none("frozen_until_ms"),
                freeze_reason=fields.text_or_none("freeze_reason"),
                cooldown_ms=fields.number_or_none("cooldown_ms"),
            )
        case ["g", group_id, "h"]:
            return r.GroupRecord(
                group_id=_unquote(group_id),
                protocol_type=fields.text_or_none("protocol_type"),
                protocol_name=fields.text_or_none("protocol_name"),
                generation_id=fields.number("generation_id"),
                highest_generation_id=fields.number("highest_generation_id"),
                leader=fields.text_or_none("leader"),
                state_at_ms=fields.number("state_at_ms"),
                partition_counts=fields.numbers("partition_counts"),
            )
        case ["t", topic]:
            return r.TopicRecord(
                topic=_unquote(topic),
                partitions=fields.number("partitions"),
                version=fields.number("version"),
                end_offsets={_number(key): value for key, value in fields.numbers("end_offsets").items()},
                replica_racks=fields.lists_of_texts("replica_racks") if "replica_racks" in fields else (),
            )
        case ["g", group_id, "d"]:
            return r.DeletionsRecord(group_id=_unquote(group_id), version=fields.number("version"))
        case ["x", topic]:
            return r.DeletedTopicRecord(topic=_unquote(topic), version=fields.number("version"))
        case ["l"]:
            return r.LayoutRecord(shards=fields.number("shards"))
        case ["r"]:
            return r.RegistryRecord(version=fields.number("version"))
        case _:
            _refuse("no record has such a key")


def _decode_cause(fields: _Fields) -> r.Cause:
    cause = r.Cause(
        trigger=fields.text("trigger"),
        reason=fields.text("reason"),
        member_id=fields.text_or_none("member_id"),
        client_id=fields.text_or_none("client_id"),
        host=fields.text_or_none("host"),
        at_ms=fields.number("at_ms"),
    )
    fields.refuse_the_rest()
    return cause
