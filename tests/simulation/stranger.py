"""Someone who says what is not true: old generations, ids that are not its own, shares for others, ids never used.

It says nothing that the protocol must believe: a leader's sync of the present generation is true whoever sends it.
"""

import random

from rallypoint.coordinator.core.group import Group
from rallypoint.protocol import messages as m
from rallypoint.protocol import operations as ops
from rallypoint.protocol.opaque import OpaqueJson
from rallypoint.protocol.operations import Operation
from tests.simulation.plan import Plan

NOBODY = "nobody"
THEIRS = OpaqueJson.of({"partitions": {}})


def lie(chance: random.Random, plan: Plan, group: Group | None, offset: int) -> tuple[Operation, m.RequestModel]:
    """One untrue request about the group as it stands now."""
    known = sorted(group.members) if group is not None else []
    member_id = chance.choice([*known, NOBODY])
    member = group.members.get(member_id) if group is not None else None
    generation_id = 0 if group is None else group.generation_id
    instance = None if member is None else member.group_instance_id
    old = max(0, generation_id - chance.choice([1, 1, 2]))
    wrong = chance.choice([old, generation_id, generation_id + 1, -1])
    if group is not None and group.is_active:
        waiting = sorted(member.member_id for member in group.members.values() if member.is_new)
        if waiting and chance.random() < 0.5:
            # Who waits while a rebalance is held back knows the generation, and has no part in it.
            return _of_no_generation(chance, chance.choice(waiting), generation_id, offset)
    match chance.randrange(7):
        case 0:
            offsets = {chance.choice(["t", "u"]): {0: m.OffsetCommit(offset=offset)}}
            told = chance.choice([member_id, "", NOBODY])
            return ops.COMMIT, m.CommitRequest(generation_id=wrong, member_id=told, offsets=offsets)
        case 1:
            # Only a follower's, or one of an older generation.
            leads = group is None or member_id == group.leader
            return ops.SYNC, m.SyncRequest(
                generation_id=old if leads else generation_id,
                member_id=member_id,
                group_instance_id=instance,
                protocol_type="consumer",
                protocol_name=None if group is None else group.protocol_name,
                assignments=tuple(m.SyncAssignment(member_id=name, assignment=THEIRS) for name in known),
                max_wait_ms=chance.choice([None, 0, 500]),
            )
        case 2:
            wait_ms = chance.choice([0, 0, 1_000])
            return ops.HEARTBEAT, m.HeartbeatRequest(generation_id=wrong, member_id=member_id, wait_ms=wait_ms)
        case 3:
            told = "i0" if instance is None else instance
            return ops.HEARTBEAT, m.HeartbeatRequest(
                generation_id=generation_id, member_id=NOBODY, group_instance_id=told
            )
        case 4:
            return ops.LEAVE, m.LeaveRequest(members=(m.LeaveMember(member_id=member_id, reason="kicked"),))
        case 5:
            return ops.JOIN, _join(plan, "", None)
        case _:
            return ops.JOIN, _join(plan, chance.choice([NOBODY, member_id]), instance)


def ask_for_id(plan: Plan) -> m.JoinRequest:
    """Nobody will join with it. Its session would be far longer than a run's rebalances."""
    return _join(plan, "", None).model_copy(update={"session_timeout_ms": 60_000})


def _of_no_generation(
    chance: random.Random, member_id: str, generation_id: int, offset: int
) -> tuple[Operation, m.RequestModel]:
    if chance.random() < 0.5:
        return ops.HEARTBEAT, m.HeartbeatRequest(generation_id=generation_id, member_id=member_id)
    offsets = {"t": {0: m.OffsetCommit(offset=offset)}}
    return ops.COMMIT, m.CommitRequest(generation_id=generation_id, member_id=member_id, offsets=offsets)


def _join(plan: Plan, member_id: str, instance: str | None) -> m.JoinRequest:
    return m.JoinRequest(
        member_id=member_id,
        group_instance_id=instance,
        client_id="stranger",
        protocol_type="consumer",
        protocols=tuple(
            m.JoinProtocol(name=name, metadata=OpaqueJson.of({"topics": ["t"]})) for name in plan.offers[0]
        ),
        session_timeout_ms=plan.session_timeouts_ms[0],
        rebalance_timeout_ms=plan.rebalance_timeouts_ms[0],
        max_wait_ms=1_000,
    )
