"""Times for people: how long ago, how long, and when. The present comes in as an argument."""

import re
from datetime import UTC, datetime

_STEPS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration(ms: float) -> str:
    """Two units at most: `2 h 10 min`, `1 min 5 s`, `3.2 s`, `80 ms`."""
    whole = round(ms)
    if whole < 1_000:
        return f"{whole} ms"
    if whole < 10_000:
        return f"{whole / 1_000:.1f} s".replace(".0 s", " s")
    for at, (size, unit) in enumerate(_STEPS):
        if whole >= size:
            count, rest = divmod(whole, size)
            smaller = _STEPS[at + 1] if at + 1 < len(_STEPS) else None
            below = rest // smaller[0] if smaller else 0
            return f"{count} {unit}" + (f" {below} {smaller[1]}" if smaller and below else "")
    raise AssertionError(ms)


def ago(at_ms: int, now_ms: int) -> str:
    """How long ago, in one unit: `5 min ago`. The clocks may differ, so what is to come within a minute is `now`."""
    past = now_ms - at_ms
    if past < -60_000:
        return f"in {_one_unit(-past)}"
    return "now" if past < 1_000 else f"{_one_unit(past)} ago"


def _one_unit(ms: int) -> str:
    size, unit = next(step for step in _STEPS if ms >= step[0])
    return f"{ms // size} {unit}"


def instant(at_ms: int) -> str:
    """By the calendar, in UTC, as ISO 8601 has it."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration_ms(text: str) -> int:
    """What `5m`, `90s`, `1h30m`, `250ms` and `2 h 10 min` mean. Raises ValueError."""
    parts = re.findall(r"(\d+)\s*(ms|min|[smhd])\s*", text)
    if not parts or not re.fullmatch(r"\s*(?:\d+\s*(?:ms|min|[smhd])\s*)+", text):
        raise ValueError(f"{text!r} is no duration; write it like 5m, 90s or 1h30m")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)


def instant_ms(text: str, now_ms: int) -> int:
    """A time of the calendar, or a duration before now: `2026-11-25T10:00:00Z`, `-2h`. Raises ValueError.

    A time without a zone is of this machine's.
    """
    if text.startswith("-"):
        return now_ms - duration_ms(text[1:])
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1_000)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{text!r} is no time; write it like 2026-11-25T10:00:00Z, or -2h for two hours ago"
        ) from error
