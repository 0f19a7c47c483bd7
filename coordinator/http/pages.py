"""Paths outside the contract of groups: the pages for people, the OpenAPI document, probes, metrics.

The operators' page at `/` is made of the files in `ui`; the others are texts made from the OpenAPI document.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from aiohttp import web

from rallypoint.coordinator.http.access.request_caller import permit_of_request
from rallypoint.coordinator.http.access.requirements import DESCRIBE_CLUSTER
from rallypoint.coordinator.http.answers.json_response import JSON_HEADERS
from rallypoint.coordinator.http.contract import GroupService, HttpMetrics
from rallypoint.coordinator.http.errors import ERROR_PAGES, Refused, problem_of, refuse_http
from rallypoint.coordinator.http.reference import html
from rallypoint.coordinator.http.reference.openapi import openapi_document
from rallypoint.coordinator.http.requests.routes import Answer, Handler
from rallypoint.coordinator.http.ui.files import PageFiles
from rallypoint.coordinator.runtime.condition import Condition, why_not_ready
from rallypoint.protocol import admin_messages as admin


@dataclass(frozen=True, slots=True)
class Texts:
    """What never changes while the process lives."""

    docs: bytes
    errors: bytes
    error: Mapping[str, bytes]
    openapi: bytes


@lru_cache(maxsize=1)
def texts_of(version: str) -> Texts:
    """Make the texts. Cost: some 20 ms."""
    document = openapi_document(version)
    return Texts(
        docs=html.docs_page(document).encode(),
        errors=html.errors_page(ERROR_PAGES.values()).encode(),
        error={slug: html.error_page(page).encode() for slug, page in ERROR_PAGES.items()},
        openapi=json.dumps(document, ensure_ascii=False).encode(),
    )


page_files_of = lru_cache(maxsize=1)(PageFiles)
"""The operators' page, compressed once. Cost: some 30 ms."""


class Pages:
    """Handlers by path. `public`: no token needed; `probes`: nor an allowed `Host`."""

    def __init__(
        self, service: GroupService, metrics: HttpMetrics, version: str, *, metrics_are_public: bool = False
    ) -> None:
        """`metrics_are_public`: what is not of a group is for everybody who scrapes."""
        self._shows_node = metrics_are_public
        self._service = service
        self._metrics = metrics
        self._texts = texts_of(version)
        page = page_files_of(version)
        self.public: Mapping[str, Handler] = {
            "/": page.html,
            f"/{page.path}": page.file,
            "/docs": _html(self._texts.docs),
            "/errors": _html(self._texts.errors),
            "/errors/{slug}": self.error,
            "/openapi.json": self.openapi,
        }
        self.probes: Mapping[str, Handler] = {"/healthz": self.health, "/readyz": self.readiness}

    async def error(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """What an error means: where a problem's `type` leads."""
        page = self._texts.error.get(ids["slug"])
        if page is None:
            raise refuse_http(404, "There is no error of this name; `/errors` lists all.")
        return web.Response(body=page, headers=html.HTML_HEADERS)

    async def openapi(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """The OpenAPI document."""
        return web.Response(body=self._texts.openapi, headers=JSON_HEADERS)

    async def health(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """The process answers; that is all a liveness probe may ask."""
        return admin.HealthAnswer(status="ok")

    async def readiness(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Whether the node should be sent calls; and, either way, which shards it does not serve."""
        condition = self._service.condition()
        failure = why_not_ready(condition)
        if failure is not None:
            raise Refused(admin.NotReady(**problem_of(failure).model_dump(), **_shards_of(condition)))
        return admin.ReadinessAnswer(status="ok", **_shards_of(condition))

    async def metrics(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """Everything that is counted, as far as the caller may see it."""
        permit = permit_of_request()
        sees = None if permit.sees_all_groups else permit.sees
        of_node = self._shows_node or permit.may(DESCRIBE_CLUSTER, "")
        body, content_type = await self._metrics.page(request.headers.get("Accept", ""), sees, of_node=of_node)
        return web.Response(body=body, headers={"Content-Type": content_type, "Server": "rallypoint"})


def _shards_of(condition: Condition) -> dict[str, Any]:
    """What anybody may know of the shards: no text of an error, for it may name files or groups."""
    unavailable = (
        admin.ShardCondition(shard=shard.number, state=shard.state, error=shard.kind) for shard in condition.unavailable
    )
    return {
        "shards": dict(condition.shards),
        "unavailable_shards": tuple(unavailable),
        "damaged_group_count": condition.damaged_groups,
        "append_age_ms": condition.append_age_ms,
    }


def _html(body: bytes) -> Handler:
    async def handle(request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        return web.Response(body=body, headers=html.HTML_HEADERS)

    return handle
