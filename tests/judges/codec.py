"""Kafka's binary form of a message, written and read by the message's schema.

Theory of operation: a value is a dictionary with Kafka's names in snake_case; a uuid is a `UUID`, an array a list, a
struct a dictionary. `encode` and `decode` walk schema and value side by side. A message's version decides which fields
there are, which may be null, and the form: flexible versions (KIP-482) have lengths of one byte where they are short,
and end each struct with its tagged fields. Other versions have neither.

Nothing here is specific to a message. tests/judges/test_java_messages.py holds the codec to Kafka's own classes.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from tests.judges.schema import Array, Field, Message, Primitive, Struct

_INTEGERS: Mapping[Primitive, struct.Struct] = {
    Primitive.INT8: struct.Struct(">b"),
    Primitive.INT16: struct.Struct(">h"),
    Primitive.INT32: struct.Struct(">i"),
    Primitive.INT64: struct.Struct(">q"),
}
_INT16, _INT32 = _INTEGERS[Primitive.INT16], _INTEGERS[Primitive.INT32]
_UUID_BYTES = 16
_UVARINT_BITS_MAX = 32
STRING_BYTES_MAX = (1 << 15) - 1
"""Of a string, in every version: Kafka's own classes refuse a longer one."""


class CodecError(ValueError):
    """A value that the message's version cannot say, or bytes that are not of this message and version."""


class Form(NamedTuple):
    """How a message is written in a version."""

    version: int
    flexible: bool


def encode(message: Message, version: int, value: Mapping[str, Any]) -> bytes:
    """The message's bytes, without header and size. What the value does not have gets its default.

    Errors: CodecError for a version that the message does not have, and for a value that this version cannot say: an
    unknown name, a wrong type, null where it may not be, or a field that is not in the version, is not ignorable and
    has another value than its default.
    """
    out = bytearray()
    _write_struct(out, message.struct, _form(message, version), value)
    return bytes(out)


def decode(message: Message, version: int, data: bytes) -> dict[str, Any]:
    """The value of all the bytes, with defaults for what the version lacks; unknown tagged fields are skipped.

    Errors: CodecError, whatever the bytes are.
    """
    value, rest = decode_first(message, version, data)
    if rest:
        raise CodecError(f"{len(rest)} bytes too many after {message.name} {version}")
    return value


def decode_first(message: Message, version: int, data: bytes) -> tuple[dict[str, Any], bytes]:
    """As `decode`, and what comes after the message: a header stands before its request."""
    reader = _Reader(data)
    value = _read_struct(reader, message.struct, _form(message, version))
    return value, reader.rest()


def _form(message: Message, version: int) -> Form:
    if version not in message.versions:
        raise CodecError(f"{message.name} has no version {version}")
    return Form(version, version in message.flexible)


def _form_of(field: Field, form: Form) -> Form:
    return Form(form.version, False) if field.never_flexible else form


def _write_struct(out: bytearray, schema: Struct, form: Form, value: object) -> None:
    if not isinstance(value, Mapping):
        raise CodecError(f"a struct cannot be {value!r}")
    if unknown := value.keys() - {field.name for field in schema.fields}:
        raise CodecError(f"no such fields: {sorted(unknown)}")
    tagged: dict[int, bytes] = {}
    for field in schema.fields:
        default = field.default()
        content = value.get(field.name, default)
        if form.version not in field.versions:
            if content != default and not field.ignorable:
                raise CodecError(f"{field.name} is not in version {form.version}")
        elif form.version in field.tagged:
            if content != default:
                assert field.tag is not None
                tagged[field.tag] = _written(field, form, content)
        else:
            out += _written(field, form, content)
    if form.flexible:
        _write_uvarint(out, len(tagged))
        for tag, content in sorted(tagged.items()):
            _write_uvarint(out, tag)
            _write_uvarint(out, len(content))
            out += content


def _written(field: Field, form: Form, content: object) -> bytes:
    out = bytearray()
    try:
        _write(out, field.type, _form_of(field, form), content, form.version in field.nullable)
    except CodecError as error:
        raise CodecError(f"{field.name}: {error}") from error
    return bytes(out)


def _write(out: bytearray, schema: Primitive | Struct | Array, form: Form, content: object, nullable: bool) -> None:
    match schema:
        case Struct():
            _write_struct(out, schema, form, content)
        case Array():
            if content is not None and (isinstance(content, str | bytes) or not isinstance(content, Sequence)):
                raise CodecError(f"an array cannot be {content!r}")
            _write_length(out, _INT32, form, None if content is None else len(content), nullable)
            for element in content or ():
                _write(out, schema.element, form, element, nullable=False)
        case Primitive.STRING:
            data = None if content is None else _utf8(content)
            _write_length(out, _INT16, form, None if data is None else len(data), nullable)
            out += data or b""
        case Primitive.BYTES:
            if not isinstance(content, bytes | None):
                raise CodecError(f"bytes cannot be {content!r}")
            _write_length(out, _INT32, form, None if content is None else len(content), nullable)
            out += content or b""
        case Primitive.UUID:
            if not isinstance(content, UUID):
                raise CodecError(f"a uuid cannot be {content!r}")
            out += content.bytes
        case Primitive.BOOL:
            if not isinstance(content, bool):
                raise CodecError(f"a bool cannot be {content!r}")
            out.append(content)
        case _:
            out += _integer(schema, content)


def _integer(schema: Primitive, content: object) -> bytes:
    if not isinstance(content, int) or isinstance(content, bool):
        raise CodecError(f"an {schema} cannot be {content!r}")
    try:
        return _INTEGERS[schema].pack(content)
    except struct.error as error:
        raise CodecError(f"an {schema} cannot be {content}") from error


def _utf8(content: object) -> bytes:
    if not isinstance(content, str):
        raise CodecError(f"a string cannot be {content!r}")
    try:
        data = content.encode()
    except UnicodeEncodeError as error:
        raise CodecError(f"a string cannot be {content!r}") from error
    if len(data) > STRING_BYTES_MAX:
        raise CodecError(f"a string of {len(data)} bytes")
    return data


def _write_length(out: bytearray, old: struct.Struct, form: Form, length: int | None, nullable: bool) -> None:
    """`None` is the length of null. Flexible versions write one more than the length, and 0 for null."""
    if length is None and not nullable:
        raise CodecError("may not be null")
    if form.flexible:
        _write_uvarint(out, 0 if length is None else length + 1)
    else:
        out += old.pack(-1 if length is None else length)


def _write_uvarint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


class _Reader:
    """Bytes from the first to the last; CodecError where there are too few."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._next = 0

    def rest(self) -> bytes:
        return self._data[self._next :]

    def left(self) -> int:
        return len(self._data) - self._next

    def take(self, count: int) -> bytes:
        if count > self.left():
            raise CodecError(f"{count} bytes wanted, {self.left()} left")
        self._next += count
        return self._data[self._next - count : self._next]

    def integer(self, form: struct.Struct) -> int:
        number: int = form.unpack(self.take(form.size))[0]
        return number

    def uvarint(self) -> int:
        number = 0
        for shift in range(0, _UVARINT_BITS_MAX, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise CodecError("a varint of more than five bytes")
        if number >> _UVARINT_BITS_MAX:
            raise CodecError("a varint of more than 32 bits")
        return number

    def length(self, old: struct.Struct, form: Form, nullable: bool) -> int | None:
        length = self.uvarint() - 1 if form.flexible else self.integer(old)
        if length >= 0:
            return length
        if not nullable:
            raise CodecError("may not be null")
        return None


def _read_struct(reader: _Reader, schema: Struct, form: Form) -> dict[str, Any]:
    value = schema.defaults()
    tagged: dict[int, Field] = {}
    for field in schema.fields:
        if form.version in field.versions:
            if form.version in field.tagged:
                assert field.tag is not None
                tagged[field.tag] = field
            else:
                value[field.name] = _read_field(reader, field, form)
    if form.flexible:
        for _ in range(reader.uvarint()):
            known = tagged.get(reader.uvarint())
            content = _Reader(reader.take(reader.uvarint()))
            if known is not None:
                value[known.name] = _read_field(content, known, form)
                if content.left():
                    raise CodecError(f"{known.name}: {content.left()} bytes too many")
    return value


def _read_field(reader: _Reader, field: Field, form: Form) -> Any:
    try:
        return _read(reader, field.type, _form_of(field, form), form.version in field.nullable)
    except CodecError as error:
        raise CodecError(f"{field.name}: {error}") from error


def _read(reader: _Reader, schema: Primitive | Struct | Array, form: Form, nullable: bool) -> Any:
    match schema:
        case Struct():
            return _read_struct(reader, schema, form)
        case Array():
            length = reader.length(_INT32, form, nullable)
            # An element takes a byte at least: no array of a billion is made for a message of ten bytes.
            if length is not None and length > reader.left():
                raise CodecError(f"{length} elements wanted, {reader.left()} bytes left")
            return None if length is None else [_read(reader, schema.element, form, False) for _ in range(length)]
        case Primitive.STRING:
            length = reader.length(_INT16, form, nullable)
            if length is not None and length > STRING_BYTES_MAX:
                raise CodecError(f"a string of {length} bytes")
            try:
                return None if length is None else reader.take(length).decode()
            except UnicodeDecodeError as error:
                raise CodecError(f"a string that is not UTF-8: {error}") from error
        case Primitive.BYTES:
            length = reader.length(_INT32, form, nullable)
            return None if length is None else reader.take(length)
        case Primitive.UUID:
            return UUID(bytes=reader.take(_UUID_BYTES))
        case Primitive.BOOL:
            return reader.take(1) != b"\0"
        case _:
            return reader.integer(_INTEGERS[schema])
