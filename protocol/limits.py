"""How much a request may hold: fixed, the same for every service. A value past its limit is refused, never cut.

What only the service counts (the parts of a body, ids that are out, how long a head takes) is fixed beside what it
bounds; `SETTABLE` names the few limits that an operator sets.
"""

SETTABLE = frozenset(
    {
        "bodies_max_bytes",
        "connections_max",
        "event_streams_max",
        "group_max_session_timeout_ms",
        "group_max_size",
        "group_min_session_timeout_ms",
        "group_offsets_max",
        "groups_max",
        "node_metadata_max_bytes",
        "offset_metadata_max_bytes",
        "channels_max",
        "storage_append_timeout_ms",
        "topics_max",
    }
)
"""Limits that a refusal may name and that a setting of the same name sets. All others are fixed."""


def setting_of(limit_name: str | None) -> str | None:
    """The setting that sets the limit; None where it is fixed."""
    return limit_name if limit_name in SETTABLE else None


ID_LENGTH_MAX = 255
"""Characters of a group, instance, client or request id, a topic or a protocol name. Kafka has no limit; paths do."""

REQUEST_ID_LENGTH_MAX = 128
"""Characters of the header `X-Request-Id`, printable ASCII without a space; of any other the service makes its own."""

TRACEPARENT_LENGTH_MAX = 512
"""Characters of a `traceparent` on a channel; those of today have 55, and newer versions may have more."""

TRACEPARENT_PATTERN = r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"
"""The form of a `traceparent` (W3C Trace Context). What else is sent in its place counts as none."""

MEMBER_ID_LENGTH_MAX = ID_LENGTH_MAX + 64
"""Characters of a member id: it is a client id or an instance id with a dash and a random part behind it."""

TOPIC_PARTITION_LENGTH_MAX = ID_LENGTH_MAX + 11
"""Characters of a partition in a query: its topic, a colon and the number."""

REASON_LENGTH_MAX = 255
"""Characters of a reason that are kept. A longer one is cut, as Kafka does: it is only for people to read."""

PROTOCOLS_MAX = 32
"""Protocols that one join may offer."""

LEAVERS_MAX = 2_000
"""Members in one leave. It takes some twenty milliseconds, in which others wait."""

ASSIGNMENTS_MAX = 20_000
"""Members that one sync may assign to, whether they are members or not; so no group may be set to have more."""

COMMIT_TOPICS_MAX = 10_000
"""Topics in one commit, and topics named in one fetch."""

REQUEST_PARTITIONS_MAX = 10_000
"""Partitions in one commit or reset, all topics together, and end offsets or racks in one report of a topic. Each of a
commit is a record; so many take some tens of milliseconds. Clients cut what they commit by it. A success means all of
them. On etcd many take several transactions, so a crash may leave a part of a commit that was not answered.
"""

REQUEST_BYTES_MAX = 1_048_576
"""Bytes of a body, other than a sync's. Clients cut what they commit by it."""

SYNC_BYTES_MAX = 33_554_432
"""Bytes of the body of a sync: a leader sends everyone's assignment in one. That of 5,000 members has about 0.9 MB;
this leaves room for long names of topics."""

JSON_DEPTH_MAX = 32
"""Nesting of objects and lists in a body, what is opaque in it included. Subscriptions go six levels deep; what reads
them later may not be made for a hundred."""

JSON_PARTS_MAX = 75_000
"""Objects, lists and keys of one body; of a sync above 64 KiB, of each assignment and of the rest. Each is memory and
time before anything is known to be wrong. The largest commit with all its fields has fewer."""

METADATA_BYTES_MAX = 262_144
"""Bytes of the metadata of one protocol in a join, as it is kept (JSON in UTF-8 without spaces). The leader is told
that of every member. It holds a subscription of some thousand topics with what is owned of them."""

JOIN_METADATA_BYTES_MAX = 524_288
"""The same of all protocols of a join together. The service holds this much for each member."""

ASSIGNMENT_BYTES_MAX = 1_048_576
"""Bytes of the assignment of one member, as it is kept. It holds more than a hundred thousand partitions of a topic."""

FREEZE_MISSING_SHOWN_MAX = 20
"""Names of members that a freeze waits for, of which one answer tells; all of the members are counted."""

AWAITED_SHOWN_MAX = 100
"""Awaited members that are listed of one rebalance; all of them are counted."""

COORDINATOR_GROUPS_MAX = 1_000
"""Groups in one look-up of coordinators."""

EVENT_GROUPS_MAX = 1_000
"""Groups that one event stream may name."""

EVENT_KINDS_LENGTH_MAX = 1_000
"""Characters of the list of kinds that an event stream asks for."""

EVENT_CURSOR_LENGTH_MAX = 8_000
"""Characters of an event stream's cursor. A header has 8 KiB; a hundred nodes with ids of 50 characters take less."""

KEY_LENGTH_MAX = 4_096
"""Characters of a record's key in a look-up of its owner. The line of a request takes some 8,000."""

PARTITION_RACKS_MAX = 32
"""Racks of one partition: one for each replica, of which there are rarely more than a handful."""

PREVIEW_ENTRIES_MAX = 10_000
"""Members that leave, sorts of members that join, and topics that grow, in one preview; each of these by itself."""

PREVIEW_JOIN_MAX = 100_000
"""Members of one sort that join in a preview."""

PREVIEW_SIZE_MAX = 120_000
"""Members and partitions of a preview, counted together. A group of 1,000 members and 100,000 partitions takes some
seconds, beside the requests and on the same processor."""

PREVIEW_MOVES_LISTED_MAX = 10_000
"""Moves that a preview lists one by one. What each member gains and loses is all there, and they are all counted."""

HEARTBEATS_MAX = 1_000
"""Heartbeats in one request. They take some ten milliseconds, in which others wait."""

CALL_ID_MAX = 2**53 - 1
"""The largest number that may be the id of a call on a channel: every language's numbers hold it."""

CALL_ID_LENGTH_MAX = 64
"""Characters of the id of a call on a channel."""

TOKEN_LENGTH_MAX = 8_192
"""Characters of a token that comes in a message."""

CURSOR_LENGTH_MAX = 2_048
"""Characters of a cursor. The longest one is of a group id, with its place in the order, in base64."""

LISTED_TOPICS_MAX = 10
"""Topics of a group that its row in a list names; all of them are counted."""

LIST_LIMIT_MAX = 1_000
"""Rows on one page of a list."""

LIST_LIMIT_DEFAULT = 100
"""Rows on one page of a list that names no limit."""

PARTITION_MAX = 2**31 - 1
OFFSET_MIN = -(2**63)
OFFSET_MAX = 2**63 - 1
INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1
