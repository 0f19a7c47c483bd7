"""The error table: Kafka's name and number, the HTTP status, and what the client should do.

Every answer that is not a success is one row of this table, over HTTP as a problem document (RFC 9457), inside a
batch answer as `error_code` and `error_name` beside the part it belongs to. No error is made anywhere else.
"""

from dataclasses import dataclass
from enum import IntEnum


class ErrorCode(IntEnum):
    """Kafka's error numbers, as far as this protocol uses them."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_REQUEST = 42
    SASL_AUTHENTICATION_FAILED = 58
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    BROKER_ID_NOT_REGISTERED = 102


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One row of the table. `retriable`: the same intent may succeed later, after doing what `action` says."""

    code: ErrorCode
    status: int
    retriable: bool
    title: str
    action: str

    @property
    def slug(self) -> str:
        """The last segment of the problem's `type`: the name in lower case with dashes."""
        return self.code.name.lower().replace("_", "-")


_ROWS = (
    ErrorRow(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        500,
        False,
        "The service failed",
        "Report it: this is a fault of the service, and it is in the service's log.",
    ),
    ErrorRow(ErrorCode.NONE, 200, False, "Success", "Nothing to do."),
    ErrorRow(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        404,
        True,
        "No such topic or partition",
        "Look up the topic's partitions again, then retry with one that exists.",
    ),
    ErrorRow(
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        413,
        False,
        "The metadata of an offset is too long",
        "Shorten the metadata of the offset and commit again.",
    ),
    ErrorRow(
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        503,
        True,
        "The coordinator is loading the group",
        "Back off and send the same request to the same node.",
    ),
    ErrorRow(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        503,
        True,
        "The coordinator is not available",
        "Back off, find the coordinator again, and send the same request there.",
    ),
    ErrorRow(
        ErrorCode.NOT_COORDINATOR,
        421,
        True,
        "Another node coordinates this group",
        "Send the same request to the URL in the answer, or find the coordinator again.",
    ),
    ErrorRow(
        ErrorCode.ILLEGAL_GENERATION,
        409,
        True,
        "The generation is not the current one",
        "Reset the generation and join again with the same member id.",
    ),
    ErrorRow(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        409,
        False,
        "The protocols do not fit the group",
        "Change the configuration: offer the group's protocol type and a protocol that every member supports.",
    ),
    ErrorRow(
        ErrorCode.INVALID_GROUP_ID, 400, False, "The group id is not allowed", "Use another group id; it is not valid."
    ),
    ErrorRow(
        ErrorCode.UNKNOWN_MEMBER_ID,
        404,
        True,
        "The group does not know this member",
        "Forget the member id and join again with an empty one.",
    ),
    ErrorRow(
        ErrorCode.INVALID_SESSION_TIMEOUT,
        400,
        False,
        "The session timeout is out of bounds",
        "Choose a session timeout within the service's bounds, which the detail names.",
    ),
    ErrorRow(
        ErrorCode.REBALANCE_IN_PROGRESS,
        409,
        True,
        "The group is rebalancing",
        "Finish or hand over the work in hand, then join again with the same member id.",
    ),
    ErrorRow(
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        413,
        False,
        "The commit is too large to store",
        "Commit fewer partitions, or shorter metadata, in one request.",
    ),
    ErrorRow(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        403,
        False,
        "No right to this topic",
        "Ask an administrator for the right to the topic.",
    ),
    ErrorRow(
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        403,
        False,
        "No right to this group",
        "Ask an administrator for the right to the group.",
    ),
    ErrorRow(
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        403,
        False,
        "This origin, host or principal is not allowed here",
        "Call from an allowed origin, by an allowed host name, as a principal with the right.",
    ),
    ErrorRow(
        ErrorCode.INVALID_REQUEST,
        400,
        False,
        "The request is malformed",
        "Correct the field that the answer names, and send the request again.",
    ),
    ErrorRow(
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        401,
        False,
        "Not authenticated",
        "Send `Authorization: Bearer TOKEN` with a token that the service knows.",
    ),
    ErrorRow(
        ErrorCode.NON_EMPTY_GROUP, 409, False, "The group has members", "Stop the group's members first, then retry."
    ),
    ErrorRow(
        ErrorCode.GROUP_ID_NOT_FOUND, 404, False, "No such group", "Check the group id; the group does not exist."
    ),
    ErrorRow(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        409,
        True,
        "The offset that the request rests on is not known",
        "Report the partition's end (`PUT /v1/topics/{topic}`), or reset to an offset that you name.",
    ),
    ErrorRow(
        ErrorCode.MEMBER_ID_REQUIRED,
        409,
        True,
        "Join again with the member id given",
        "Send the same join again with the `member_id` of this answer.",
    ),
    ErrorRow(
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        429,
        False,
        "The group is full",
        "Let another member leave, or raise `group_max_size`; do not retry in a loop.",
    ),
    ErrorRow(
        ErrorCode.FENCED_INSTANCE_ID,
        409,
        False,
        "Another process has taken over this instance id",
        "Stop: another member with the same `group_instance_id` owns the identity.",
    ),
    ErrorRow(
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        409,
        False,
        "The group is subscribed to the topic",
        "Unsubscribe the group from the topic first.",
    ),
    ErrorRow(
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        409,
        True,
        "An offset is not yet final",
        "Back off and fetch again.",
    ),
    ErrorRow(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        429,
        True,
        "Over a limit of the service",
        "Wait as long as `Retry-After` says, then send the same request again.",
    ),
    ErrorRow(
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        404,
        False,
        "No such node",
        "Look at the nodes of the cluster (GET /v1/cluster), then name one of them.",
    ),
)

ERRORS = {row.code: row for row in _ROWS}
"""The whole table, by code."""

SUPERSEDED = "superseded"
"""Slug of the one problem that is no row: a parked call whose member has called again. It carries code 27 and
status 409 but `retriable` false: drop this call, the newer one goes on; do not rejoin."""

HTTP_SLUGS = {
    401: "unauthenticated",
    404: "no-such-path",
    405: "method-not-allowed",
    413: "body-too-large",
    415: "unsupported-media-type",
}
"""Slugs of problems of HTTP itself, all with code INVALID_REQUEST except 401, that have a status of their own."""


def row(code: ErrorCode) -> ErrorRow:
    """The table's row of a code; every code has one."""
    return ERRORS[code]
