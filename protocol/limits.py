"""How much a request may hold, where no setting decides it. A value past its limit is refused, never cut."""

ID_LENGTH_MAX = 255
"""Characters of a group, instance, client or request id, a topic or a protocol name. Kafka has no limit; paths do."""

MEMBER_ID_LENGTH_MAX = ID_LENGTH_MAX + 64
"""Characters of a member id: it is a client id or an instance id with a dash and a random part behind it."""

REASON_LENGTH_MAX = 255
"""Characters of a reason that are kept. A longer one is cut, as Kafka does: it is only for people to read."""

PROTOCOLS_MAX = 32
"""Protocols that one join may offer."""

LEAVERS_MAX = 10_000
"""Members in one leave."""

ASSIGNMENTS_MAX = 100_000
"""Members that one sync may assign to."""

COMMIT_TOPICS_MAX = 10_000
"""Topics in one commit, and topics named in one fetch."""

COMMIT_PARTITIONS_MAX = 100_000
"""Partitions of one topic in one commit."""

RESET_PARTITIONS_MAX = 100_000
"""Partitions in one reset, all its topics together."""

AWAITED_SHOWN_MAX = 100
"""Awaited members that are listed of one rebalance; all of them are counted."""

COORDINATOR_GROUPS_MAX = 1_000
"""Groups in one look-up of coordinators."""

EVENT_GROUPS_MAX = 1_000
"""Groups that one event stream may name."""

EVENT_KINDS_LENGTH_MAX = 1_000
"""Characters of the list of kinds that an event stream asks for."""

KEY_LENGTH_MAX = 4_096
"""Characters of a record's key in a look-up of its owner. The line of a request takes some 8,000."""

PARTITION_RACKS_MAX = 32
"""Racks of one partition: one for each replica, of which there are rarely more than a handful."""

PREVIEW_ENTRIES_MAX = 10_000
"""Members that leave, sorts of members that join, and topics that grow, in one preview; each of these by itself."""

PREVIEW_JOIN_MAX = 100_000
"""Members of one sort that join in a preview. The setting `preview_size_max` may allow fewer."""

PREVIEW_MOVES_LISTED_MAX = 10_000
"""Moves that a preview lists one by one. What each member gains and loses is all there, and they are all counted."""

HEARTBEATS_MAX = 10_000
"""Heartbeats in one request."""

CALL_ID_MAX = 2**53 - 1
"""The largest number that may be the id of a call on a session: every language's numbers hold it."""

CALL_ID_LENGTH_MAX = 64
"""Characters of the id of a call on a session."""

TOKEN_LENGTH_MAX = 8_192
"""Characters of a token that comes in a message."""

LIST_LIMIT_MAX = 1_000
"""Rows on one page of a list."""

LIST_LIMIT_DEFAULT = 100
"""Rows on one page of a list that names no limit."""

PARTITION_MAX = 2**31 - 1
OFFSET_MIN = -(2**63)
OFFSET_MAX = 2**63 - 1
INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1
