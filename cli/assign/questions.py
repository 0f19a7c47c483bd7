"""The form of a question, as JSON: one model for each kind, checked field by field. Nothing is answered here.

Fields that a kind does not know are ignored, so that a question may carry what was expected, measured or noted.
"""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, StrictInt, StrictStr, ValidationError

from rallypoint.assignors.contract import GroupSpec, MemberSubscription
from rallypoint.assignors.other_systems.rocketmq import VIRTUAL_NODES_DEFAULT, MessageQueue
from rallypoint.protocol.limits import INT32_MAX

PARTITIONS_MAX = 1_000_000
"""The most partitions, replicas or points on a circle that one question may make: memory for more is not given."""


STEPS_MAX = 8
"""How much of the way to a wrong field an error names: deeper ones lie in what the asker made up."""


class QuestionError(Exception):
    """A question that cannot be answered. The text is one sentence for whoever asked, and names the field."""


class UnknownAlgorithm(QuestionError):  # noqa: N818 - as `UnknownAssignor`
    """Nobody answers under this name. The text lists the names there are."""


Kind = TypeVar("Kind", bound=BaseModel)
Count = Annotated[StrictInt, Field(ge=0, le=PARTITIONS_MAX)]
Number = Annotated[StrictInt, Field(ge=-INT32_MAX, le=INT32_MAX)]
Partition = tuple[StrictStr, Annotated[StrictInt, Field(ge=0, le=INT32_MAX)]]


def _with_topics(said: Any) -> Any:
    """A bare list of topics is short for a subscription that says nothing else."""
    return {"topics": said} if isinstance(said, list) else said


class SubscriptionQuestion(BaseModel):
    """What a member says. `generation`: of `owned`; none if it says none."""

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
                topics=tuple(said.topics),
                group_instance_id=said.group_instance_id,
                owned=tuple(said.owned),
                generation_id=-1 if said.generation is None else said.generation,
                rack_id=said.rack,
                user_data=said.user_data,
            )
            for member_id, said in self.subscriptions.items()
        }
        return GroupSpec(self.partitions_per_topic, subscriptions, self.replica_racks)


class BrokerQuestion(BaseModel):
    """A broker."""

    id: StrictInt
    rack: StrictStr | None = None


class ReplicasQuestion(BaseModel):
    """Replicas to brokers, which come in order."""

    brokers: list[BrokerQuestion]
    partitions: Number
    replication_factor: Number
    fixed_start_index: Annotated[StrictInt, Field(ge=0, le=INT32_MAX)] = 0
    start_partition_id: Number = 0


class GroupIdQuestion(BaseModel):
    """A group id to its place among `partitions`."""

    group_id: StrictStr
    partitions: Annotated[StrictInt, Field(ge=1, le=INT32_MAX)]


class KeyQuestion(BaseModel):
    """A key, its bytes in hexadecimal digits, to one of `partitions`."""

    key_hex: StrictStr
    partitions: Annotated[StrictInt, Field(ge=1, le=INT32_MAX)]

    def key(self) -> bytes:
        """The key's bytes."""
        try:
            return bytes.fromhex(self.key_hex)
        except ValueError as error:
            raise QuestionError(f"key_hex: {error}") from error


class RocketmqQuestion(BaseModel):
    """Queues to consumers, both in order."""

    queues: list[tuple[StrictStr, StrictStr, StrictInt]]
    consumers: list[StrictStr]
    virtual_nodes: Annotated[StrictInt, Field(le=PARTITIONS_MAX)] = VIRTUAL_NODES_DEFAULT

    def message_queues(self) -> list[MessageQueue]:
        """The queues as the rules take them."""
        if self.virtual_nodes * len(self.consumers) > PARTITIONS_MAX:
            raise QuestionError(f"virtual_nodes: more than {PARTITIONS_MAX} points for all consumers")
        return [MessageQueue(*queue) for queue in self.queues]


class MetaqQuestion(BaseModel):
    """Partitions of one topic to consumers, both in order."""

    partitions: list[StrictStr]
    consumers: list[StrictStr]


def read(kind: type[Kind], asked: Any) -> Kind:
    """The question as one of a kind. QuestionError for the first field that is wrong."""
    try:
        return kind.model_validate(asked)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"][:STEPS_MAX]) or "input"
        sentence = f"{first['msg'][0].lower()}{first['msg'][1:]}"
        raise QuestionError(f"{where}: {sentence}") from error
