"""The interface between the leader of a group and an assignor.

The leader collects the members' subscriptions in a `GroupSpec`, calls one `Assignor`, and submits the `Assignment`.
Every possible leader must compute the same assignment. So an assignor may depend only on the spec, and not on the
iteration order of the spec's mappings.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import JsonValue

TopicPartition = tuple[str, int]
"""A topic and the number of one of its partitions, counted from 0."""

Assignment = dict[str, tuple[TopicPartition, ...]]
"""The partitions of each member, by member id. Every member is a key, even if it gets no partition. Each tuple is
sorted by topic (in `order.java_order`), then by partition."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The subscription that one member sent in its join request.

    `topics`: the subscribed topics, in any order. A topic that is listed twice counts once.
    `group_instance_id`: the name of a static member; None for a dynamic one.
    `owned`: the partitions that the member owned in `generation_id`.
    `generation_id`: the generation of `owned`; -1 if the member reports none.
    `rack_id`: the member's rack, for rack-aware assignors; None if unknown.
    `user_data`: any JSON value, for assignors that need more of a member than its topics.
    """

    topics: tuple[str, ...]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None
    user_data: JsonValue = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The input of an assignor.

    `partitions_per_topic`: the number of partitions (0 or more) of each existing topic. Topics without subscribers may
    be among them; an assignor ignores them.
    `subscriptions`: the subscription of each member, by member id. A member may subscribe to a topic that does not
    exist: it gets no partition of it, and that is no error.
    `replica_racks`: the racks of each partition's replicas by topic, the leader's rack first. Only rack-aware assignors
    read it. An empty or missing entry means that the racks of the partition are unknown.
    """

    partitions_per_topic: Mapping[str, int]
    subscriptions: Mapping[str, MemberSubscription]
    replica_racks: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)


class Assignor(ABC):
    """Assigns partitions to members.

    To write your own, subclass it, set `name`, implement `assign`, and register the class (see `registry`). The
    registry creates a registered class without arguments. An assignor must keep no state between calls, and several
    threads may call it.
    """

    name: ClassVar[str]
    """The protocol name that members offer in a join request. All members of a group must use it for the same class."""

    protocol: ClassVar[Literal["eager", "cooperative"]] = "eager"
    """`eager`: members give up all partitions before they join again, so every assignment is safe. `cooperative`:
    members keep their partitions, so `assign` must not assign a partition that another member still owns."""

    reads_owned_partitions: ClassVar[bool] = True
    """Whether `assign` reads `MemberSubscription.owned`. If False, eager members do not send it. The join request of a
    static member after a restart then equals its previous one, and starts no rebalance."""

    @abstractmethod
    def assign(self, spec: GroupSpec) -> Assignment:
        """Assign the partitions of existing, subscribed topics to the members.

        A partition goes to at most one member, which must subscribe to its topic. An eager assignor assigns every
        partition. An empty group gets an empty result, not an error.
        """

    def user_data(self, spec: GroupSpec, assignment: Assignment) -> Mapping[str, JsonValue]:
        """Additional data for members, as any JSON value by member id.

        The leader calls it once after each `assign`, with the result. A member reads its value from
        `Assignment.user_data`. By default there is none.
        """
        return {}
