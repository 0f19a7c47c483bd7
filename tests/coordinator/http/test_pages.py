"""What people and probes get: pages with a strict policy, the OpenAPI document, health, metrics."""

import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

import pytest

from rallypoint.coordinator.http.errors import ERROR_PAGES
from rallypoint.coordinator.http.reference.meanings import MEANINGS
from rallypoint.coordinator.http.reference.openapi import openapi_document, problems_of
from rallypoint.coordinator.limits import FIXED
from rallypoint.coordinator.runtime.condition import ShardState, UnavailableShard
from rallypoint.coordinator.storage.contract import StoreStatus
from rallypoint.protocol.errors import ERRORS, HTTP_SLUGS, SUPERSEDED, ErrorCode
from rallypoint.protocol.messages import Problem
from rallypoint.protocol.operations import OPERATIONS
from tests.coordinator.http.problem_checks import check_problem
from tests.fakes.api_server import ApiClient
from tests.fakes.fake_service import FakeService

PLAIN = {"Accept-Encoding": "identity"}


class Links(HTMLParser):
    """Collects what a page refers to, and what could run."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in {"href", "src"} and value is not None:
                self.targets.append(value)
            elif name == "id" and value is not None:
                assert value not in self.ids, f"{value} stands twice"
                self.ids.add(value)
            assert not name.startswith("on"), "the policy forbids scripts"


def read(page: bytes) -> Links:
    links = Links()
    links.feed(page.decode())
    return links


@pytest.mark.parametrize("path", ["/docs", "/errors", "/errors/superseded"])
async def test_pages_fetch_nothing_from_elsewhere(api: ApiClient, path: str) -> None:
    answer = await api.request("GET", path)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    links = read(answer.body)
    assert "script" not in links.tags
    assert all(target.startswith(("/", "#")) for target in links.targets)
    assert {target[1:] for target in links.targets if target.startswith("#")} <= links.ids


async def test_every_link_of_the_pages_leads_somewhere(api: ApiClient) -> None:
    targets: set[str] = set()
    for path in ("/", "/docs", "/errors"):
        # Those of the operators' page are relative to it.
        targets.update(
            urljoin("/", target) for target in read((await api.request("GET", path, headers=PLAIN)).body).targets
        )
    for target in sorted(targets):
        if target.startswith("/"):
            assert (await api.request("GET", target)).status == 200, target


async def test_the_reference_shows_every_operation_and_field(api: ApiClient) -> None:
    page = (await api.request("GET", "/docs")).body.decode()
    for operation in OPERATIONS:
        assert f'id="{operation.name}"' in page
        assert operation.path in page
        assert operation.summary.split(";")[0] in page
        for name in operation.request.model_fields if operation.request else ():
            assert re.search(rf"<code>{name.removesuffix('s')}s?</code>", page), name


def test_every_error_has_a_page_and_nothing_else_has() -> None:
    slugs = {row.slug for code, row in ERRORS.items() if code is not ErrorCode.NONE}
    slugs.remove("sasl-authentication-failed")
    assert set(ERROR_PAGES) == slugs | {SUPERSEDED, *HTTP_SLUGS.values()}
    for page in ERROR_PAGES.values():
        assert page.title
        assert page.action.endswith(".")


@pytest.mark.parametrize("slug", ERROR_PAGES)
async def test_the_page_of_an_error_says_what_it_means_when_it_occurs_and_what_to_do(api: ApiClient, slug: str) -> None:
    text = (await api.request("GET", f"/errors/{slug}")).body.decode()
    parts = dict(re.findall(r"<h2>([^<]+)</h2>(.*?)(?=<h2>|<p><a href)", text, re.DOTALL))
    assert list(parts) == ["What it means", "When it occurs", "What to do", "As an answer"]
    words = {name: unescape(re.sub(r"<[^>]+>", "", part)).strip() for name, part in parts.items()}
    assert all(len(words[name].split()) >= 5 and words[name].endswith(".") for name in list(parts)[:3]), words
    calls = [x for x in OPERATIONS if slug in problems_of(x)]
    if 0 < len(calls) < len(OPERATIONS):
        assert all(f"{call.method} {call.path}" in words["When it occurs"] for call in calls)
    problem = Problem.model_validate_json(words["As an answer"][words["As an answer"].index("{") :])
    page = ERROR_PAGES[slug]
    assert (problem.type, problem.status, problem.error_code) == (f"/errors/{slug}", page.status, page.code)
    assert (problem.title, problem.retriable) == (page.title, page.retriable)
    assert problem.detail.endswith(".")


def test_every_error_has_its_meaning_and_nothing_else_has() -> None:
    assert MEANINGS.keys() == ERROR_PAGES.keys()


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_the_document_hangs_together() -> None:
    document = openapi_document("1.2.3")
    assert (document["openapi"], document["info"]["version"]) == ("3.1.0", "1.2.3")
    schemas = document["components"]["schemas"]
    named = {f"#/components/schemas/{name}" for name in schemas}
    assert set(references(document)) <= named
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))
    for operation in OPERATIONS:
        described = document["paths"][operation.path][operation.method.lower()]
        in_path = {parameter["name"] for parameter in described["parameters"] if parameter["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", operation.path))
        assert ("202" in described["responses"]) == operation.waits
        takes_body = operation.request is not None and operation.method in {"POST", "PUT"}
        assert ("requestBody" in described) == takes_body
        assert {"400", "401", "403", "500", "503"} <= set(described["responses"])


def test_the_shapes_say_what_the_models_say() -> None:
    shapes = openapi_document("1")["components"]["schemas"]
    for operation in OPERATIONS:
        assert operation.answer.__name__ in shapes
        if operation.request is not None:
            shape = shapes[operation.request.__name__]
            assert shape["additionalProperties"] is False, "requests refuse unknown fields"
            assert set(shape["properties"]) == set(operation.request.model_fields)
    offsets = shapes["CommitRequest"]["properties"]["offsets"]
    assert offsets["propertyNames"] == {"maxLength": 255, "minLength": 1}
    names = offsets["additionalProperties"]["propertyNames"]["pattern"]
    assert all(re.search(names, text) for text in ("0", "7", "10", "2147483647"))
    assert not any(
        re.search(names, text) for text in ("", "00", "-1", "1_0", "a", "2147483648", "3000000000", "99999999999")
    )
    assert shapes["PutTopicRequest"]["properties"]["end_offsets"]["propertyNames"] == {"pattern": names}
    assert shapes["PutTopicRequest"]["properties"]["partitions"]["minimum"] == 1


async def test_the_document_is_served(api: ApiClient) -> None:
    answer = await api.request("GET", "/openapi.json")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json == openapi_document("0")


async def test_readiness_follows_the_phase(api: ApiClient, service: FakeService) -> None:
    shards = {"Absent": 0, "Loading": 0, "Active": 3, "Failed": 0}
    assert (await api.request("GET", "/readyz")).json == {
        "status": "ok",
        "shards": shards,
        "unavailable_shards": [],
        "damaged_group_count": 0,
        "append_age_ms": 0,
    }
    for phase, name in (
        ("starting", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("loading", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("draining", "COORDINATOR_NOT_AVAILABLE"),
        ("stopped", "COORDINATOR_NOT_AVAILABLE"),
    ):
        service.phase = phase
        problem = check_problem(await api.request("GET", "/readyz"))
        assert (problem["status"], problem["error_name"]) == (503, name)
        assert (await api.request("GET", "/healthz")).json == {"status": "ok"}


async def test_readiness_names_the_shards_that_are_not_served_whatever_its_verdict(
    api: ApiClient, service: FakeService
) -> None:
    failed = UnavailableShard(7, ShardState.FAILED, "cannot open /var/lib/secret", "StorageUnavailable")
    loading = UnavailableShard(9, ShardState.LOADING)
    service.unavailable = (failed, loading)
    answer = await api.request("GET", "/readyz")
    assert (answer.status, answer.json["shards"]) == (200, {"Absent": 0, "Loading": 1, "Active": 3, "Failed": 1})
    assert answer.json["unavailable_shards"] == [
        {"shard": 7, "state": "Failed", "error": "StorageUnavailable"},
        {"shard": 9, "state": "Loading", "error": None},
    ]
    service.active_shards = 0
    answer = await api.request("GET", "/readyz")
    problem = check_problem(answer)
    assert (problem["status"], problem["error_name"]) == (503, "COORDINATOR_NOT_AVAILABLE")
    assert problem["shards"] == {"Absent": 0, "Loading": 1, "Active": 0, "Failed": 1}
    assert [shard["shard"] for shard in problem["unavailable_shards"]] == [7, 9]
    assert b"secret" not in answer.body, "the probe needs no token"
    service.unavailable = (loading,)
    problem = check_problem(await api.request("GET", "/readyz"))
    assert problem["error_name"] == "COORDINATOR_LOAD_IN_PROGRESS"
    service.unavailable = ()
    assert (await api.request("GET", "/readyz")).status == 200, "a node without shards of its own lacks nothing"


async def test_a_node_that_can_store_nothing_is_not_ready_whatever_its_shards(
    api: ApiClient, service: FakeService
) -> None:
    service.store = StoreStatus("the disk is full")
    problem = check_problem(await api.request("GET", "/readyz"))
    assert (problem["status"], problem["error_name"]) == (503, "COORDINATOR_NOT_AVAILABLE")
    assert problem["detail"] == "Nothing can be stored now: the disk is full. The log says more."
    service.store = StoreStatus()
    assert (await api.request("GET", "/readyz")).status == 200


async def test_metrics_are_served(api: ApiClient) -> None:
    answer = await api.request("GET", "/metrics")
    assert (answer.status, answer.body) == (200, b"# nothing is counted\n")


def test_the_document_names_every_limit_that_is_fixed() -> None:
    document = openapi_document("1")
    named = document["x-limits"]
    assert named == {name: value for name, value in FIXED.items() if not name.startswith("storage_")}
    assert (named["max_body_bytes"], named["max_sync_bytes"], named["json_depth_max"]) == (1_048_576, 33_554_432, 32)
    for number in ("1,048,576", "33,554,432", "32 levels"):
        assert number in document["info"]["description"]
