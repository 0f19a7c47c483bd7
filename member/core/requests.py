"""The requests of a member, built from its options and its state. Nothing here decides when one is sent."""

from collections.abc import Sequence

from pydantic import JsonValue

from rallypoint.assignors.contract import Assignor
from rallypoint.member.core.dispatch import Intent
from rallypoint.member.core.ownership import OWNS_NOTHING, OwnedPartitions
from rallypoint.member.options import MemberOptions
from rallypoint.member.subscription import metadata_of
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.limits import REASON_LENGTH_MAX
from rallypoint.protocol.text import in_utf8

PROTOCOL_TYPE = "consumer"


def join(
    options: MemberOptions,
    assignors: Sequence[Assignor],
    *,
    member_id: str,
    topics: tuple[str, ...],
    user_data: JsonValue,
    owned: OwnedPartitions,
    cooperative: bool,
    owns: bool,
    reason: str | None,
    request_id: str,
    attempt: int,
) -> Intent:
    """One attempt to join.

    `owned`: the partitions that a cooperative member owns, or that an eager one gave up in order.
    `owns`: whether the member owns partitions now; see `_waits_of_an_owner`.

    An eager member names `owned` only to an eager assignor that reads it, as a hint for stickiness. A cooperative
    assignor would take the partitions for still owned, and hold them back until this member gives them up, which it
    already has. An assignor that does not read it gets nothing: when a static member comes back, the service compares
    its join with the one before.
    """
    held_ms, timeout_ms = _waits_of_an_owner(options) if owns else (options.park_wait_ms, options.request_timeout_ms)
    protocols = []
    for assignor in assignors:
        names_owned = cooperative or (assignor.protocol == "eager" and assignor.reads_owned_partitions)
        partitions, generation_id = owned if names_owned else OWNS_NOTHING
        metadata = metadata_of(topics, partitions, generation_id, options.rack_id, user_data)
        protocols.append(m.JoinProtocol(name=assignor.name, metadata=metadata))
    body = m.JoinRequest(
        member_id=member_id,
        group_instance_id=options.group_instance_id,
        client_id=options.client_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=tuple(protocols),
        session_timeout_ms=options.session_timeout_ms,
        rebalance_timeout_ms=options.rebalance_timeout_ms,
        disconnect_grace_ms=options.disconnect_grace_ms,
        request_id=request_id,
        attempt=attempt,
        reason=_shown(reason),
        max_wait_ms=held_ms,
    )
    return Intent(ops.JOIN, body, timeout_ms, held_ms=held_ms)


def _shown(reason: str | None) -> str | None:
    """The reason as it can be sent. It is for people to read, and must not keep a member from joining or leaving."""
    return None if reason is None else in_utf8(reason[:REASON_LENGTH_MAX])


def _waits_of_an_owner(options: MemberOptions) -> tuple[int, int]:
    """How long a join or sync may be held back, and how late its answer may be beyond that.

    A member that owns partitions meanwhile must hear of the group within its session, or it has to take them for lost.
    Each answer counts from when its call was sent: one call may wait, the next one fail, and its repeat wait, in eleven
    twelfths of a session.
    """
    held_ms = max(1, min(options.park_wait_ms, options.session_timeout_ms // 4))
    return held_ms, max(1, min(options.request_timeout_ms, options.session_timeout_ms // 6))


def with_member_id(intent: Intent, member_id: str) -> Intent:
    """The same attempt to join, under the id that a 202 handed out."""
    assert isinstance(intent.body, m.JoinRequest)
    body = intent.body.model_copy(update={"member_id": member_id})
    return Intent(intent.operation, body, intent.timeout_ms, intent.held_ms)


def sync(
    options: MemberOptions,
    member_id: str,
    generation_id: int,
    protocol_name: str,
    made: tuple[m.SyncAssignment, ...],
    *,
    owns: bool,
) -> Intent:
    """Ask for the assignment; a leader submits everyone's in `made`. `owns`: see `_waits_of_an_owner`.

    The session counts from when it is sent, so that most of it is left when the assignment comes.
    """
    held_ms, timeout_ms = _waits_of_an_owner(options)
    if not owns:
        timeout_ms = options.request_timeout_ms
    body = m.SyncRequest(
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=options.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol_name,
        assignments=made,
        max_wait_ms=held_ms,
    )
    return Intent(ops.SYNC, body, timeout_ms, held_ms=held_ms)


def heartbeat(options: MemberOptions, member_id: str, generation_id: int, wait_ms: int) -> Intent:
    """A heartbeat, held back by the service for at most `wait_ms`.

    If the answer is late by a quarter of the session, by a sixth if it was held back, the member gives it up while
    there is time to repeat: the session counts from when the one before was sent. So a repeat does not wait.
    """
    body = m.HeartbeatRequest(
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=options.group_instance_id,
        wait_ms=wait_ms,
    )
    timeout_ms = min(options.request_timeout_ms, max(500, options.session_timeout_ms // (6 if wait_ms else 4)))
    again = None if wait_ms == 0 else heartbeat(options, member_id, generation_id, 0)
    return Intent(ops.HEARTBEAT, body, timeout_ms, held_ms=wait_ms, again=again)


def leave(options: MemberOptions, member_id: str, reason: str | None) -> Intent:
    """The leave."""
    leaver = m.LeaveMember(
        member_id=member_id,
        group_instance_id=options.group_instance_id,
        reason=_shown(reason),
    )
    timeout_ms = min(options.request_timeout_ms, options.leave_timeout_ms)
    return Intent(ops.LEAVE, m.LeaveRequest(members=(leaver,)), timeout_ms)
