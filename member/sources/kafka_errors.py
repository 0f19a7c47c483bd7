"""Which of Kafka's errors go away by themselves: one table, for requests and for reads.

librdkafka's own `KafkaError.retriable()` speaks of transactions alone, and is false for a broker that starts again. So
the broker's codes are sorted here as Kafka's Java client sorts them (`RetriableException` in
org.apache.kafka.common.protocol.Errors, 4.1.1), and librdkafka's own, which are negative, by what they mean.

A topic or a partition that is missing stands apart: Java asks again, also for what was deleted. The caller looks
into the cluster's metadata, and asks again only if that has the partition.
"""

from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

RETRIABLE_AT_BROKERS: dict[int, str] = {
    2: "CORRUPT_MESSAGE",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    9: "REPLICA_NOT_AVAILABLE",
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    41: "NOT_CONTROLLER",
    51: "CONCURRENT_TRANSACTIONS",
    56: "KAFKA_STORAGE_ERROR",
    70: "FETCH_SESSION_ID_NOT_FOUND",
    71: "INVALID_FETCH_SESSION_EPOCH",
    72: "LISTENER_NOT_FOUND",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    78: "OFFSET_NOT_AVAILABLE",
    80: "PREFERRED_LEADER_NOT_AVAILABLE",
    83: "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    84: "ELECTION_NOT_NEEDED",
    88: "UNSTABLE_OFFSET_COMMIT",
    89: "THROTTLING_QUOTA_EXCEEDED",
    106: "FETCH_SESSION_TOPIC_ID_ERROR",
    122: "SHARE_SESSION_NOT_FOUND",
    123: "INVALID_SHARE_SESSION_EPOCH",
    133: "SHARE_SESSION_LIMIT_REACHED",
}
"""By code, under Java's names."""

MISSING_AT_BROKERS: dict[int, str] = {
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    100: "UNKNOWN_TOPIC_ID",
    103: "INCONSISTENT_TOPIC_ID",
}
"""Retriable by Java's table; here as far as the metadata has the partition."""

RETRIABLE_IN_CLIENT: frozenset[int] = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY_BROKER,
        KafkaError._FAIL,
        KafkaError._INTR,
        KafkaError._IN_PROGRESS,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._NODE_UPDATE,
        KafkaError._OUTDATED,
        KafkaError._PARTIAL,
        KafkaError._PREV_IN_PROGRESS,
        KafkaError._QUEUE_FULL,
        KafkaError._RESOLVE,
        KafkaError._RETRY,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._UNKNOWN_BROKER,
        KafkaError._WAIT_CACHE,
        KafkaError._WAIT_COORD,
    }
)
"""Connections, names of hosts, and answers that did not come, or are not there yet."""

MISSING_IN_CLIENT: frozenset[int] = frozenset(
    {
        # "No leaders found": while no broker leads the partition, and also if there is no such partition.
        KafkaError._NOENT,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)


def is_retriable(error: KafkaError) -> bool:
    """Whether the same request may well be answered a moment later."""
    code = error.code()
    return not error.fatal() and (error.retriable() or code in RETRIABLE_AT_BROKERS or code in RETRIABLE_IN_CLIENT)


def may_be_missing(error: KafkaError) -> bool:
    """Whether it says that a topic or a partition is not there, as far as the broker that answered knows."""
    return error.code() in MISSING_AT_BROKERS or error.code() in MISSING_IN_CLIENT


def known_offset(answer: Any) -> int:
    """The offset of an answer to `list_offsets`; -1 if no record is as late as the time that was asked for.

    Raises KafkaException (OFFSET_NOT_AVAILABLE) if it has none. librdkafka gives the answer of a broker that has just
    started so, without an error. Taken for the end of a partition, it would mean that all records are gone.
    """
    if answer.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE))
    return int(answer.offset)
