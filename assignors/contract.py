"""The contract between the leader of a group and an assignor. The rules themselves have a module each.

The leader gathers what every member said at its join into a `GroupSpec`, asks one `Assignor`, and submits the
`Assignment`. Whichever member leads must reach the same result, so a rule may depend on nothing but the spec, and not
on the order in which its mappings happen to be iterated.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import JsonValue

TopicPartition = tuple[str, int]
"""A topic and the number of one of its partitions, counted from 0."""

Assignment = dict[str, tuple[TopicPartition, ...]]
"""Member id to its partitions. Every member is a key, also one that gets nothing; each tuple is sorted by topic (in
the order of `order.java_order`), then by partition."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member said when it joined.

    `topics`: in any order; a topic listed twice counts once.
    `group_instance_id`: None for a dynamic member.
    `owned`: the partitions it had in `generation_id`.
    `generation_id`: -1 if the member names none.
    `rack_id`, `user_data`: for rules that look at them; `roundrobin` looks at topics and instance ids alone.
    """

    topics: tuple[str, ...]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None
    user_data: JsonValue = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """One question to an assignor.

    `partitions_per_topic`: the topics that exist, each with its number of partitions (0 or more). Topics that nobody
    subscribes to may be among them; they are left out.
    `subscriptions`: member id to subscription. A member may subscribe to a topic that does not exist: it gets nothing
    of it, and that is no error.
    `replica_racks`: a topic's racks by partition, the leader's first, if they are known. Only rules that look at racks
    read it. An empty or missing entry of a partition means that its racks are not known.
    """

    partitions_per_topic: Mapping[str, int]
    subscriptions: Mapping[str, MemberSubscription]
    replica_racks: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)


class Assignor(ABC):
    """A rule that assigns partitions to members. Subclass it, give it a `name`, and register the class (see
    `registry`).

    A registered one is made without arguments. None keeps anything between calls, which may come from several threads.
    """

    name: ClassVar[str]
    """The protocol name that members offer in a join. Everyone in a group must mean the same rule by it."""

    protocol: ClassVar[Literal["eager", "cooperative"]] = "eager"
    """eager: members give up everything before they join again, so any assignment is safe. cooperative: they keep
    what they have, so the assignment must not give away a partition that another member still owns."""

    reads_owned_partitions: ClassVar[bool] = True
    """Whether `assign` looks at what members say they owned. If not, eager members do not say it, so that a static
    member's join after a restart is the one of before, and starts no rebalance."""

    @abstractmethod
    def assign(self, spec: GroupSpec) -> Assignment:
        """Assign the partitions of existing, subscribed topics to the members.

        Each partition goes to at most one member, and only to one that subscribes to its topic. An eager rule gives
        every one of them to somebody. An empty group gives an empty result, not an error. What a rule must know of a
        member besides its topics, the member says in its subscription's `user_data`.
        """

    def user_data(self, spec: GroupSpec, assignment: Assignment) -> Mapping[str, JsonValue]:
        """User data for members besides their partitions: member id to any JSON value, which stands in the member's
        `Assignment.user_data`. Asked once after each `assign`, with what that gave. By default there is none.
        """
        return {}
