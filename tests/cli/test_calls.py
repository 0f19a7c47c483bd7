"""Calls of the command: whom it asks in what order, what it repeats, and whom it gives the token."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rallypoint.cli.calls.client import Client
from rallypoint.cli.calls.curl import curl_line
from rallypoint.cli.calls.event_stream import Event, events_of
from rallypoint.cli.calls.failures import CallFailed, NotAllowed, RequestPrinted, Unreachable, UsageError
from rallypoint.cli.calls.operations import OPERATIONS
from rallypoint.cli.calls.transport import Tls
from rallypoint.protocol import operations
from tests.real.parts import free_port

Answer = tuple[int, dict[str, str], Any]


class Node:
    """A server that answers as it is told, and remembers the requests: method, target, headers, body."""

    def __init__(self, answer: Callable[[str, str], Answer | None]) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        node = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                node.requests.append((self.command, self.path, dict(self.headers), body))
                found = answer(self.command, self.path)
                if found is None:
                    self.close_connection = True
                    return
                status, headers, document = found
                data = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        for method in ("GET", "POST", "PUT", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.handle_any)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def node(answer: Callable[[str, str], Answer | None] = lambda *_: (200, {}, {"ok": True})) -> Iterator[Node]:
    made = Node(answer)
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.socket.close()


@contextmanager
def client(*urls: str, **options: Any) -> Iterator[Client]:
    made = Client(urls, **options)
    try:
        yield made
    finally:
        made.close()


def problem(status: int, name: str, detail: str, **more: Any) -> Answer:
    return status, {}, {"detail": detail, "error_name": name, "status": status, **more}


def test_the_paths_are_those_of_the_service() -> None:
    table = {one.name: (one.method, one.path) for one in (*operations.OPERATIONS, operations.EVENTS)}
    assert {name: table.get(name) for name in OPERATIONS} == dict(OPERATIONS)


def test_an_id_is_encoded_once_and_a_query_has_what_is_given() -> None:
    with node() as one, client(one.url) as calls:
        calls.call("describe", group_id="a/b %2F ü")
        calls.call("list_groups", query={"state": None, "frozen": True, "limit": 3})
        assert [target for _, target, _, _ in one.requests] == [
            "/v1/groups/a%2Fb%20%252F%20%C3%BC", "/v1/groups?frozen=true&limit=3",
        ]  # fmt: skip
        with pytest.raises(UsageError, match="is no text in UTF-8"):
            calls.call("describe", group_id="\udcff")


def test_a_connection_is_kept_and_made_again_where_it_was_closed() -> None:
    with node() as one, client(one.url) as calls:
        for _ in range(3):
            assert calls.call("describe_cluster") == {"ok": True}
        assert len(calls._transport._kept) == 1
        calls._transport._kept[one.url].sock.shutdown(2)
        assert calls.call("describe_cluster") == {"ok": True}
        assert len(one.requests) == 4


def test_the_next_node_is_asked_and_remembered() -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    with node() as one, client(dead, one.url) as calls:
        assert calls.call("describe_cluster") == {"ok": True}
        assert calls.urls == (one.url, dead)
    with client(dead) as calls, pytest.raises(Unreachable, match=f"No node answers. {dead}: no connection"):
        calls.call("describe_cluster")


def test_nodes_that_all_say_that_they_cannot_answer_say_it_once() -> None:
    cut_off = problem(503, "COORDINATOR_NOT_AVAILABLE", "The node is cut off.")
    with (
        node(lambda *_: cut_off) as one,
        node(lambda *_: cut_off) as two,
        client(one.url, two.url, timeout_s=0.2) as calls,
        pytest.raises(Unreachable) as failed,
    ):
        calls.call("describe_cluster")
    assert str(failed.value) == f"No node can answer now. {one.url}, {two.url}: it says: The node is cut off."


def test_a_node_that_cannot_answer_now_is_passed_over_and_asked_again() -> None:
    answers = iter([problem(503, "COORDINATOR_LOAD_IN_PROGRESS", "It loads."), (200, {}, {"ok": True})])
    slept: list[float] = []
    with node(lambda *_: next(answers)) as one, client(one.url, sleep=slept.append) as calls:
        assert calls.call("describe", group_id="g") == {"ok": True}
        assert slept == [0.25]
    with (
        node(lambda *_: problem(503, "COORDINATOR_NOT_AVAILABLE", "Not now.")) as one,
        client(one.url, timeout_s=0.2) as calls,
        pytest.raises(Unreachable, match="it says: Not now"),
    ):
        calls.call("describe", group_id="g")


def test_a_call_follows_its_group_with_the_token() -> None:
    with node() as owner:
        moved = problem(421, "NOT_COORDINATOR", "Not here.", url=owner.url)
        with node(lambda *_: moved) as first, client(first.url, token=lambda: "rp_x") as calls:
            for _ in range(2):
                assert calls.call("thaw", group_id="g") == {"ok": True}
            assert (len(first.requests), len(owner.requests)) == (1, 2)
            assert owner.requests[0][2]["Authorization"] == "Bearer rp_x"


def test_nodes_that_send_a_call_round_are_given_up() -> None:
    targets: list[str] = []
    with (
        node(lambda *_: problem(421, "NOT_COORDINATOR", "There.", url=targets[0])) as one,
        node(lambda *_: problem(421, "NOT_COORDINATOR", "Back.", url=one.url)) as other,
    ):
        targets.append(other.url)
        with client(one.url, timeout_s=0.2) as calls, pytest.raises(Unreachable, match="There"):
            calls.call("describe", group_id="g")
        assert len(one.requests) == len(other.requests) <= 2  # once a round


def test_a_change_that_got_no_answer_is_not_sent_again() -> None:
    with node(lambda *_: None) as one, node() as other, client(one.url, other.url) as calls:
        with pytest.raises(Unreachable, match="Whether the change was made is not known"):
            calls.call("delete_group", group_id="g")
        assert (len(one.requests), len(other.requests)) == (1, 0)
        assert calls.call("describe", group_id="g") == {"ok": True}  # a read goes on at the next node


def test_a_redirect_is_not_followed() -> None:
    with node() as thief, node(lambda *_: (302, {"Location": f"{thief.url}/x"}, b"")) as one:
        with (
            client(one.url, token=lambda: "rp_x") as calls,
            pytest.raises(CallFailed, match="Redirects are not followed"),
        ):
            calls.call("describe_cluster")
        assert thief.requests == []


def test_a_refusal_says_its_field_and_ends_as_it_should() -> None:
    with node(lambda *_: problem(400, "INVALID_REQUEST", "Too much\x1b[2J", field="limit")) as one:
        with client(one.url) as calls, pytest.raises(CallFailed) as failed:
            calls.call("list_groups")
        assert str(failed.value) == "Too much\\x1b[2J. The field is limit."
    for status in (401, 403):
        with (
            node(lambda *_, status=status: problem(status, "X", "No.")) as one,
            client(one.url) as calls,
            pytest.raises(NotAllowed),
        ):
            calls.call("list_groups")


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"\xff"])
def test_what_is_no_service_is_named(body: bytes) -> None:
    with (
        node(lambda *_: (200, {}, body)) as one,
        client(one.url) as calls,
        pytest.raises(CallFailed, match="it is no Rallypoint service; check the URL"),
    ):
        calls.call("list_groups")


@pytest.mark.parametrize("body", [b"<html>", {"message": "no healthy upstream"}])
def test_an_error_of_a_proxy_is_no_answer_of_the_service(body: Any) -> None:
    with node(lambda *_: (502, {}, body)) as proxy, node() as one, client(proxy.url, one.url) as calls:
        assert calls.call("list_groups") == {"ok": True}
        with (
            client(proxy.url, one.url) as others,
            pytest.raises(Unreachable, match=r"status 502 .* Whether the change was made is not known"),
        ):
            others.call("freeze", body={"duration_ms": 5}, group_id="g")
        assert len(one.requests) == 1
        with (
            client(proxy.url) as others,
            pytest.raises(Unreachable, match="as a proxy does"),
            others.stream(proxy.url, {}),
        ):
            raise AssertionError("there are no events")


def test_a_request_is_printed_without_the_token() -> None:
    with (
        client("http://127.0.0.1:1", token=lambda: "rp_secret", prints=True) as calls,
        pytest.raises(RequestPrinted) as printed,
    ):
        calls.call("freeze", body={"duration_ms": 5, "reason": "it's \x1b"}, group_id="g")
    line = str(printed.value)
    assert "rp_secret" not in line
    assert line.startswith('curl -sS -H "Authorization: Bearer $RALLYPOINT_TOKEN" -X PUT ')
    assert line.endswith("http://127.0.0.1:1/v1/groups/g/freeze")
    assert line.isprintable()
    assert "--cacert ca.pem" in curl_line("GET", "http://h/", {}, None, Tls(ca="ca.pem"), has_token=False)


def test_a_list_is_read_page_by_page() -> None:
    def answer(_: str, target: str) -> Answer:
        return 200, {}, {"rows": [target], "next_cursor": None if "cursor=" in target else "c 1"}

    with node(answer) as one, client(one.url) as calls:
        pages = calls.pages("list_groups", query={"prefix": "e"})
        assert next(pages)["rows"] == ["/v1/groups?limit=1000&prefix=e"]
        assert len(one.requests) == 1
        assert next(pages)["rows"] == ["/v1/groups?limit=1000&prefix=e&cursor=c+1"]
        assert list(pages) == []


def test_events_are_told_apart() -> None:
    lines = b'retry: 2000\nid: a-1\nevent: x\ndata: {"kind":\ndata: "x"}\n\n: heartbeat\nid: a-7\n\n\nid: a-8\ndata: {}'
    assert list(events_of(line + b"\n" for line in lines.split(b"\n"))) == [
        Event("a-1", {"kind": "x"}), Event("a-7", None),
    ]  # fmt: skip
