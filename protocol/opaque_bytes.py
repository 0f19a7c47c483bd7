"""Bytes in the place of a JSON value: an object whose only key is `base64`.

It is how a member that speaks another form than JSON, Kafka's own clients for one, carries its metadata and its
assignments through the API. What the bytes say is not looked at here.
"""

import binascii
from base64 import b64decode, b64encode
from typing import Annotated

from pydantic import AfterValidator, JsonValue
from pydantic_core import PydanticCustomError

from rallypoint.protocol.opaque import OpaqueJson

_BEGIN = '{"base64":'
"""Of the canonical text; an object with more keys may begin so, too."""


def stands_for_bytes(value: JsonValue) -> bool:
    """Whether it is in the form of bytes. Its text may be none that decodes."""
    return isinstance(value, dict) and value.keys() == {"base64"}


def as_bytes(data: bytes) -> JsonValue:
    """The value that stands for these bytes."""
    return {"base64": b64encode(data).decode()}


def bytes_of(value: JsonValue) -> bytes | None:
    """The bytes that the value stands for; None for any other value.

    Errors: ValueError where `base64` is no text in the alphabet of RFC 4648 with its padding.
    """
    if not isinstance(value, dict) or not stands_for_bytes(value):
        return None
    text = value["base64"]
    if not isinstance(text, str):
        raise ValueError("it is no text")
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(str(error)) from error


def is_in_bytes(value: OpaqueJson) -> bool:
    """As `stands_for_bytes`, of a value whose text is not parsed unless it may be in that form."""
    return value.text.startswith(_BEGIN) and stands_for_bytes(value.value)


def bytes_in(value: OpaqueJson) -> bytes | None:
    """As `bytes_of`, of a value whose text is not parsed unless it may stand for bytes."""
    return bytes_of(value.value) if value.text.startswith(_BEGIN) else None


def _check(value: OpaqueJson) -> OpaqueJson:
    try:
        bytes_in(value)
    except ValueError as error:
        raise PydanticCustomError("base64", "base64 does not decode: {reason}", {"reason": str(error)}) from error
    return value


Opaque = Annotated[OpaqueJson, AfterValidator(_check)]
"""As a request has it: any JSON value, and where it stands for bytes, they are there."""
