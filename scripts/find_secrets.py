"""Find secrets that somebody has left in a file: keys and tokens in the forms that services give them.

    python scripts/find_secrets.py [FOLDER]

Exit status: 0 none; 1 some, with a line for each that does not show it; 2 the folder cannot be read.

The forms are those of the detectors of detect-secrets, and that of this project's own tokens. Each is searched for in a
whole file: the scanner of detect-secrets asks every detector about every line, which takes ten times as long. What has
no form of its own, such as a password, is for ruff (S105 to S107).
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import RegexBasedDetector

ROOT = Path(__file__).resolve().parents[1]

PASSED_OVER = frozenset({".git", ".venv", ".cache", ".hypothesis", "node_modules", "build", "dist", "site"})
"""Folders that nobody commits."""
PASSED_OVER_ENDS = ("_cache", ".egg-info", "-output")

LEFT_OUT = frozenset(
    {
        "Public IP (ipv4)",
        "IBM Cloud IAM Key",
        "IBM COS HMAC Credentials",
        "Cloudant Credentials",
        "SoftLayer Credentials",
    }
)
"""Detectors: an address is no secret, and the others take most of the time, for words beside a key that has no form."""
OWN_TOKEN = re.compile(r"\brp_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])")
"""As `rallypoint token new` draws them."""
IN_A_URL = "Basic Auth Credentials"
MADE_UP = re.compile(r".{0,7}|[A-Z_]+|[{<$].*")
"""Passwords in URLs of tests and examples, which open nothing: short ones, and names that stand for one."""


class Found(NamedTuple):
    """Where a secret stands, and what it is."""

    path: Path
    line: int
    kind: str


def forms() -> list[tuple[str, re.Pattern[str]]]:
    """What is searched for, with the name of what it is."""
    kinds: dict[str, Any] = get_mapping_from_secret_type_to_class()
    detectors = [
        detector()
        for kind, detector in kinds.items()
        if issubclass(detector, RegexBasedDetector) and kind not in LEFT_OUT
    ]
    known = [(str(detector.secret_type), form) for detector in detectors for form in detector.denylist]
    return [*known, ("Rallypoint token", OWN_TOKEN)]


def texts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Every text below the folder that could be committed. Raises OSError."""
    for where, folders, names in os.walk(folder, onerror=_give_up):
        folders[:] = sorted(name for name in folders if name not in PASSED_OVER and not name.endswith(PASSED_OVER_ENDS))
        for name in sorted(names):
            path = Path(where, name)
            if path.is_symlink() or not path.is_file():
                continue
            try:
                yield path, path.read_text()
            except UnicodeDecodeError:
                continue


def _give_up(error: OSError) -> None:
    raise error


def find_secrets(folder: Path) -> Iterator[Found]:
    """All that is below the folder."""
    searched = forms()
    for path, text in texts(folder):
        lines = {
            (text.count("\n", 0, match.start()) + 1, kind)
            for kind, form in searched
            for match in form.finditer(text)
            if not (kind == IN_A_URL and MADE_UP.fullmatch(match[1]))
        }
        for line, kind in sorted(lines):
            yield Found(path, line, kind)


def main() -> int:
    """The command."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    try:
        found = list(find_secrets(folder))
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    for one in found:
        print(f"{one.path.relative_to(folder)}:{one.line}: this looks like a secret: {one.kind}")
    if found:
        print("Take it out, also of the commits, and replace it where it is used: whoever has read it keeps it.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
