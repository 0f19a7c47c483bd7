"""What Kafka's messages consist of: field by field, in which versions, and in which form.

The facts are those of the definitions in the jar of Kafka's clients. tests/judges/definitions.py takes them from there
into messages.json, and this module reads that file. It knows no bytes: tests/judges/codec.py does.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

MESSAGES = Path(__file__).with_name("messages.json")

_EVERY_VERSION = 1 << 15
"""A version is an int16: the end of a range that has none."""
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z]|$)|[A-Z]?[a-z0-9]+|[A-Z]+")
NO_UUID = UUID(int=0)
"""What Kafka says where it has none to say."""


class Primitive(StrEnum):
    """The types of Kafka that its group messages use, by Kafka's names."""

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    STRING = "string"
    BYTES = "bytes"
    UUID = "uuid"


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in the order in which they are written."""

    fields: tuple["Field", ...]

    def defaults(self) -> dict[str, Any]:
        """The value of a struct about which nothing was said."""
        return {field.name: field.default() for field in self.fields}


@dataclass(frozen=True, slots=True)
class Array:
    """Any number of what an element is."""

    element: Primitive | Struct


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct, with its versions as ranges: an empty one says that there is no such version."""

    kafka_name: str
    type: Primitive | Struct | Array
    versions: range
    nullable: range
    tagged: range
    tag: int | None
    default_text: str | None
    """As the definition has it; a type's own empty value where it has none."""
    ignorable: bool
    """A version that lacks the field leaves its value out. Another field must have its default there."""
    never_flexible: bool
    """Written in the old form in every version; Kafka has one such field, the client's name in the header."""

    @property
    def name(self) -> str:
        """Of the field in values: Kafka's, in snake_case."""
        return snake_case(self.kafka_name)

    def default(self) -> Any:
        """A new value each time: lists and structs may be changed."""
        text = self.default_text
        if text == "null":
            return None
        match self.type:
            case Array():
                return []
            case Struct() as struct:
                return struct.defaults()
            case Primitive.BOOL:
                return text == "true"
            case Primitive.STRING:
                return text or ""
            case Primitive.BYTES:
                return b""
            case Primitive.UUID:
                return NO_UUID
            case _:
                return int(text or "0")


@dataclass(frozen=True, slots=True)
class Message:
    """A request, a response, a header, or what Kafka's consumers tell each other inside of these."""

    name: str
    type: str
    """`request`, `response`, `header` or `data`."""
    api_key: int | None
    versions: range
    flexible: range
    """Versions with short lengths and tagged fields (KIP-482)."""
    struct: Struct


def load_messages(path: Path = MESSAGES) -> Mapping[str, Message]:
    """Every message of the file, by Kafka's name."""
    return {name: read_message(name, facts) for name, facts in json.loads(path.read_text("utf-8")).items()}


def read_message(name: str, facts: Mapping[str, Any]) -> Message:
    """One message from its facts. ValueError for a type that the codec does not know."""
    return Message(
        name,
        facts["type"],
        facts.get("apiKey"),
        read_versions(facts["validVersions"]),
        read_versions(facts["flexibleVersions"]),
        Struct(tuple(_read_fields(facts["fields"]))),
    )


def read_versions(text: str) -> range:
    """From Kafka's notation: `none`, `3`, `2-7`, `3+`."""
    if text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), _EVERY_VERSION)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def snake_case(name: str) -> str:
    """`GroupInstanceId` as `group_instance_id`."""
    return "_".join(word.lower() for word in _WORD.findall(name))


def _read_fields(facts: list[dict[str, Any]]) -> Iterator[Field]:
    for fact in facts:
        yield Field(
            fact["name"],
            _read_type(fact),
            read_versions(fact["versions"]),
            read_versions(fact.get("nullableVersions", "none")),
            read_versions(fact.get("taggedVersions", "none")),
            fact.get("tag"),
            fact.get("default"),
            fact.get("ignorable", False),
            fact.get("flexibleVersions") == "none",
        )


def _read_type(fact: Mapping[str, Any]) -> Primitive | Struct | Array:
    name: str = fact["type"]
    element = Struct(tuple(_read_fields(fact["fields"]))) if "fields" in fact else Primitive(name.removeprefix("[]"))
    return Array(element) if name.startswith("[]") else element
