"""When a certificate expires, read from its PEM. Python's own `ssl` tells it of the other side's certificate alone.

RFC 5280, 4.1: a certificate is a sequence whose first element is a sequence of a version (perhaps), a serial number,
the algorithm, the issuer and the validity, which is a sequence of two times.
"""

import ssl
from datetime import UTC, datetime

_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_END = "-----END CERTIFICATE-----"


def not_after_s(pem: str) -> int:
    """When the first certificate of the text expires, in seconds since 1970. Raises ValueError."""
    start = pem.find("-----BEGIN CERTIFICATE-----")
    end = pem.find(_END, start)
    if start < 0 or end < 0:
        raise ValueError("it holds no certificate in PEM")
    try:
        return _read(ssl.PEM_cert_to_DER_cert(pem[start : end + len(_END)]))
    except (IndexError, ValueError) as error:
        raise ValueError("its certificate cannot be read") from error


def _read(der: bytes) -> int:
    _, inner, _ = _element(der, 0, _SEQUENCE)
    _, at, _ = _element(der, inner, _SEQUENCE)
    tag, _, after = _element(der, at)
    if tag == _VERSION:
        _, _, after = _element(der, after)
    for _ in ("algorithm", "issuer"):
        _, _, after = _element(der, after, _SEQUENCE)
    _, at, _ = _element(der, after, _SEQUENCE)
    _, _, at = _element(der, at)
    tag, start, end = _element(der, at)
    text = der[start:end].decode("ascii")
    if tag == _UTC_TIME:
        # Of two digits of a year those below 50 are of this century.
        text = ("20" if int(text[:2]) < 50 else "19") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("no time")
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp())


def _element(der: bytes, at: int, wanted: int | None = None) -> tuple[int, int, int]:
    """The tag of the element there, and where its content begins and ends."""
    tag, length, start = der[at], der[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(der[start : start + count], "big")
        start += count
    if wanted is not None and tag != wanted:
        raise ValueError("another element")
    if start + length > len(der):
        raise ValueError("it is cut off")
    return tag, start, start + length
