"""What members own from one generation to the next: a partition has one member at work on it, whoever keeps what."""

from rallypoint.assignors.contract import TopicPartition
from tests.simulation.checker import Checker, Sight
from tests.simulation.client import Client


class I12OneAtWork(Checker):
    """Who takes a partition takes it from nobody that the group still counts in.

    A member is at work on what it owns: from `on_assigned` until `on_revoked` has returned, or it has noticed a loss; a
    cooperative one also while it joins. Left out is who cannot know better yet: one that is no member any more, as
    after the end of its session, and a static one that the group carries on though it missed a rebalance. Left out
    too are runs in which a stranger speaks for members, for what it says of ownership is believed.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._clients: dict[str, Client] = {}
        self._before: dict[str, frozenset[TopicPartition]] = {}

    def believed(self, client: Client) -> None:
        if "lie" in self.sight.plan.weights:
            return
        self._clients[client.name] = client
        owned = frozenset() if client.held is None else client.held.partitions
        taken = owned - self._before.get(client.name, frozenset())
        self._before[client.name] = owned
        if not taken or not self._counts(client):
            return
        for other in self._clients.values():
            if other is client or other.group_id != client.group_id or other.held is None or not self._counts(other):
                continue
            if both := taken & other.held.partitions:
                self.fail(f"{client.group_id}: {client.name} takes {sorted(both)}, at which {other.name} is at work")

    def _counts(self, client: Client) -> bool:
        """Whether the group counts it in, and it has not missed a rebalance."""
        node = self.sight.node
        seen = None if node is None or not node.is_up else node.group(client.group_id)
        machine = client.machine
        if seen is None or machine.member_id not in seen.group.members:
            return False
        return client.options.group_instance_id is None or machine.generation_id == seen.group.generation_id
