"""`etcd://HOST:PORT,HOST:PORT/PREFIX?parameter=value&…`: what it may say. Reading it opens nothing."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from rallypoint.coordinator.storage.etcd.keys import PREFIX_BYTES_MAX
from rallypoint.coordinator.storage.etcd.lease import TTL_DEFAULT_MS, TTL_MAX_MS, TTL_MIN_MS

SCHEME = "etcd://"
PREFIX_DEFAULT = "rallypoint"
PORT_DEFAULT = 2379

FILES = ("password_file", "ca_file", "cert_file", "key_file")
PARAMETERS = ("user", *FILES, "tls", "lease_ttl_ms")
FORM = f"use {SCHEME}HOST:PORT,HOST:PORT/PREFIX"


class EtcdUrlInvalid(ValueError):  # noqa: N818 - named as its sibling that users meet
    """The URL names no etcd. The text says why."""


@dataclass(frozen=True, slots=True)
class EtcdUrl:
    """An etcd, and how to reach it. addresses: HOST:PORT each, an IPv6 host in brackets."""

    addresses: tuple[str, ...]
    prefix: str = PREFIX_DEFAULT
    user: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    tls: bool = False
    lease_ttl_ms: int = TTL_DEFAULT_MS


def parse(url: str) -> EtcdUrl:
    """Read the URL. Raises EtcdUrlInvalid."""
    rest, _, query = url.removeprefix(SCHEME).partition("?")
    if "#" in url:
        raise EtcdUrlInvalid("it has a #; write %23")
    authority, _, path = rest.partition("/")
    if "@" in authority:
        raise EtcdUrlInvalid("a user and a password there are seen by everybody; use ?user=…&password_file=…")
    addresses = tuple(_address(part) for part in authority.split(","))
    given = _parameters(query)
    tls = _tls(given)
    user, password_file = given.get("user"), given.get("password_file")
    if (user is None) != (password_file is None):
        raise EtcdUrlInvalid("user and password_file belong together")
    if ("cert_file" in given) != ("key_file" in given):
        raise EtcdUrlInvalid("cert_file and key_file belong together")
    files = {name: Path(given[name]) for name in FILES if name in given}
    return EtcdUrl(addresses, _prefix(path), user, tls=tls, lease_ttl_ms=_ttl_ms(given.get("lease_ttl_ms")), **files)


def _parameters(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError as error:
        raise EtcdUrlInvalid(f"its parameters cannot be read: {error}") from error
    given: dict[str, str] = {}
    for name, value in pairs:
        if name == "password":
            raise EtcdUrlInvalid("a password there is seen by everybody; use password_file=FILE")
        if name not in PARAMETERS:
            raise EtcdUrlInvalid(f"it has no parameter {name!r}; there are {', '.join(PARAMETERS)}")
        if name in given:
            raise EtcdUrlInvalid(f"{name} is there twice")
        if not value or "\0" in value:
            raise EtcdUrlInvalid(f"{name} has no value")
        given[name] = value
    return given


def _address(part: str) -> str:
    host, separator, port = part, "", ""
    if part.startswith("["):
        host, bracket, rest = part.partition("]")
        host += bracket
        separator, port = rest[:1], rest[1:]
        is_host = bool(bracket) and len(host) > 2 and separator in {"", ":"}
    else:
        host, separator, port = part.partition(":")
        is_host = bool(host) and not any(mark in host for mark in " []\t\0")
    if not is_host or ":" in port:
        raise EtcdUrlInvalid(f"{part!r} is no HOST:PORT; an IPv6 address needs brackets")
    if separator and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise EtcdUrlInvalid(f"{part!r} has no port from 1 to 65535")
    return f"{host}:{port or PORT_DEFAULT}"


def _prefix(path: str) -> str:
    prefix = unquote(path).strip("/") or PREFIX_DEFAULT
    if len(prefix.encode()) > PREFIX_BYTES_MAX or "\0" in prefix:
        raise EtcdUrlInvalid(f"its prefix may have {PREFIX_BYTES_MAX} bytes, without NUL")
    return prefix


def _tls(given: dict[str, str]) -> bool:
    text = given.get("tls")
    if text not in {None, "true", "false"}:
        raise EtcdUrlInvalid(f"tls is true or false, not {text!r}")
    has_files = any(name in given for name in ("ca_file", "cert_file"))
    if text == "false" and has_files:
        raise EtcdUrlInvalid("it names files for TLS, and says tls=false")
    return text == "true" or has_files


def _ttl_ms(text: str | None) -> int:
    if text is None:
        return TTL_DEFAULT_MS
    if not (text.isascii() and text.isdigit() and TTL_MIN_MS <= int(text[:10]) <= TTL_MAX_MS):
        raise EtcdUrlInvalid(f"lease_ttl_ms is a number from {TTL_MIN_MS} to {TTL_MAX_MS}, not {text!r}")
    return int(text)
