"""How much one request may hold, and which error says that it holds more.

One table: every text, list, map and opaque value of a request, its limit, its code. The models refuse what is above
the contract's ceilings (`protocol.limits`); `ceiling_excess` finds the row of such a refusal, so that both are told in
the same words. A field that is in no row, and in no row of `EXEMPT`, fails the tests.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import limits
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.opaque import OpaqueJson

MEMBER_ID_EXTRA = limits.MEMBER_ID_LENGTH_MAX - limits.ID_LENGTH_MAX
"""Characters by which a member id may be longer than the client's or the instance's, of which it is made."""


KEY_SHOWN_MAX = 64
"""Characters of a key that a refusal repeats."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The contract's limits. Smaller ones may be given, none above the ceiling that the models have for it."""

    id_length_max: int = limits.ID_LENGTH_MAX
    topic_length_max: int = limits.ID_LENGTH_MAX
    join_protocols_max: int = limits.PROTOCOLS_MAX
    protocol_metadata_max_bytes: int = limits.METADATA_BYTES_MAX
    join_metadata_max_bytes: int = limits.JOIN_METADATA_BYTES_MAX
    sync_assignments_max: int = limits.ASSIGNMENTS_MAX
    assignment_max_bytes: int = limits.ASSIGNMENT_BYTES_MAX
    leave_members_max: int = limits.LEAVERS_MAX
    heartbeats_max: int = limits.HEARTBEATS_MAX
    request_topics_max: int = limits.COMMIT_TOPICS_MAX
    request_partitions_max: int = limits.REQUEST_PARTITIONS_MAX
    partition_racks_max: int = limits.PARTITION_RACKS_MAX
    lookup_groups_max: int = limits.COORDINATOR_GROUPS_MAX
    list_limit_max: int = limits.LIST_LIMIT_MAX
    cursor_length_max: int = limits.CURSOR_LENGTH_MAX
    preview_entries_max: int = limits.PREVIEW_ENTRIES_MAX
    key_length_max: int = limits.KEY_LENGTH_MAX
    query_parameters_max: int = 10_000
    json_depth_max: int = limits.JSON_DEPTH_MAX
    json_parts_max: int = limits.JSON_PARTS_MAX


@dataclass(frozen=True, slots=True)
class Excess:
    """What is over a limit. `field` is a path of names and numbers joined by dots."""

    field: str
    limit: int
    limit_name: str
    code: ErrorCode
    detail: str


# --- how large something is ------------------------------------------------------------------------------------------

Measure = Callable[[Any], int]


def size_bytes(value: OpaqueJson) -> int:
    """Bytes of the value as it is kept: UTF-8, without spaces. Cheap where all is ASCII."""
    return len(value.text) if value.text.isascii() else len(value.text.encode())


def _number(value: int) -> int:
    return value


def _shortened(text: str) -> str:
    """A key of the client's own is not sent back at any length."""
    return text if len(text) <= KEY_SHOWN_MAX else text[:KEY_SHOWN_MAX] + "…"


# --- where to look ---------------------------------------------------------------------------------------------------

Find = Callable[[Any, Measure, int], str | None]
"""The first field of a request that measures more than the limit."""


def _field(name: str) -> Find:
    def find(request: Any, measure: Measure, limit: int) -> str | None:
        value = getattr(request, name)
        return name if value is not None and measure(value) > limit else None

    return find


def _said(name: str) -> Find:
    """A field that stands in the request, and not its default."""
    find_field = _field(name)

    def find(request: Any, measure: Measure, limit: int) -> str | None:
        return find_field(request, measure, limit) if name in request.model_fields_set else None

    return find


def _entries(name: str) -> Find:
    """Each entry of a list, each key of a map."""

    def find(request: Any, measure: Measure, limit: int) -> str | None:
        entries = getattr(request, name) or ()
        for at, entry in enumerate(entries):
            if measure(entry) > limit:
                return f"{name}.{_shortened(entry) if isinstance(entries, Mapping) else at}"
        return None

    return find


def _entries_of_entries(name: str) -> Find:
    """Each entry of each list of a list."""

    def find(request: Any, measure: Measure, limit: int) -> str | None:
        for at, entry in enumerate(getattr(request, name) or ()):
            for inner_at, inner in enumerate(entry):
                if measure(inner) > limit:
                    return f"{name}.{at}.{inner_at}"
        return None

    return find


def _leaves(name: str, leaf: str) -> Find:
    """A field of each entry of a list."""

    def find(request: Any, measure: Measure, limit: int) -> str | None:
        for at, entry in enumerate(getattr(request, name)):
            value = getattr(entry, leaf)
            if value is not None and measure(value) > limit:
                return f"{name}.{at}.{leaf}"
        return None

    return find


def _entries_of_leaves(name: str, leaf: str) -> Find:
    """Each entry of a list that each entry of a list may have."""

    def find(request: Any, measure: Measure, limit: int) -> str | None:
        for at, entry in enumerate(getattr(request, name)):
            for inner_at, inner in enumerate(getattr(entry, leaf) or ()):
                if measure(inner) > limit:
                    return f"{name}.{at}.{leaf}.{inner_at}"
        return None

    return find


def _sum_of_leaves(name: str, leaf: str) -> Find:
    def find(request: Any, measure: Measure, limit: int) -> str | None:
        return name if sum(measure(getattr(entry, leaf)) for entry in getattr(request, name)) > limit else None

    return find


def _sum_of_values(name: str) -> Find:
    """What the values of a map measure together; null and what is empty count nothing."""

    def find(request: Any, measure: Measure, limit: int) -> str | None:
        values = filter(None, (getattr(request, name) or {}).values())  # not in a loop, since each commit comes by
        return name if sum(map(measure, values)) > limit else None

    return find


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LimitRow:
    """One limit of one request. `path`: where the model refuses what is above `ceiling`, with `*` for any entry; None
    where the model has no ceiling of its own. `extra` is added to the limit.
    """

    model: type[m.RequestModel]
    path: str
    limit_name: str
    unit: str
    find: Find
    measure: Measure = len
    ceiling: int | None = None
    code: ErrorCode = ErrorCode.INVALID_REQUEST
    extra: int = 0

    def limit(self, given: RequestLimits) -> int:
        """The number that counts."""
        number: int = getattr(given, self.limit_name)
        return number + self.extra

    def excess(self, given: RequestLimits, field: str) -> Excess:
        """The refusal of that field."""
        limit = self.limit(given)
        verb = "is" if self.measure is _number else "has"
        detail = f"{field} {verb} more than {limit}{self.unit}; {self.limit_name} is fixed."
        return Excess(field, limit, self.limit_name, self.code, detail)


_CHARACTERS = " characters"
_BYTES = " bytes"


def _text(model: type[m.RequestModel], path: str, limit_name: str = "id_length_max", extra: int = 0) -> LimitRow:
    """A text: a field (`a`), an entry of a list (`a.*`), a key of a map (`a.*.[key]`), a field of each entry."""
    name, _, rest = path.partition(".*")
    leaf = rest.removeprefix(".")
    find = _field(name) if name == path else _entries(name) if leaf in {"", "[key]"} else _leaves(name, leaf)
    return LimitRow(
        model, path, limit_name, _CHARACTERS, find, ceiling=getattr(RequestLimits(), limit_name) + extra, extra=extra
    )


def _member_id(model: type[m.RequestModel], path: str = "member_id") -> LimitRow:
    return _text(model, path, extra=MEMBER_ID_EXTRA)


def _count(
    model: type[m.RequestModel],
    name: str,
    limit_name: str,
    what: str,
    code: ErrorCode = ErrorCode.INVALID_REQUEST,
) -> LimitRow:
    ceiling = getattr(RequestLimits(), limit_name)
    return LimitRow(model, name, limit_name, f" {what}", _field(name), ceiling=ceiling, code=code)


def _partitions(
    model: type[m.RequestModel], name: str, code: ErrorCode = ErrorCode.INVALID_REQUEST
) -> tuple[LimitRow, LimitRow]:
    """Of all topics together; the model refuses those of one topic."""
    limit_name, unit = "request_partitions_max", " partitions"
    ceiling = limits.REQUEST_PARTITIONS_MAX
    return (
        LimitRow(model, f"{name}.**", limit_name, unit, _sum_of_values(name), code=code),
        LimitRow(model, f"{name}.*", limit_name, unit, _sum_of_values(name), ceiling=ceiling, code=code),
    )


_TOO_MUCH = ErrorCode.INVALID_COMMIT_OFFSET_SIZE

TABLE: tuple[LimitRow, ...] = (
    _count(m.CoordinatorRequest, "group_ids", "lookup_groups_max", "groups"),
    _text(m.CoordinatorRequest, "group_ids.*"),
    _member_id(m.JoinRequest),
    *(
        _text(m.JoinRequest, name)
        for name in ("group_instance_id", "client_id", "protocol_type", "protocols.*.name", "request_id")
    ),
    _count(m.JoinRequest, "protocols", "join_protocols_max", "protocols"),
    LimitRow(
        m.JoinRequest, "protocols.*.metadata", "protocol_metadata_max_bytes", _BYTES, _leaves("protocols", "metadata"),
        size_bytes,
    ),
    LimitRow(
        m.JoinRequest, "protocols.**", "join_metadata_max_bytes", " bytes of metadata",
        _sum_of_leaves("protocols", "metadata"), size_bytes,
    ),
    _member_id(m.SyncRequest),
    *(_text(m.SyncRequest, name) for name in ("group_instance_id", "protocol_type", "protocol_name")),
    _count(m.SyncRequest, "assignments", "sync_assignments_max", "assignments"),
    _member_id(m.SyncRequest, "assignments.*.member_id"),
    LimitRow(
        m.SyncRequest, "assignments.*.assignment", "assignment_max_bytes", _BYTES,
        _leaves("assignments", "assignment"), size_bytes,
    ),
    _member_id(m.HeartbeatRequest),
    _text(m.HeartbeatRequest, "group_instance_id"),
    LimitRow(
        m.HeartbeatsRequest, "heartbeats", "heartbeats_max", " heartbeats", _field("heartbeats"),
        ceiling=limits.HEARTBEATS_MAX,
    ),
    _text(m.HeartbeatsRequest, "heartbeats.*.group_id"),
    _member_id(m.HeartbeatsRequest, "heartbeats.*.member_id"),
    _text(m.HeartbeatsRequest, "heartbeats.*.group_instance_id"),
    _count(m.LeaveRequest, "members", "leave_members_max", "members"),
    _member_id(m.LeaveRequest, "members.*.member_id"),
    _text(m.LeaveRequest, "members.*.group_instance_id"),
    _member_id(m.CommitRequest),
    _text(m.CommitRequest, "group_instance_id"),
    _count(admin.RemoveMembersRequest, "members", "leave_members_max", "members"),
    _member_id(admin.RemoveMembersRequest, "members.*"),
    _count(m.CommitRequest, "offsets", "request_topics_max", "topics", _TOO_MUCH),
    _text(m.CommitRequest, "offsets.*.[key]", "topic_length_max"),
    *_partitions(m.CommitRequest, "offsets", _TOO_MUCH),
    _count(m.FetchRequest, "topics", "request_topics_max", "topics"),
    _text(m.FetchRequest, "topics.*", "topic_length_max"),
    _count(admin.ResetOffsetsRequest, "topics", "request_topics_max", "topics"),
    _text(admin.ResetOffsetsRequest, "topics.*.[key]", "topic_length_max"),
    *_partitions(admin.ResetOffsetsRequest, "topics"),
    _count(admin.ResetOffsetsRequest, "offsets", "request_topics_max", "topics"),
    _text(admin.ResetOffsetsRequest, "offsets.*.[key]", "topic_length_max"),
    *_partitions(admin.ResetOffsetsRequest, "offsets"),
    _count(admin.DeleteOffsetsRequest, "topics", "request_topics_max", "topics"),
    _text(admin.DeleteOffsetsRequest, "topics.*", "topic_length_max"),
    _count(admin.DeleteOffsetsRequest, "partitions", "request_partitions_max", "partitions"),
    _text(
        admin.DeleteOffsetsRequest, "partitions.*", "topic_length_max",
        limits.TOPIC_PARTITION_LENGTH_MAX - limits.ID_LENGTH_MAX,
    ),
    *(_text(admin.ListGroupsRequest, name) for name in ("state", "prefix", "search")),
    _text(admin.ListGroupsRequest, "topic", "topic_length_max"),
    *(
        _text(model, "cursor", "cursor_length_max")
        for model in (
            admin.ListGroupsRequest, admin.ListPartitionsRequest, admin.OwnershipHistoryRequest,
            admin.DescribeTopicRequest,
        )
    ),
    *(
        LimitRow(model, "limit", "list_limit_max", "", _said("limit"), _number, ceiling=limits.LIST_LIMIT_MAX)
        for model in (admin.ListPartitionsRequest, admin.OwnershipHistoryRequest, admin.DescribeTopicRequest)
    ),
    *(
        _text(model, "topic", "topic_length_max")
        for model in (admin.ListPartitionsRequest, admin.OwnershipHistoryRequest)
    ),
    LimitRow(
        admin.ListGroupsRequest, "limit", "list_limit_max", "", _said("limit"), _number, ceiling=limits.LIST_LIMIT_MAX
    ),
    LimitRow(
        m.ListTopicsRequest, "limit", "list_limit_max", "", _field("limit"), _number, ceiling=limits.LIST_LIMIT_MAX
    ),
    *(_text(m.ListTopicsRequest, name) for name in ("prefix", "cursor")),
    _text(admin.OwnerRequest, "topic", "topic_length_max"),
    *(_text(admin.OwnerRequest, name, "key_length_max") for name in ("key", "key_base64")),
    *(_count(admin.PreviewRequest, name, "preview_entries_max", "entries") for name in ("leave", "join", "partitions")),
    _member_id(admin.PreviewRequest, "leave.*"),
    LimitRow(
        admin.PreviewRequest, "join.*.topics", "request_topics_max", " topics", _leaves("join", "topics"),
        ceiling=limits.COMMIT_TOPICS_MAX,
    ),
    LimitRow(
        admin.PreviewRequest, "join.*.topics.*", "topic_length_max", _CHARACTERS, _entries_of_leaves("join", "topics"),
        ceiling=limits.ID_LENGTH_MAX,
    ),
    *(_text(admin.PreviewRequest, name) for name in ("join.*.group_instance_id", "join.*.rack_id", "assignor")),
    _text(admin.PreviewRequest, "partitions.*.[key]", "topic_length_max"),
    _count(admin.EventsRequest, "group_ids", "lookup_groups_max", "groups"),
    *(_text(admin.EventsRequest, name) for name in ("group_ids.*", "prefix")),
    *(
        _count(m.PutTopicRequest, x, "request_partitions_max", "partitions")
        for x in ("end_offsets", "replica_racks")
    ),
    LimitRow(
        m.PutTopicRequest, "replica_racks.*", "partition_racks_max", " racks", _entries("replica_racks"),
        ceiling=limits.PARTITION_RACKS_MAX,
    ),
    LimitRow(
        m.PutTopicRequest, "replica_racks.*.*", "id_length_max", _CHARACTERS, _entries_of_entries("replica_racks"),
        ceiling=limits.ID_LENGTH_MAX,
    ),
    _text(admin.MoveShardRequest, "node_id"),
)  # fmt: skip
"""Every limit of every request, by model."""

EXEMPT: Mapping[tuple[type[m.RequestModel], str], str] = {
    (m.JoinRequest, "reason"): "cut to 255 characters, as Kafka does",
    (m.LeaveRequest, "members.*.reason"): "cut to 255 characters, as Kafka does",
    (m.CommitRequest, "offsets.*.*.metadata"): "refused for its partition alone, by offset_metadata_max_bytes",
    (admin.StartRebalanceRequest, "reason"): "cut to 255 characters, as that of a join",
    (admin.FreezeRequest, "reason"): "cut to 255 characters, as that of a join",
    (admin.FreezeRequest, "until"): "one of a few words",
    (admin.ProceedRequest, "reason"): "cut to 255 characters, as that of a join",
    (admin.RemoveMembersRequest, "reason"): "cut to 255 characters, as that of a join",
    (admin.PreviewRequest, "join.*.user_data"): "not kept; the body's size and depth bound it",
    (admin.ResetOffsetsRequest, "to"): "one of a few words",
    (admin.EventsRequest, "kinds"): "several of a few words",
    (admin.EventsRequest, "cursor"): "one that the service has given",
}
"""Texts of requests that have no row above, and why."""


# --- the check -------------------------------------------------------------------------------------------------------


class RequestChecks:
    """The table under given limits. A row that asks for no less than the model does costs nothing.

    looked_at: the models of which a request may be over a limit, or too deep, though the model takes it.
    """

    def __init__(self, given: RequestLimits) -> None:
        self.limits = given
        self._rows: dict[type, tuple[tuple[Find, Measure, int, LimitRow], ...]] = {}
        for row in TABLE:
            limit = row.limit(given)
            if row.ceiling is None or limit < row.ceiling:
                held = self._rows.get(row.model, ())
                self._rows[row.model] = (*held, (row.find, row.measure, limit, row))
        self.looked_at = _WITH_OPAQUE.union(self._rows)

    @staticmethod
    def may_be_deep(model: type[m.RequestModel]) -> bool:
        """Whether a request of the model can go deeper than its fields do, for something in it is opaque."""
        return model in _WITH_OPAQUE

    def excess(self, request: m.RequestModel) -> Excess | None:
        """The first field of the request that is over its limit; None where none is."""
        for find, measure, limit, row in self._rows.get(type(request), ()):
            field = find(request, measure, limit)
            if field is not None:
                return row.excess(self.limits, field)
        return None

    def ceiling_excess(self, model: type[m.RequestModel], path: Iterable[int | str], field: str) -> Excess | None:
        """The row whose ceiling the model has refused, by the refusal's path; None where it was something else."""
        row = _CEILINGS.get((model, _pattern(path)))
        return None if row is None else row.excess(self.limits, field)


_CEILINGS = {(row.model, row.path): row for row in TABLE if row.ceiling is not None}
_WITH_OPAQUE = frozenset({admin.PreviewRequest, *(row.model for row in TABLE if row.measure is size_bytes)})
_MAPS = frozenset({"offsets", "topics", "end_offsets", "partitions"})


def _pattern(path: Iterable[int | str]) -> str:
    """Numbers of entries and keys of maps become `*`."""
    parts: list[str] = []
    for part in path:
        of_map = bool(parts) and parts[-1] in _MAPS and part != "[key]"
        parts.append("*" if isinstance(part, int) or of_map else part)
    return ".".join(parts)
