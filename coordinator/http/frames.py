"""Exceptions without the frames that they came through.

An exception that is kept keeps these frames, and what they know: mostly the one who keeps it. Such a circle is freed by
a look at all objects alone (`collector`).
"""


def forget_frames(error: BaseException) -> None:
    """To be called where it was caught, and nobody will ask where it comes from; nor what it came of."""
    forgotten: list[BaseException] = [error]
    while forgotten:
        one = forgotten.pop()
        forgotten += [of for of in (one.__cause__, one.__context__) if of is not None]
        one.__traceback__ = one.__cause__ = one.__context__ = None
