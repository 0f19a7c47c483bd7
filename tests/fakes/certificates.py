"""Certificates for tests: an authority made by the test, and files in PEM that it has signed."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key


@dataclass(frozen=True, slots=True)
class PemFiles:
    """Where a certificate and its key are."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates, and writes them to a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.ca))

    def sign(
        self,
        name: str,
        *identities: str,
        common_name: str | None = None,
        not_after: datetime | None = None,
        into: PemFiles | None = None,
    ) -> PemFiles:
        """A new certificate. `identities`: host names, addresses and URIs. `into`: files that it replaces."""
        made = self._authority.issue_cert(
            "localhost",
            common_name=common_name,
            not_before=datetime(2020, 1, 1, tzinfo=UTC),
            not_after=not_after or datetime(2037, 1, 1, tzinfo=UTC),
        )
        files = into or PemFiles(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        files.key.write_bytes(made.private_key_pem.bytes())
        files.certificate.write_bytes(self._renamed(made.cert_chain_pems[0].bytes(), identities))
        return files

    def client(self, shown: PemFiles | None = None) -> ssl.SSLContext:
        """Trusts this authority, and shows a certificate."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if shown is not None:
            context.load_cert_chain(shown.certificate, shown.key)
        return context

    def _renamed(self, pem: bytes, identities: tuple[str, ...]) -> bytes:
        """The same certificate with other names: trustme gives none that are URIs."""
        old = x509.load_pem_x509_certificate(pem)
        new = x509.CertificateBuilder(
            old.issuer,
            old.subject,
            old.public_key(),
            old.serial_number,
            old.not_valid_before_utc,
            old.not_valid_after_utc,
        )
        for extension in old.extensions:
            if not isinstance(extension.value, x509.SubjectAlternativeName):
                new = new.add_extension(extension.value, extension.critical)
        new = new.add_extension(x509.SubjectAlternativeName(list(map(_name, identities))), critical=False)
        key = load_pem_private_key(self._authority.private_key_pem.bytes(), None)
        signed = new.sign(key, SHA256())  # type: ignore[arg-type] # one of an authority can sign
        return signed.public_bytes(Encoding.PEM)


def _name(identity: str) -> x509.GeneralName:
    if "://" in identity:
        return x509.UniformResourceIdentifier(identity)
    try:
        return x509.IPAddress(ip_address(identity))
    except ValueError:
        return x509.DNSName(identity)
