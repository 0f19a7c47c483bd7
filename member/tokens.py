"""Bearer tokens: a text, or a function that gives the present one if tokens are replaced while a program runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Token = str | Callable[[], str]
"""A function is called for each request over HTTP and each handshake of a channel, in the member's event loop: it
returns at once. If it raises, nothing is sent, and the call is made again as when nobody answers."""


class TokenUnavailable(Exception):  # noqa: N818 - it says what happened
    """The function of a token gave none."""


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A function that reads a file again each time, such as one that Kubernetes replaces. Outer space is left out."""

    path: str | Path

    def __call__(self) -> str:
        """What the file holds now. Raises OSError, and ValueError for an empty file, or one that holds more than a
        token.
        """
        token = Path(self.path).read_text(encoding="utf-8").strip()
        if not token:
            raise ValueError(f"{self.path} is empty")
        if not is_token(token):
            raise ValueError(f"{self.path} holds several lines, or other control characters")
        return token


def is_token(value: object) -> bool:
    """Whether a request can carry it: a text without control characters that is not blank."""
    return isinstance(value, str) and value.isprintable() and bool(value.strip())


def headers_of(token: Token | None) -> dict[str, str]:
    """The headers that authenticate a request. Raises TokenUnavailable, whose text does not have the token."""
    if token is None:
        return {}
    return {"Authorization": f"Bearer {token if isinstance(token, str) else _present(token)}"}


def is_replaced(token: Token | None, sent: Mapping[str, str]) -> bool:
    """Whether the function gives another token by now than the one that was sent in these headers."""
    if not callable(token):
        return False
    try:
        return headers_of(token)["Authorization"] != sent["Authorization"]
    except TokenUnavailable:
        return False


def _present(token: Callable[[], str]) -> str:
    try:
        present = token()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the user's function, which must not end the event loop that it is called in
        raise TokenUnavailable(f"the function of the token raised {type(error).__name__}: {error}") from error
    if not is_token(present):
        raise TokenUnavailable(f"the function of the token gave no token but {type(present).__name__} of no use")
    return present
