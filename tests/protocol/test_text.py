"""What a text must be to cross the wire."""

import os

import pytest
from pydantic import JsonValue

from rallypoint.protocol.opaque import OpaqueJson, check_json
from rallypoint.protocol.text import check_utf8, in_utf8

NAME = os.fsdecode(b"caf\xe9.csv")


@pytest.mark.parametrize("text", ["", "clicks", "café", "\U0001f600"])
def test_every_other_text_passes_as_it_is(text: str) -> None:
    check_utf8(text)
    assert in_utf8(text) == text
    check_json({text: [text]})


def test_a_lone_surrogate_is_named_with_what_stands_before_it() -> None:
    with pytest.raises(ValueError, match=r"^'caf\\udce9' has no form in UTF-8, for '\\udce9' is a lone surrogate"):
        check_utf8(NAME)
    with pytest.raises(ValueError, match=r"^'x{40}\\udce9' has no form"):
        check_utf8("x" * 1000 + NAME[3:])
    assert in_utf8(NAME) == "caf?.csv"


@pytest.mark.parametrize("value", [NAME, [NAME], {NAME: 1}, {"x": {"y": NAME}}])
def test_no_json_value_has_one(value: JsonValue) -> None:
    with pytest.raises(ValueError, match="has no form in UTF-8"):
        OpaqueJson.of(value)
    with pytest.raises(ValueError, match="has no form in UTF-8"):
        check_json(value)
