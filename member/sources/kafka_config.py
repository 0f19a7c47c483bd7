"""What a user's options for librdkafka become for the clients that are made of them. Pure, and knows no client.

Options that would take over what the group or the consumer decides are refused here, each with what to use instead.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any

OWN: Mapping[str, Any] = {
    # librdkafka wants a group id from every consumer. With partitions assigned by hand and nothing committed the broker
    # never hears of it.
    "group.id": "rallypoint-unused",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # An offset that is not there is told, so that the consumer's own auto_offset_reset decides.
    "auto.offset.reset": "error",
    # The end of a partition moves the position over offsets that hold no record.
    "enable.partition.eof": True,
}
"""Of every consumer that reads here; nobody can change them."""

REFUSED: Mapping[str, str] = {
    "group.id": "the group is the consumer's own group_id; Kafka's groups are not used",
    "group.instance.id": "use the consumer's group_instance_id",
    "group.protocol": "Kafka's groups are not used",
    "group.remote.assignor": "Kafka's groups are not used; use the consumer's assignors",
    "partition.assignment.strategy": "use the consumer's assignors",
    "session.timeout.ms": "use the consumer's session_timeout_ms",
    "heartbeat.interval.ms": "use the consumer's heartbeat_interval_ms",
    "max.poll.interval.ms": "use the consumer's max_poll_interval_ms",
    "enable.auto.commit": "use the consumer's commit_mode",
    "auto.commit.enable": "use the consumer's commit_mode",
    "offset.store.method": "offsets are committed to the consumer's group",
    "auto.commit.interval.ms": "use the consumer's auto_commit_interval_ms",
    "enable.auto.offset.store": "use the consumer's commit_mode",
    "auto.offset.reset": "use the consumer's auto_offset_reset",
    "default.topic.config": "set its options beside the others",
    "metadata.broker.list": "use bootstrap.servers",
    "enable.partition.eof": "the source needs it",
    "error_cb": "errors are raised by reads, or are in the log of rallypoint.member",
    "logger": "librdkafka's lines are in the log of rallypoint.kafka",
}

CRITICAL = 2
"""Of librdkafka's lines those of this level and worse are logged: what is less is told as an error, too."""

CONSUMERS_ALONE = frozenset({"isolation.level", "check.crcs", "max.partition.fetch.bytes"})
CONSUMERS_ALONE_PREFIXES = ("fetch.", "queued.", "consume.")
"""Options about which a client that only asks would complain."""


def check_form(config: object) -> None:
    """ValueError, which names the option, if it is no mapping of names to values that librdkafka can take, or names
    no broker.
    """
    if not isinstance(config, Mapping):
        raise ValueError(f"config: {config!r} is no mapping of librdkafka's options to their values")
    for name, value in config.items():
        if not isinstance(name, str):
            raise ValueError(f"config: {name!r} is no name of an option")
        is_checked_below = name == "bootstrap.servers" or name in REFUSED
        is_many = isinstance(value, Iterable) and not isinstance(value, str | os.PathLike)
        if not is_checked_below and is_many and not callable(value):
            raise ValueError(f"{name}: a text, a path, a number, True or False, not {type(value).__name__}")
    servers = config.get("bootstrap.servers")
    if not servers:
        raise ValueError("bootstrap.servers: name at least one broker")
    if not isinstance(servers, str):
        raise ValueError('bootstrap.servers: a text such as "one:9092,two:9092", not ' + type(servers).__name__)


def check(config: Mapping[str, Any]) -> None:
    """As `check_form`, and for an option that is not the user's to choose."""
    check_form(config)
    for name in config:
        if name in REFUSED:
            raise ValueError(f"{name}: cannot be set: {REFUSED[name]}")
    level = config.get("isolation.level")
    if level not in (None, "read_committed", "read_uncommitted"):
        raise ValueError(f"isolation.level: {level!r} is neither read_committed nor read_uncommitted")


def for_reading(config: Mapping[str, Any]) -> dict[str, Any]:
    """For a consumer that is told what to read."""
    return {"log_level": CRITICAL, **_given(config), **OWN}


def for_asking(config: Mapping[str, Any]) -> dict[str, Any]:
    """For a client that only asks about topics and offsets. It writes no lines of its own: the same are written by the
    client that reads, or are in the error that is raised. Nor does it make a topic by asking about it, if the
    cluster makes topics on demand: one that was deleted would come back.
    """
    kept = {
        name: value
        for name, value in _given(config).items()
        if name not in CONSUMERS_ALONE and not name.startswith(CONSUMERS_ALONE_PREFIXES)
    }
    return {"log_level": 0, "allow.auto.create.topics": False, **kept}


def _given(config: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is None, which means librdkafka's default; paths as texts."""
    return {
        name: os.fsdecode(value) if isinstance(value, os.PathLike) else value
        for name, value in config.items()
        if value is not None
    }
