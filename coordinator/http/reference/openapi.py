"""The OpenAPI 3.1 document, made from the table of operations, the models and the error table. Nothing is typed twice.

Which errors an operation can meet is the one thing that stands here alone; tests hold every problem they meet against
it.
"""

from collections.abc import Iterable
from typing import Any, cast, get_args

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from rallypoint.coordinator.http.errors import ERROR_PAGES, PROBLEM_TYPE
from rallypoint.coordinator.http.events.codec import KINDS, STREAM_KINDS
from rallypoint.coordinator.http.events.streams import CURSOR_HEADER
from rallypoint.coordinator.http.requests.inputs import query_fields
from rallypoint.coordinator.limits import FIXED
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import channel_messages as s
from rallypoint.protocol import limits, operations
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import HTTP_SLUGS, SUPERSEDED
from rallypoint.protocol.operations import OPERATIONS, Operation

REF = "#/components/schemas/"

# --- which problems an operation can answer, by the last segment of their type

_EVERYWHERE = ("invalid-request", HTTP_SLUGS[401], "cluster-authorization-failed", "unknown-server-error")
_WITH_BODY = (HTTP_SLUGS[413], HTTP_SLUGS[415])
_OF_CAPACITY = ("throttling-quota-exceeded",)
_OF_SERVICE = ("coordinator-load-in-progress", "coordinator-not-available")
_OF_GROUP = ("invalid-group-id", "not-coordinator")
_OF_MEMBER = ("unknown-member-id", "fenced-instance-id", "rebalance-in-progress", "illegal-generation")

PROBLEMS: dict[str, tuple[str, ...]] = {
    operations.COORDINATOR.name: (),
    operations.JOIN.name: (
        *_OF_GROUP,
        "invalid-session-timeout",
        "inconsistent-group-protocol",
        "unknown-member-id",
        "member-id-required",
        "fenced-instance-id",
        "group-max-size-reached",
        SUPERSEDED,
    ),
    operations.SYNC.name: (*_OF_GROUP, *_OF_MEMBER, "inconsistent-group-protocol", SUPERSEDED),
    operations.HEARTBEAT.name: (*_OF_GROUP, *_OF_MEMBER, SUPERSEDED),
    operations.HEARTBEATS.name: (),
    operations.LEAVE.name: _OF_GROUP,
    operations.COMMIT.name: (*_OF_GROUP, *_OF_MEMBER, "invalid-commit-offset-size"),
    operations.FETCH.name: _OF_GROUP,
    operations.RESET_OFFSETS.name: (*_OF_GROUP, "group-id-not-found", "non-empty-group"),
    operations.DELETE_OFFSETS.name: (*_OF_GROUP, "group-id-not-found", "non-empty-group"),
    operations.LIST_GROUPS.name: (),
    operations.DESCRIBE.name: (*_OF_GROUP, "group-id-not-found"),
    operations.DELETE_GROUP.name: (*_OF_GROUP, "group-id-not-found", "non-empty-group"),
    operations.LIST_REBALANCES.name: (*_OF_GROUP, "group-id-not-found"),
    operations.START_REBALANCE.name: (*_OF_GROUP, "group-id-not-found"),
    operations.FREEZE.name: (*_OF_GROUP, "group-id-not-found"),
    operations.THAW.name: (*_OF_GROUP, "group-id-not-found"),
    operations.COOLDOWN.name: (*_OF_GROUP, "group-id-not-found"),
    operations.REMOVE_MEMBERS.name: (*_OF_GROUP, "group-id-not-found"),
    operations.PROCEED.name: (*_OF_GROUP, "group-id-not-found"),
    operations.JOIN_WAIT.name: (*_OF_GROUP, "group-id-not-found"),
    operations.OWNER.name: (
        *_OF_GROUP,
        "group-id-not-found",
        "inconsistent-group-protocol",
        "unknown-topic-or-partition",
    ),
    operations.LIST_PARTITIONS.name: (*_OF_GROUP, "group-id-not-found"),
    operations.LAG_HISTORY.name: (*_OF_GROUP, "group-id-not-found"),
    operations.OWNERSHIP_HISTORY.name: (*_OF_GROUP, "group-id-not-found"),
    operations.PREVIEW.name: (
        *_OF_GROUP,
        "group-id-not-found",
        "inconsistent-group-protocol",
        "unknown-member-id",
    ),
    operations.LIST_TOPICS.name: (),
    operations.DESCRIBE_TOPIC.name: ("unknown-topic-or-partition",),
    operations.PUT_TOPIC.name: (),
    operations.DELETE_TOPIC.name: ("unknown-topic-or-partition",),
    operations.DESCRIBE_CLUSTER.name: (),
    operations.DRAIN_NODE.name: ("broker-id-not-registered",),
    operations.RESUME_NODE.name: ("broker-id-not-registered",),
    operations.REMOVE_NODE.name: ("broker-id-not-registered",),
    operations.MOVE_SHARD.name: ("broker-id-not-registered",),
    operations.EVENTS.name: ("throttling-quota-exceeded",),
    operations.CHANNEL.name: ("throttling-quota-exceeded",),
}
"""Besides those that every operation can answer."""


def problems_of(operation: Operation) -> tuple[str, ...]:
    """All problems of an operation, by slug, in the order of their statuses."""
    slugs = {*_EVERYWHERE, *_OF_CAPACITY, *_OF_SERVICE, *PROBLEMS[operation.name]}
    if _takes_body(operation):
        slugs.update(_WITH_BODY)
    return tuple(sorted(slugs, key=lambda slug: (ERROR_PAGES[slug].status, slug)))


def _takes_body(operation: Operation) -> bool:
    return operation.request is not None and operation.method not in {"GET", "DELETE"}


# --- schemas


class _Schemas(GenerateJsonSchema):
    """Keys of a JSON object are text, so a map by partition says which texts they are."""

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """As pydantic makes it, with the pattern of whole numbers where keys are numbers."""
        made = super().dict_schema(schema)
        keys = schema.get("keys_schema")
        numbers = {} if keys is None else self.generate_inner(keys)
        if numbers.get("type") == "integer":
            made["propertyNames"] = {"pattern": _numbers_to(numbers.get("maximum", limits.PARTITION_MAX))}
        return made


def _numbers_to(highest: int) -> str:
    """The pattern of the whole numbers from 0 to the highest, of two digits at least, as text."""
    text = str(highest)
    choices = ["0", f"[1-9][0-9]{{0,{len(text) - 2}}}"]
    for place, digit in enumerate(text):
        lowest = 0 if place else 1
        if int(digit) > lowest:
            choices.append(f"{text[:place]}[{lowest}-{int(digit) - 1}][0-9]{{{len(text) - place - 1}}}")
    return f"^({'|'.join([*choices, text])})$"


def _schemas() -> dict[str, Any]:
    models: list[tuple[Any, JsonSchemaMode]] = [(m.Problem, "serialization"), (admin.HealthAnswer, "serialization")]
    models += [(admin.ReadinessAnswer, "serialization"), (admin.NotReady, "serialization")]
    models += [(m.WaitingAnswer, "serialization"), (m.ConsumerSubscription, "validation")]
    models.append((m.ConsumerAssignment, "validation"))
    models += [(call, "validation") for call in get_args(s.ChannelCall)]
    models += [(message, "serialization") for message in (s.ChannelAnswer, *s.PUSHES)]
    for operation in (*OPERATIONS, operations.EVENTS, operations.CHANNEL):
        if operation.request is not None:
            models.append((operation.request, "validation"))
        models.append((operation.answer, "serialization"))
    _, definitions = models_json_schema(models, ref_template=REF + "{model}", schema_generator=_Schemas)
    return dict(sorted(definitions["$defs"].items()))


# --- operations


def _json(model_name: str, media_type: str = "application/json") -> dict[str, Any]:
    return {media_type: {"schema": {"$ref": REF + model_name}}}


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    """Ids of the path. An empty group id is taken where the rules take one, so no shortest length stands here."""
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": "Percent-encoded once; not `.` or `..`.",
            "schema": {"type": "string", "maxLength": limits.ID_LENGTH_MAX},
        }
        for name in names
    ]


def _query_parameters(operation: Operation, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    if operation.request is None or _takes_body(operation):
        return []
    schema = schemas[operation.request.__name__]
    return [
        {
            "name": parameter,
            "in": "query",
            "required": name in schema.get("required", ()),
            "description": "May be given several times." if repeatable else "May be given once.",
            "schema": _query_schema(schema["properties"][name]),
            **({"style": "form", "explode": True} if repeatable else {}),
        }
        for parameter, (name, repeatable, _) in query_fields(operation.request).items()
    ]


def _query_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Without null, which a query cannot say: absence says it."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    if choices:
        return cast(dict[str, Any], choices[0])
    return {key: value for key, value in schema.items() if key != "title"}


def _problem_responses(slugs: Iterable[str]) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for slug in slugs:
        by_status.setdefault(ERROR_PAGES[slug].status, []).append(slug)
    responses = {}
    for status, members in sorted(by_status.items()):
        lines = [f"- `{slug}` (code {ERROR_PAGES[slug].code:d}): {ERROR_PAGES[slug].title}." for slug in members]
        response: dict[str, Any] = {"description": "\n".join(lines), "content": _json("Problem", PROBLEM_TYPE)}
        response["x-problems"] = members
        if status in {429, 503}:
            response["headers"] = {"Retry-After": _header("Seconds to wait before the next try.", "integer")}
        elif status == 421:
            response["headers"] = {"Location": _header("The owner's URL, as `url` in the body.", "string")}
        elif status == 401:
            response["headers"] = {"WWW-Authenticate": _header("Asks for a bearer token.", "string")}
        responses[str(status)] = response
    return responses


def _header(description: str, kind: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": kind}}


def _describe_operation(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {
        "200": {
            "description": _first_sentence(operation.answer.__doc__),
            "content": _json(operation.answer.__name__),
        }
    }
    if operation.waits:
        responses["202"] = {
            "description": "Nothing happened yet: send the same request again to go on waiting.",
            "content": _json(m.WaitingAnswer.__name__),
        }
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": ["topics" if "/topics" in operation.path else "groups"],
        "parameters": _path_parameters(operation) + _query_parameters(operation, schemas),
        "responses": responses | _problem_responses(problems_of(operation)),
    }
    if _takes_body(operation):
        assert operation.request is not None
        described["requestBody"] = {"required": True, "content": _json(operation.request.__name__)}
    return described


def _describe_stream(schemas: dict[str, Any]) -> dict[str, Any]:
    """The event stream: its 200 does not end, and a cursor may come in a header too."""
    described = _describe_operation(operations.EVENTS, schemas)
    described["responses"]["200"] = {
        "description": f"A stream of events, each with `GroupEvent` as JSON in its data. Kinds: {', '.join(KINDS)}; "
        f"and of the stream itself: {', '.join(STREAM_KINDS)}.",
        "content": _json(admin.GroupEvent.__name__, "text/event-stream"),
    }
    described["parameters"].append(
        {
            "name": CURSOR_HEADER,
            "in": "header",
            "required": False,
            "description": "The cursor that was seen last, as browsers send it; it goes before `cursor`.",
            "schema": {"type": "string"},
        }
    )
    return described


def _describe_channel(schemas: dict[str, Any]) -> dict[str, Any]:
    """The channel: OpenAPI has no words for a WebSocket's messages, so their schemas are named."""
    described = _describe_operation(operations.CHANNEL, schemas)
    calls = ", ".join(f"`{call.__name__}`" for call in get_args(s.ChannelCall))
    pushes = ", ".join(f"`{push.__name__}`" for push in s.PUSHES)
    del described["responses"]["200"]
    described["description"] = (
        f"Each message is one JSON text. From the client, a call: {calls}. From the service, one `ChannelAnswer` to "
        f"each call, and what nobody asked for: {pushes}."
    )
    described["responses"] = {"101": {"description": "The connection is a WebSocket now."}} | described["responses"]
    return described


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split("\n\n", maxsplit=1)[0].split())


def _probe_paths() -> dict[str, Any]:
    """What is not an operation of groups: health, readiness, metrics."""
    ok = {"description": "It is so.", "content": _json("HealthAnswer")}
    ready = {
        "description": "Groups are served, but for those of the shards that the answer names.",
        "content": _json("ReadinessAnswer"),
    }
    not_ready = _problem_responses(_OF_SERVICE)["503"] | {"content": _json("NotReady", PROBLEM_TYPE)}
    page = {"description": "Metrics in Prometheus' text format.", "content": {"text/plain": {"schema": {}}}}
    return {
        "/healthz": {"get": _probe("health", "Whether the process answers", {"200": ok})},
        "/readyz": {
            "get": _probe("readiness", "Whether groups can be served", {"200": ready, "503": not_ready}),
        },
        "/metrics": {"get": _probe("metrics", "Metrics for Prometheus", {"200": page})},
    }


def _probe(name: str, summary: str, responses: dict[str, Any]) -> dict[str, Any]:
    return {"operationId": name, "summary": summary, "tags": ["running it"], "responses": responses}


def openapi_document(version: str) -> dict[str, Any]:
    """The whole document, JSON-ready. `version` is the service's."""
    schemas = _schemas()
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe_operation(operation, schemas)
    paths[operations.EVENTS.path] = {"get": _describe_stream(schemas)}
    paths[operations.CHANNEL.path] = {"get": _describe_channel(schemas)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rallypoint",
            "version": version,
            "summary": "Consumer groups over HTTP",
            "description": "Durations are milliseconds. Requests refuse unknown fields; readers of answers ignore "
            "them. Every failure is a problem document (RFC 9457) with Kafka's code and name of the error; its `type` "
            "is a page of this service that says what to do. Lengths and counts that stand here are the same for every "
            "service, and so is every limit of `x-limits`: a body has at most "
            f"{limits.REQUEST_BYTES_MAX:,} bytes, that of a sync {limits.SYNC_BYTES_MAX:,}, and "
            f"{limits.JSON_DEPTH_MAX} levels of objects and lists. A refusal names the limit that was passed "
            "(`limit_name`, `limit`), and where an operator can set it, the `setting`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "x-limits": {name: value for name, value in FIXED.items() if not name.startswith("storage_")},
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "tags": [
            {"name": "groups", "description": "Membership, assignment and offsets of groups."},
            {"name": "topics", "description": "The registry of topics and their partitions."},
            {"name": "running it", "description": "Probes and metrics."},
        ],
        "paths": paths | _probe_paths(),
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Asked for where the service has the setting `tokens`.",
                }
            },
        },
    }
