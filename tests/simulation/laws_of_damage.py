"""The law of what is damaged in the store: I18."""

from collections.abc import Iterable

from rallypoint.coordinator.runtime.condition import ShardState
from rallypoint.coordinator.runtime.loading.damage import DamagedGroup, PassedOver, StrayRecord
from rallypoint.coordinator.storage.contract import StoredDataInvalid, shard_keyspace
from rallypoint.protocol.group_hash import shard_of_group
from tests.simulation.checker import Checker, Sight
from tests.simulation.damage import STRAY, damaged_group, foreseen, is_damaged, is_foreseen
from tests.simulation.fold import FoldedGroup
from tests.simulation.node import Node, Seen


class I18Damage(Checker):
    """What is damaged is shut off by the group, told, and never written; no other group is shut off, and no shard.

    What only a newer release knows is passed over, and stays as it is.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._group_id = damaged_group(sight.plan) if is_damaged(sight.plan) else None
        self._foreseen = foreseen(sight.plan) if is_foreseen(sight.plan) else {}

    def stored(self, group_id: str, group: FoldedGroup) -> None:
        if group_id == self._group_id:
            self.fail(f"{group_id} is damaged, and was written")

    def turned(self, node: Node, seen: Iterable[Seen]) -> None:
        for shard in node.shards:
            if isinstance(shard.error, StoredDataInvalid):
                self.fail(f"shard {shard.number} is not served because of one record: {shard.error}")
            if shard.state is not ShardState.ACTIVE:
                continue
            groups, strays = self._expected(shard.number)
            passed_over = sum(keyspace == shard_keyspace(shard.number) for keyspace, _ in self._foreseen)
            if len(shard.passed_over) != passed_over:
                self.fail(f"shard {shard.number}: {shard.passed_over} are passed over, not {passed_over} records")
            if shard.damaged.keys() != groups or shard.stray_count != strays:
                self.fail(f"shard {shard.number}: {sorted(shard.damaged)} are shut off, {shard.stray_count} are strays")
        if self._group_id is not None and node.group(self._group_id) is not None:
            self.fail(f"{self._group_id} is damaged, and is served")

    def met(self, number: int, found: DamagedGroup | StrayRecord | PassedOver) -> None:
        """The run is over, and a load of the shard found this."""
        groups, strays = self._expected(number)
        if isinstance(found, PassedOver):
            is_planted = (shard_keyspace(number), found.key) in self._foreseen
        elif isinstance(found, DamagedGroup):
            is_planted = found.group_id in groups
        else:
            is_planted = bool(strays) and found.key == STRAY
        if not is_planted:
            self.fail(f"shard {number}: {found}")

    def kept(self, keyspace: str, key: bytes, before: bytes, value: bytes | None) -> None:
        """The run is over, and this is left of what a newer release had left."""
        if value != before:
            self.fail(f"{keyspace}: {key!r} is {value!r}, and a newer release left {before!r}")

    def _expected(self, number: int) -> tuple[set[str], int]:
        if self._group_id is None or shard_of_group(self._group_id, self.sight.plan.shards) != number:
            return set(), 0
        return {self._group_id}, 1
