"""The settings: what they are, where they are read from, and what is refused.

A setting is given as a flag (`--group-max-size 500`), in the environment (`RALLYPOINT_GROUP_MAX_SIZE=500`) or in a
TOML file (`group_max_size = 500`) named by `--config` or `RALLYPOINT_CONFIG`. The first of these that names it counts;
otherwise the default below does. An unknown key in the file is an error. An unknown `RALLYPOINT_…` variable is only
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

from rallypoint.coordinator.access.tokens import TokenEntry, read_entry
from rallypoint.coordinator.core.commands import REBALANCE_COOLDOWN_MAX_MS, TOPICS_PARTITIONS_MAX
from rallypoint.coordinator.http.hosts import ANY_HOST, host_of_authority, is_host_name, is_loopback
from rallypoint.coordinator.storage.engines import StorageUrlInvalid, check_url
from rallypoint.protocol import limits
from rallypoint.protocol.environment import (
    COMMAND_OPTIONS_FROM_ENVIRONMENT,
    ENV_PREFIX,
    MEMBER_OPTIONS_FROM_ENVIRONMENT,
)

CONFIG_VARIABLE = "RALLYPOINT_CONFIG"
"""Names the TOML file where no `--config` does."""

_TOKEN_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_TOKEN = re.compile(r"[!-~]+")

INT32_MAX = 2**31 - 1


SHOWN_MAX = 60
"""Characters of a wrong value that are shown."""


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


def _setting(default: Any, section: str, text: str, reason: str, **bounds: Any) -> Any:
    """`text` says what it is, and why the default is what it is; `reason` who changes it, and how they know."""
    extra: Any = {"section": section, "text": text, "reason": reason}
    return Field(default, description=f"{text} {reason}", json_schema_extra=extra, **bounds)


_ORDERED = (
    ("group_min_session_timeout_ms", "group_max_session_timeout_ms"),
    # A member that sends heartbeats as it is told would expire between two of them.
    ("heartbeat_interval_ms", "group_max_session_timeout_ms"),
    # A member may hear of a rebalance that late.
    ("heartbeat_interval_ms", "join_wait_max_ms"),
)
"""Settings of which the first may not be above the second."""


class Settings(BaseSettings):
    """Every setting of the service: what an operator can have a reason to change. All other limits are fixed
    (`coordinator.limits`).
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="forbid", frozen=True, env_ignore_empty=False, validate_default=True
    )

    # --- listening

    host: str = _setting(
        "127.0.0.1",
        "Listening",
        "Address or name to listen on. The default is reached from this machine alone; any other address needs "
        "`tokens` or `insecure`.",
        "Change it if members run on other machines.",
        min_length=1,
    )
    port: int = _setting(
        8000,
        "Listening",
        "TCP port to listen on; 0 takes a free one, which the line `listening on URL` names.",
        "Change it if another program has the port: the start says so.",
        ge=0,
        le=65535,
    )
    advertised_url: str | None = _setting(
        None,
        "Listening",
        "URL under which clients reach this node. Look-ups of coordinators return it. By default it is made from "
        "`host` and `port`, with the machine's name in place of an address like 0.0.0.0.",
        "Set it behind a proxy, in a container, or if clients use another name: otherwise members get a URL that they "
        "cannot reach.",
    )
    node_id: str = _setting(
        "node-1",
        "Listening",
        "Name of this node in look-ups of coordinators and in the log. On etcd the default is the host and the port of "
        "`advertised_url`: no two nodes of a cluster may have the same name.",
        "Set it on etcd if a node may come back under another address: what is stored about it goes by its name.",
        min_length=1,
        max_length=255,
    )

    rack: str | None = _setting(
        None,
        "Listening",
        "Rack or zone of this node, for a cluster on etcd: the node that steps in first for a lost one is in another "
        "rack, if there is one.",
        "Set it on every node, or on none.",
        min_length=1,
        max_length=255,
    )

    # --- storage

    storage: str = _setting(
        "sqlite:///rallypoint.db",
        "Storage",
        "Where groups, offsets and topics are kept: `sqlite:///PATH` (three slashes and a relative path, four for an "
        "absolute one; one process per file, on a local disk), `etcd://HOST:PORT,HOST:PORT/PREFIX` (for several nodes; "
        "see etcd.md), or `memory:` (lost at the stop; for tests). The default is durable and needs no "
        "other service.",
        "Set it to a path on the disk that you back up, or to an etcd if you may not lose a machine.",
    )
    shards: int = _setting(
        50,
        "Storage",
        "Number of shards that groups are spread over. The default is Kafka's number of partitions of its offsets "
        "topic.",
        "Set it only for a store that was made with another number: it must never change once groups are stored, and "
        "the start refuses one that does not fit.",
        ge=1,
        le=10_000,
    )
    storage_append_timeout_ms: int = _setting(
        5_000,
        "Storage",
        "How long, in milliseconds, a call waits for a write of the store that hangs; then it is refused with "
        "COORDINATOR_NOT_AVAILABLE, while the write is still tried. It is then unknown whether the call counts; "
        "sending it again is safe. A deletion of very many offsets is written in parts, and has this time for each. "
        "Kafka's default of `offsets.commit.timeout.ms`.",
        "Raise it if the disk is known to pause for longer: `rallypoint_append_age_seconds` shows it.",
        ge=100,
        le=3_600_000,
    )

    # --- groups

    group_min_session_timeout_ms: int = _setting(
        6_000,
        "Groups",
        "Shortest session timeout, in milliseconds, that a member may ask for; not above "
        "`group_max_session_timeout_ms`. Kafka's default: shorter ones turn a pause of a garbage collector into a "
        "rebalance.",
        "Lower it if a dead member has to be replaced within seconds; a join that asks for less is refused, and names "
        "it.",
        ge=1,
        le=INT32_MAX,
    )
    group_max_session_timeout_ms: int = _setting(
        1_800_000,
        "Groups",
        "Longest session timeout, in milliseconds, that a member may ask for. Kafka's default of 30 minutes: a dead "
        "member's partitions may stay unread for so long.",
        "Lower it to bound that time for members whose options you do not set; raise it for members that pause for "
        "longer.",
        ge=1,
        le=INT32_MAX,
    )
    group_initial_rebalance_delay_ms: int = _setting(
        3_000,
        "Groups",
        "How long, in milliseconds, the first rebalance of an empty group waits for more members. Kafka's default: it "
        "saves one rebalance for each member that starts a little later. With 0 it waits for ids that were handed "
        "out, and lingers like any other rebalance (`group_join_linger_ms`).",
        "Lower it if groups are small and the first record counts; raise it if a deploy of the first members takes "
        "longer, and the history of rebalances shows one for each.",
        ge=0,
        le=INT32_MAX,
    )
    group_join_linger_ms: int = _setting(
        500,
        "Groups",
        "How long, in milliseconds from its beginning, a join phase waits at most for more new members after everyone "
        "has joined. It ends as soon as no new member has come to the group for 20 ms, or for half as long as they "
        "have been coming; so a member that comes alone waits 20 ms. The default is what a thousand processes that "
        "start together need, and no member notices it.",
        "Set 0 for rebalances that end at once, as Kafka's do; raise it if one deploy makes several rebalances.",
        ge=0,
        le=60_000,
    )
    group_max_size: int = _setting(
        5_000,
        "Groups",
        "Most members that one group may have. Kafka's default is no limit in practice. Ours bounds how long a change "
        "of one group delays all others, which grows with its members: with the default it takes some 30 ms of "
        "processor time. The maximum is the number of members to which one sync may assign.",
        "Raise it for a larger group, whose members are refused with it; lower it to notice a program that joins "
        "without end.",
        ge=1,
        le=limits.ASSIGNMENTS_MAX,
    )
    heartbeat_interval_ms: int = _setting(
        3_000,
        "Groups",
        "The interval, in milliseconds, at which members are asked to send heartbeats that do not wait. Kafka's "
        "default.",
        "Lower it together with session timeouts, of which it should be at most a third; raise it if heartbeats over "
        "HTTP are most of the load.",
        ge=1,
        le=INT32_MAX,
    )
    offset_metadata_max_bytes: int = _setting(
        4_096,
        "Groups",
        "Longest metadata of one committed offset, counted in characters as Kafka does. Kafka's default.",
        "Raise it for clients that keep a checkpoint there: their commits are refused with OFFSET_METADATA_TOO_LARGE.",
        ge=0,
        le=1_048_576,
    )
    rebalance_cooldown_ms: int = _setting(
        0,
        "Groups",
        "Minimum time, in milliseconds, between two rebalances of a group; triggers that arrive earlier are "
        "coalesced. A group may have its own (`PUT …/cooldown`). The default holds nothing, as in Kafka: members that "
        "leave are replaced at once.",
        "Raise it if the history of rebalances shows many in a row, as members come and go.",
        ge=0,
        le=REBALANCE_COOLDOWN_MAX_MS,
    )
    join_wait_max_ms: int | None = _setting(
        None,
        "Groups",
        "Maximum time, in milliseconds, for which a rebalance waits for members to join; those that have not joined by "
        "then are left out, and come back as new members. A group may have its own (`PUT …/join_wait`). Without it the "
        "members' own rebalance timeouts decide, as in Kafka: five minutes by default.",
        "Set it if one slow member must not keep a group from working. Not below the time that members need to finish "
        "what they have begun, nor below `heartbeat_interval_ms`.",
        ge=1,
        le=INT32_MAX,
    )
    offsets_retention_ms: int = _setting(
        604_800_000,
        "Groups",
        "How long, in milliseconds, an unused committed offset is kept: after its commit in a group that never had "
        "members; in a group whose members have left, after they left; in a group of consumers, after the last commit "
        "to a topic that none of them subscribes to. Kafka's default of 7 days, long enough for a group that is "
        "stopped over a holiday. Only time in which the service ran counts: one that was off for a month, or starts "
        "with its clock years ahead, deletes nothing because of it. However often it restarts, its running time adds "
        "up; pauses of up to forty minutes count as time in which it ran, and only the last 32 longer ones are "
        "remembered. The longest is a hundred years.",
        "Set it to how long a group may be stopped and continue where it was; lower it if groups that are used once "
        "fill the store.",
        ge=1,
        le=3_155_760_000_000,
    )
    group_offsets_max: int = _setting(
        200_000,
        "Groups",
        "Most partitions that a group may have committed offsets of. Beyond it a commit is refused for partitions "
        "that are new to the group, and accepted for the others. The default bounds how long work on all of a group's "
        "offsets delays all other groups, which grows with their number.",
        "Raise it for a group that reads more partitions: their commits are refused with it.",
        ge=1,
        le=100_000_000,
    )

    # --- the node

    groups_max: int = _setting(
        100_000,
        "Capacity",
        "Most groups on the node. Beyond it no group is created, by a join or a commit; existing groups go on, and a "
        "node that finds more in its store serves them all. The default is sized for a machine of a few gigabytes.",
        "Fit it to the machine's memory; first joins are refused with it.",
        ge=1,
        le=100_000_000,
    )
    node_metadata_max_bytes: int = _setting(
        268_435_456,
        "Capacity",
        "Memory, in bytes, that the metadata of the members of all groups may take: their texts, and the topics read "
        "from them. Beyond it a new member is refused, and existing members go on; they may send more metadata until "
        "the total is a quarter beyond. A join that waits for a write of its group counts already. A member of ten "
        "topics takes about a kilobyte and a half, one of 10,000 over a megabyte.",
        "Fit it to the machine's memory; joins of new members are refused with it.",
        ge=0,
        le=1_099_511_627_776,
    )
    topics_max: int = _setting(
        10_000,
        "Capacity",
        "Most registered topics. Beyond it no topic is added; existing topics can grow and report their end offsets.",
        "Raise it for a cluster of more topics: to register one more is refused with it.",
        ge=1,
        le=TOPICS_PARTITIONS_MAX,
    )
    bodies_max_bytes: int = _setting(
        134_217_728,
        "Capacity",
        "Bytes of all bodies and messages above 64 KiB that are being read, together; the least is the largest body. "
        "One more is refused, or its channel ends, and may try again. Half of it is kept for large syncs to groups "
        "that wait for one, and for channels on which members have called. A parsed body takes about three times its "
        "bytes, so the default keeps all of them within half a gigabyte.",
        "Lower it on a machine of little memory; raise it if many large groups rebalance at once, and their syncs are "
        "refused with it.",
        ge=limits.SYNC_BYTES_MAX,
        le=1_099_511_627_776,
    )
    connections_max: int = _setting(
        50_000,
        "Capacity",
        "Most connections at the same time that have authenticated: that have sent a request to a path that is not "
        "public, with a token if tokens are set. One too many gets its refusal in the answer to that request. The "
        "default is five for each of ten thousand members. If the process may not open as many files, it is lowered "
        "at the start, and the log says so.",
        "Fit it to the machine's memory; `rallypoint_connections_max` has the number in force.",
        ge=1,
        le=10_000_000,
    )
    channels_max: int = _setting(
        20_000,
        "Capacity",
        "Most channels (`GET /v1/channel`) that are open at once; one more is refused, and its members go on over "
        "HTTP. Each is one of the `connections_max`. The default is two for each of ten thousand members.",
        "Raise it for more processes than that, once `rallypoint_channels` comes near it.",
        ge=0,
        le=10_000_000,
    )
    event_streams_max: int = _setting(
        100,
        "Capacity",
        "Most streams of `GET /v1/events` that are open at once; one more is refused. Each is a connection, and takes "
        "some 64 KiB if its client reads slowly.",
        "Raise it if more dashboards and programs follow events: one too many is refused with it.",
        ge=0,
        le=100_000,
    )
    events_kept_max: int = _setting(
        10_000,
        "Capacity",
        "How many events are kept for streams that are slow or come back; of commits as many again. An event of more "
        "than 2 KiB, with the text that is made of it, counts as one for each 2 KiB. The default is twenty megabytes "
        "of each at most.",
        "Raise it if streams that come back get a gap, which `rallypoint_events_lost_total` counts.",
        ge=1,
        le=10_000_000,
    )

    # --- waiting, and the network between

    parked_call_max_wait_ms: int = _setting(
        55_000,
        "Network",
        "How long, in milliseconds, an answer may be held back; then it is 202 and the client asks again. The default "
        "stays below the 60 seconds at which many proxies cut.",
        "Lower it behind a proxy that cuts sooner: members' calls end with its 504, or with the connection.",
        ge=0,
        le=3_600_000,
    )
    disconnect_grace_ms: int = _setting(
        2_000,
        "Network",
        "How long, in milliseconds, a member whose own side has closed its channel without a leave may take to come "
        "back, if its join names no `disconnect_grace_ms`; then it is removed. Static members have a grace only if "
        "they name one. The default is enough to connect again, and short enough for a process that was killed.",
        "Raise it if each restart of a proxy in between makes a rebalance.",
        ge=0,
        le=INT32_MAX,
    )
    channel_ping_interval_ms: int = _setting(
        15_000,
        "Network",
        "After how many milliseconds of silence the service pings a channel; if no pong comes within half as long "
        "again, it closes the connection. A channel that keeps sessions is pinged after a third of the shortest of "
        "them, if that is sooner. The default stays below the 60 seconds, and the 30 of some, at which proxies cut a "
        "quiet connection.",
        "Lower it behind a proxy that cuts sooner: `rallypoint_channels_closed_total` counts them as `lost`.",
        ge=100,
        le=3_600_000,
    )
    keep_alive_timeout_ms: int = _setting(
        630_000,
        "Network",
        "How long, in milliseconds, a connection may be idle after a request over HTTP; then it is closed. The default "
        "is longer than those of the load balancers in use, of which the longest is ten minutes.",
        "Raise it above what a proxy in front keeps its connections, or that sends a request on one that is being "
        "closed, and answers 502.",
        ge=1_000,
        le=INT32_MAX,
    )
    connection_unreachable_timeout_ms: int = _setting(
        60_000,
        "Network",
        "How long, in milliseconds, the system tries to reach the other side of a connection, with data or, if there "
        "is none, with keep-alive probes; then the connection is closed. It detects half-open connections, left by "
        "machines and lines that are gone, which the system would otherwise keep for an hour; pings detect those of "
        "channels earlier. The default is longer than most faults that a connection survives. On Linux only; "
        "elsewhere the system's own timeouts apply.",
        "Raise it for lines that are often down for minutes; lower it if machines vanish and `rallypoint_connections` "
        "stays up.",
        ge=1_000,
        # The system takes half of it as the seconds after which it probes, 32,767 at the most.
        le=65_535_000,
    )

    # --- security

    tokens: TextList = _setting(
        (),
        "Security",
        "Bearer tokens that are accepted, separated by commas: of each `NAME sha256:HEX`, or its hash alone, and "
        "`expires=INSTANT` behind it if it has an end. Without any, and without `access`, the service requires none.",
        "Set it if others are in the network; `rallypoint token new NAME` draws one.",
    )
    token_file: Path | None = _setting(
        None,
        "Security",
        "File with more such entries, one a line; lines that begin with # are notes. It is read again when it changes, "
        "within a second: a client whose token is no longer in it is let go. A file with a fault changes nothing.",
        "Set it if secrets are mounted as files, or if tokens are to be replaced without a restart.",
    )
    cluster_token_file: Path | None = _setting(
        None,
        "Security",
        "File with one bearer token (not its hash) that this node presents to the other nodes of a cluster on etcd, "
        "when it asks them for what it answers for all. It is read once, at the start.",
        "Set it on every node of a cluster that has tokens: otherwise lists lack the groups of the other nodes, and "
        "say so.",
    )
    tls_certificate: Path | None = _setting(
        None,
        "Security",
        "File with the certificate of this node and the intermediate ones behind it, in PEM. With it the service "
        "speaks HTTPS alone, TLS 1.2 or later. This file and the other TLS files are read again when they change: new "
        "connections use them, existing ones go on. Files that do not fit are not used, and the log says so.",
        "Set it if others are in the network and no proxy in front ends TLS.",
    )
    tls_key: Path | None = _setting(
        None,
        "Security",
        "File with the key of `tls_certificate`, in PEM, not encrypted.",
        "Set it together with `tls_certificate`.",
    )
    tls_client_ca: Path | None = _setting(
        None,
        "Security",
        "File with the authorities whose certificates clients may show, in PEM. With it a caller needs such a "
        "certificate, or a token if tokens are set. Needs `tls_certificate`.",
        "Set it if programs get their certificates from an authority of yours; it is as good as tokens for listening "
        "beyond this machine.",
    )
    tls_client_auth: Literal["required", "optional"] = _setting(
        "required",
        "Security",
        "With `tls_client_ca`: whether a client without a certificate is refused in the handshake, or may connect, and "
        "show a token or ask for what is public.",
        "Set `optional` if probes or browsers without a certificate are to reach `/readyz` and the page, or if some "
        "clients have tokens and others certificates.",
    )
    tls_cluster_ca: Path | None = _setting(
        None,
        "Security",
        "File with the authorities of the other nodes' certificates, in PEM, for what this node asks them over "
        "https; it shows them its own certificate. By default `tls_client_ca`, and the system's authorities without "
        "one.",
        "Set it if the nodes' certificates are of another authority than those of clients.",
    )
    access: Path | None = _setting(
        None,
        "Security",
        "Policy file: who may do what, and whose signed tokens count (see security.md). It is read again when it "
        "changes, within a second. Without one, whoever the service knows may do everything; with one, "
        "nothing that no rule allows.",
        "Set it if not everybody may do everything; `rallypoint access check PATH` checks it.",
    )
    audit_log: Path | None = _setting(
        None,
        "Security",
        "File to which a line of JSON is appended for each change by an operator and each refusal of access. It is "
        "opened again when it was renamed, and on SIGHUP. By default these lines go to the service's log.",
        "Set it if the audit log is kept elsewhere, or for longer, than the log.",
    )
    insecure: bool = _setting(
        False,
        "Security",
        "Listen beyond this machine although no token is set and no client's certificate is asked for.",
        "Only for a network in which everyone may do everything.",
    )
    allowed_hosts: TextList = _setting(
        (),
        "Security",
        "Host names, besides loopback and that of `advertised_url`, by which the service may be called, separated by "
        "commas; `*` allows any. Others are refused, which protects against DNS rebinding by web pages.",
        "Add the name that a refusal shows, if clients shall use it.",
    )
    allowed_origins: TextList = _setting(
        (),
        "Security",
        "Origins (`https://console.example.org`), besides the service's own, whose pages may call it and read its "
        "answers, separated by commas. None by default.",
        "Add the origin of your own console, if it is refused by its `Origin`.",
    )
    metrics_need_token: bool = _setting(
        True,
        "Security",
        "Whether `/metrics` needs a token if tokens are set. By default it does: it names groups. Prometheus can send "
        "one (`authorization: credentials_file`).",
        "Turn it off for a collector that can send none.",
    )

    # --- running it

    metrics_groups_max: int = _setting(
        1_000,
        "Running it",
        "Groups that have their own series in `/metrics`, the first ones in the order of their ids; a gauge counts "
        "the others. The default keeps a scrape small.",
        "Fit it to what the collector takes; `rallypoint_groups_without_series` says how many are left out.",
        ge=0,
        le=1_000_000,
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info",
        "Running it",
        "Least serious log line that is written. The default shows rebalances and expired sessions, not of single "
        "requests.",
        "Set `debug` while you look for a fault, `warning` if the log is too much.",
    )
    log_format: Literal["text", "json"] = _setting(
        "text",
        "Running it",
        "Form of the log lines on standard error: `text` for people, `json` for collectors, one object a line.",
        "Set `json` if a collector reads the log.",
    )
    tracing: bool = _setting(
        False,
        "Running it",
        "Whether rebalances and requests are spans of OpenTelemetry, which are sent as the variables `OTEL_…` say "
        "([tracing](tracing.md)). By default they are not. It needs `pip install 'rallypoint[opentelemetry]'`.",
        "Turn it on if there is a collector.",
    )
    drain_timeout_ms: int = _setting(
        8_000,
        "Running it",
        "How long, in milliseconds, a stop may take to answer waiting calls and finish appends before connections are "
        "closed. One and a half seconds later the process ends, whatever the disk does. A node of a cluster hands over "
        "its shards in three quarters of it. The default ends before the 10 seconds after which `docker stop` kills.",
        "Fit it to the time that whatever stops the service gives it. Raise it where the log says that shards were not "
        "handed over.",
        ge=0,
        le=3_600_000,
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
            if host != ANY_HOST and not is_host_name(host):
                raise ValueError(
                    f"{host!r} is not a bare host name, so no client can send it: leave out scheme, port and path, put "
                    "commas between names, an IPv6 address in brackets, and a name that is not ASCII in its form `xn--`"
                )
        return tuple(host.lower().rstrip(".") for host in value)

    @field_validator("tokens")
    @classmethod
    def _check_tokens(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for number, token in enumerate(value, 1):
            entry = read_entry(token)
            if isinstance(entry, str):
                raise ValueError(f"entry {number} {entry}")
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        for lower, upper in _ORDERED:
            low, high = getattr(self, lower), getattr(self, upper)
            if high is not None and low > high:
                raise ValueError(f"{lower} ({low}) is above {upper} ({high})")
        self._check_tls()
        has_credentials = self.tokens or self.token_file or self.tls_client_ca or self.access
        if not (is_loopback(self.host) or self.insecure or has_credentials):
            raise ValueError(
                f"host {self.host} is open to other machines and no token is set: draw one with `rallypoint token` "
                "and put its hash into tokens, ask for clients' certificates with tls_client_ca, or, where everyone in "
                "the network may do everything, say --insecure"
            )
        return self

    def _check_tls(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together: set both or none")
        for name in ("tls_client_ca", "tls_cluster_ca"):
            if getattr(self, name) is not None and self.tls_certificate is None:
                raise ValueError(f"{name} needs tls_certificate and tls_key: without them the service speaks no TLS")
        if self.tls_client_ca is None and "tls_client_auth" in self.model_fields_set:
            raise ValueError("tls_client_auth needs tls_client_ca, the authorities whose certificates clients may show")
        if self.tls_certificate is not None and (self.advertised_url or "https").startswith("http:"):
            raise ValueError(f"advertised_url {self.advertised_url} begins with http, and the service speaks TLS")

    def token_entries(self) -> tuple[TokenEntry, ...]:
        """The accepted tokens of `tokens`."""
        return tuple(entry for entry in map(read_entry, self.tokens) if isinstance(entry, TokenEntry))

    def cluster_token(self) -> str | None:
        """The token in `cluster_token_file`; None where no file is set. Reads the file.

        Raises SettingsError where the file cannot be read or holds anything but one token.
        """
        path = self.cluster_token_file
        if path is None:
            return None
        try:
            token = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"cluster_token_file {path} cannot be read: {_reason(error)}.") from error
        if _TOKEN_HASH.fullmatch(token):
            raise SettingsError(f"cluster_token_file {path} holds the hash of a token; it must hold the token itself.")
        if not _TOKEN.fullmatch(token):
            raise SettingsError(f"cluster_token_file {path} must hold one token, in ASCII and without spaces.")
        return token


_FILE = "_file_values"


def _origin(value: str, kind: str) -> str:
    """Scheme and authority in lower case, without a trailing slash."""
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and is_host_name(host_of_authority(parts.netloc) or "")
        usable = usable and parts.port != 0
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


def words_of_fixed(name: str) -> str | None:
    """The sentence, without its full stop, about a name that cannot be set any more; None about any other.

    It imports the service's libraries, which the settings alone do without.
    """
    from rallypoint.coordinator import limits as parts  # noqa: PLC0415 - see above

    return parts.words_of_fixed(name)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"The settings file {path} cannot be read: {_reason(error)}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"The settings file {path} is not TOML: {error}.") from error
    unknown = sorted(set(values) - set(Settings.model_fields))
    fixed = {name: words for name in unknown if (words := words_of_fixed(name))}
    misspelt = [name for name in unknown if name not in fixed]
    sentences = []
    if fixed:
        sentences.append(f"The settings file {path} names what cannot be set: {', '.join(fixed.values())}.")
    if misspelt:
        sentences.append(f"The settings file {path} has no setting of the name {', '.join(misspelt)}.")
    if sentences:
        raise SettingsError(" ".join(sentences))
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
    text = _in_words(item)
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


def _in_words(item: Any) -> str:
    """What is wrong with it, in our own words: the validator speaks of its types."""
    kind, context = str(item["type"]), item.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    # What stands in the place of tokens may be one.
    shown = "the value" if item["loc"][0] == "tokens" else _shortened(repr(item["input"]))
    match kind:
        case "greater_than_equal":
            return f"{shown} is below the least, {context['ge']}"
        case "less_than_equal":
            return f"{shown} is above the most, {context['le']}"
        case "literal_error":
            return f"{shown} is not {context['expected']}"
        case "string_too_short":
            return "it must not be empty"
        case "string_too_long":
            return f"it has more than {context['max_length']} characters"
        case _:
            return f"{shown} is not {_WANTED[kind.partition('_')[0]]}"


_WANTED = {
    "int": "a whole number",
    "finite": "a whole number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "path": "a path",
}
"""By the first word of the validator's name for an error."""


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables with our prefix that name neither a setting nor an option of a client, sorted: probably misspelt."""
    settings = {variable_of(name) for name in Settings.model_fields}
    options = (*MEMBER_OPTIONS_FROM_ENVIRONMENT, *COMMAND_OPTIONS_FROM_ENVIRONMENT)
    known = {CONFIG_VARIABLE} | settings | {ENV_PREFIX + name.upper() for name in options}
    return sorted(name for name in environ if name.startswith(ENV_PREFIX) and name not in known)
