"""Real answers and a real group, in the words of the plain group."""

from typing import Any

from rallypoint.coordinator.core.commands import Call, DecisionContext, DescribeRequest, GroupRequest
from rallypoint.coordinator.core.decide import decide
from rallypoint.coordinator.core.effects import Failure, Reply
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m
from tests.conformance.group_harness import GroupHarness
from tests.model.plain_group import PlainGroup
from tests.model.plain_state import STABLE, UNREADABLE, Answer


def told(answer: Any) -> Answer:
    """What a client acts on."""
    match answer:
        case Failure(superseded=True):
            return ("superseded",)
        case Failure(code=code) if code.name == "MEMBER_ID_REQUIRED":
            return (code.name, answer.member_id)
        case Failure(code=code):
            return (code.name,)
        case m.JoinAnswer():
            everyone = tuple((x.member_id, x.group_instance_id, topic_of(x.metadata.value)) for x in answer.members)
            return (
                "joined",
                answer.generation_id,
                answer.protocol_name,
                answer.leader,
                answer.member_id,
                everyone,
                answer.skip_assignment,
            )
        case m.SyncAnswer():
            return ("part", answer.protocol_name, answer.assignment.value)
        case m.WaitingAnswer():
            return ("202",)
        case m.LeaveAnswer() | admin.RemoveMembersAnswer():
            return tuple(x.error_name for x in answer.members)
        case m.CommitAnswer():
            return tuple(x.error_name for of in answer.offsets.values() for x in of.values())
        case m.HeartbeatAnswer():
            return ("NONE",)
        case admin.ProceedAnswer():
            return "left out", tuple(x.member_id for x in answer.left_out)
        case admin.JoinWaitAnswer():
            return "waits", answer.join_wait_max_ms
        case admin.DeletedGroup():
            return ("deleted",)
        case admin.DeleteOffsetsAnswer():
            return "offsets", {(t, p): x.error_name for t, of in answer.offsets.items() for p, x in of.items()}
        case admin.ResetOffsetsAnswer():
            put = {(t, p): (x.before, x.after, x.error_name) for t, of in answer.offsets.items() for p, x in of.items()}
            return "reset", put
    raise AssertionError(answer)


def topic_of(metadata: Any) -> str | None:
    match metadata:
        case {"topics": [topic]}:
            return str(topic)
        case None:
            return None
    return UNREADABLE


def look(group_harness: GroupHarness, request: GroupRequest) -> Any:
    """The answer to a question, of which neither the group nor the harness learns."""
    draft = decide(
        group_harness.group,
        Call(0, request),
        DecisionContext(group_harness.now_ms, group_harness.rules, group_harness.partition_counts),
    )
    (reply,) = draft.effects
    assert isinstance(reply, Reply)
    assert not draft.facts
    return reply.answer


def described(group_harness: GroupHarness) -> Any:
    """What an operator sees."""
    answer = look(group_harness, DescribeRequest())
    if isinstance(answer, Failure):
        return answer.code.name
    members = [
        (x.member_id, x.group_instance_id, x.session_timeout_ms, x.rebalance_timeout_ms, topic_of(x.metadata.value),
         x.assignment.value)
        for x in answer.members
    ]  # fmt: skip
    return (
        answer.state, answer.protocol_type, answer.protocol_name, answer.generation_id, answer.leader, members,
        {(t, p): (o.offset, o.commit_at_ms) for t, of in answer.offsets.items() for p, o in of.items()},
    )  # fmt: skip


def describe(plain: PlainGroup) -> Any:
    """The same of the plain group."""
    if plain.state == "Dead":
        return "GROUP_ID_NOT_FOUND"
    stable = plain.state == STABLE
    members = [
        (x.member_id, x.instance, x.session_ms, x.rebalance_ms, x.topic_under(plain.protocol) if stable else None,
         x.part if stable else None)
        for x in plain.members
    ]  # fmt: skip
    protocol = plain.protocol if stable else None
    return plain.state, plain.kind or "", protocol or "", plain.generation, plain.leader, members, plain.offsets
