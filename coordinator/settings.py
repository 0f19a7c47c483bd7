"""What can be set, where it is read from, and what is refused.

A setting is given as a flag (`--group-max-size 500`), in the environment (`RALLYPOINT_GROUP_MAX_SIZE=500`) or in a
TOML file (`group_max_size = 500`) named by `--config` or `RALLYPOINT_CONFIG`. The first of these that names it counts;
otherwise the default below does. An unknown key in the file is an error; an unknown `RALLYPOINT_…` variable is only
reported, since clients and deployments use the same prefix.

Nothing here opens a socket, a store or a log: `main` joins the parts.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from coordinator.http.hosts import is_loopback
from coordinator.storage.engines import StorageUrlInvalid, check_url
from protocol import limits

ENV_PREFIX = "RALLYPOINT_"
CONFIG_VARIABLE = "RALLYPOINT_CONFIG"
"""Names the TOML file where no `--config` does."""

_TOKEN_HASH = re.compile(r"sha256:[0-9a-f]{64}")

INT32_MAX = 2**31 - 1


class SettingsError(Exception):
    """The settings cannot be used. The text is one or more whole sentences for the person who starts the service."""


def _split_list(value: Any) -> Any:
    """Commas separate in flags and the environment; a TOML file has real lists."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, list):
        return tuple(value)
    return value


TextList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_list)]


def _setting(default: Any, section: str, text: str, **bounds: Any) -> Any:
    return Field(default, description=text, json_schema_extra={"section": section}, **bounds)


_ORDERED = (
    ("group_min_session_timeout_ms", "group_max_session_timeout_ms"),
    # A member that sends heartbeats as it is told would expire between two of them.
    ("heartbeat_interval_ms", "group_max_session_timeout_ms"),
    ("rebalance_cooldown_ms", "rebalance_cooldown_max_ms"),
    ("max_body_bytes", "max_sync_bytes"),
    ("protocol_metadata_max_bytes", "join_metadata_max_bytes"),
    ("topics_max", "topics_partitions_max"),
)
"""Settings of which the first may not be above the second."""


class Settings(BaseSettings):
    """Every setting of the service. A description says the unit, and why the default is what it is."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="forbid", frozen=True, env_ignore_empty=False, validate_default=True
    )

    # --- listening

    host: str = _setting(
        "127.0.0.1",
        "Listening",
        "Address or name to listen on. The default is reached from this machine alone; any other address needs "
        "`tokens` or `insecure`.",
        min_length=1,
    )
    port: int = _setting(
        8000,
        "Listening",
        "TCP port to listen on; 0 takes a free one, which the line `listening on URL` names.",
        ge=0,
        le=65535,
    )
    advertised_url: str | None = _setting(
        None,
        "Listening",
        "URL under which clients reach this node, as look-ups of coordinators tell it. By default it is made from "
        "`host` and `port`, with the machine's name in place of an address like 0.0.0.0: set it behind a proxy, in a "
        "container, or where clients use another name.",
    )
    node_id: str = _setting(
        "node-1",
        "Listening",
        "Name of this node in look-ups of coordinators. One node needs no other than the default.",
        min_length=1,
        max_length=255,
    )

    # --- storage

    storage: str = _setting(
        "sqlite:///rallypoint.db",
        "Storage",
        "Where groups, offsets and topics are kept: `sqlite:///PATH` (three slashes and a relative path, four for an "
        "absolute one; one process per file, on a local disk) or `memory:` (lost at the stop; for tests). The default "
        "is durable and needs no other service.",
    )
    shards: int = _setting(
        50,
        "Storage",
        "Number of shards that groups are spread over. It must never change once groups are stored; the default is "
        "Kafka's number of partitions of its offsets topic.",
        ge=1,
        le=10_000,
    )
    storage_batch_writes_max: int = _setting(
        200_000,
        "Storage",
        "Records that one write of the store may hold; a larger change is stored in pieces, and counts with the last "
        "one that it needs. The default keeps one write from holding up all others. 127 is what an etcd server of "
        "default settings takes beside the fence: to see how groups live with that.",
        ge=10,
        le=200_000,
    )
    storage_batch_bytes_max: int = _setting(
        64 * 1024 * 1024,
        "Storage",
        "Bytes of keys and values that one write of the store may hold; beside `storage_batch_writes_max`, whichever "
        "is reached first. A single record that is larger is refused, so a member's subscription and assignment "
        "together must fit. An etcd server of default settings takes 1,500,000.",
        ge=65_536,
        le=64 * 1024 * 1024,
    )

    # --- groups

    group_min_session_timeout_ms: int = _setting(
        6_000,
        "Groups",
        "Shortest session timeout, in milliseconds, that a member may ask for; not above "
        "`group_max_session_timeout_ms`. Kafka's default: shorter ones turn a pause of a garbage collector into a "
        "rebalance.",
        ge=1,
        le=INT32_MAX,
    )
    group_max_session_timeout_ms: int = _setting(
        1_800_000,
        "Groups",
        "Longest session timeout, in milliseconds, that a member may ask for. Kafka's default of 30 minutes: so long "
        "may a dead member's partitions stay unread.",
        ge=1,
        le=INT32_MAX,
    )
    group_initial_rebalance_delay_ms: int = _setting(
        3_000,
        "Groups",
        "How long, in milliseconds, the first rebalance of an empty group waits for more members. Kafka's default: it "
        "saves one rebalance for each member that starts a moment later. With 0 it waits for ids that were handed out, "
        "and up to three seconds while sessions begin that have not called a group yet.",
        ge=0,
        le=INT32_MAX,
    )
    group_max_size: int = _setting(
        INT32_MAX,
        "Groups",
        "Most members that one group may have. The default is Kafka's, which is no limit in practice.",
        ge=1,
        le=INT32_MAX,
    )
    new_member_join_timeout_ms: int = _setting(
        300_000,
        "Groups",
        "How long, in milliseconds, a member that has never been in a generation may wait in a join phase before it "
        "is dropped. Kafka's fixed value.",
        ge=1,
        le=INT32_MAX,
    )
    heartbeat_interval_ms: int = _setting(
        3_000,
        "Groups",
        "How often, in milliseconds, members are told to send heartbeats that do not wait. Kafka's default; it should "
        "be at most a third of the session timeouts in use.",
        ge=1,
        le=INT32_MAX,
    )
    offset_metadata_max_bytes: int = _setting(
        4_096,
        "Groups",
        "Longest metadata of one committed offset, counted in characters as Kafka does. Kafka's default.",
        ge=0,
        le=1_048_576,
    )
    rebalance_history_max: int = _setting(
        100,
        "Groups",
        "How many of its last rebalances each group remembers, in the store and in memory; one takes about half a "
        "kilobyte. The default is a busy day of a group that is deployed often. Where it was lowered, the older ones "
        "go with the next rebalances.",
        ge=1,
        le=10_000,
    )
    rebalance_cooldown_ms: int = _setting(
        0,
        "Groups",
        "How long, in milliseconds, after a rebalance what would start another one is held, to start one for all of it "
        "together; not above `rebalance_cooldown_max_ms`. A group may have its own (`PUT …/cooldown`). The default "
        "holds nothing, as in Kafka: who has gone is replaced at once.",
        ge=0,
        le=INT32_MAX,
    )
    rebalance_cooldown_max_ms: int = _setting(
        600_000,
        "Groups",
        "Longest cool-down, in milliseconds, that a group may be given. While it runs, partitions of members that are "
        "gone have no owner; the default keeps that below ten minutes.",
        ge=0,
        le=INT32_MAX,
    )
    rebalance_freeze_max_ms: int = _setting(
        900_000,
        "Groups",
        "Longest freeze, in milliseconds, that an operator may ask for at once; it may be asked for again. The default "
        "of a quarter of an hour is a long deploy, and a forgotten freeze ends by itself.",
        ge=1,
        le=INT32_MAX,
    )
    offsets_retention_ms: int = _setting(
        604_800_000,
        "Groups",
        "How long, in milliseconds, a committed offset is kept that nobody uses: after its commit in a group that "
        "never had members; in a group whose members have gone, after they went; in a group of consumers, after the "
        "last commit to a topic that none of them subscribes to. Kafka's default of 7 days, long enough for a group "
        "that is stopped over a holiday. The longest is a hundred years.",
        ge=1,
        le=3_155_760_000_000,
    )
    offsets_retention_check_interval_ms: int = _setting(
        600_000,
        "Groups",
        "How often, in milliseconds, each group is searched for offsets older than `offsets_retention_ms`; a group "
        "without members and offsets is removed then. Kafka's default of 10 minutes.",
        ge=1,
        le=INT32_MAX,
    )

    # --- requests

    parked_call_max_wait_ms: int = _setting(
        55_000,
        "Requests",
        "How long, in milliseconds, an answer may be held back; then it is 202 and the client asks again. The default "
        "stays below the 60 seconds at which many proxies cut.",
        ge=0,
        le=3_600_000,
    )
    max_body_bytes: int = _setting(
        1_048_576,
        "Requests",
        "Largest body of a request, in bytes, other than a sync. One MiB holds a commit of some ten thousand "
        "partitions.",
        ge=1_024,
        le=1_073_741_824,
    )
    max_sync_bytes: int = _setting(
        33_554_432,
        "Requests",
        "Largest body of a sync, in bytes, not below `max_body_bytes`: a leader sends everyone's assignment in one. "
        "At 10,000 members it is about 1.7 MB; the default leaves room for long topic names.",
        ge=1_024,
        le=1_073_741_824,
    )
    body_timeout_ms: int = _setting(
        30_000,
        "Requests",
        "How long, in milliseconds, a request's body may take to arrive. The default gives a slow line time, and "
        "keeps stalled clients from holding memory.",
        ge=1,
        le=3_600_000,
    )

    preview_size_max: int = _setting(
        120_000,
        "Requests",
        "Largest preview of an assignment: members and partitions, counted together. It is worked out beside the "
        "requests and shares the processor with them; the default takes a group of 1,000 members and 100,000 "
        "partitions, for which that is some seconds.",
        ge=1,
        le=100_000_000,
    )

    # --- event streams

    event_streams_max: int = _setting(
        100,
        "Event streams",
        "Most streams of `GET /v1/events` that are open at once; one more is refused. Each is a connection, and some "
        "64 KiB where its client reads slowly.",
        ge=0,
        le=100_000,
    )
    events_kept_max: int = _setting(
        10_000,
        "Event streams",
        "How many events are kept for streams that are slow or come back; of commits as many again. An event that "
        "names many partitions counts as one more for each ten of them. The default is some twenty megabytes of each "
        "at most.",
        ge=1,
        le=10_000_000,
    )
    events_heartbeat_interval_ms: int = _setting(
        15_000,
        "Event streams",
        "How often, in milliseconds, a stream that has nothing to tell sends a comment. The default stays below the "
        "60 seconds, and the 30 of some, at which proxies cut a quiet connection.",
        ge=10,
        le=3_600_000,
    )
    events_write_timeout_ms: int = _setting(
        30_000,
        "Event streams",
        "How long, in milliseconds, the client of a stream may take nothing of what was sent before its connection is "
        "cut. It can come back with its cursor.",
        ge=10,
        le=3_600_000,
    )

    # --- sessions

    sessions_max: int = _setting(
        20_000,
        "Sessions",
        "Most sessions (`GET /v1/session`) that are open at once; one more is refused. Each is one of the "
        "`connections_max`. The default is two for each of ten thousand members.",
        ge=0,
        le=10_000_000,
    )
    disconnect_grace_ms: int = _setting(
        2_000,
        "Sessions",
        "How long, in milliseconds, a member whose own side has ended its session without a leave may take to come "
        "back, where its join names no `disconnect_grace_ms`; then it is taken for dead. Static members have a grace "
        "only where they name one. The default is enough to connect again, and short enough for a process that was "
        "killed.",
        ge=0,
        le=INT32_MAX,
    )
    session_calls_max: int = _setting(
        1_000,
        "Sessions",
        "Most calls of one session that wait for their answers; one more is refused. The default lets a host of a "
        "thousand members wait for a rebalance on one connection.",
        ge=1,
        le=1_000_000,
    )
    session_groups_max: int = _setting(
        1_000,
        "Sessions",
        "Most groups of which one session may carry members; a call of a member of one more is refused.",
        ge=1,
        le=1_000_000,
    )
    session_ping_interval_ms: int = _setting(
        15_000,
        "Sessions",
        "After how many milliseconds of silence a session is asked for a sign of life; where none comes within half "
        "as long again, the connection is cut. The default stays below the 60 seconds, and the 30 of some, at which "
        "proxies cut a quiet connection.",
        ge=100,
        le=3_600_000,
    )
    session_unsent_max_bytes: int = _setting(
        16_777_216,
        "Sessions",
        "Bytes that wait to be read by the client of a session, beyond which nothing more is added and the session "
        "ends. One answer may go past it, so the default holds that of a leader of ten thousand members several times.",
        ge=65_536,
        le=1_073_741_824,
    )
    session_authenticate_timeout_ms: int = _setting(
        5_000,
        "Sessions",
        "How long, in milliseconds, a session that began without a token may take to send it as its first message. "
        "Only browsers have to.",
        ge=100,
        le=3_600_000,
    )

    # --- limits: of one request, of a group, of the node

    id_length_max: int = _setting(
        limits.ID_LENGTH_MAX,
        "Limits",
        "Longest group, instance, client or request id, and name of a protocol, in characters; a member id may "
        "have 64 more, for it is made of one. Kafka has no limit; the default, which is also the ceiling, keeps "
        "ids fit for a path.",
        ge=16,
        le=limits.ID_LENGTH_MAX,
    )
    topic_length_max: int = _setting(
        limits.ID_LENGTH_MAX,
        "Limits",
        "Longest name of a topic in a commit, a query or a path, in characters. Kafka's own names end at 249; the "
        "default is that of ids.",
        ge=1,
        le=limits.ID_LENGTH_MAX,
    )
    join_protocols_max: int = _setting(
        limits.PROTOCOLS_MAX,
        "Limits",
        "Most protocols that one join may offer. Members offer one or two; the default leaves room for a long "
        "migration.",
        ge=1,
        le=limits.PROTOCOLS_MAX,
    )
    protocol_metadata_max_bytes: int = _setting(
        262_144,
        "Limits",
        "Largest metadata of one protocol in a join, in bytes as it is kept (JSON in UTF-8 without spaces); not "
        "above `join_metadata_max_bytes`. The leader is told that of every member, so it is the size of a join's "
        "answer. The default holds a subscription of some thousand topics with what is owned of them.",
        ge=2,
        le=1_073_741_824,
    )
    join_metadata_max_bytes: int = _setting(
        524_288,
        "Limits",
        "Largest metadata of all protocols of a join together, in bytes as it is kept. The service holds this "
        "much for each member. The default is half of the default body.",
        ge=2,
        le=1_073_741_824,
    )
    subscription_topics_max: int = _setting(
        10_000,
        "Limits",
        "Most topics that a consumer may subscribe to. Each is counted for the group, and a change of any begins "
        "a round. The default is far above what one process reads.",
        ge=1,
        le=1_000_000,
    )
    sync_assignments_max: int = _setting(
        limits.ASSIGNMENTS_MAX,
        "Limits",
        "Most members that a leader's sync may assign to. The default is ten times the largest group that was "
        "measured.",
        ge=1,
        le=limits.ASSIGNMENTS_MAX,
    )
    assignment_max_bytes: int = _setting(
        1_048_576,
        "Limits",
        "Largest assignment of one member, in bytes as it is kept (JSON in UTF-8 without spaces). The default "
        "holds more than a hundred thousand partitions of one topic.",
        ge=2,
        le=1_073_741_824,
    )
    leave_members_max: int = _setting(
        limits.LEAVERS_MAX,
        "Limits",
        "Most members in one leave. The default lets a host of many members go in one call.",
        ge=1,
        le=limits.LEAVERS_MAX,
    )
    heartbeats_max: int = _setting(
        1_000,
        "Limits",
        "Most heartbeats in one `POST /v1/heartbeats`. The default takes some ten milliseconds, so that others do not "
        "wait for long.",
        ge=1,
        le=limits.HEARTBEATS_MAX,
    )
    request_topics_max: int = _setting(
        limits.COMMIT_TOPICS_MAX,
        "Limits",
        "Most topics in one commit, fetch, deletion or reset of offsets. The default is above what a body of the "
        "default size holds in practice.",
        ge=1,
        le=limits.COMMIT_TOPICS_MAX,
    )
    request_partitions_max: int = _setting(
        limits.COMMIT_PARTITIONS_MAX,
        "Limits",
        "Most partitions in one commit or reset of offsets, all topics together, and end offsets or racks in one "
        "report of a topic. Each of a commit is a record, and all count or none.",
        ge=1,
        le=limits.COMMIT_PARTITIONS_MAX,
    )
    partition_racks_max: int = _setting(
        limits.PARTITION_RACKS_MAX,
        "Limits",
        "Most racks of one partition of a registered topic. There is one for each replica; the default is above what "
        "anybody replicates.",
        ge=1,
        le=limits.PARTITION_RACKS_MAX,
    )
    lookup_groups_max: int = _setting(
        limits.COORDINATOR_GROUPS_MAX,
        "Limits",
        "Most groups in one look-up of coordinators. The default is about what a URL of the default size holds.",
        ge=1,
        le=limits.COORDINATOR_GROUPS_MAX,
    )
    list_limit_max: int = _setting(
        limits.LIST_LIMIT_MAX,
        "Limits",
        "Most rows on one page of a list. A list that names no limit gets 100, or this where it is less.",
        ge=1,
        le=limits.LIST_LIMIT_MAX,
    )
    preview_entries_max: int = _setting(
        limits.PREVIEW_ENTRIES_MAX,
        "Limits",
        "Most entries of each list of a preview: members that leave, that join, topics that grow. How many members and "
        "partitions it comes to is bounded by `preview_size_max`.",
        ge=1,
        le=limits.PREVIEW_ENTRIES_MAX,
    )
    key_length_max: int = _setting(
        limits.KEY_LENGTH_MAX,
        "Limits",
        "Longest key of a record in a question for its owner, in characters of the query. The default leaves room for "
        "keys that are small documents.",
        ge=1,
        le=limits.KEY_LENGTH_MAX,
    )
    query_parameters_max: int = _setting(
        10_000,
        "Limits",
        "Most parameters in the query of a URL. The default lets `request_topics_max` be reached.",
        ge=1,
        le=100_000,
    )
    json_depth_max: int = _setting(
        32,
        "Limits",
        "Deepest nesting of objects and lists in a body, what is opaque in it included. Subscriptions go six "
        "levels deep; what reads them later may not be made for a hundred.",
        ge=8,
        le=128,
    )
    max_url_bytes: int = _setting(
        65_536,
        "Limits",
        "Longest target of a request (path and query), in bytes. The default holds a look-up of a thousand "
        "groups, or a fetch of as many topics; many proxies take 8 KiB.",
        ge=1_024,
        le=1_048_576,
    )
    max_header_bytes: int = _setting(
        8_192,
        "Limits",
        "Largest value of a header of a request, in bytes; its name may have as many. The default is that of common "
        "servers, and holds any token.",
        ge=1_024,
        le=1_048_576,
    )
    headers_max: int = _setting(
        128,
        "Limits",
        "Most headers of a request. The default is far above what clients and proxies send.",
        ge=16,
        le=1_000,
    )
    group_pending_max: int = _setting(
        10_000,
        "Limits",
        "Most member ids of a group that are handed out and have not joined yet. Each holds a round open until it "
        "joins or its session timeout is over, so a flood of first joins must have an end; beyond it a first join "
        "is told to wait. The default lets ten thousand members start at the same moment.",
        ge=1,
        le=10_000_000,
    )
    group_offsets_max: int = _setting(
        1_000_000,
        "Limits",
        "Most partitions that a group may have committed offsets of. Beyond it a commit is refused for partitions "
        "that are new to the group, and goes on for the others. The default keeps a group below a few hundred "
        "megabytes.",
        ge=1,
        le=100_000_000,
    )
    group_mailbox_max: int = _setting(
        10_000,
        "Limits",
        "Most calls of a group that wait to be worked on, which they do only while a write of the group is under "
        "way. The default takes one call of each of ten thousand members.",
        ge=1,
        le=10_000_000,
    )
    groups_max: int = _setting(
        100_000,
        "Limits",
        "Most groups on the node. Beyond it no group is created, by a join or a commit; those that are there go "
        "on, and a node that finds more in its store serves them all. The default is sized for a machine of a few "
        "gigabytes.",
        ge=1,
        le=100_000_000,
    )
    topics_max: int = _setting(
        10_000,
        "Limits",
        "Most registered topics; not above `topics_partitions_max`. Beyond it no topic is added; those that are "
        "there can grow and report their ends.",
        ge=1,
        le=1_000_000,
    )
    topics_partitions_max: int = _setting(
        1_000_000,
        "Limits",
        "Most partitions of all registered topics together. The default is what one topic may have at most.",
        ge=1,
        le=100_000_000,
    )
    topics_racks_max_bytes: int = _setting(
        67_108_864,
        "Limits",
        "Most that the racks of all registered topics may take together, in bytes as they are kept (JSON in UTF-8 "
        "without spaces). Beyond it no topic gets more racks than it has. The default holds three racks of fifteen "
        "characters for each of a million partitions.",
        ge=0,
        le=10_000_000_000,
    )
    parked_calls_max: int = _setting(
        100_000,
        "Limits",
        "Most calls whose answers are held back at the same time, over all groups of the node. Beyond it a call "
        "counts (a member has joined, a leader's assignment is stored), but its sender is told to ask again "
        "instead of waiting. The default is ten calls for each of ten thousand members.",
        ge=0,
        le=10_000_000,
    )
    connections_max: int = _setting(
        50_000,
        "Limits",
        "Most connections at the same time. One too many gets its refusal in the answer to its first request. The "
        "default is five for each of ten thousand members; the system's limit of open files may be lower.",
        ge=1,
        le=10_000_000,
    )

    # --- security

    tokens: TextList = _setting(
        (),
        "Security",
        "Hashes of the bearer tokens that are accepted, `sha256:HEX`, separated by commas; `rallypoint token` draws "
        "one. Without any, no token is asked for.",
    )
    token_file: Path | None = _setting(
        None,
        "Security",
        "File with more such hashes, one a line; lines that begin with # are notes. For secrets that are mounted as "
        "files. It is read once, at the start.",
    )
    insecure: bool = _setting(
        False,
        "Security",
        "Listen beyond this machine although no token is set. Only for a network in which everyone may do everything.",
    )
    allowed_hosts: TextList = _setting(
        (),
        "Security",
        "Host names, besides loopback and that of `advertised_url`, by which the service may be called, separated by "
        "commas; `*` allows any. Others are refused, which keeps out pages that point a name of theirs at this "
        "machine.",
    )
    allowed_origins: TextList = _setting(
        (),
        "Security",
        "Origins (`https://console.example.org`), besides the service's own, whose pages may call it and read its "
        "answers, separated by commas. None by default.",
    )
    metrics_need_token: bool = _setting(
        True,
        "Security",
        "Whether `/metrics` needs a token where tokens are set. By default it does: it names groups. Prometheus can "
        "send one (`authorization: credentials_file`).",
    )

    # --- running it

    metrics_groups_max: int = _setting(
        1_000,
        "Running it",
        "Groups that get series of their own in `/metrics`, the first ones in the order of their ids; a gauge counts "
        "the others. The default keeps a scrape small.",
        ge=0,
        le=1_000_000,
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info",
        "Running it",
        "Least serious log line that is written. The default tells of rebalances and expired sessions, not of single "
        "requests.",
    )
    log_format: Literal["text", "json"] = _setting(
        "text",
        "Running it",
        "Form of the log lines on standard error: `text` for people, `json` for collectors, one object a line.",
    )
    drain_timeout_ms: int = _setting(
        8_000,
        "Running it",
        "How long, in milliseconds, a stop may take to answer waiting calls and finish appends before connections "
        "are cut. The default ends before the 10 seconds after which `docker stop` kills.",
        ge=0,
        le=3_600_000,
    )
    connection_unreachable_timeout_ms: int = _setting(
        60_000,
        "Running it",
        "How long, in milliseconds, the system tries to reach the other side of a connection, with what is to be sent "
        "or, while there is nothing, with probes of its own; then the connection is cut. For machines and lines that "
        "are gone without a word, which would have kept their connections for an hour; a session is given up by its "
        "pings before. The default is longer than most faults that a connection outlives. On Linux; elsewhere the "
        "system's own patience counts.",
        ge=1_000,
        le=INT32_MAX,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then the environment, then the file; the file's values come with the flags, under their own name."""
        assert isinstance(init_settings, InitSettingsSource)
        flags = dict(init_settings.init_kwargs)
        file_values = flags.pop(_FILE, {})
        return (
            InitSettingsSource(settings_cls, init_kwargs=flags),
            env_settings,
            InitSettingsSource(settings_cls, init_kwargs=file_values),
        )

    @field_validator("storage")
    @classmethod
    def _check_storage(cls, value: str) -> str:
        try:
            check_url(value)
        except StorageUrlInvalid as error:
            raise ValueError(str(error)) from error
        return value

    @field_validator("advertised_url")
    @classmethod
    def _check_advertised_url(cls, value: str | None) -> str | None:
        return None if value is None else _origin(value, "a URL")

    @field_validator("allowed_origins")
    @classmethod
    def _check_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_origin(origin, "an origin") for origin in value)

    @field_validator("allowed_hosts")
    @classmethod
    def _check_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if "/" in host or re.search(r":\d+$", host.rpartition("]")[2]):
                raise ValueError(f"{host!r} is not a bare host name: leave out scheme, port and path")
        return tuple(host.lower() for host in value)

    @field_validator("tokens")
    @classmethod
    def _check_tokens(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for number, token in enumerate(value, 1):
            if not _TOKEN_HASH.fullmatch(token):
                # The value itself is not shown: it may be a token put here by mistake.
                raise ValueError(f"entry {number} is not `sha256:` and 64 hex digits; `rallypoint token` makes one")
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        for lower, upper in _ORDERED:
            low, high = getattr(self, lower), getattr(self, upper)
            if low > high:
                raise ValueError(f"{lower} ({low}) is above {upper} ({high})")
        if not (is_loopback(self.host) or self.insecure or self.tokens or self.token_file):
            raise ValueError(
                f"host {self.host} is open to other machines and no token is set: draw one with `rallypoint token` "
                "and put its hash into tokens, or, where everyone in the network may do everything, say --insecure"
            )
        return self

    def token_hashes(self) -> tuple[str, ...]:
        """The accepted hashes, of `tokens` and of `token_file`, each `sha256:HEX`. Reads the file.

        Raises SettingsError where the file cannot be read or has another line.
        """
        if self.token_file is None:
            return self.tokens
        try:
            lines = self.token_file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"token_file {self.token_file} cannot be read: {_reason(error)}.") from error
        hashes = list(self.tokens)
        for number, line in enumerate(lines, 1):
            entry = line.strip()
            if not entry or entry.startswith("#"):
                continue
            if not _TOKEN_HASH.fullmatch(entry):
                raise SettingsError(
                    f"token_file {self.token_file}, line {number}, is not `sha256:` and 64 hex digits; "
                    "`rallypoint token` makes one."
                )
            hashes.append(entry)
        if not hashes:
            raise SettingsError(f"token_file {self.token_file} holds no token's hash; `rallypoint token` makes one.")
        return tuple(hashes)


_FILE = "_file_values"


def _origin(value: str, kind: str) -> str:
    """Scheme and authority in lower case, without a trailing slash."""
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.path not in {"", "/"} or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"{value!r} is not {kind} of the form `http://host:port` or `https://host:port`")
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def flag_of(name: str) -> str:
    """`group_max_size` is `--group-max-size`."""
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    """`group_max_size` is `RALLYPOINT_GROUP_MAX_SIZE`."""
    return ENV_PREFIX + name.upper()


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"The settings file {path} cannot be read: {_reason(error)}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"The settings file {path} is not TOML: {error}.") from error
    unknown = sorted(set(values) - set(Settings.model_fields))
    if unknown:
        raise SettingsError(f"The settings file {path} has no setting of the name {', '.join(unknown)}.")
    return values


def load_settings(flags: Mapping[str, Any], config: Path | None = None) -> Settings:
    """Read the settings: `flags` by field name (only those given), the process's environment, the TOML file.

    Raises SettingsError, whose text names each wrong setting and where it was given.
    """
    if config is None and os.environ.get(CONFIG_VARIABLE):
        config = Path(os.environ[CONFIG_VARIABLE])
    file_values = {} if config is None else _read_file(config)
    try:
        given: dict[str, Any] = {**flags, _FILE: file_values}
        return Settings(**given)
    except ValidationError as error:
        raise SettingsError(" ".join(_sentence(item, flags, file_values) for item in error.errors())) from error


def _sentence(item: Any, flags: Mapping[str, Any], file_values: Mapping[str, Any]) -> str:
    """One sentence about one wrong setting, with the place where it was given."""
    text = str(item["msg"]).removeprefix("Value error, ")
    if not item["loc"]:
        return f"{text}."
    name = str(item["loc"][0])
    if name in flags:
        place = flag_of(name)
    elif variable_of(name) in os.environ:
        place = variable_of(name)
    elif name in file_values:
        place = f"{name} in the settings file"
    else:
        place = name
    return f"{place}: {text}."


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables with our prefix that name no setting, sorted: probably misspelt."""
    known = {variable_of(name) for name in Settings.model_fields} | {CONFIG_VARIABLE}
    return sorted(name for name in environ if name.startswith(ENV_PREFIX) and name not in known)
