"""How a record looks in the store: a readable key, and a JSON value with a version. No engine and no waiting here.

    f                                     the format of the store
    l                                     the layout: how many shards there are
    r                                     the registry's header
    n                                     that the store was restored, and which generations may be used up by that
    t/<topic>                             a topic of the registry
    e/<topic>                             where the topic ended at which times
    x/<topic>                             that a topic was deleted, as long as not all groups have heard of it
    p                                     when the shard was served, and when not
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

A value has the fields of its record that are not in its key, by their names and in their order: the records are the
format, and `tests/formats` holds them to it. What is opaque on the wire is stored as the text it is, inside a JSON
string: nothing looks inside it at a load, but that it is JSON.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from operator import attrgetter, or_
from typing import Annotated, Any, NoReturn, get_args, get_origin, get_type_hints
from urllib.parse import unquote_to_bytes

import msgspec

from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.storage.contract import StoredDataInvalid, Write
from rallypoint.protocol.opaque import OpaqueJson

VERSION = 1
"""Of the values, which is the major version of the format. It grows when a program that knows only the older form could
misread the newer one.
"""

MINOR_VERSION = 1
"""Of the format. It grows with each release that adds a field or a kind of record; DESIGN.md says what may be added."""

_ESCAPES = {ord(char): f"%{ord(char):02X}" for char in ("/", "%", "\x7f", *map(chr, range(0x20)))}
_ESCAPED = re.compile(r"[/%\x00-\x1f\x7f]")
_NUMBER = re.compile("0|[1-9][0-9]*")

RUNNING_TIME_KEY = b"p"
"""Of the one record of a shard's keyspace that is none of a group."""


def group_prefix(group_id: str) -> bytes:
    """Prefix of all keys of the group, and of no other group's."""
    return f"g/{_quote(group_id)}/".encode()


def header_key(group_id: str) -> bytes:
    """Key of the group's header, which sorts before those of its members."""
    return f"g/{_quote(group_id)}/h".encode()


def group_of(key: bytes) -> str | None:
    """The group whose key this is, whatever is wrong with the rest of it; None if the key names none."""
    parts = key.split(b"/", 2)
    if len(parts) < 3 or parts[0] != b"g":
        return None
    try:
        return _unquote(parts[1].decode())
    except ValueError:
        return None


def topic_of(key: bytes) -> str | None:
    """The topic whose record this is the key of, whatever its value; None for any other key."""
    parts = key.split(b"/")
    if len(parts) != 2 or parts[0] != b"t":
        return None
    try:
        return _unquote(parts[1].decode())
    except ValueError:
        return None


def registry_forgotten(
    key: bytes,
) -> r.TopicForgotten | r.EndsHistoryForgotten | r.DeletedTopicForgotten | None:
    """What it means that the key of the registry's keyspace is deleted; None for a key whose record stays for ever."""
    parts = key.split(b"/")
    if len(parts) != 2 or parts[0] not in {b"t", b"e", b"x"}:
        return None
    try:
        topic = _unquote(parts[1].decode())
    except ValueError:
        return None
    if parts[0] == b"e":
        return r.EndsHistoryForgotten(topic)
    return r.TopicForgotten(topic) if parts[0] == b"t" else r.DeletedTopicForgotten(topic)


def encode(record: r.Record) -> Write:
    """The one write that stores the record, or takes it away."""
    kind = _KINDS.get(type(record))
    if kind is None:
        return Write(_FORGOTTEN[type(record)].key_of(record), None)
    return Write(kind.key_of(record), kind.value_of(record))


class UnknownKind(StoredDataInvalid):
    """The key is that of no kind of record that this release knows."""


def decode(key: bytes, value: bytes, *, of_newer_minor: bool = False) -> r.Record:
    """The record of a stored key and value. Raises StoredDataInvalid, naming the key, for anything else.

    `of_newer_minor`: a newer release of the same major version has written to the store. Fields that nobody here knows
    are read past then, and a kind of record that nobody here knows raises UnknownKind, whatever its value. Elsewhere
    both are damage. Half a surrogate pair always is: no request can bring one here, and no answer could carry one.
    """
    parts = key.split(b"/")
    kind = _KINDS_BY_PLACE.get(_place(parts))
    if kind is None and of_newer_minor:
        raise UnknownKind(f"the stored record {key!r} is of a kind that this release does not know")
    try:
        if kind is None:
            _refuse("no record has such a key")
        # Within a text its marks would be escaped.
        if kind is _MEMBER and b'"gone":' in value:
            kind = _GONE
        record: r.Record = kind.read(parts, value, of_newer_minor)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise StoredDataInvalid(f"the stored record {key!r} cannot be read: {error}") from error
    return record


def _refuse(reason: str) -> NoReturn:
    raise ValueError(reason)


# --- keys ------------------------------------------------------------------------------------------------------------


def _quote(text: str) -> str:
    return text.translate(_ESCAPES) if _ESCAPED.search(text) else text


def _unquote(text: str) -> str:
    if "%" not in text:
        return text
    raw = unquote_to_bytes(text).decode()
    if _quote(raw) != text:
        _refuse(f"{text!r} is not how an id is written in a key")
    return raw


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        _refuse(f"{text!r} is no number")
    number = int(text)
    return number if number < 2**63 else _refuse(f"a number of {number.bit_length()} bits is too large")


# --- values ----------------------------------------------------------------------------------------------------------

_INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""No number that was ever written is larger; one that is would break whatever reckons with it."""
_ADDED: Mapping[str, Any] = {
    "replica_racks": (),
    "removed": False,
    "attempt": None,
    "first_request_id": None,
    "freeze_until": None,
    "freeze_roster": {},
    "join_wait_max_ms": None,
}
"""Fields that were added to version 1, and what stands for them where they are not written."""

_check_json = msgspec.json.Decoder(msgspec.Raw).decode


def _value_type(record_type: type, in_key: tuple[str, ...], *, is_strict: bool) -> Any:
    """What is stored of such a record. `is_strict`: no other field is read past."""
    fields: list[Any] = [("v", Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)])]
    if record_type is r.Cause:
        fields = []
    if record_type is r.MemberGone:
        fields.append(("gone", bool))
    for name, hint in get_type_hints(record_type).items():
        if name not in in_key:
            field = (name, _stored_type(hint, is_strict=is_strict))
            fields.append((*field, _ADDED[name]) if name in _ADDED else field)
    return msgspec.defstruct(
        record_type.__name__, fields, forbid_unknown_fields=is_strict, omit_defaults=True, gc=False
    )


def _stored_type(hint: Any, *, is_strict: bool) -> Any:
    if hint is int:
        return _INT64
    if hint is r.Cause:
        return _value_type(r.Cause, (), is_strict=is_strict)
    if hint == tuple[r.Pause, ...]:
        return Annotated[list[tuple[_INT64, _INT64]], msgspec.Meta(min_length=1)]
    if not get_args(hint):
        return hint
    origin, inner = get_origin(hint), tuple(_stored_type(each, is_strict=is_strict) for each in get_args(hint))
    if origin is Mapping:
        key = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] if inner[0] is _INT64 else inner[0]
        return dict[key, inner[1]]  # type: ignore[valid-type]
    return origin[inner] if origin is tuple else reduce(or_, inner)


def _cause(stored: Any) -> r.Cause:
    return r.Cause(*msgspec.structs.astuple(stored))


_MADE: Mapping[str, Callable[[Any], Any]] = {
    "cause": _cause,
    "further": lambda stored: tuple(map(_cause, stored)),
    "pauses": lambda stored: tuple(r.Pause(*pair) for pair in stored),
}
"""Fields that are made of what is stored of them."""


def _opaque(_: type, text: Any) -> OpaqueJson:
    """What goes out as it is stands in the middle of an answer: were it no JSON, the answer would be none either."""
    if not isinstance(text, str):
        _refuse(f"an opaque value is no text: {text!r}")
    _check_json(text)
    return OpaqueJson(text)


_to_json = msgspec.json.Encoder(enc_hook=dict).encode


# --- kinds -----------------------------------------------------------------------------------------------------------


def _place(parts: list[bytes]) -> tuple[int | bytes, ...]:
    """What tells the kinds apart by their keys: the length, the first letter and, behind a group, the second."""
    return len(parts), *parts[:3:2]


def _all_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


class _Kind:
    """A kind of record that is stored. `pattern`: of its keys, where fields stand in brackets; a number stands last."""

    def __init__(self, record_type: Any, pattern: str) -> None:
        parts, hints = pattern.split("/"), get_type_hints(record_type)
        in_key = tuple(part[1:-1] for part in parts if part[0] == "<")
        texts = tuple(name for name in in_key if hints[name] is str)
        self.place = _place(pattern.encode().split(b"/"))
        self._record_type = record_type
        self._texts_at = [parts.index(f"<{name}>") for name in texts]
        self._has_number = texts != in_key
        self._number_name = in_key[-1] if self._has_number else ""
        self._texts_of = _all_of(texts)
        self._template = "/".join("%s" if part[0] == "<" else part for part in parts[: len(parts) - self._has_number])
        self._start_of = lru_cache(maxsize=4096)(self._start) if record_type is r.OffsetRecord else self._start
        stored = tuple(name for name in hints if name not in in_key)
        self._stored_of = _all_of(tuple(f"{name}.text" if hints[name] is OpaqueJson else name for name in stored))
        self._made = [(at, _MADE[name]) for at, name in enumerate(stored) if name in _MADE]
        self._value_type = _value_type(record_type, in_key, is_strict=False)
        strict_type = _value_type(record_type, in_key, is_strict=True)
        self._parse = msgspec.json.Decoder(self._value_type, dec_hook=_opaque).decode
        self._parse_strictly = msgspec.json.Decoder(strict_type, dec_hook=_opaque).decode

    def _start(self, *texts: str) -> str:
        """A key, up to its number."""
        return self._template % tuple(map(_quote, texts))

    def key_of(self, record: Any) -> bytes:
        """Of the record, or of one that forgets it."""
        start = self._start_of(*self._texts_of(record))
        return (f"{start}/{getattr(record, self._number_name)}" if self._has_number else start).encode()

    def value_of(self, record: Any) -> bytes:
        """What stands under the key."""
        return _to_json(self._value_type(VERSION, *self._stored_of(record)))

    def read(self, parts: list[bytes], value: bytes, of_newer_minor: bool) -> Any:
        """The record of the parts of its key, and of its value."""
        ids: list[Any] = [_unquote(parts[at].decode()) for at in self._texts_at]
        if self._has_number:
            ids.append(_number(parts[-1].decode()))
        parse = self._parse if of_newer_minor else self._parse_strictly
        return self._record_type(*ids, *self._fields(*msgspec.structs.astuple(parse(value))[1:]))

    def _fields(self, *stored: Any) -> Any:
        if not self._made:
            return stored
        fields = list(stored)
        for at, made in self._made:
            fields[at] = made(fields[at])
        return fields


class _GoneKind(_Kind):
    """A mark, under the key of a member."""

    def value_of(self, record: Any) -> bytes:
        return _to_json(self._value_type(VERSION, True))

    def _fields(self, *stored: Any) -> Any:
        return () if stored == (True,) else _refuse("gone is not true")


_MEMBER = _Kind(r.MemberRecord, "g/<group_id>/m/<member_id>/<generation_id>")
_GONE = _GoneKind(r.MemberGone, "g/<group_id>/m/<member_id>/<generation_id>")
_KINDS: dict[type, _Kind] = {
    r.GroupRecord: _Kind(r.GroupRecord, "g/<group_id>/h"),
    r.MemberRecord: _MEMBER,
    r.MemberGone: _GONE,
    r.OffsetRecord: _Kind(r.OffsetRecord, "g/<group_id>/o/<topic>/<partition>"),
    r.RebalanceRecord: _Kind(r.RebalanceRecord, "g/<group_id>/r/<rebalance_id>"),
    r.HoldRecord: _Kind(r.HoldRecord, "g/<group_id>/s"),
    r.DeletionsRecord: _Kind(r.DeletionsRecord, "g/<group_id>/d"),
    r.TopicRecord: _Kind(r.TopicRecord, "t/<topic>"),
    r.EndsHistoryRecord: _Kind(r.EndsHistoryRecord, "e/<topic>"),
    r.DeletedTopicRecord: _Kind(r.DeletedTopicRecord, "x/<topic>"),
    r.RunningTimeRecord: _Kind(r.RunningTimeRecord, "p"),
    r.FormatRecord: _Kind(r.FormatRecord, "f"),
    r.LayoutRecord: _Kind(r.LayoutRecord, "l"),
    r.RegistryRecord: _Kind(r.RegistryRecord, "r"),
    r.GenerationFloorRecord: _Kind(r.GenerationFloorRecord, "n"),
}
_FORGOTTEN: dict[type, _Kind] = {
    r.GroupForgotten: _KINDS[r.GroupRecord],
    r.MemberForgotten: _MEMBER,
    r.OffsetForgotten: _KINDS[r.OffsetRecord],
    r.RebalanceForgotten: _KINDS[r.RebalanceRecord],
    r.HoldForgotten: _KINDS[r.HoldRecord],
    r.DeletionsForgotten: _KINDS[r.DeletionsRecord],
    r.TopicForgotten: _KINDS[r.TopicRecord],
    r.EndsHistoryForgotten: _KINDS[r.EndsHistoryRecord],
    r.DeletedTopicForgotten: _KINDS[r.DeletedTopicRecord],
}
_KINDS_BY_PLACE = {kind.place: kind for kind in _KINDS.values() if kind is not _GONE}
