"""Bearer tokens: named, kept as their hashes, with an end if they have one.

An entry is a text, in the settings or on a line of a file:

    etl sha256:HEX expires=2027-02-23T12:00:00Z

Several entries may have one name: so a token is replaced by adding the new one, handing it out, and taking the old one
away. An entry of a hash alone is of the principal `token:unnamed`.

A token has 256 random bits, so a slow hash would add nothing. It is looked up by a keyed digest of its hash, whose key
is drawn at each start: how long that takes tells nothing about the hashes that are known, and does not grow with their
number.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from rallypoint.coordinator.access.principals import TOKEN, Caller

TOKEN_HASH_PREFIX = "sha256:"  # noqa: S105 - no secret
UNNAMED = "unnamed"
"""The name of tokens that have none."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_EXPIRES = "expires="
_ENTRY = "`sha256:` and 64 hex digits"
MADE_BY = "`rallypoint token new NAME` makes one"


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """A token that is accepted. hash: `sha256:` and 64 hex digits. expires_at_ms: None: it has no end."""

    name: str
    hash: str
    expires_at_ms: int | None = None


def hash_token(token: str) -> str:
    """How a token stands in the settings: `sha256:` and 64 hex digits."""
    return TOKEN_HASH_PREFIX + hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def is_token_name(text: str) -> bool:
    """Whether a token may be called so."""
    return bool(_NAME.fullmatch(text))


def entry_text(entry: TokenEntry) -> str:
    """The entry as it stands on a line of a file."""
    text = entry.hash if entry.name == UNNAMED else f"{entry.name} {entry.hash}"
    if entry.expires_at_ms is None:
        return text
    instant = datetime.fromtimestamp(entry.expires_at_ms // 1000, UTC)
    return f"{text} {_EXPIRES}{instant.strftime('%Y-%m-%dT%H:%M:%SZ')}"


def read_entry(text: str) -> TokenEntry | str:
    """The entry, or what is wrong with it: a clause that follows its place. The text is not repeated: it may be a
    token that was put here by mistake.
    """
    words = text.split()
    expires_at_ms = None
    if words and words[-1].startswith(_EXPIRES):
        expires_at_ms = read_instant(words.pop().removeprefix(_EXPIRES))
        if expires_at_ms is None:
            return "has an `expires=` that is no instant like 2027-02-23T12:00:00Z"
    if len(words) not in {1, 2} or not _HASH.fullmatch(words[-1]):
        return f"is not {_ENTRY}, with or without a name before; {MADE_BY}"
    name = words[0] if len(words) == 2 else UNNAMED
    if not is_token_name(name):
        return "has a name that is none: letters, digits, dots, dashes and underscores, 128 at the most"
    return TokenEntry(name, words[-1], expires_at_ms)


def read_instant(text: str) -> int | None:
    """Milliseconds since the epoch of a date or a time of ISO 8601, in UTC where it names no zone; None: it is none."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1000)


def read_entries(lines: Iterable[str]) -> tuple[tuple[TokenEntry, ...], str | None]:
    """The entries of a file, and the first that is wrong, as a clause behind the file's name; None: none is."""
    entries: dict[str, TokenEntry] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        entry = read_entry(text)
        if isinstance(entry, str):
            return (), f"line {number}, {entry}"
        if entries.setdefault(entry.hash, entry) != entry:
            return (), f"line {number}, has the hash of another line with another name or end"
    return tuple(entries.values()), None


class TokenTable:
    """The tokens that are accepted, by keyed digest. A changed file makes another table."""

    def __init__(self, entries: Iterable[TokenEntry], key: bytes) -> None:
        """`key`: random, and never shown."""
        self._key = key
        self._known: dict[bytes, tuple[bytes, Caller]] = {}
        self._ends: dict[bytes, int | None] = {}
        for entry in entries:
            hashed = entry.hash.encode()
            # Of the name, too: who shows a token that has another name by now is another caller.
            credential = self._digest(hashed + entry.name.encode())
            caller = Caller((TOKEN + entry.name,), entry.expires_at_ms, credential)
            self._known[self._digest(hashed)] = hashed, caller
            self._ends[credential] = entry.expires_at_ms

    def __len__(self) -> int:
        return len(self._known)

    def find(self, token: str, now_ms: int) -> Caller | None:
        """Whose token it is; None for one that is not known, or has run out."""
        hashed = hash_token(token).encode()
        found = self._known.get(self._digest(hashed))
        if found is None or not hmac.compare_digest(found[0], hashed):
            return None
        return None if found[1].is_expired(now_ms) else found[1]

    def has(self, credential: bytes) -> bool:
        """Whether the token that a caller has shown is still among them, under the same name."""
        return credential in self._ends

    def end_of(self, credential: bytes) -> int | None:
        """When a token that is among them runs out, which may be another time than when it was shown; None: never."""
        return self._ends.get(credential)

    def _digest(self, hashed: bytes) -> bytes:
        return hmac.digest(self._key, hashed, "sha256")
