"""How long to wait before a repeat, and which failures are told. Nothing here waits."""


def backoff_ms(failures: int, first_ms: int, most_ms: int, jitter: float) -> int:
    """Milliseconds to wait after `failures` failures in a row (at least 1).

    Doubles from `first_ms` to `most_ms`; `jitter` in [0, 1) takes away up to half, so that members which failed
    together do not come back together. Never 0.
    """
    doublings = min(failures - 1, 30)
    full_ms = min(first_ms * (1 << doublings), most_ms)
    return max(1, round(full_ms * (1 - jitter / 2)))


def is_told(failures: int) -> bool:
    """Whether the log says that it has failed for this time in a row: at the first, the second, the fourth, the eighth
    and so on, because someone may read it much later.
    """
    return failures & (failures - 1) == 0
