"""How what a cluster stores looks, and what is refused of it."""

import pytest

from rallypoint.coordinator.core.cluster.placement import NODES_MAX, PLACES_MAX
from rallypoint.coordinator.core.cluster.records import NodeAnnouncement, Placement, RegisteredNode
from rallypoint.coordinator.storage.cluster_codec import (
    decode_announcement,
    decode_placement,
    encode_announcement,
    encode_placement,
)
from rallypoint.coordinator.storage.contract import REGISTRY_KEYSPACE, StoredDataInvalid, shard_keyspace
from rallypoint.coordinator.storage.etcd.keyspace import ETCD_LIMITS
from rallypoint.protocol.limits import ID_LENGTH_MAX
from tests.formats.test_formats import samples

SHARDS_MAX = 10_000
"""Of the setting."""

NODE = NodeAnnouncement(
    "etl-1",
    "http://etl-1:8080",
    "zone б",
    "0.1.0",
    1,
    3,
    1763722800000,
    is_draining=True,
    deletions_seen=7,
    seen_epoch=4711,
)
PLACEMENT = Placement(
    {"etl-1": RegisteredNode("zone б", is_draining=True), "etl-2": RegisteredNode()},
    {"topics": ("etl-2", "etl-1"), "shard-0": ("etl-1", "etl-2"), "shard-1": ("etl-2", "etl-1")},
)
NODE_SAMPLE, PLACEMENT_SAMPLE = (sample.value or b"" for sample in samples("cluster-v1.jsonl"))


def test_version_1_is_read_and_written() -> None:
    assert decode_announcement("etl-1", NODE_SAMPLE) == NODE
    assert encode_announcement(NODE) == NODE_SAMPLE
    assert decode_placement(PLACEMENT_SAMPLE) == PLACEMENT
    assert encode_placement(PLACEMENT) == PLACEMENT_SAMPLE


def test_what_a_node_of_a_newer_release_adds_is_read_past() -> None:
    assert decode_announcement("etl-1", NODE_SAMPLE.replace(b"{", b'{"more":1,')) == NODE
    assert decode_placement(PLACEMENT_SAMPLE.replace(b'"v":1', b'"v":1,"more":1')) == PLACEMENT
    assert decode_placement(PLACEMENT_SAMPLE.replace(b'"rack"', b'"more":[],"rack"')) == PLACEMENT


def test_what_a_node_of_an_older_release_leaves_out_is_taken_as_its_default() -> None:
    fields = b'"v":1,"node_id":"n","url":"http://n","release":"0","format_major":1,"format_minor":0,"started_at_ms":5'
    assert decode_announcement("n", b"{%s}" % fields) == NodeAnnouncement("n", "http://n", None, "0", 1, 0, 5)
    assert decode_placement(b'{"v":1,"nodes":{"n":{}},"orders":{"topics":[0]}}') == Placement(
        {"n": RegisteredNode()}, {"topics": ("n",)}
    )


@pytest.mark.parametrize(("nodes", "shards"), [(NODES_MAX, PLACES_MAX // NODES_MAX - 1), (3, SHARDS_MAX)])
def test_a_placement_that_is_not_refused_fits_in_one_write_of_etcd(nodes: int, shards: int) -> None:
    node_ids = [f"{place:03}.{'x' * (ID_LENGTH_MAX - 4)}" for place in range(nodes)]
    keyspaces = (REGISTRY_KEYSPACE, *map(shard_keyspace, range(shards)))
    ring = tuple(node_ids)
    placement = Placement(
        {node_id: RegisteredNode("r" * ID_LENGTH_MAX, is_draining=True) for node_id in node_ids},
        {keyspace: ring[at % nodes :] + ring[: at % nodes] for at, keyspace in enumerate(keyspaces)},
    )
    assert len(encode_placement(placement)) <= ETCD_LIMITS.bytes_max
    assert decode_placement(encode_placement(placement)) == placement


def test_the_empty_placement_is_stored_too() -> None:
    assert decode_placement(encode_placement(Placement())) == Placement()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"}", b""),
        (b'"v":1', b'"v":2'),
        (b'"v":1', b'"v":0'),
        (b'"v":1,', b""),
        (b'"etl-1"', b'"etl-3"'),
        (b'"http://etl-1:8080"', b"null"),
        (b'"format_major":1', b'"format_major":"1"'),
        (b'"is_draining":true', b'"is_draining":1'),
        (b'"release":"0.1.0",', b""),
        (b"zone", b"\xff"),
    ],
)
def test_a_damaged_announcement_is_refused_by_its_node_s_name(old: bytes, new: bytes) -> None:
    assert old in NODE_SAMPLE
    with pytest.raises(StoredDataInvalid, match="node 'etl-1'"):
        decode_announcement("etl-1", NODE_SAMPLE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"}", b""),
        (b'"v":1', b'"v":2'),
        (b'"v":1,', b""),
        (b"[1,0]", b"[1]"),
        (b"[1,0]", b"[1,1]"),
        (b"[1,0]", b"[1,0,0]"),
        (b"[1,0]", b"[1,2]"),
        (b"[1,0]", b"[-1,0]"),
        (b"[1,0]", b'["etl-2","etl-1"]'),
        (b"[1,0]", b"1"),
        (b'"is_draining":true', b'"is_draining":null'),
        (b'"nodes"', b'"brokers"'),
        (b"zone", b"\xff"),
    ],
)
def test_a_damaged_placement_is_refused(old: bytes, new: bytes) -> None:
    assert old in PLACEMENT_SAMPLE
    with pytest.raises(StoredDataInvalid, match="the stored placement"):
        decode_placement(PLACEMENT_SAMPLE.replace(old, new))


@pytest.mark.parametrize(
    "value",
    [b"", b"\xff", b"[]", b"null", b'{"v":1,"nodes":{"n":{}},"orders":{}}', b'{"v":1,"nodes":{},"orders":{"t":[]}}'],
)
def test_what_is_no_placement_is_refused(value: bytes) -> None:
    with pytest.raises(StoredDataInvalid, match="the stored placement"):
        decode_placement(value)
