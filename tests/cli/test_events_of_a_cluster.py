"""`rallypoint events` on a cluster, against real nodes behind their real API: each event once, whoever tells it."""

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Queue
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from rallypoint.cli.calls.client import Client
from rallypoint.cli.calls.failures import CallFailed
from rallypoint.cli.events.reading import Reading
from rallypoint.cli.main import main
from rallypoint.coordinator.core.effects import GroupCreated
from tests.fakes.cluster_api import Nodes, opened
from tests.real.parts import free_port

Captured = pytest.CaptureFixture[str]
Event = dict[str, Any]


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RALLYPOINT_COORDINATOR", "RALLYPOINT_TOKEN", "RALLYPOINT_CONTEXT"):
        monkeypatch.delenv(name, raising=False)


def url(node_id: str) -> str:
    return f"http://{node_id}"


def tell(nodes: Nodes, node_id: str, *group_ids: str) -> None:
    for group_id in group_ids:
        nodes.feeds[node_id].event(GroupCreated(group_id))


async def printed(capsys: Captured, *words: str) -> list[Event]:
    assert await asyncio.to_thread(main, ["events", "-o", "json", *words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


async def test_each_event_of_each_node_is_printed_once(capsys: Captured) -> None:
    async with opened() as nodes:
        ids = [await nodes.start() for _ in range(3)]
        for number, node_id in enumerate(ids):
            tell(nodes, node_id, f"g{number}", f"h{number}")
        for node_id in ids:
            told = await printed(capsys, "--coordinator", url(node_id))
            assert sorted(one["group_id"] for one in told) == ["g0", "g1", "g2", "h0", "h1", "h2"]


async def test_a_node_that_does_not_answer_is_passed_over(capsys: Captured) -> None:
    async with opened() as nodes:
        node_id = await nodes.start()
        tell(nodes, node_id, "g")
        dead = f"http://127.0.0.1:{free_port()}"
        (told,) = await printed(capsys, "--coordinator", f"{dead},{url(node_id)}")
        assert told["group_id"] == "g"
        assert await asyncio.to_thread(main, ["events", "--coordinator", dead]) == 3
        assert f"{dead}: no connection" in capsys.readouterr().err


class Follower:
    """Reads in a thread. It ends after `end`, as soon as no node answers."""

    def __init__(self, first: str) -> None:
        self.client = Client((first,))
        self.told: Queue[Event] = Queue()
        self.lost: list[str] = []
        self.is_over = False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        reading = Reading(self.client, {"cursor": "oldest"}, follows=True, lost=self._note, sleep=self._pause)
        with suppress(CallFailed):
            for event in reading.events():
                self.told.put(event)

    def _note(self, failure: CallFailed, _: str) -> None:
        self.lost.append(str(failure))

    def _pause(self, _: float) -> None:
        if self.is_over:
            raise CallFailed("it is over")
        time.sleep(0.01)

    async def groups(self, count: int) -> list[str]:
        """Those of the next events of groups, so many."""
        found: list[str] = []
        while len(found) < count:
            event = await asyncio.to_thread(self.told.get, timeout=60)
            found += [event["group_id"]] if "group_id" in event else []
        return sorted(found)

    def end(self) -> None:
        self.is_over = True
        self.thread.join(30)
        self.client.close()
        assert not self.thread.is_alive()


async def stop(nodes: Nodes, node_id: str) -> None:
    """As a service does: its streams end before it is gone."""
    nodes.feeds[node_id].close()
    await nodes.stop(node_id)


async def test_it_goes_on_at_another_node_behind_the_last_event() -> None:
    """Only the first node was named; the others are known from the cluster, also one that came later."""
    async with opened() as nodes:
        first, second = await nodes.start(), await nodes.start()
        follower = Follower(url(first))
        try:
            tell(nodes, first, "a1")
            tell(nodes, second, "b1")
            assert await follower.groups(2) == ["a1", "b1"]
            await stop(nodes, first)
            tell(nodes, second, "b2", "b3")
            assert await follower.groups(2) == ["b2", "b3"]
            third = await nodes.start()
            tell(nodes, third, "c1")
            assert await follower.groups(1) == ["c1"]
            await stop(nodes, second)
            tell(nodes, third, "c2")
            assert await follower.groups(1) == ["c2"]
            assert follower.told.empty()
        finally:
            for node_id in list(nodes.stacks):
                await stop(nodes, node_id)
            await asyncio.to_thread(follower.end)


# --- a stream that breaks off

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextmanager
def streams(*bodies: bytes | None) -> Iterator[tuple[str, list[str]]]:
    """A server that answers each request for events with the next body, and then breaks off; None: with nothing at all.

    Its URL, and the cursors that were asked for.
    """
    cursors: list[str] = []
    rest = iter(bodies)

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            target = self.rfile.readline().split()[1].decode()
            while self.rfile.readline().strip():
                """The head of the request."""
            if not target.startswith("/v1/events"):
                self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\n{"nodes":[]}')
                return
            cursors.append(parse_qs(urlsplit(target).query)["cursor"][0])
            body = next(rest)
            if body is not None:
                self.wfile.write(HEAD)
                self.wfile.write(f"{len(body):x}\r\n".encode() + body + b"\r\n")

    server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", cursors
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def body(number: int) -> bytes:
    return f'id: a-{number}\nevent: x\ndata: {{"kind":"x","n":{number}}}\n\n'.encode()


def test_a_stream_that_breaks_off_is_followed_again_behind_its_last_event() -> None:
    lost: list[str] = []
    slept: list[float] = []
    with streams(body(1), None, body(2)) as (base, cursors):
        client = Client((base,))
        events = Reading(
            client, {"cursor": "oldest"}, follows=True, lost=lambda _, further: lost.append(further), sleep=slept.append
        ).events()
        assert [next(events)["n"], next(events)["n"]] == [1, 2]
        assert cursors == ["oldest", "a-1", "a-1"]
        assert lost == [base, base]
        assert slept == [1.0, 1.0]
        client.close()


def test_what_is_not_followed_and_breaks_off_is_no_whole_answer(capsys: Captured) -> None:
    """It must not look as if nothing more had been kept."""
    with streams(body(1)) as (base, cursors):
        assert main(["events", "--coordinator", base, "-o", "json"]) == 3
        captured = capsys.readouterr()
        assert json.loads(captured.out)["n"] == 1
        assert "closed the connection" in captured.err
        assert cursors == ["oldest"]


class Endless:
    """A service that has kept ten events, says so, and on which something happens for ever."""

    urls = ("http://127.0.0.1:1",)

    def __init__(self, comment: str) -> None:
        self.comment = comment

    @contextmanager
    def stream(self, *_: object) -> Iterator[Iterator[bytes]]:
        yield self._lines()

    def _lines(self) -> Iterator[bytes]:
        for number in itertools.count():
            if number == 10:
                yield from (self.comment.encode(), b"id: a-9", b"")
            event = json.dumps({"kind": "x", "group_id": "g", "n": number})
            yield from (f"id: a-{number}".encode(), f"data: {event}".encode(), b"")


@pytest.mark.parametrize("comment", [": caught up", ": heartbeat"])
def test_what_is_not_followed_ends_when_all_that_was_kept_is_told(comment: str) -> None:
    """A service of an earlier release says nothing of it, but in time a heartbeat that there is nothing to tell."""
    busy: Any = Endless(comment)
    reading = Reading(busy, {"cursor": "oldest"}, follows=False, lost=lambda *_: None)
    assert [event["n"] for event in reading.events()] == list(range(10))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi", "it is no Rallypoint service"),
        (HEAD + b"c\r\ndata: {bad\n\n\r\n0\r\n\r\n", "tells events that are not JSON"),
    ],
)
def test_what_is_no_stream_of_events_is_an_error(answer: bytes, said: str, capsys: Captured) -> None:
    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(answer)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            assert main(["events", "--coordinator", f"http://127.0.0.1:{server.server_address[1]}"]) == 1
        finally:
            server.shutdown()
            thread.join()
    assert said in capsys.readouterr().err
