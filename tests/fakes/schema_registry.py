"""A stand-in of Confluent's schema registry over HTTP, of the two endpoints that a producer and a reader need.

The contract is that of its REST API, version 1:

- `POST /subjects/{subject}/versions` with `{"schema": text, "schemaType": kind}` answers `{"id": n}`. An equal schema
  has one id, whatever the subject. A kind that is not given is AVRO. It checks no compatibility.
- `GET /schemas/ids/{id}` answers `{"schema": text}`, with `schemaType` unless it is AVRO; or 404 with
  `{"error_code": 40403, "message": ...}`.

Where it was given credentials, a call without them is answered 401 with `{"error_code": 40101, ...}`, before all else.
Where it has moved, each call is answered 307, as a balancer in front of it does.
"""

import base64
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request, urlopen

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


def framed(schema_id: int, body: bytes) -> bytes:
    """A value as Confluent's serializers write it: a byte 0, the id in four bytes with the highest first, the datum."""
    return b"\x00" + schema_id.to_bytes(4, "big") + body


class SchemaRegistry:
    """What it holds, how often each path was read, and how many of the next reads are to fail with 503.

    `moved_to`: another's URL, once there is one. `authorizations`: what came with each call, in order.
    """

    def __init__(self, credentials: str | None = None) -> None:
        self.url = ""
        self.reads: Counter[str] = Counter()
        self.failures_due = 0
        self.moved_to = ""
        self.authorizations: list[str | None] = []
        self._expected = None if credentials is None else f"Basic {base64.b64encode(credentials.encode()).decode()}"
        self._ids: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, authorization: str | None, body: bytes) -> tuple[int, dict[str, Any]]:
        """The status and the body of one call."""
        with self._lock:
            self.authorizations.append(authorization)
            if self.moved_to:
                return 307, {}
            if self._expected is not None and authorization != self._expected:
                return 401, {"error_code": 40101, "message": "Unauthorized"}
            match method, path.strip("/").split("/"):
                case "GET", ["schemas", "ids", schema_id]:
                    self.reads[path] += 1
                    return self._read(schema_id)
                case "POST", ["subjects", _, "versions"]:
                    asked = json.loads(body)
                    key = asked.get("schemaType", "AVRO"), asked["schema"]
                    return 200, {"id": self._ids.setdefault(key, len(self._ids) + 1)}
            return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _read(self, schema_id: str) -> tuple[int, dict[str, Any]]:
        if self.failures_due:
            self.failures_due -= 1
            return 503, {"error_code": 50301, "message": "Not ready"}
        for (kind, schema), known in self._ids.items():
            if str(known) == schema_id:
                return 200, {"schema": schema} | ({} if kind == "AVRO" else {"schemaType": kind})
        return 404, {"error_code": 40403, "message": f"Schema {schema_id} not found"}

    def register(self, subject: str, schema: Any, schema_type: str = "AVRO") -> int:
        """As a producer does it: by HTTP."""
        body = json.dumps({"schema": json.dumps(schema), "schemaType": schema_type}).encode()
        headers = {"Content-Type": CONTENT_TYPE} | ({"Authorization": self._expected} if self._expected else {})
        with urlopen(Request(f"{self.url}/subjects/{subject}/versions", body, headers), timeout=30) as answer:
            schema_id: int = json.load(answer)["id"]
        return schema_id


@contextmanager
def running_registry(credentials: str | None = None) -> Iterator[SchemaRegistry]:
    """One on loopback and a port of its own. `credentials`: `user:password`, which each call must bring."""
    registry = SchemaRegistry(credentials)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond()

        def do_POST(self) -> None:
            self._respond()

        def _respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            status, answer = registry.answer(self.command, self.path, self.headers.get("Authorization"), body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(content)))
            if status == 307:
                self.send_header("Location", registry.moved_to + self.path)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it is called with
            """Nothing: the tests look at what was read."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
