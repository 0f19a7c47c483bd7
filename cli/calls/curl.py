"""A request as a command line for curl. The token is never in it: the shell puts in that of the environment."""

import shlex
from collections.abc import Mapping

from rallypoint.cli.calls.transport import Tls


def curl_line(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, tls: Tls, *, has_token: bool
) -> str:
    """The command line. With a token it reads RALLYPOINT_TOKEN of the environment."""
    words = ["curl", "-sS"]
    if headers.get("Accept") == "text/event-stream":
        words.append("-N")
    if method != "GET":
        words += ["-X", method]
    for flag, path in (("--cacert", tls.ca), ("--cert", tls.certificate), ("--key", tls.key)):
        if path is not None:
            words += [flag, path]
    for name, value in headers.items():
        words += ["-H", f"{name}: {value}"]
    if body is not None:
        words += ["--data-binary", body.decode()]
    line = " ".join(map(_quoted, [*words, url]))
    return line.replace("curl -sS", 'curl -sS -H "Authorization: Bearer $RALLYPOINT_TOKEN"', 1) if has_token else line


def _quoted(word: str) -> str:
    r"""A word for a shell. With control characters it is in the form $'…', of which a terminal sees no escape."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = "".join(
        one if one.isprintable() and one not in "\\'" else "".join(f"\\x{byte:02x}" for byte in one.encode())
        for one in word
    )
    return f"$'{escaped}'"
