"""What a TLS connection failed for, in a clause that says what to do. Pure: it looks at an error, and at its causes.

OpenSSL's own words name functions and numbers. What is not known here is said in its words.
"""

_EXPIRED, _NOT_YET_VALID = 10, 9
_NAME, _ADDRESS = 62, 64
_UNTRUSTED = frozenset({2, 18, 19, 20, 21, 24})
"""OpenSSL's numbers of why a certificate was not accepted (`X509_V_ERR_…`)."""

_REASONS = {
    "CERTIFICATE_REQUIRED": "it asks for a client's certificate, and none was shown",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a client's certificate, and none was shown",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no client's certificate was shown, and one is required",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust the authority of the certificate that it was shown",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the other side was shown a certificate that has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the other side was shown a certificate that is revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side does not accept the certificate that it was shown",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side does not accept the certificate that it was shown",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the other side was shown a certificate that is not for this use",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the other side speaks no version of TLS that is accepted here",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "both sides have no cipher in common, or a certificate is missing",
    "UNSUPPORTED_PROTOCOL": "the other side speaks only versions of TLS below 1.2",
    "NO_SHARED_CIPHER": "both sides have no cipher in common",
    "HTTP_REQUEST": "a request came without TLS; the URL begins with https here",
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS; its URL may begin with http",
    "RECORD_LAYER_FAILURE": "the other side does not speak TLS; its URL may begin with http",
}
"""By OpenSSL's name of the reason."""


def tls_words(error: BaseException | None, *, ca_option: str = "ca") -> str | None:
    """Why TLS failed, as a clause; None for an error that is not of TLS. `ca_option`: names who is trusted here."""
    found = _of_tls(error)
    if found is None:
        return None
    code = getattr(found, "verify_code", None)
    if code is not None:
        return _of_certificate(code, str(getattr(found, "verify_message", "") or ""), ca_option)
    reason = str(getattr(found, "reason", "") or "")
    known = _REASONS.get(reason.upper().replace(" ", "_"))
    return known or f"TLS fails: {reason.replace('_', ' ').lower() or 'the connection was cut in the handshake'}"


def _of_certificate(code: int, message: str, ca_option: str) -> str:
    if code == _EXPIRED:
        return "its certificate has expired"
    if code == _NOT_YET_VALID:
        return "its certificate is not valid yet; is a clock wrong?"
    if code in {_NAME, _ADDRESS}:
        return f"its certificate is for another host: {message.rstrip('.')}"
    if code in _UNTRUSTED:
        return f"its certificate is not of an authority that is trusted here: {message}; `{ca_option}` names those"
    return f"its certificate is not accepted: {message}"


def _of_tls(error: BaseException | None) -> BaseException | None:
    """The error of Python's `ssl` among the error and what it was made of."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        # aiohttp's errors are of SSLError, too, and keep the one that knows why in fields of their own.
        kept = [getattr(one, "certificate_error", None), getattr(one, "os_error", None)]
        if kept == [None, None] and any(kind.__name__ == "SSLError" for kind in type(one).__mro__):
            return one
        waiting += [*kept, one.__cause__, one.__context__]
    return None
