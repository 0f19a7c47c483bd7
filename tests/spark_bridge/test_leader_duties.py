"""What the leader notices and reports, turn by turn, and what the service is sent."""

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from member import Assignment
from spark_bridge.coordinator_calls import Coordinators, NotAnswered
from spark_bridge.leader import HttpRegistry, LeaderDuties
from spark_bridge.membership import Membership
from spark_bridge.options import BridgeOptions, SourceOptions
from spark_bridge.subscription import Subscription
from tests.spark_bridge.group_model import CountedSource, World
from tests.spark_bridge.test_bridge_membership import FakeMember, make


class GrowingSource(CountedSource):
    """A model source whose topics the test grows."""

    def __init__(self, counts: dict[str, int]) -> None:
        super().__init__(World(16))
        self.counts = counts

    def topics(self) -> frozenset[str]:
        return frozenset(self.counts)

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: self.counts[topic] for topic in topics if topic in self.counts}


class Ledger:
    """Keeps what is reported, or refuses it."""

    def __init__(self) -> None:
        self.puts: list[tuple[str, int, int]] = []
        self.refusal: NotAnswered | None = None

    def put(self, topic: str, partitions: int, end_offsets: Mapping[int, int]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.puts.append((topic, partitions, sum(end_offsets.values())))


class Stage:
    """Duties with a clock in the test's hand."""

    def __init__(self, counts: dict[str, int], *, report: bool = True, pattern: str = "") -> None:
        self.now_ms = 0.0
        self.source = GrowingSource(counts)
        self.ledger = Ledger()
        self.membership: Membership
        self.member: FakeMember
        self.membership, self.member = make()
        options = BridgeOptions(
            coordinators=("http://model",),
            group_id="g",
            source=SourceOptions("model", () if pattern else ("clicks",)),
            topic_pattern=re.compile(pattern) if pattern else None,
            report_end_offsets=report,
        )
        self.subscription = Subscription(options, self.source)
        self.subscription.refresh()
        self.duties = LeaderDuties(options, self.source, self.ledger, self.subscription, now_ms=lambda: self.now_ms)

    def lead(self, leader: bool = True) -> None:
        self.member.assignment = Assignment(3, "m", leader, "range", frozenset())

    def turn(self, after_ms: float) -> None:
        self.now_ms += after_ms
        self.duties.take_turn(self.membership)


def test_a_topic_that_comes_to_match_is_subscribed_to_by_every_member() -> None:
    stage = Stage({"clicks-a": 4}, report=False, pattern="clicks-.")
    stage.lead(leader=False)
    stage.source.counts["clicks-b"] = 1
    stage.turn(29_999)
    assert stage.member.calls == []
    stage.turn(1)
    stage.turn(30_000)
    assert stage.member.calls == ["subscribe: clicks-a clicks-b"]


def test_growth_asks_for_a_new_assignment_once() -> None:
    stage = Stage({"clicks": 4}, report=False)
    stage.lead()
    assert stage.duties.partition_counts(frozenset({"clicks"})) == {"clicks": 4}
    stage.turn(30_000)
    assert stage.member.calls == []
    stage.source.counts["clicks"] = 6
    stage.turn(29_999)
    assert stage.member.calls == []
    stage.turn(1)
    stage.turn(30_000)
    assert stage.member.calls == ["rejoin: the number of partitions changed: clicks from 4 to 6"]


def test_a_topic_of_another_member_and_one_that_appears_are_watched_too() -> None:
    stage = Stage({"clicks": 4}, report=False)
    stage.lead()
    stage.duties.partition_counts(frozenset({"clicks", "orders"}))
    stage.source.counts["orders"] = 2
    stage.duties.take_turn(stage.membership)
    stage.turn(30_000)
    assert stage.member.calls == ["rejoin: the number of partitions changed: orders from 0 to 2"]


def test_only_the_leader_acts() -> None:
    stage = Stage({"clicks": 4})
    stage.duties.partition_counts(frozenset({"clicks"}))
    stage.source.counts["clicks"] = 5
    stage.turn(60_000)
    stage.lead(leader=False)
    stage.turn(60_000)
    assert stage.member.calls == []
    assert stage.ledger.puts == []


def test_ends_are_reported_before_joining_and_then_at_the_interval() -> None:
    stage = Stage({"clicks": 2})
    stage.source._world.ends[:2] = [5, 6]
    stage.duties.introduce()
    stage.lead()
    stage.turn(9_999)
    stage.source._world.ends[0] = 50
    stage.turn(1)
    assert stage.ledger.puts == [("clicks", 2, 11), ("clicks", 2, 56)]


@pytest.mark.parametrize(("final", "tries"), [(True, 1), (False, 2)])
def test_a_refusal_for_good_ends_the_reports(final: bool, tries: int) -> None:
    stage = Stage({"clicks": 2})
    stage.lead()
    stage.ledger.refusal = NotAnswered("no", final=final)
    stage.turn(10_000)
    stage.ledger.refusal = None
    stage.turn(10_000)
    assert len(stage.ledger.puts) == tries - 1


@contextmanager
def service(status: int, body: bytes, headers: Mapping[str, str] = {}) -> Iterator[tuple[str, list[str]]]:
    """A server that answers everything alike and keeps what it was sent."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            length = int(self.headers["Content-Length"])
            seen.append(f"{self.path} {self.headers['Authorization']} {self.rfile.read(length).decode()}")
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Silence."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()
        thread.join()


def test_a_report_is_one_put_with_the_token() -> None:
    with service(200, b"{}") as (url, seen):
        HttpRegistry(Coordinators((url + "/",), "t0ken")).put("a/b", 2, {1: 7, 0: 5})
    assert seen == ['/v1/topics/a%2Fb Bearer t0ken {"partitions": 2, "end_offsets": {"0": 5, "1": 7}}']


def test_the_next_node_is_tried_and_a_wrong_one_is_followed() -> None:
    with service(200, b"{}") as (right, seen), service(421, b"{}", {"Location": f"{right}/v1/topics/t"}) as (wrong, _):
        HttpRegistry(Coordinators(("http://127.0.0.1:9", wrong), None)).put("t", 1, {})
    assert seen == ['/v1/topics/t None {"partitions": 1, "end_offsets": {}}']


@pytest.mark.parametrize(
    ("status", "final", "says"), [(403, True, "HTTP 403: not you"), (503, False, "HTTP 503: not you")]
)
def test_a_refusal_says_why_and_whether_for_good(status: int, final: bool, says: str) -> None:
    body = json.dumps({"detail": "not you"}).encode()
    with service(status, body) as (url, _), pytest.raises(NotAnswered, match=says) as caught:
        HttpRegistry(Coordinators((url,), None)).put("t", 1, {})
    assert caught.value.final is final


def test_nodes_that_point_at_each_other_are_left_alone() -> None:
    with service(421, b"{}") as (url, seen), pytest.raises(NotAnswered, match="HTTP 421"):
        HttpRegistry(Coordinators((url,), None)).put("t", 1, {})
    assert len(seen) == 1
