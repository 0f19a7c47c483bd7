"""The image's health check: ends with 0 if the service answers at its own port, with 1 and a traceback if it does not.

It asks `/healthz`. A service that speaks TLS may want a certificate of whoever asks, so of that one it wants the
server's part of the handshake alone.

    health.py [SECONDS]    SECONDS: for how long it waits for each answer, 4 by default
"""

import http.client
import os
import socket
import ssl
import sys
from http import HTTPStatus

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
HOSTS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def answers_in_plain(host: str, port: int) -> bool:
    """Whether it says that it is well; False if it says what is no HTTP. Errors: OSError if nobody is there."""
    connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == HTTPStatus.OK
    except (http.client.HTTPException, ConnectionResetError):
        return False
    finally:
        connection.close()


def answers_in_tls(host: str, port: int) -> None:
    """Errors: OSError. Whose certificate it shows is not judged: it is asked at an address, not by its name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection((host, port), timeout=SECONDS) as plain, context.wrap_socket(plain):
        pass


if __name__ == "__main__":
    host = os.environ["RALLYPOINT_HOST"]
    address = HOSTS.get(host, host), int(os.environ["RALLYPOINT_PORT"])
    # What is said of TLS may also stand in a file, which this does not read: so it goes by what the service does.
    if "RALLYPOINT_TLS_CERTIFICATE" in os.environ or not answers_in_plain(*address):
        answers_in_tls(*address)
