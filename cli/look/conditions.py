"""Conditions on a number, as `--lag '>1000'` has them. Pure."""

import argparse
import operator
import re
from dataclasses import dataclass

_SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "=": operator.eq}


@dataclass(frozen=True, slots=True)
class Condition:
    """`sign` is one of > >= < <= =."""

    sign: str
    number: int

    def holds(self, value: int) -> bool:
        """Whether the number fulfils it."""
        return bool(_SIGNS[self.sign](value, self.number))

    def __str__(self) -> str:
        return f"{self.sign} {self.number:,}"


def condition(text: str) -> Condition:
    """The value of a flag."""
    found = re.fullmatch(r"\s*([<>]=?|=)\s*(\d{1,18})\s*", text, re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no condition; write it like '>1000', in quotes")
    return Condition(found[1], int(found[2]))


def above(text: str) -> int:
    """The value of a flag that takes `>N` and `>=N` alone: the N of `>N`."""
    asked = condition(text)
    if asked.sign not in {">", ">="}:
        raise argparse.ArgumentTypeError(f"{text!r} must begin with > or >=, such as '>1000'")
    number = asked.number if asked.sign == ">" else asked.number - 1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} holds for every group whose lag is known; name a higher number")
    return number
