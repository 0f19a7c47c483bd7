"""Requests that were good once, and bytes that never were: what a broken client, proxy or attacker may send.

Each begins as a good request to a group that is there. Then its JSON, its framing or its bytes are torn.
"""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from rallypoint.protocol.operations import OPERATIONS

GROUP = "g"
ABSENT = "absent"
TOPIC = "t"


@dataclass(frozen=True)
class Base:
    """A good request, but for its bytes."""

    method: str
    target: str
    body: Any = None


def whole(base: Base) -> bytes:
    """The request as it was before anything is torn."""
    body = b"" if base.body is None else json.dumps(base.body).encode()
    length = [b"Content-Length: %d" % len(body)] if body else []
    first = b"%s %s HTTP/1.1" % (base.method.encode(), base.target.encode())
    return b"\r\n".join([first, b"Host: localhost", GOOD_TYPE, *length, b"", b""]) + body


def join(member_id: str) -> dict[str, Any]:
    return {
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": {"topics": [TOPIC]}}],
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "max_wait_ms": 0,
    }


def bases(member_id: str) -> list[Base]:
    """A good request of each operation, as far as one is known. `member_id` leads the group, in generation 1.

    None of them takes it out, in whatever order they come: what comes later is to come as far as the rules, too.
    """
    of_member = {"generation_id": 1, "member_id": member_id}
    offsets = {TOPIC: {"0": {"offset": 7, "leader_epoch": 1, "metadata": "m"}}}
    made = [
        Base("GET", f"/v1/groups/{GROUP}/owner?topic={TOPIC}&partition=0"),
        Base("GET", f"/v1/groups/{GROUP}/partitions?topic={TOPIC}&status=OK&owned=false&limit=5"),
        Base("GET", f"/v1/groups/{GROUP}/lag"),
        Base("GET", f"/v1/topics/{TOPIC}?limit=5"),
        Base("GET", f"/v1/groups/{GROUP}/ownership?topic={TOPIC}&partition=0&limit=5"),
        Base("GET", "/v1/groups?sort=lag&descending=true&status=ok&search=a&lag_above=0&frozen=false&totals=true"),
        Base("PUT", f"/v1/groups/{GROUP}/cooldown", {"cooldown_ms": 500}),
        Base(
            "POST", f"/v1/groups/{GROUP}/members/remove", {"members": ["nobody", "i"], "reason": "why", "dry_run": True}
        ),
        Base("PUT", f"/v1/groups/{GROUP}/join_wait", {"join_wait_max_ms": 5000}),
        Base("POST", f"/v1/groups/{GROUP}/rebalance/proceed", {"reason": "why", "dry_run": True}),
        Base("PUT", f"/v1/groups/{GROUP}/freeze", {"duration_ms": 50, "until": "members_replaced", "reason": "why"}),
        Base("GET", f"/v1/coordinator?group_id={GROUP}&group_id=h"),
        Base("POST", f"/v1/groups/{GROUP}/join", join(member_id) | {"request_id": "r", "reason": "why"}),
        Base(
            "POST",
            f"/v1/groups/{GROUP}/sync",
            of_member
            | {
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": [{"member_id": member_id, "assignment": {"partitions": {TOPIC: [0]}}}],
            },
        ),
        Base("POST", f"/v1/groups/{GROUP}/heartbeat", of_member | {"wait_ms": 0}),
        Base("POST", f"/v1/groups/{GROUP}/leave", {"members": [{"member_id": "nobody", "reason": "why"}]}),
        Base("POST", f"/v1/groups/{GROUP}/offsets", of_member | {"offsets": offsets}),
        Base("GET", f"/v1/groups/{GROUP}/offsets?topic={TOPIC}"),
        Base("POST", "/v1/groups/simple/offsets/reset", {"to": "shift", "shift": 1, "topics": {TOPIC: [0]}}),
        Base("POST", "/v1/groups/simple/offsets/reset", {"to": "time", "at_ms": 1_700_000_000_000}),
        Base("POST", "/v1/groups/simple/offsets/reset", {"to": "offsets", "offsets": {TOPIC: {"0": 4}}}),
        Base("DELETE", f"/v1/groups/simple/offsets?topic={TOPIC}&partition=u:3&dry_run=false"),
        Base("GET", "/v1/groups?limit=5"),
        Base("GET", f"/v1/groups/{GROUP}"),
        Base("DELETE", f"/v1/groups/{GROUP}"),
        Base("GET", "/v1/topics"),
        Base("PUT", f"/v1/topics/{TOPIC}", {"partitions": 4, "end_offsets": {"0": 10}}),
        Base("DELETE", "/v1/topics/unknown"),
    ]
    known = {(base.method, base.target.partition("?")[0].replace("/simple/", f"/{GROUP}/")) for base in made}
    for operation in OPERATIONS:
        path = operation.path.replace("{group_id}", GROUP).replace("{topic}", TOPIC)
        if (operation.method, path) not in known:
            made.append(
                Base(operation.method, path, {"reason": "why"} if operation.method in {"POST", "PUT"} else None)
            )
    return made


NASTY_VALUES = st.sampled_from(
    [
        b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0", b"1.5", b"9" * 40, b"-" + b"9" * 25, b"9" * 5_000,
        b"2147483648", b"9223372036854775808", b"1E400", b"true", b"null", b"[]", b"{}", b'""', b'"\\ud800"',
        b'"\\udc00\\ud800"', b'"\\u0000"', b'"\x00"', b'"\xff\xfe"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b"'a'",
        b'"' + b"x" * 300 + b'"', b"[" * 1_000, b"[" * 1_000 + b"]" * 1_000, b'{"a":' * 500 + b"1" + b"}" * 500,
        b"0x10", b"01", b"+1", b".5", b"1.", b"/**/1", b'"\\x41"', b'"\n"', b"", b",", b"undefined", b"\xef\xbb\xbf1",
    ]
)  # fmt: skip


@st.composite
def torn_json(draw: st.DrawFn, value: Any) -> bytes:
    """The JSON of the value with something wrong in it; seldom it stays good."""
    text = json.dumps(value).encode()
    places = [at for at, byte in enumerate(text) if byte in b":,[{"]
    match draw(st.integers(0, 6)):
        case 0:
            start = draw(st.sampled_from(places)) + 1
            ends = [at for at in range(start, len(text)) if text[at] in b",]}"]
            end = draw(st.sampled_from(ends or [len(text)]))
            return text[:start] + draw(NASTY_VALUES) + text[end:]
        case 1:
            return text[: draw(st.integers(0, len(text) - 1))]
        case 2:
            key = draw(st.sampled_from(sorted(value)))
            again = json.dumps({key: value[key]}).encode()[1:-1]
            return b"{" + again + b", " + text[1:]
        case 3:
            return draw(st.sampled_from([b"\xef\xbb\xbf", b" \n", b"\x00", b"[", b"//"])) + text
        case 4:
            return text + draw(st.sampled_from([b"\x00", b"{}", b",", b"\n\n", b"]", b"\xff"]))
        case 5:
            return json.dumps(value).encode(draw(st.sampled_from(["utf-16", "utf-32", "utf-16-be", "cp037"])))
    return text


GOOD_TYPE = b"Content-Type: application/json"
TYPES = st.sampled_from(
    [
        GOOD_TYPE, GOOD_TYPE, GOOD_TYPE, b"Content-Type: APPLICATION/JSON ; charset=UTF-8", b"Content-Type:",
        b"Content-Type: text/plain", b"Content-Type: application/json; charset=latin-1", b"X-Nothing: 1",
        b"Content-Type: application/json\r\nContent-Type: text/html", b"Content-Type: multipart/form-data",
        b"Content-Type: \xff\xfe", b"Content-Type: application/x-www-form-urlencoded", GOOD_TYPE + b";" * 50,
    ]
)  # fmt: skip
MORE_HEADERS = st.sampled_from(
    [
        b"Content-Encoding: gzip", b"Expect: 100-continue", b"Expect: nothing", b"Host: other:99", b"Host: \xff",
        b"Transfer-Encoding: gzip", b"Connection: upgrade\r\nUpgrade: websocket", b"Upgrade: h2c", b"A" * 20_000,
        b"A: " + b"b" * 9_000, b" folded: x", b"no colon", b"Bad Name: x", b"N\x00ul: x", b"Nul: \x00", b": empty",
        b"X: \r\n y", b"Origin: https://elsewhere.example", b"Authorization: Bearer", b"Cookie: " + b"a=b; " * 500,
        b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: x", b"Content-Length: " + b"9" * 30,
        b"Content-Length: 1, 1", b"Content-Length: +3", b"Content-Length: 0x3", b"X-Forwarded-For: '\"<script>",
        b"\r\n".join(b"H%d: v" % at for at in range(150)), b"Range: bytes=0-", b"If-Match: *", b"TE: trailers",
    ]
)  # fmt: skip
CHUNK_HEADS = st.sampled_from([b"%x", b"%x;a=b", b"-%x", b"0x%x", b"%x ", b"ffffffffffffffff%x", b"%xz", b"\n%x"])


@st.composite
def framed(draw: st.DrawFn, body: bytes) -> tuple[list[bytes], bytes]:
    """(headers, body): lengths and chunks that mostly do not fit."""
    match draw(st.integers(0, 7)):
        case 0:
            return [b"Content-Length: %d" % (len(body) + draw(st.integers(1, 50)))], body
        case 1:
            return [b"Content-Length: %d" % max(0, len(body) - draw(st.integers(1, 50)))], body
        case 2:
            return [draw(MORE_HEADERS), b"Content-Length: %d" % len(body)], body
        case 3:
            return [b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked"], body
        case 4:
            head = draw(CHUNK_HEADS) % len(body)
            end = draw(
                st.sampled_from([b"\r\n0\r\n\r\n", b"0\r\n\r\n", b"\r\n", b"\r\n0\r\nT: x\r\n\r\n", b"\r\nzz\r\n"])
            )
            return [b"Transfer-Encoding: chunked"], head + b"\r\n" + body + end
        case 5:
            pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
            return [b"Transfer-Encoding: chunked"], pieces + b"0\r\n\r\n"
        case 6:
            return [], body
    return [b"Content-Length: %d" % len(body)], body


LINES = st.sampled_from(
    [
        b"%s %s HTTP/1.1", b"%s %s HTTP/1.1", b"%s %s HTTP/1.1", b"%s %s HTTP/1.0", b"%s %s HTTP/2.0",
        b"%s %s HTTP/9.9",
        b"%s  %s  HTTP/1.1", b"%s %s", b"%s\t%s HTTP/1.1", b"%s http://localhost%s HTTP/1.1", b"\r\n%s %s HTTP/1.1",
        b"PRI%s %s HTTP/1.1", b"%s %s#part HTTP/1.1", b"%s %s%%ff HTTP/1.1",
        b"%s %s?topic=%%c3%%28 HTTP/1.1", b"%s %s%%zz HTTP/1.1", b"%s %s/%%2e%%2e/ HTTP/1.1",
        b"%s %s?a HTTP/1.1",
        b"%s %s\xff HTTP/1.1", b"%s //host%s HTTP/1.1", b"%s *%s HTTP/1.1", b"%s %s" + b"/x" * 6_000 + b" HTTP/1.1",
        b"%s %s&limit=x&limit=y HTTP/1.1", b"%s %s HTTP/1.1 more", b"%s %s HTCPCP/1.0", b"%s %s%%00 HTTP/1.1",
    ]
)  # fmt: skip


@st.composite
def torn_requests(draw: st.DrawFn, good: list[Base]) -> bytes:
    """The bytes of one request on a connection, of which mostly one thing is wrong."""
    base = draw(st.sampled_from(good))
    target = base.target.replace(f"/{GROUP}/", draw(st.sampled_from([f"/{GROUP}/", f"/{GROUP}/", f"/{ABSENT}/"])))
    what = draw(st.sampled_from(["body", "framing", "line", "type", "bytes", "nothing", "all"]))
    body = b"" if base.body is None else json.dumps(base.body).encode()
    if base.body is None and what == "body":
        body = draw(NASTY_VALUES)
    elif what in {"body", "all"} and base.body is not None:
        body = draw(torn_json(base.body))
    headers = [b"Content-Length: %d" % len(body)] if body else []
    if what in {"framing", "all"}:
        headers, body = draw(framed(body))
    content_type = draw(TYPES) if what in {"type", "all"} else GOOD_TYPE
    line = draw(LINES) if what in {"line", "all"} else b"%s %s HTTP/1.1"
    first = line % (base.method.encode(), target.encode())
    made = b"\r\n".join([first, b"Host: localhost", content_type, *headers, b"", b""]) + body
    if what == "bytes":
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(made) - 1))
            made = made[:at] + draw(st.binary(max_size=4)) + made[at + draw(st.integers(0, 6)) :]
    return made
