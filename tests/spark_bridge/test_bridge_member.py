"""The member that the bridge makes of its options."""

from dataclasses import replace

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from member import BlockingGroupMember
from spark_bridge.options import BridgeOptions, SourceOptions
from spark_bridge.source import connect, instance_id
from tests.spark_bridge.test_bridge_membership import make
from tests.spark_bridge.test_leader_duties import Stage

OPTIONS = BridgeOptions(
    coordinators=("http://model",), group_id="g", source=SourceOptions("model", ("clicks",)), session_timeout_ms=30_000
)


def made(options: BridgeOptions) -> BlockingGroupMember:
    member = connect(options, Stage({"clicks": 1}).duties, make()[0], ("clicks",), instance_id(options, "c0ffee"))
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
