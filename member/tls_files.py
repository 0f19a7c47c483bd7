"""Which files a user names for TLS. Reading them is `tls`'s."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of files in PEM. They are read again when they change, for the next connection.

    ca: the authorities to trust in place of the system's.
    certificate: of the client, with the intermediate ones behind it.
    key: of that certificate, if it is in another file.
    """

    ca: str | Path | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None


def tls_files(
    ca: str | Path | None, certificate: str | Path | None = None, key: str | Path | None = None
) -> TlsFiles | None:
    """The files; None if none is named. ValueError, which begins with the option, for what does not go together."""
    for name, path in (("ca", ca), ("certificate", certificate), ("key", key)):
        if path is not None and not (isinstance(path, str | Path) and str(path)):
            raise ValueError(f"{name}: the path of a file, not {path!r}")
    if key is not None and certificate is None:
        raise ValueError("key: it needs `certificate`, which it belongs to")
    return None if ca is None and certificate is None else TlsFiles(ca, certificate, key)
