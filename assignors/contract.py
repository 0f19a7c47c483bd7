"""The contract between the leader of a group and an assignor. The rules themselves have a module each.

The leader gathers what every member said at its join into a `GroupSpec`, asks one `Assignor`, and submits the
`Assignment`. Whoever becomes leader must reach the same result, so a rule may depend on nothing but the spec, and not
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

    `topics`: in any order; a topic listed twice counts once. `group_instance_id`: None for a dynamic member.
    `owned`: the partitions it had in `generation_id` (-1: it does not say). `rack_id`, `user_data`: for rules that
    look at them; `roundrobin` looks at topics and instance ids alone.
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
    subscribes to may stand here too; they are left out. `subscriptions`: member id to subscription. A member may
    subscribe to a topic that does not exist: it gets nothing of it, and that is no error. `replica_racks`: where it is
    known, a topic's racks by partition, the leader's first; only rules that look at racks read it. A partition whose
    entry is empty or missing is one of which nothing is known.
    """

    partitions_per_topic: Mapping[str, int]
    subscriptions: Mapping[str, MemberSubscription]
    replica_racks: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)


class Assignor(ABC):
    """A rule for sharing out. Subclass it, give it a `name`, and register the class (see `registry`).

    An assignor is made without arguments and keeps nothing between calls.
    """

    name: ClassVar[str]
    """The protocol name that members offer in a join. Everyone in a group must mean the same rule by it."""

    protocol: ClassVar[Literal["eager", "cooperative"]] = "eager"
    """eager: members give up everything before they join again, so any assignment is safe. cooperative: they keep
    what they have, so the assignment must not give away a partition that another member still owns."""

    reads_claims: ClassVar[bool] = True
    """Whether `assign` looks at what members say they owned. If not, eager members do not say it, so that a static
    member's join after a restart is the one of before, and starts no rebalance."""

    @abstractmethod
    def assign(self, spec: GroupSpec) -> Assignment:
        """Share the partitions of existing, subscribed topics among the members.

        Each partition goes to at most one member, and only to one that subscribes to its topic. An eager rule gives
        every one of them to somebody. An empty group gives an empty result, not an error. What a rule must know of a
        member besides its topics, the member says in its subscription's `user_data`.
        """
