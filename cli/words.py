"""How the words of a command line are read. A fault in them is a sentence, which names the command and the flag."""

import argparse
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

OFFSET_MIN, OFFSET_MAX = -(2**63), 2**63 - 1
MS_MAX = 999_999_999
_DIGITS_MAX = 19


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in a sentence, in place of the usage. Its subparsers are of this class too."""

    def error(self, message: str) -> NoReturn:
        """End with 2. `message`: argparse's own, or one of this module."""
        text = message.removeprefix("argument ").rstrip(".")
        end = "" if text.endswith("?") else "."
        self.exit(2, f"{self.prog}: {text}{end} `{self.prog} --help` says more.\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the words of this command. What is unknown is said by the command that got it, and not by `rallypoint`
        itself.
        """
        given, unknown = super().parse_known_args(args, namespace)
        if unknown:
            known = re.findall(r"--[a-z][a-z-]*", self.format_help())
            near = [one for word in unknown for one in get_close_matches(word.partition("=")[0], known, n=1)]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{f'; did you mean {near[0]}?' if near else ''}")
        return given, unknown


def fault_before_the_command(words: Sequence[str], commands: Sequence[str]) -> str | None:
    """What is wrong where the name of a command has to stand, as a sentence; None if it stands there."""
    first = words[0] if words else ""
    if first in {*commands, "-h", "--help", "--version"}:
        return None
    if first.startswith("-"):
        return f"{first} stands in front of the command; flags stand behind it: `rallypoint COMMAND {first} …`."
    near = get_close_matches(first, commands, n=1)
    said = f"there is no command {first!r}" if first else "no command is named"
    return f"{said}{f'; did you mean {near[0]}?' if near else '.'} `rallypoint --help` lists the commands."


def number_flag(least: int, most: int) -> Callable[[str], int]:
    """The `type` of an argument that is a whole number."""

    def number(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]+", text, re.ASCII):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
        value = int(text[: _DIGITS_MAX + 2])  # of a longer one a beginning that is beyond every bound, too
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} is below the least, {least}")
        if value > most:
            raise argparse.ArgumentTypeError(f"{text!r} is above the most, {most}")
        return value

    return number
