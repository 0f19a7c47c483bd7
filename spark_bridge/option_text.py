"""Parses options as Spark passes them: text, by names in lower case. Errors are one sentence.

Names are case-insensitive, and errors use the documented spelling. Which options exist and what they mean is not known
here.
"""

import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

from rallypoint.spark_bridge.errors import OptionError

T = TypeVar("T")

INT32_MAX = 2**31 - 1

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 200
_SHOWN.maxlong = 40
_SHOWN.maxlevel = 3

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


DEFAULT_SOURCE = "kafka"
"""The default of the option `source`, as users of Spark's own Kafka source expect."""


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option as the documentation shows it.

    `name`: its documented spelling.
    `meaning`: what it does.
    `default`: its default as readable text.
    """

    name: str
    meaning: str
    default: str = ""


class OptionText:
    """The raw options of one query.

    `raw`: the options as text.
    `specs`: the known options, for the spelling in errors.

    Every method raises OptionError for an invalid value. An empty value is always invalid.
    """

    def __init__(self, raw: Mapping[str, str], specs: Iterable[OptionSpec] = ()) -> None:
        self.values = {name.lower(): value for name, value in raw.items()}
        self._spelling = {spec.name.lower(): spec.name for spec in specs}

    def refuse_unknown(self, prefix: str | None, refused: Mapping[str, str]) -> None:
        """Raise OptionError for the first name that is no option.

        `prefix`: all names with this prefix are options.
        `refused`: names that are refused, with the reason. Other names are reported with the most similar option.
        """
        reasons = {name.lower(): (name, reason) for name, reason in refused.items()}
        for name in self.values:
            if name in reasons:
                spelling, reason = reasons[name]
                raise OptionError(spelling, f"cannot be used: {reason}")
            if name in self._spelling or (prefix is not None and name.startswith(prefix) and name != prefix):
                continue
            near = get_close_matches(name, self._spelling, n=1)
            hint = f"; did you mean {self._spelling[near[0]]}?" if near else ""
            raise OptionError(name, f"is not known to the source {self.values.get('source', DEFAULT_SOURCE)!r}{hint}")

    def text(self, name: str) -> str | None:
        """The value; None if it is not given."""
        value = self.values.get(name.lower())
        if value is not None and not value.strip():
            raise OptionError(name, "is empty")
        return value

    def required(self, name: str) -> str:
        """The value of a required option."""
        value = self.text(name)
        if value is None:
            raise OptionError(name, "is required")
        return value

    def number(self, name: str, default: "int | T", *, most: int = INT32_MAX) -> "int | T":
        """A whole number from 1 to `most`."""
        text = self.text(name)
        if text is None:
            return default
        number = whole_number(text, most)
        if not number:
            raise OptionError(name, f"{shown(text)} is not a whole number from 1 to {most}")
        return number

    def boolean(self, name: str, *, default: bool) -> bool:
        """`true` or `false`, in any case."""
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    def choice(self, name: str, words: tuple[str, str], default: str) -> str:
        """One of two words, in any case."""
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in words:
            raise OptionError(name, f"{shown(text)} is neither {words[0]} nor {words[1]}")
        return text.lower()

    def duration_ms(self, name: str, default_ms: int) -> int:
        """A duration with a unit, such as `90s` or `15m`; without a unit in milliseconds."""
        text = self.text(name)
        if text is None:
            return default_ms
        found = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", text.strip().lower(), re.ASCII)
        unit = "" if found is None else found[2] or "ms"
        if found is None or unit not in _UNITS_MS:
            raise OptionError(name, f"{shown(text)} is not a time like 500ms, 90s, 15m, 2h or 1d")
        return int(found[1]) * _UNITS_MS[unit]

    def names(self, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """Comma-separated names, without duplicates and outer spaces. Without a default the option is required."""
        text = self.required(name) if default is None else self.text(name)
        if text is None:
            assert default is not None
            return default
        names = tuple(part.strip() for part in text.split(","))
        if not all(names):
            raise OptionError(name, f"{shown(text)} has an empty name between its commas")
        return tuple(dict.fromkeys(names))

    def pattern(self, name: str) -> re.Pattern[str] | None:
        """A regular expression."""
        text = self.text(name)
        try:
            return None if text is None else re.compile(text)
        except re.error as error:
            raise OptionError(name, f"{shown(text)} is no regular expression: {error}") from error


def whole_number(text: str, most: int) -> int | None:
    """A number from 0 to `most` in plain digits; None for any other text."""
    digits = text.lstrip("0") or text[:1]
    if not (text.isascii() and text.isdigit()) or len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if number <= most else None


def shown(value: object) -> str:
    """The repr of a user's value, shortened if it is long or deeply nested."""
    return _SHOWN.repr(value)
