"""What single laws say of a store's log and of answers, where a schedule that shows it is rare."""

from dataclasses import replace
from typing import Any, cast

import pytest

from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.storage.codec import encode
from rallypoint.protocol import messages as m
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.group_harness import GroupHarness
from tests.simulation.checker import Sight
from tests.simulation.laws_of_channels import I17Attempts
from tests.simulation.laws_of_commits import CLOCK_MS, I3Commits
from tests.simulation.laws_of_generations import I2SyncAnswers
from tests.simulation.network import ApiCall
from tests.simulation.node import Seen
from tests.simulation.plan import plan_of
from tests.simulation.trace import Violation

ASSIGNMENT = OpaqueJson.of({"partitions": {"t": [0]}})
HEADER = r.GroupRecord("g", "consumer", "range", 1, 1, "m", 0)
MEMBER = r.MemberRecord("g", "m", 1, 0, None, "c", "host", 10_000, 10_000, None, ASSIGNMENT, ASSIGNMENT)
OFFSET = r.OffsetRecord("g", "t", 0, 5, None, "", 0)


@pytest.mark.parametrize("age_ms", [-CLOCK_MS - 1, 0])
def test_the_age_of_an_offset_counts_from_before_its_append_began(age_ms: int) -> None:
    sight = Sight(plan_of(1))
    law, retention_ms = I3Commits(sight), sight.plan.rules.offsets_retention_ms
    commit = m.CommitRequest.model_validate(
        {"generation_id": -1, "member_id": "", "offsets": {"t": {"0": {"offset": 5}}}}
    )
    law.on_call(ApiCall(1, "g", commit, 0))
    sight.now_ms = 300
    for group_id in sight.fold.take([encode(OFFSET)]):
        law.stored(group_id, sight.fold.group(group_id))
    sight.now_ms = retention_ms + age_ms
    sight.fold.take([encode(r.OffsetForgotten("g", "t", 0))])
    if age_ms < 0:
        with pytest.raises(Violation, match="is gone after"):
            law.stored("g", sight.fold.group("g"))
    else:
        law.stored("g", sight.fold.group("g"))


@pytest.mark.parametrize("is_stored", [True, False])
def test_an_assignment_that_the_same_append_takes_away_was_stored(is_stored: bool) -> None:
    """An operator removes the member whose sync waits for the same append."""
    sight = Sight(plan_of(1))
    law = I2SyncAnswers(sight)
    empty = replace(HEADER, generation_id=2, highest_generation_id=2, leader=None)
    given = [encode(MEMBER), encode(HEADER), encode(r.MemberForgotten("g", "m", 1))] if is_stored else []
    for group_id in sight.fold.take([*given, encode(empty)]):
        law.stored(group_id, sight.fold.group(group_id))
    sync = m.SyncRequest(
        generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range", assignments=()
    )
    answer = m.SyncAnswer(protocol_type="consumer", protocol_name="range", assignment=ASSIGNMENT)
    if is_stored:
        law.on_answer(ApiCall(1, "g", sync, 0), answer)
    else:
        with pytest.raises(Violation, match="stored is None"):
            law.on_answer(ApiCall(1, "g", sync, 0), answer)


@pytest.mark.parametrize("is_spoken_for", [True, False])
def test_after_a_join_without_a_number_any_number_counts(is_spoken_for: bool) -> None:
    """A stranger's, which the law need not have seen counting: a member's own may come in the same turn."""
    law, harness = I17Attempts(Sight(plan_of(1))), GroupHarness()
    member_id, _ = harness.join_new(attempt=4)
    member, no = harness.group.members[member_id], cast(Any, None)
    law.turned(no, [Seen(harness.group, no, is_idle=True)])
    request = m.JoinRequest(
        member_id=member_id,
        client_id="stranger",
        protocol_type="consumer",
        protocols=(m.JoinProtocol(name="range", metadata=ASSIGNMENT),),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        attempt=None if is_spoken_for else 5,
    )
    law.on_call(ApiCall(1, "g", request, 0))
    member.terms = member.terms._replace(attempt=3)
    if is_spoken_for:
        law.turned(no, [Seen(harness.group, no, is_idle=True)])
    else:
        with pytest.raises(Violation, match="replaces 4"):
            law.turned(no, [Seen(harness.group, no, is_idle=True)])
