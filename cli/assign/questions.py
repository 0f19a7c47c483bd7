"""The JSON forms of questions: one model for each, validated field by field.

Unknown fields are ignored, so that a question may contain an expected answer, measurements or notes.
"""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, StrictInt, StrictStr, ValidationError

from rallypoint.assignors.contract import GroupSpec, MemberSubscription
from rallypoint.assignors.other_systems.rocketmq import VIRTUAL_NODES_DEFAULT, MessageQueue
from rallypoint.protocol.limits import INT32_MAX

PARTITIONS_MAX = 1_000_000
"""The most partitions, replicas or points on a hash ring in one question, which limits the memory used."""


STEPS_MAX = 8
"""How many levels of the path to an invalid field an error names."""


class QuestionError(Exception):
    """A question cannot be answered. The message is one sentence that names the field."""


class UnknownAlgorithm(QuestionError):  # noqa: N818 - as `UnknownAssignor`
    """No algorithm has this name. The message lists the existing names."""


Kind = TypeVar("Kind", bound=BaseModel)
Count = Annotated[StrictInt, Field(ge=0, le=PARTITIONS_MAX)]
Number = Annotated[StrictInt, Field(ge=-INT32_MAX, le=INT32_MAX)]
Partition = tuple[StrictStr, Annotated[StrictInt, Field(ge=0, le=INT32_MAX)]]


def _with_topics(subscription: Any) -> Any:
    """Accept a list of topics as a subscription without other fields."""
    return {"topics": subscription} if isinstance(subscription, list) else subscription


class SubscriptionQuestion(BaseModel):
    """A member's subscription. `generation`: the generation of `owned`; None if the member reports none."""

    topics: list[StrictStr]
    group_instance_id: StrictStr | None = None
    owned: list[Partition] = []
    generation: Number | None = None
    rack: StrictStr | None = None
    user_data: JsonValue = None


class GroupQuestion(BaseModel):
    """A group of consumers, for an assignor."""

    partitions_per_topic: dict[StrictStr, Count]
    subscriptions: dict[StrictStr, Annotated[SubscriptionQuestion, BeforeValidator(_with_topics)]]
    replica_racks: dict[StrictStr, list[list[StrictStr]]] = {}

    def spec(self) -> GroupSpec:
        """The question as an assignor takes it."""
        if sum(self.partitions_per_topic.values()) > PARTITIONS_MAX:
            raise QuestionError(f"partitions_per_topic: more than {PARTITIONS_MAX} partitions in all")
        subscriptions = {
            member_id: MemberSubscription(
                topics=tuple(subscription.topics),
                group_instance_id=subscription.group_instance_id,
                owned=tuple(subscription.owned),
                generation_id=-1 if subscription.generation is None else subscription.generation,
                rack_id=subscription.rack,
                user_data=subscription.user_data,
            )
            for member_id, subscription in self.subscriptions.items()
        }
        return GroupSpec(self.partitions_per_topic, subscriptions, self.replica_racks)


class BrokerQuestion(BaseModel):
    """A broker."""

    id: StrictInt
    rack: StrictStr | None = None


class ReplicasQuestion(BaseModel):
    """The placement of replicas on brokers, which are in order."""

    brokers: list[BrokerQuestion]
    partitions: Number
    replication_factor: Number
    fixed_start_index: Annotated[StrictInt, Field(ge=0, le=INT32_MAX)] = 0
    start_partition_id: Number = 0


class GroupIdQuestion(BaseModel):
    """The partition of a group id, out of `partitions`."""

    group_id: StrictStr
    partitions: Annotated[StrictInt, Field(ge=1, le=INT32_MAX)]


class KeyQuestion(BaseModel):
    """The partition of a record's key, out of `partitions`. `key_hex`: the key in hexadecimal digits."""

    key_hex: StrictStr
    partitions: Annotated[StrictInt, Field(ge=1, le=INT32_MAX)]

    def key(self) -> bytes:
        """The key's bytes."""
        try:
            return bytes.fromhex(self.key_hex)
        except ValueError as error:
            raise QuestionError(f"key_hex: {error}") from error


class RocketmqQuestion(BaseModel):
    """The allocation of RocketMQ's queues to consumers, both in order."""

    queues: list[tuple[StrictStr, StrictStr, StrictInt]]
    consumers: list[StrictStr]
    virtual_nodes: Annotated[StrictInt, Field(le=PARTITIONS_MAX)] = VIRTUAL_NODES_DEFAULT

    def message_queues(self) -> list[MessageQueue]:
        """The queues as the rules take them."""
        if self.virtual_nodes * len(self.consumers) > PARTITIONS_MAX:
            raise QuestionError(f"virtual_nodes: more than {PARTITIONS_MAX} points for all consumers")
        return [MessageQueue(*queue) for queue in self.queues]


class MetaqQuestion(BaseModel):
    """The allocation of one topic's partitions in MetaQ to consumers, both in order."""

    partitions: list[StrictStr]
    consumers: list[StrictStr]


def read(kind: type[Kind], asked: Any) -> Kind:
    """Validate a question as a model. Raises QuestionError for the first invalid field."""
    try:
        return kind.model_validate(asked)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"][:STEPS_MAX]) or "input"
        sentence = f"{first['msg'][0].lower()}{first['msg'][1:]}"
        raise QuestionError(f"{where}: {sentence}") from error
