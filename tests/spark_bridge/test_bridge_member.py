"""The member that the bridge makes of its options."""

import pytest

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")

from member import BlockingGroupMember
from spark_bridge.options import BridgeOptions, SourceOptions
from spark_bridge.source import connect
from tests.spark_bridge.test_leader_duties import Stage


def test_it_takes_whole_assignments_whatever_the_assignor() -> None:
    options = BridgeOptions(
        coordinators=("http://model",),
        group_id="g",
        source=SourceOptions("model", ("clicks",)),
        assignors=("cooperative-sticky",),
    )
    member = connect(options, Stage({"clicks": 1}).duties, lambda held: None, lambda held: None)
    assert isinstance(member, BlockingGroupMember)
    assert not member._member._machine.cooperative
    member.close()
