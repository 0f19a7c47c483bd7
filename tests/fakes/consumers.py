"""A running group whose members were given partitions, as real consumers are."""

from collections.abc import Mapping, Sequence
from typing import Any

from rallypoint.protocol import messages as m
from rallypoint.protocol.opaque import OpaqueJson
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import ServiceHarness, join, sync

Shares = Mapping[str, Mapping[str, Sequence[int]]]


async def form_consumers(
    harness: ServiceHarness,
    group_id: str,
    shares: Shares,
    *,
    static: bool = False,
    topics: Sequence[str] | None = None,
    protocol_name: str = "range",
) -> dict[str, str]:
    """A Stable group: name to member id. `shares`: name to topic to partitions. All subscribe to `topics`, or to those
    of all shares; static members have their name as instance id.
    """
    subscribed = sorted({topic for share in shares.values() for topic in share}) if topics is None else list(topics)
    metadata = OpaqueJson.of({"topics": list(subscribed)})
    more: dict[str, Any] = {"protocols": (m.JoinProtocol(name=protocol_name, metadata=metadata),)}
    ids: dict[str, str] = {}
    joins = {}
    for name in shares:
        if static:
            joins[name] = harness.ask(group_id, join(name, "", group_instance_id=name, **more))
        else:
            ids[name] = await harness.new_id(group_id, name)
    for name, member_id in ids.items():
        joins[name] = harness.ask(group_id, join(name, member_id, **more))
    await settle()
    # With static members the first one forms a group of its own before the second comes.
    answers: dict[str, m.JoinAnswer] = {}
    for name in shares:
        answer = joins[name].result()
        assert isinstance(answer, m.JoinAnswer), answer
        answers[name] = answer
    generation_id = max(answer.generation_id for answer in answers.values())
    for name, answer in list(answers.items()):
        if answer.generation_id < generation_id:
            again = await harness.now(
                group_id, join(name, answer.member_id, group_instance_id=name if static else None, **more)
            )
            assert isinstance(again, m.JoinAnswer), again
            answers[name] = again
    ids = {name: answer.member_id for name, answer in answers.items()}
    leader = next(name for name, answer in answers.items() if answer.member_id == answer.leader)
    given = tuple(
        m.SyncAssignment(
            member_id=ids[name],
            assignment=OpaqueJson.of({"partitions": {topic: list(numbers) for topic, numbers in share.items()}}),
        )
        for name, share in shares.items()
    )
    for name in (leader, *(name for name in shares if name != leader)):
        request = sync(ids[name], generation_id, given if name == leader else ()).model_copy(
            update={"protocol_name": protocol_name, "group_instance_id": name if static else None}
        )
        answered = await harness.now(group_id, request)
        assert isinstance(answered, m.SyncAnswer), answered
    return ids
