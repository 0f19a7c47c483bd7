"""What a member says, built from its options and where it stands. Nothing here decides when it is said."""

from collections.abc import Sequence

from pydantic import JsonValue

from assignors.contract import Assignor
from member.core.dispatch import Intent
from member.core.ownership import NO_CLAIMS, Claims
from member.options import MemberOptions
from member.subscription import metadata_of
from protocol import messages as m
from protocol import operations as ops
from protocol.limits import REASON_LENGTH_MAX

PROTOCOL_TYPE = "consumer"


def join(
    options: MemberOptions,
    assignors: Sequence[Assignor],
    *,
    member_id: str,
    topics: tuple[str, ...],
    user_data: JsonValue,
    claims: Claims,
    cooperative: bool,
    owns: bool,
    reason: str | None,
    request_id: str,
    attempt: int,
) -> Intent:
    """One attempt to join. `claims`: what a cooperative member owns, or an eager one gave up in order.

    An eager member tells only an eager assignor that reads it, as a hint for stickiness. A cooperative one would take
    the partitions for owned still, and hold them back until this member gives them up, which it already has. One that
    reads nothing is told nothing: what a join says is compared with the one before when a static member comes back.
    `owns`: see `_waits`.
    """
    held_ms, timeout_ms = _waits(options, owns=owns)
    protocols = []
    for assignor in assignors:
        told = cooperative or (assignor.protocol == "eager" and assignor.reads_claims)
        partitions, generation_id = claims if told else NO_CLAIMS
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
        reason=None if reason is None else reason[:REASON_LENGTH_MAX],
        max_wait_ms=held_ms,
    )
    return Intent(ops.JOIN, body, timeout_ms, held_ms=held_ms)


def _waits(options: MemberOptions, *, owns: bool) -> tuple[int, int]:
    """How long a join or sync may be held back, and how late its answer may be beyond that.

    A member that owns partitions meanwhile must hear of the group within its session, or it has to take them for lost:
    one call may fail and be repeated in five sixths of it.
    """
    if not owns:
        return options.park_wait_ms, options.request_timeout_ms
    held_ms = max(1, min(options.park_wait_ms, options.session_timeout_ms // 3))
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
    """Ask for the assignment; a leader submits everyone's in `made`. `owns`: see `_waits`."""
    held_ms, timeout_ms = _waits(options, owns=owns)
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
    """A sign of life, held back by the service for `wait_ms` at the most.

    An answer that is late by a quarter of the session is given up, while there is time to repeat. A repeat does not
    wait: two waits in a row would be the whole session.
    """
    body = m.HeartbeatRequest(
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=options.group_instance_id,
        wait_ms=wait_ms,
    )
    timeout_ms = min(options.request_timeout_ms, max(500, options.session_timeout_ms // 4))
    again = None if wait_ms == 0 else heartbeat(options, member_id, generation_id, 0)
    return Intent(ops.HEARTBEAT, body, timeout_ms, held_ms=wait_ms, again=again)


def leave(options: MemberOptions, member_id: str, reason: str | None) -> Intent:
    """The last word."""
    leaver = m.LeaveMember(
        member_id=member_id,
        group_instance_id=options.group_instance_id,
        reason=None if reason is None else reason[:REASON_LENGTH_MAX],
    )
    timeout_ms = min(options.request_timeout_ms, options.leave_timeout_ms)
    return Intent(ops.LEAVE, m.LeaveRequest(members=(leaver,)), timeout_ms)
