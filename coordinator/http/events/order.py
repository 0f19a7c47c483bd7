"""In which order the events of several nodes stand in one stream. Pure: time comes in.

Of one node, the order is the node's. Between nodes it is that of `at_ms`, among the events that are there: while a
node tells what happened before, the others wait for it. When a shard comes from another node than the last time, its
event is held for a moment, so that what the former owner has told is there first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

HOLD_MS = 200
"""How long an event waits for those of the shard's former owner, which told them before it gave the shard up. Between
nodes that answer each other, they take a few milliseconds."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a node tells next. at_ms, shard: None for what is not of a group, which goes first."""

    at_ms: int | None
    shard: int | None


@dataclass(frozen=True, slots=True)
class Waits:
    """Nothing may be told. until_ms: when that changes by itself; None: only when more has come."""

    until_ms: int | None


class Order:
    """Chooses the node whose head is told next."""

    def __init__(self, owners: Sequence[str | None]) -> None:
        """owners: for each shard the node that coordinates it as the stream begins."""
        self._teller: dict[int, str] = {shard: owner for shard, owner in enumerate(owners) if owner is not None}
        self._held_until_ms: dict[str, int] = {}

    def choose(self, heads: Mapping[str, Head | None], behind: frozenset[str], now_ms: int) -> str | Waits:
        """The node whose head is next.

        heads: of every node that is followed; None where it has told nothing more yet.
        behind: the nodes that are telling what happened before; they are waited for.
        """
        if any(head is None for node_id, head in heads.items() if node_id in behind):
            return Waits(None)
        until: list[int] = []
        ready = [(head.at_ms or 0, node_id) for node_id, head in heads.items() if head is not None]
        for _, node_id in sorted(ready):
            head = heads[node_id]
            assert head is not None
            held_ms = self._held(node_id, head, heads, behind, now_ms)
            if held_ms is None:
                return node_id
            until.append(held_ms)
        return Waits(min(until, default=None))

    def told(self, node_id: str, head: Head) -> None:
        """The head of this node has been told."""
        self._held_until_ms.pop(node_id, None)
        if head.shard is not None:
            self._teller[head.shard] = node_id

    def _held(
        self, node_id: str, head: Head, heads: Mapping[str, Head | None], behind: frozenset[str], now_ms: int
    ) -> int | None:
        """Until when it is held; None if it is not. What happened before is in the order of `at_ms` alone."""
        if head.shard is None or node_id in behind or behind:
            return None
        former = self._teller.get(head.shard)
        if former is None or former == node_id or former not in heads:
            return None
        until_ms = self._held_until_ms.setdefault(node_id, now_ms + HOLD_MS)
        return until_ms if now_ms < until_ms else None
