"""HTTPS: an authority that is named, and a client that shows its certificate."""

import contextlib
import http.server
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rallypoint.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("openssl") is None, reason="missing openssl")]
Captured = pytest.CaptureFixture[str]


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem, server.pem and client.pem, each with its key in a file of its own."""
    made = tmp_path_factory.mktemp("certificates")
    new_key = ("req", "-newkey", "rsa:2048", "-nodes", "-keyout")
    openssl(made, *new_key, "ca.key", "-subj", "/CN=ca", "-x509", "-days", "2", "-out", "ca.pem")
    (made / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    signed = ("x509", "-req", "-days", "2", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "san")
    for name in ("server", "client"):
        openssl(made, *new_key, f"{name}.key", "-subj", f"/CN={name}", "-out", f"{name}.csr")
        openssl(made, *signed, "-in", f"{name}.csr", "-out", f"{name}.pem")
    return made


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    """A server that wants a client's certificate, and lists no group."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"groups": [], "next_cursor": null}')

        def log_message(self, *_: object) -> None:
            """Nothing."""

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = False

        def handle_error(self, *_: object) -> None:
            """A handshake that was refused."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_named_authority_and_a_client_s_certificate(url: str, folder: Path, capsys: Captured) -> None:
    words = ["groups", "--coordinator", url, "--ca", f"{folder}/ca.pem"]
    assert main([*words, "--cert", f"{folder}/client.pem", "--key", f"{folder}/client.key"]) == 0
    assert capsys.readouterr().out == "There are no groups yet.\n"
    assert main(words) == 3
    assert main(["groups", "--coordinator", url]) == 3
    assert "its certificate is not of an authority that is trusted here" in capsys.readouterr().err
    assert main([*words, "--cert", f"{folder}/client.pem", "--key", f"{folder}/server.key"]) == 2


def test_a_url_that_lacks_the_s_is_found_out(url: str, capsys: Captured) -> None:
    assert main(["groups", "--coordinator", url.replace("https:", "http:")]) == 3
    assert "a node that speaks TLS does so, and its URL begins with https" in capsys.readouterr().err


@pytest.fixture
def silent_url(folder: Path) -> Iterator[str]:
    """A server that ends each connection behind its handshake, as one does that refuses a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
                    secured.recv(100_000)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_a_service_that_hangs_up_may_miss_a_certificate_by_a_flag_that_there_is(
    silent_url: str, folder: Path, capsys: Captured
) -> None:
    assert main(["groups", "--coordinator", silent_url, "--ca", f"{folder}/ca.pem"]) == 3
    [flag] = re.findall(r"misses one \((--\S+)\)", capsys.readouterr().err)
    with pytest.raises(SystemExit):
        main(["groups", "--help"])
    assert f"{flag} PATH" in capsys.readouterr().out


def test_a_context_has_them_too(
    url: str, folder: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("RALLYPOINT_COORDINATOR", raising=False)
    paths = ["--ca", f"{folder}/ca.pem", "--cert", f"{folder}/client.pem", "--key", f"{folder}/client.key"]
    assert main(["context", "set", "secure", "--coordinator", url, *paths]) == 0
    assert main(["groups"]) == 0
    assert "There are no groups yet." in capsys.readouterr().out
