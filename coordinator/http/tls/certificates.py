"""The files of TLS, and the contexts that are made of them: checked as a whole, and replaced while connections go on.

A context is never changed once it is made. New files make new contexts, and whoever opens or takes a connection uses
those of the moment; a connection keeps to the context that it began with. So a file that is half written, or does not
fit the others, changes nothing. Tickets of TLS sessions end with their context: nobody resumes under an authority that
is no longer trusted.
"""

import asyncio
import hashlib
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self

from rallypoint.coordinator.http.tls.validity import not_after_s
from rallypoint.coordinator.runtime.event_loop.faults import begin

LOOK_SECONDS = 2.0
"""How often the files are looked at. Their contents are compared, and not their times alone: what swaps a folder under
a symbolic link, as Kubernetes does, may keep both. Changed files are used when two looks in a row find the same."""

log = logging.getLogger("rallypoint.tls")


class TlsFilesInvalid(Exception):  # noqa: N818 - it says what they are
    """The files cannot be used. The text is one sentence, which names the file."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the files are, all in PEM.

    certificate: of this node, with the intermediate ones behind it.
    key: of that certificate, not encrypted.
    client_ca: the authorities whose certificates clients may show; None where none is asked for.
    is_client_required: whether a client without a certificate is refused in the handshake.
    cluster_ca: the authorities of the other nodes; None for `client_ca`, and the system's without one.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None
    is_client_required: bool = True
    cluster_ca: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files that are named."""
        return tuple(path for path in (self.certificate, self.key, self.client_ca, self.cluster_ca) if path is not None)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the files made. server: for connections that come in. client: for those to other nodes."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    not_after_s: int
    digest: bytes


class Certificates:
    """The contexts of the moment.

    not_after_s: when the node's certificate expires, in seconds since 1970.
    is_outdated: the files have changed, and what is there now cannot be used.
    reload_count, failure_count: changes of the files that were used, and those that could not be.
    """

    def __init__(self, files: TlsFiles, *, look_seconds: float = LOOK_SECONDS) -> None:
        """Read the files. Raises TlsFilesInvalid.

        files: where they are.
        look_seconds: how often they are looked at.
        """
        self._files = files
        self._look_seconds = look_seconds
        self._loaded = load(files)
        self._seen = self._tried = self._loaded.digest
        self.is_outdated = False
        self.reload_count = 0
        self.failure_count = 0
        self._watching: asyncio.Task[None] | None = None

    @property
    def server(self) -> ssl.SSLContext:
        """For a connection that comes in."""
        return self._loaded.server

    @property
    def client(self) -> ssl.SSLContext:
        """For a connection to another node."""
        return self._loaded.client

    @property
    def not_after_s(self) -> int:
        """When the certificate expires that is shown now."""
        return self._loaded.not_after_s

    async def __aenter__(self) -> Self:
        """Look at the files from now on."""
        self._watching = begin(self._watch(), lambda: None)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Look no more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait((self._watching,))

    async def look(self) -> None:
        """Look at the files once, and use them if they have changed and stayed the same since the last look."""
        digest = await asyncio.to_thread(_digest_of, self._files)
        is_settled, self._seen = digest == self._seen, digest
        if not is_settled or digest == self._tried:
            return
        self._tried = digest
        try:
            loaded = await asyncio.to_thread(load, self._files)
        except TlsFilesInvalid as error:
            self.is_outdated = True
            self.failure_count += 1
            log.error("the TLS files have changed and cannot be used, so those of before stay: %s", error)
            return
        self._loaded = loaded
        self._tried = self._seen = loaded.digest
        self.is_outdated = False
        self.reload_count += 1
        log.info("the TLS files have changed; new connections use them")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._look_seconds)
            try:
                await self.look()
            except Exception:
                log.exception("a fault of the service, in looking at the TLS files")


def load(files: TlsFiles) -> Loaded:
    """Make contexts of the files as they are now. Raises TlsFilesInvalid, also where they change meanwhile."""
    digest = _digest_of(files)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.minimum_version = ssl.TLSVersion.TLSv1_2
    server.options |= ssl.OP_NO_RENEGOTIATION
    server.set_alpn_protocols(["http/1.1"])
    _load_chain(server, files)
    if files.client_ca is not None:
        _trust(server, files.client_ca, "tls_client_ca")
        server.verify_mode = ssl.CERT_REQUIRED if files.is_client_required else ssl.CERT_OPTIONAL
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_chain(client, files)
    if files.cluster_ca is not None:
        _trust(client, files.cluster_ca, "tls_cluster_ca")
    elif files.client_ca is not None:
        _trust(client, files.client_ca, "tls_client_ca")
    else:
        client.load_default_certs()
    try:
        expires_s = not_after_s(_read(files.certificate, "tls_certificate").decode("ascii", "replace"))
    except ValueError as error:
        raise TlsFilesInvalid(f"tls_certificate {files.certificate}: {error}.") from error
    if _digest_of(files) != digest:
        raise TlsFilesInvalid("The TLS files change while they are read.")
    return Loaded(server, client, expires_s, digest)


def _load_chain(context: ssl.SSLContext, files: TlsFiles) -> None:
    certificate, key = files.certificate, files.key
    _read(certificate, "tls_certificate")
    _read(key, "tls_key")
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except _Encrypted:
        raise TlsFilesInvalid(f"tls_key {key} is encrypted; the service takes a key that is not.") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsFilesInvalid(f"tls_key {key} is not the key of tls_certificate {certificate}.") from error
        why = f"tls_certificate {certificate} or tls_key {key} is not what it must be, in PEM"
        raise TlsFilesInvalid(f"{why}: {error.reason or error}.") from error
    except OSError as error:
        raise TlsFilesInvalid(f"tls_certificate {certificate} or tls_key {key} cannot be read: {error}.") from error


def _trust(context: ssl.SSLContext, path: Path, name: str) -> None:
    text = _read(path, name)
    try:
        context.load_verify_locations(cadata=text.decode("ascii", "replace"))
    except ssl.SSLError as error:
        raise TlsFilesInvalid(f"{name} {path} holds no certificates in PEM.") from error


def _digest_of(files: TlsFiles) -> bytes:
    digest = hashlib.sha256()
    for path in files.paths:
        try:
            text = path.read_bytes()
        except OSError as error:
            text = f"unreadable: {error}".encode()
        digest.update(hashlib.sha256(text).digest())
    return digest.digest()


def _read(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsFilesInvalid(f"{name} {path} cannot be read: {error.strerror or error}.") from error


class _Encrypted(Exception):  # noqa: N818
    """OpenSSL asks for the password of a key."""


def _refuse_password() -> NoReturn:
    raise _Encrypted
