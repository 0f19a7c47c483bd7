"""Values by chance that a message's version can say, and the same in the JSON that Kafka's own converters read.

Each field of the version has by chance its default, null where it may be, or anything of its type; what the version
lacks has its default. Strings have characters of one to four bytes, and lengths on both sides of where a length takes
a second byte.
"""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from random import Random
from typing import Any
from uuid import UUID

from tests.judges.schema import Array, Field, Message, Primitive, Struct

_BITS: Mapping[Primitive, int] = {
    Primitive.INT8: 8,
    Primitive.INT16: 16,
    Primitive.INT32: 32,
    Primitive.INT64: 64,
}
_CHARACTERS = 'aZ9.-_ "\\\n\0éß→𝄞'
_SIZES = (0, 1, 2, 3, 7, 126, 127, 128, 300)
_ELEMENTS_MAX = 3
_MANY_ELEMENTS = 130
"""More than a length of one byte can say in a flexible version."""


def random_value(message: Message, version: int, chance: Random) -> dict[str, Any]:
    """A value with every field, as `decode` gives it."""
    return _struct(message.struct, version, chance)


def _struct(schema: Struct, version: int, chance: Random) -> dict[str, Any]:
    return {field.name: _field(field, version, chance) for field in schema.fields}


def _field(field: Field, version: int, chance: Random) -> Any:
    if version not in field.versions:
        return field.default()
    # What may not be null in this version may have null as its default all the same.
    default = field.default()
    if chance.random() < 0.2 and (default is not None or version in field.nullable):
        return default
    if version in field.nullable and chance.random() < 0.2:
        return None
    return _content(field.type, version, chance)


def _content(schema: Primitive | Struct | Array, version: int, chance: Random) -> Any:
    match schema:
        case Struct():
            return _struct(schema, version, chance)
        case Array():
            many = isinstance(schema.element, Primitive) and chance.random() < 0.05
            count = _MANY_ELEMENTS if many else chance.randint(0, _ELEMENTS_MAX)
            return [_content(schema.element, version, chance) for _ in range(count)]
        case Primitive.STRING:
            return "".join(chance.choices(_CHARACTERS, k=chance.choice(_SIZES)))
        case Primitive.BYTES:
            return chance.randbytes(chance.choice(_SIZES))
        case Primitive.UUID:
            return UUID(bytes=chance.randbytes(16))
        case Primitive.BOOL:
            return chance.random() < 0.5
        case _:
            # Small numbers, large ones, and both ends.
            end = 1 << (_BITS[schema] - 1)
            return chance.choice((chance.randint(-3, 3), chance.randrange(-end, end), -end, end - 1))


def json_of(message: Message, version: int, value: Mapping[str, Any]) -> dict[str, Any]:
    """For the converter of this message: fields of the version alone, by Java's names."""
    return _json_struct(message.struct, version, value)


def _json_struct(schema: Struct, version: int, value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        field.kafka_name[0].lower() + field.kafka_name[1:]: _json(field.type, version, value[field.name])
        for field in schema.fields
        if version in field.versions
    }


def _json(schema: Primitive | Struct | Array, version: int, content: Any) -> Any:
    if content is None:
        return None
    match schema:
        case Struct():
            return _json_struct(schema, version, content)
        case Array():
            return [_json(schema.element, version, element) for element in content]
        case Primitive.BYTES:
            return b64encode(content).decode()
        case Primitive.UUID:
            return urlsafe_b64encode(content.bytes).decode().rstrip("=")
        case _:
            return content
