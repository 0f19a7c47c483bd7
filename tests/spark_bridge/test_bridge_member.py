"""The member that the bridge makes of its options."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from rallypoint import BlockingGroupMember
from rallypoint.spark_bridge.control import ReaderControl
from rallypoint.spark_bridge.membership import Callbacks, Membership
from rallypoint.spark_bridge.offsets import INITIAL
from rallypoint.spark_bridge.options import BridgeOptions, SourceOptions
from rallypoint.spark_bridge.planner import Planner
from rallypoint.spark_bridge.planning_process import connect
from rallypoint.spark_bridge.subscription import Subscription
from tests.end_to_end.service_process import running_service
from tests.fakes.fake_coordinator import FakeCoordinator, running_in_thread
from tests.spark_bridge.group_model import TOPIC, CountedSource, World
from tests.spark_bridge.spark_run import wait_until
from tests.spark_bridge.test_bridge_membership import make
from tests.spark_bridge.test_leader_duties import Fixture

OPTIONS = BridgeOptions(
    coordinators=("http://model",), group_id="g", source=SourceOptions("model", ("clicks",)), session_timeout_ms=30_000
)


def made(options: BridgeOptions) -> BlockingGroupMember:
    member = connect(options, Fixture({"clicks": 1}).subscription, make()[0], options.instance_id("c0ffee"))
    assert isinstance(member, BlockingGroupMember)
    member.close()
    return member


@pytest.mark.parametrize(
    ("options", "cooperative"),
    [
        (OPTIONS, True),
        (replace(OPTIONS, eager=True), False),
        (replace(OPTIONS, assignors=("range",)), False),
        (replace(OPTIONS, assignors=("cooperative-sticky", "range")), False),
    ],
)
def test_it_keeps_the_rest_unless_it_is_told_or_has_to_give_up_all(options: BridgeOptions, cooperative: bool) -> None:
    assert options.cooperative is cooperative
    assert made(options)._member._machine.cooperative is cooperative


def test_it_says_its_rack() -> None:
    assert made(replace(OPTIONS, rack_id="a"))._options.rack_id == "a"


def test_a_call_takes_no_more_than_a_part_of_the_session() -> None:
    assert made(OPTIONS)._options.call_timeout_ms == 5_000


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (OPTIONS, None),
        (replace(OPTIONS, group_instance_id="mine"), "mine"),
        (replace(OPTIONS, static_membership=True, client_id="pod"), "pod-c0ffee"),
    ],
)
def test_a_static_member_is_named_by_the_user_or_after_its_checkpoint(options: BridgeOptions, name: str | None) -> None:
    assert made(options)._options.group_instance_id == name


def test_it_looks_for_growth_itself_by_the_counts_of_the_source() -> None:
    """One piece for every member: nothing else in the bridge looks."""
    fixture = Fixture({"clicks": 1})
    member = connect(replace(OPTIONS, partition_check_interval_ms=700), fixture.subscription, make()[0], None)
    assert isinstance(member, BlockingGroupMember)
    member.close()
    assert member._options.metadata_max_age_ms == 700
    assert member._member._watch.goes_on


def test_a_pattern_is_the_members_too() -> None:
    options = replace(OPTIONS, source=SourceOptions("model", ()), topic_pattern=re.compile("clicks-."))
    assert (made(options)._options.topics, made(options)._options.topics_pattern) == ((), "clicks-.")


def test_a_static_leader_of_the_bridge_finds_what_grew_while_it_was_away(tmp_path: Path) -> None:
    """The check interval is an hour, so it is its return that makes it look."""
    with running_service(tmp_path, "--group-initial-rebalance-delay-ms", "0") as service:
        fixture = Fixture({"clicks": 4}, report=False)
        options = replace(OPTIONS, coordinators=(service.url,), partition_check_interval_ms=3_600_000)

        def life(partitions: int) -> int:
            """Wait until so many are held, stop as a driver that is restarted does; the generation."""
            membership = Membership(
                lambda callbacks, name: connect(options, fixture.subscription, callbacks, name),
                rebalance_timeout_ms=options.rebalance_timeout_ms,
                cooperative=True,
            )
            membership.start("driver")
            try:
                generation_id = -1
                while (owned := membership.assignment(30_000, newer_than=generation_id)) is not None:
                    if len(owned.partitions) == partitions:
                        return owned.generation_id
                    generation_id = owned.generation_id
                raise AssertionError("there was no such assignment")
            finally:
                membership.leave("restarted")

        first = life(4)
        assert life(4) == first, "nothing new, so nothing moves"
        fixture.source.counts["clicks"] = 6
        assert life(6) > first
        assert service.stop() == 0


@pytest.mark.parametrize("eager", [True, False])
def test_a_query_whose_coordinator_is_lost_in_a_rebalance_plans_for_a_session_and_no_longer(eager: bool) -> None:
    """The revocation waits at the gate, for nothing can be committed: the member still has what it is about."""
    world, fake = World(2), FakeCoordinator({TOPIC: 2})
    source = CountedSource(world)
    options = replace(
        OPTIONS,
        source=SourceOptions("model", (TOPIC,)),
        session_timeout_ms=2_000,
        eager=eager,
        assignors=("range",) if eager else ("cooperative-sticky",),
        report_end_offsets=False,
    )
    with running_in_thread(fake) as loop:
        options = replace(options, coordinators=(fake.url,))
        subscription = Subscription(options, source)
        subscription.begin()
        members: list[BlockingGroupMember] = []

        def made(callbacks: Callbacks, name: str | None) -> BlockingGroupMember:
            member = connect(options, subscription, callbacks, name)
            assert isinstance(member, BlockingGroupMember)
            members.append(member)
            return member

        membership = Membership(made, rebalance_timeout_ms=60_000, cooperative=options.cooperative)
        planner = Planner(
            options,
            source,
            membership,
            ReaderControl(None, "r"),
            subscription=subscription,
            at_begin=lambda checkpoint_id: membership.start(),
        )
        start = planner.latest_offset(INITIAL, None)
        world.produce(0, 5)
        offset = planner.latest_offset(start, None)
        assert offset != start
        (member,) = members
        if eager:
            asyncio.run_coroutine_threadsafe(fake.rebalance(), loop).result()
        else:
            member.subscribe(("other",))  # so that all that it has is revoked
        wait_until(lambda: membership.revocation is not None, "the revocation waits")
    try:
        world.produce(0, 5)
        following = planner.latest_offset(offset, None)
        assert following != offset, "it goes on without a coordinator"
        wait_until(lambda: not member.holds((TOPIC, 0)), "the session is over")
        world.produce(0, 5)
        assert planner.latest_offset(following, None) is following
        assert membership.revocation is not None
        assert member.assignment is not None
    finally:
        membership.acknowledge()
        member.close()
