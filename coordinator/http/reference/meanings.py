"""What the page of an error says besides the table: its meaning, where it occurs, and an example of the answer.

The keys are the last segments of the problems' `type`. The error table, which clients read too, says what to do.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rallypoint.coordinator.http.errors import ERROR_PAGES
from rallypoint.coordinator.http.reference.openapi import problems_of
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.operations import OPERATIONS


@dataclass(frozen=True, slots=True)
class Meaning:
    """`detail` and `field`: those of the example. `elsewhere`: where it stands besides the answers to operations."""

    text: str
    detail: str
    field: str | None = None
    elsewhere: str = ""


_AT_A_PARTITION = "Beside a partition in the answer to {}, as `error_code` and `error_name`."
_NEVER_YET = "This version never answers it; its number is kept, so that clients that know it may."
_ANY_PATH = "At any path, before an operation is found."

MEANINGS: Mapping[str, Meaning] = {
    "unknown-server-error": Meaning(
        "The service met a fault of its own. Whether the call was done is not known.",
        "The service met a fault of its own; its log says more.",
    ),
    "unknown-topic-or-partition": Meaning(
        "The topic is not registered, or the registry gives it fewer partitions than that.",
        "Topic 'clicks' is not registered.", "topic",
        _AT_A_PARTITION.format("a commit or a reset") + " There it says that the registered topic lacks the partition.",
    ),
    "offset-metadata-too-large": Meaning(
        "The text beside an offset has more characters than `offset_metadata_max_bytes`. The other offsets of the"
        " commit are taken.",
        "The metadata is longer than the service keeps.", None, _AT_A_PARTITION.format("a commit"),
    ),
    "coordinator-load-in-progress": Meaning(
        "The group's shard is being read from the store. Nothing was done.", "The shard of this group is being loaded.",
    ),
    "coordinator-not-available": Meaning(
        "The service starts, stops, or cannot reach its store. The call was not done, or it is not known to be.",
        "The service is stopping.",
    ),
    "not-coordinator": Meaning(
        "The group belongs to a shard that another node owns. `url` says where, if it is known.",
        "Another node owns the shard of this group.",
    ),
    "illegal-generation": Meaning(
        "The call names a generation that is not the present one: a rebalance has gone by, or a crash has lost it. The"
        " member no longer owns the partitions of that generation.",
        "The group is at generation 8, not 7.", "generation_id",
    ),
    "inconsistent-group-protocol": Meaning(
        "The member's protocol type is not the group's, or it offers no protocol that all members support.",
        "The group's protocol_type is 'consumer', not 'connect'.", "protocol_type",
    ),
    "invalid-group-id": Meaning(
        "The group id is empty, too long, or `.` or `..`, which clients take out of a path.",
        "The group id must not be empty.", "group_id",
    ),
    "unknown-member-id": Meaning(
        "The group has no such member: its session has expired, it left, it did not join or sync in time, an operator"
        " removed it, or the group was created again. It owns no partitions.",
        "The group has no member 'orders-4c1f'.", "member_id",
        "Beside an entry in the answer to a leave or a removal of members.",
    ),
    "invalid-session-timeout": Meaning(
        "`session_timeout_ms` is below `group_min_session_timeout_ms` or above `group_max_session_timeout_ms`.",
        "session_timeout_ms must be from 6000 to 1800000, not 500.", "session_timeout_ms",
    ),
    "rebalance-in-progress": Meaning(
        "The members are asked to join again, and the call belongs to the generation before; so does a join whose "
        "`attempt` was answered before this rebalance.",
        "The group is rebalancing: join again.",
    ),
    "invalid-commit-offset-size": Meaning(
        "What was to be stored is more than the store takes at once. Nothing of it was stored.",
        "The commit is larger than a batch of the store.", None, "As the answer to a commit, where the store is small.",
    ),
    "topic-authorization-failed": Meaning(
        "Whoever calls has no right to the topic.", "No right to topic 'clicks'.", None, _NEVER_YET
    ),
    "group-authorization-failed": Meaning(
        "Whoever calls has no right to the group.", "No right to group 'orders'.", None, _NEVER_YET
    ),
    "cluster-authorization-failed": Meaning(
        "A browser's page of an origin that is not allowed called, or the `Host` is not one of this service's.",
        "This origin is not allowed.", "Origin",
    ),
    "invalid-request": Meaning(
        "The bytes are no HTTP request, the body is not the JSON of this call, or a field breaks a rule. Nothing was"
        " done.",
        "session_timeout_ms: Field required.", "session_timeout_ms",
    ),
    "non-empty-group": Meaning(
        "The operation is for groups without members, and this one has some, or is being joined.",
        "The group is Stable: stop its members first.",
    ),
    "group-id-not-found": Meaning(
        "No such group was ever created, or it was deleted, or it expired with the last of its offsets.",
        "There is no group 'orders'.", "group_id",
    ),
    "offset-not-available": Meaning(
        "The reset rests on the partition's end, which nobody has reported, or on a commit that there is not.",
        "The end of the partition is not known.", None, _AT_A_PARTITION.format("a reset"),
    ),
    "member-id-required": Meaning(
        "A first join is given an id instead of a place, so that joins whose answers are lost leave no members behind.",
        "Join again with the member_id of this answer.",
    ),
    "group-max-size-reached": Meaning(
        "The group has as many members as `group_max_size` allows.",
        "The group has as many members as group_max_size allows (500).",
    ),
    "fenced-instance-id": Meaning(
        "Another process joined with the same `group_instance_id` and has taken over the slot, with its partitions.",
        "Another member has taken over group_instance_id 'worker-1'.", "member_id",
        "Beside an entry in the answer to a leave.",
    ),
    "group-subscribed-to-topic": Meaning(
        "A member subscribes to the topic, or to something that cannot be read, so its offsets may be in use.",
        "A member of the group subscribes to the topic.", None, _AT_A_PARTITION.format("a deletion of offsets"),
    ),
    "unstable-offset-commit": Meaning(
        "The offset belongs to a transaction that is still open.", "An offset is not yet final.", None, _NEVER_YET
    ),
    "throttling-quota-exceeded": Meaning(
        "More calls wait than the service or the group takes in. The call was not done.",
        "Too many calls wait for this group.",
    ),
    "broker-id-not-registered": Meaning(
        "The cluster has no node of this name: it never ran here, or it was taken out of the cluster.",
        "The cluster has no node 'node-9'.", "node_id",
    ),
    "superseded": Meaning(
        "The member has sent a newer call of the same kind, and only the newest of them waits; or a join came "
        "late, after one of its member with a higher `attempt`.",
        "The member has called again; this call is dropped and the newer one goes on.",
    ),
    "unauthenticated": Meaning(
        "The service has tokens set, and the request carries none of them.", "A token is needed.", "Authorization"
    ),
    "no-such-path": Meaning(
        "No operation and no page is at the path.", "There is nothing at this path.", None, _ANY_PATH
    ),
    "method-not-allowed": Meaning(
        "Something is at the path, but not for this method.", "The path does not take this method.", None, _ANY_PATH
    ),
    "body-too-large": Meaning(
        "The body has more bytes than the service reads. It was not read.", "The body has more than 1048576 bytes."
    ),
    "unsupported-media-type": Meaning(
        "The body is said to be something else than JSON in UTF-8, or to be compressed.",
        "A body needs `Content-Type: application/json`.", "Content-Type",
    ),
}  # fmt: skip

_MORE: Mapping[str, Mapping[str, str | int]] = {
    "illegal-generation": {"generation_id": 8},
    "rebalance-in-progress": {"generation_id": 7},
    "member-id-required": {"member_id": "orders-4c1f", "generation_id": -1},
    "group-max-size-reached": {"member_id": ""},
    "fenced-instance-id": {"member_id": "worker-1-77ab"},
    "not-coordinator": {"node_id": "node-2", "url": "https://node-2.example.org:8000"},
}
"""What some problems carry besides."""


def example_of(slug: str) -> m.Problem:
    """A problem as it may be answered."""
    page, meaning = ERROR_PAGES[slug], MEANINGS[slug]
    return m.Problem.model_validate(
        {
            "type": f"/errors/{slug}",
            "title": page.title,
            "status": page.status,
            "detail": meaning.detail,
            "error_code": page.code,
            "error_name": page.code.name,
            "retriable": page.retriable,
            "field": meaning.field,
            **_MORE.get(slug, {}),
        }
    )


def calls_of(slug: str) -> tuple[ops.Operation, ...]:
    """The operations that can be answered with it, in the order in which a reader meets them."""
    return tuple(operation for operation in OPERATIONS if slug in problems_of(operation))
