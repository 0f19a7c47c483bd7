"""A JSON value that the coordinator carries without looking inside: subscriptions and assignments.

It is held as canonical text (keys sorted, no spaces), so that "the same bytes" of Kafka's rules becomes equality of
text, a group of 10,000 members costs little memory, and what is stored is what was sent.
"""

import json
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, JsonValue, TypeAdapter, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from rallypoint.protocol.text import SHOWN_CHARACTERS_MAX, check_utf8

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
"""Made once: `json.dumps` would make its encoder again for each value."""
_decode = json.JSONDecoder().raw_decode
"""What `json.loads` does, without looking for spaces before and behind the value: a canonical text has none."""
_json_value: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


class OpaqueJson:
    """An immutable JSON value. Two are equal when they are the same JSON value, whatever the order of keys.

    1 and 1.0 differ, as do 1 and true. NaN and the infinities are not JSON and are refused.
    """

    __slots__ = ("text",)

    text: str

    def __init__(self, text: str) -> None:
        """Trusts `text` to be canonical; from anything else use `of`."""
        self.text = text

    @classmethod
    def of(cls, value: JsonValue) -> "OpaqueJson":
        """Canonical form of a parsed JSON value. Raises ValueError where it has no JSON form (NaN, an infinity), or one
        that is not to be written in UTF-8.
        """
        text = _canonical(value)
        check_utf8(text)
        return cls(text)

    @property
    def value(self) -> JsonValue:
        """The parsed value; parsed again at each call, so the caller may change what it gets."""
        parsed: JsonValue = _decode(self.text)[0]
        return parsed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueJson) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"OpaqueJson({self.text})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _validate, serialization=core_schema.plain_serializer_function_ser_schema(_serialize)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"description": "Any JSON value; opaque to the coordinator."}


def check_json(value: object) -> None:
    """ValueError, in one line, unless it is a JSON value as the models of `messages` have them: made of dicts with
    texts for keys, lists, texts, numbers, true, false and null, not nested too deep, and to be written in UTF-8.
    """
    try:
        OpaqueJson.of(_json_value.validate_python(value))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        if isinstance(fault["input"], list | dict):  # a limit of pydantic's, and perhaps too deep to be shown
            raise ValueError("it is nested too deep") from error
        shown = repr(fault["input"])[:SHOWN_CHARACTERS_MAX]
        if fault["loc"][-1:] == ("[key]",):
            raise ValueError(f"the key {shown} is no text") from error
        raise ValueError(f"{shown} is a {type(fault['input']).__name__}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _validate(value: Any) -> OpaqueJson:
    if isinstance(value, OpaqueJson):
        return value
    try:
        return OpaqueJson.of(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise PydanticCustomError("opaque_json", "not a JSON value: {reason}", {"reason": str(error)}) from error


def _serialize(value: OpaqueJson) -> JsonValue:
    return value.value


EMPTY: Final = OpaqueJson("null")
"""What a member gets that the leader gave nothing: Kafka's empty bytes."""
