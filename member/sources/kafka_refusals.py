"""What librdkafka's errors mean that do not pass by themselves, in a sentence for the operator of the program. Pure.

Which ones pass is in `kafka_errors`; librdkafka goes on by itself after those. Anything else is raised, for an error
that nobody knows must not become a silence.
"""

from confluent_kafka import KafkaError, KafkaException

from rallypoint.member.sources.kafka_errors import may_be_missing

STALE = frozenset(
    {KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION}
)
"""What a client that knows the leaders of earlier times is told by a broker."""

OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})

REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""The cluster takes this client for nobody it knows, or does not let it."""


def words(error: BaseException | KafkaError) -> str:
    """What librdkafka says, without the code around it."""
    if isinstance(error, KafkaException) and error.args:
        error = error.args[0]
    return error.str() if isinstance(error, KafkaError) else str(error) or type(error).__name__


def error_of(error: BaseException) -> KafkaError | None:
    """What librdkafka said, in an exception of confluent-kafka; None in any other."""
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return inner if isinstance(inner, KafkaError) else None


def is_about_leaders(error: KafkaError) -> bool:
    """Whether the metadata that the client keeps may be too old for its question: the leaders have changed, or the
    partition came later. librdkafka looks by itself only every `topic.metadata.refresh.interval.ms`.
    """
    return error.code() in STALE or may_be_missing(error)


def sentence(error: KafkaError, what: str) -> str:
    """A sentence for the operator. `what`: that was to be read, as "clicks-3 at 17"."""
    if error.code() in REFUSED:
        return f"Kafka refuses this client, so {what} cannot be read; look at the security options: {error.str()}"
    if may_be_missing(error):
        return f"Kafka has no such partition (any more), so {what} cannot be read: {error.str()}"
    return f"Kafka cannot give {what}: {error.str()}"
