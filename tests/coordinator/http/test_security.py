"""Who is let in: by host, by origin, by token."""

import re
from collections.abc import AsyncIterator

import pytest

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.http.hosts import host_of_authority, is_loopback
from rallypoint.coordinator.http.security import SecurityPolicy
from rallypoint.coordinator.settings import Settings, flag_of, variable_of
from rallypoint.protocol.operations import OPERATIONS, Operation, path_of
from tests.coordinator.http.problem_checks import check_problem
from tests.fakes.api_server import ApiClient, open_api, parse_answer
from tests.fakes.fake_service import FakeService

TOKEN = "rp_something-long-and-random"
PUBLIC = ("/", "/docs", "/openapi.json", "/errors", "/errors/invalid-request", "/healthz", "/readyz")


@pytest.fixture
async def guarded(service: FakeService) -> AsyncIterator[ApiClient]:
    policy = SecurityPolicy(
        hosts=frozenset({"rally.example.org"}),
        origins=frozenset({"https://console.example.org"}),
        tokens=(hash_token("another"), hash_token(TOKEN)),
    )
    async with open_api(service, policy=policy) as client:
        yield client


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8000",
        "LOCALHOST.",
        "127.0.0.1",
        "127.1.2.3:80",
        "[::1]",
        "[::1]:8000",
        "rally.example.org",
    ],
)
async def test_own_names_are_hosts(service: FakeService, host: str) -> None:
    async with open_api(service, policy=SecurityPolicy(hosts=frozenset({"rally.example.org"}))) as api:
        assert (await api.request("GET", "/v1/topics", headers={"Host": host})).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.org",
        "localhost.evil.org",
        "127.0.0.1.evil.org",
        "10.0.0.1",
        "[::2]",
        "",
        "localhost:x",
        "a@localhost",
        "localhost/",
        "rally.example.org",
    ],
)
async def test_other_names_are_refused(api: ApiClient, host: str) -> None:
    for target in ("/v1/topics", "/", "/docs", "/metrics", "/nothing"):
        problem = check_problem(await api.request("GET", target, headers={"Host": host}))
        assert (problem["status"], problem["error_name"], problem["field"]) == (
            403,
            "CLUSTER_AUTHORIZATION_FAILED",
            "Host",
        )


@pytest.mark.parametrize(
    ("host", "called"),
    [("Rally.svc:8000", "the name 'rally.svc' in `Host`"), ("<b>", "the name in `Host`"), ("", "the name in `Host`")],
)
async def test_the_refusal_of_a_name_says_which_settings_let_it_in(api: ApiClient, host: str, called: str) -> None:
    problem = check_problem(await api.request("GET", "/v1/topics", headers={"Host": host}))
    assert problem["detail"] == (
        f"The service does not go by {called}. If clients are to call it so, name it in the setting `allowed_hosts`"
        " (--allowed-hosts, RALLYPOINT_ALLOWED_HOSTS), or as the URL `advertised_url`."
    )
    assert "allowed_hosts" in Settings.model_fields
    assert variable_of("allowed_hosts") in problem["detail"]
    assert flag_of("allowed_hosts") in problem["detail"]
    assert "advertised_url" in Settings.model_fields


async def test_probes_come_by_any_address(api: ApiClient) -> None:
    for target in ("/healthz", "/readyz"):
        assert (await api.request("GET", target, headers={"Host": "10.0.0.7:8000"})).status == 200


async def test_any_host_can_be_allowed(service: FakeService) -> None:
    async with open_api(service, policy=SecurityPolicy(hosts=frozenset({"*"}))) as api:
        assert (await api.request("GET", "/v1/topics", headers={"Host": "what.ever"})).status == 200
        assert (await api.request("GET", "/v1/topics", headers={"Host": "what ever"})).status == 403


async def test_the_host_of_an_absolute_target_counts_too(api: ApiClient) -> None:
    for target, status in (("http://localhost/v1/topics", 200), ("http://evil.org/v1/topics", 403)):
        received = await api.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert parse_answer(received).status == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://evil.example.org", 403),
        ("null", 403),
        ("", 403),
        ("http://localhost:3000", 403),
        ("http://localhost:8000", 200),
        ("HTTP://LOCALHOST:8000", 200),
        ("https://console.example.org", 200),
        ("http://console.example.org", 403),
        ("https://console.example.org:444", 403),
        ("file://localhost:8000", 403),
    ],
)
async def test_pages_of_other_origins_are_refused(service: FakeService, origin: str, status: int) -> None:
    policy = SecurityPolicy(origins=frozenset({"https://console.example.org"}))
    async with open_api(service, policy=policy) as api:
        for target in ("/v1/topics", "/docs", "/healthz"):
            answer = await api.request("GET", target, headers={"Host": "localhost:8000", "Origin": origin})
            assert answer.status == status
            if status == 403:
                assert check_problem(answer)["field"] == "Origin"


async def test_pages_of_an_allowed_origin_can_ask_and_read(guarded: ApiClient) -> None:
    page = {"Origin": "https://console.example.org", "Host": "rally.example.org"}
    asked = page | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    answer = await guarded.request("OPTIONS", "/v1/groups/g/heartbeat", headers=asked)
    assert (answer.status, answer.body) == (204, b"")
    assert "POST" in answer.headers["Access-Control-Allow-Methods"]
    assert "Content-Type" in answer.headers["Access-Control-Allow-Headers"]
    refused = await guarded.request("GET", "/v1/topics", headers=page)
    taken = await guarded.request("GET", "/v1/topics", headers=page | {"Authorization": f"Bearer {TOKEN}"})
    assert (refused.status, taken.status) == (401, 200)
    for shown in (answer, refused, taken):
        assert shown.headers["Access-Control-Allow-Origin"] == "https://console.example.org"
        assert shown.headers["Vary"] == "Origin"
    assert guarded.metrics.answered[0] == ("preflight", "NONE")


async def test_nobody_else_is_told_how_to_ask(guarded: ApiClient) -> None:
    asked = {"Origin": "https://evil.example.org", "Access-Control-Request-Method": "POST", "Host": "localhost"}
    answer = await guarded.request("OPTIONS", "/v1/groups/g/heartbeat", headers=asked)
    assert answer.status == 403
    assert "Access-Control-Allow-Origin" not in answer.headers
    asked = {"Origin": "https://console.example.org", "Access-Control-Request-Method": "POST", "Host": "evil.org"}
    assert (await guarded.request("OPTIONS", "/v1/groups/g/heartbeat", headers=asked)).status == 403


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_every_operation_needs_the_token(guarded: ApiClient, service: FakeService, operation: Operation) -> None:
    target = path_of(operation, **dict.fromkeys(re.findall(r"{(\w+)}", operation.path), "g"))
    answer = await guarded.request(operation.method, target, b"{}" if operation.method in {"POST", "PUT"} else None)
    problem = check_problem(answer)
    assert (problem["status"], problem["type"], problem["error_code"]) == (401, "/errors/unauthenticated", 58)
    assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
    assert not service.calls


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        f"Bearer {hash_token(TOKEN)}",
    ],
)
async def test_wrong_tokens_are_refused(guarded: ApiClient, value: str) -> None:
    answer = await guarded.request("GET", "/v1/topics", headers={"Authorization": value})
    assert answer.status == 401
    assert TOKEN.encode() not in answer.body


@pytest.mark.parametrize("value", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Bearer   {TOKEN} ", "Bearer another"])
async def test_known_tokens_are_taken(guarded: ApiClient, value: str) -> None:
    assert (await guarded.request("GET", "/v1/topics", headers={"Authorization": value})).status == 200


async def test_what_says_nothing_of_groups_is_public(guarded: ApiClient) -> None:
    for target in PUBLIC:
        assert (await guarded.request("GET", target)).status == 200
    for target in ("/metrics", "/nothing", "/v1/groups/.."):
        assert (await guarded.request("GET", target)).status == 401
    assert (await guarded.request("POST", "/docs")).status == 401


async def test_metrics_can_be_opened(service: FakeService) -> None:
    policy = SecurityPolicy(tokens=(hash_token(TOKEN),))
    async with open_api(service, policy=policy, metrics_need_token=False) as api:
        assert (await api.request("GET", "/metrics")).status == 200


@pytest.mark.parametrize(
    ("authority", "host"),
    [
        ("a", "a"),
        ("A.b.:80", "a.b"),
        ("[::1]:80", "[::1]"),
        ("a:", "a"),
        ("a:b", None),
        ("::1", None),
        ("[::1", None),
        ("a b", None),
        ("a:80:80", None),
        ("", None),
    ],
)
def test_host_of_authority(authority: str, host: str | None) -> None:
    assert host_of_authority(authority) == host


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.255.0.1", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("127.1", False),
    ],
)
def test_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
