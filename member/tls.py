"""The TLS of a member's connections: a context that the user made, or one of files, made again when they change.

A connection keeps the context that it began with. So a certificate that is renewed while a program runs is used from
its next connection on, and nothing has to be restarted.
"""

import os
import ssl
from typing import NoReturn

from rallypoint.member.tls_files import TlsFiles

Tls = ssl.SSLContext | TlsFiles | None
"""None: the system's authorities, and no certificate."""

Signature = tuple[tuple[int, int, int] | None, ...]


class TlsContext:
    """Gives the context for the next connection."""

    def __init__(self, tls: Tls) -> None:
        """Read the files, if there are any. ValueError, which begins with the option, for those that cannot be used."""
        self._tls = tls
        self._made: ssl.SSLContext | None = None
        self._signature: Signature = ()
        if isinstance(tls, TlsFiles):
            self._signature, self._made = _signature(tls), _context(tls)

    def __call__(self) -> ssl.SSLContext | bool:
        """As aiohttp takes it. Files that have changed and cannot be used, such as half of one, change nothing."""
        tls = self._tls
        if not isinstance(tls, TlsFiles):
            return True if tls is None else tls
        assert self._made is not None
        signature = _signature(tls)
        if signature != self._signature:
            try:
                self._made = _context(tls)
            except ValueError:
                return self._made  # and try again
            self._signature = signature
        return self._made


def _signature(files: TlsFiles) -> Signature:
    """Changes with the files, also where a link to their folder is swapped."""
    found: list[tuple[int, int, int] | None] = []
    for path in (files.ca, files.certificate, files.key):
        try:
            status = None if path is None else os.stat(path)
        except OSError:
            status = None
        found.append(None if status is None else (status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)


def _context(files: TlsFiles) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=files.ca)
    except OSError as error:  # of which ssl.SSLError is one
        raise ValueError(f"ca: {files.ca} cannot be used: {_why(error, 'no certificate in PEM')}") from error
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    if files.certificate is None:
        return context
    try:
        context.load_cert_chain(files.certificate, files.key, password=_refuse_password)
    except _Encrypted:
        raise ValueError(f"key: {files.key or files.certificate} is encrypted") from None
    except OSError as error:
        mismatch = getattr(error, "reason", None) == "KEY_VALUES_MISMATCH"
        why = "the key is of another certificate" if mismatch else _why(error, "not a certificate and its key in PEM")
        shown = str(files.certificate) if files.key is None else f"{files.certificate} with {files.key}"
        raise ValueError(f"certificate: {shown} cannot be used: {why}") from error
    return context


def _why(error: OSError, of_tls: str) -> str:
    return of_tls if isinstance(error, ssl.SSLError) else error.strerror or str(error)


class _Encrypted(Exception):  # noqa: N818
    """OpenSSL asks for the password of a key."""


def _refuse_password() -> NoReturn:
    raise _Encrypted
