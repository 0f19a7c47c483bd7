"""Durations in the words of the sentences that operators read. Pure."""

MS_A_SECOND, MS_A_MINUTE, MS_AN_HOUR, MS_A_DAY = 1_000, 60_000, 3_600_000, 86_400_000


def duration_text(duration_ms: int) -> str:
    """The duration in its two largest units: "850 ms", "4.2 s", "45 s", "2 h 10 min", "3 d 4 h"; "0 ms" below none."""
    if duration_ms < MS_A_SECOND:
        return f"{max(duration_ms, 0)} ms"
    if duration_ms < 10 * MS_A_SECOND:
        tenths = duration_ms // 100
        return f"{tenths // 10}.{tenths % 10} s" if tenths % 10 else f"{tenths // 10} s"
    if duration_ms < MS_A_MINUTE:
        return f"{duration_ms // MS_A_SECOND} s"
    if duration_ms < MS_AN_HOUR:
        return _two(duration_ms, MS_A_MINUTE, "min", MS_A_SECOND, "s")
    if duration_ms < MS_A_DAY:
        return _two(duration_ms, MS_AN_HOUR, "h", MS_A_MINUTE, "min")
    return _two(duration_ms, MS_A_DAY, "d", MS_AN_HOUR, "h")


def _two(duration_ms: int, large_ms: int, large: str, small_ms: int, small: str) -> str:
    more = duration_ms % large_ms // small_ms
    return f"{duration_ms // large_ms} {large}" + (f" {more} {small}" if more else "")
