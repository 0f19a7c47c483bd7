"""Copies of the code in which a test changes something: a fault is planted, or a defence taken away."""

import shutil
from collections.abc import Iterable
from importlib.util import cache_from_source
from pathlib import Path

from tests.real.parts import ROOT


def copy_code(to: Path, folders: Iterable[str], *left_out: str) -> None:
    """Copy folders of the checkout, without the files of these patterns.

    The bytecode that is there comes along: without it each process that runs the copy compiles for two seconds.
    """
    for folder in folders:
        # What is being written of the bytecode just now has a name that goes on after `.pyc`.
        ignored = shutil.ignore_patterns("*.pyc.*", *left_out)
        shutil.copytree(ROOT / folder, to / folder, symlinks=True, ignore=ignored)


def change(file: Path, old: str, new: str) -> None:
    """Replace what stands in the file once, and take away the bytecode of before. Errors: ValueError if it does not."""
    text = file.read_text("utf-8")
    if text.count(old) != 1:
        raise ValueError(f"what is to be replaced does not stand in {file} once: {old!r}")
    write(file, text.replace(old, new))


def write(file: Path, text: str) -> None:
    """Let the file have this text, and no bytecode."""
    file.write_text(text, "utf-8")
    Path(cache_from_source(str(file))).unlink(missing_ok=True)
