"""What clients saw of each place, as histories of one register for a checker of linearizability. Pure.

A commit writes the register, a fetch reads it. A commit that was refused, or without an answer, may have been carried
out at any time after its call, or never: all that is asked of it is not to come before its call.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from examples.cluster.books import Commit, Entry, Fetch, Place

NEVER = 2**62
"""When an operation ends of which nobody knows whether it did."""
OPERATIONS_MAX = 2_000
"""In one history, where it can be divided: the checker's memory grows with the square."""


class Operation(NamedTuple):
    """A commit of a value, or a fetch that found it; 0 where nothing was committed. Times are milliseconds."""

    client: str
    is_write: bool
    value: int
    call_ms: int
    return_ms: int


@dataclass(frozen=True, slots=True)
class History:
    """Operations on one place in the order of their calls, and its value before them."""

    name: str
    initial: int
    operations: Sequence[Operation]

    def as_json(self) -> Mapping[str, Any]:
        """As the checker reads it; its clients have numbers."""
        numbers: dict[str, int] = {}
        return {
            "name": self.name,
            "initial": self.initial,
            "operations": [
                {
                    "client": numbers.setdefault(one.client, len(numbers)),
                    "write": one.is_write,
                    "value": one.value,
                    "call": one.call_ms,
                    "return": one.return_ms,
                }
                for one in self.operations
            ],
        }


def histories_of(entries: Iterable[Entry]) -> list[History]:
    """The histories of all places that somebody committed to."""
    return [
        part
        for place, operations in sorted(operations_of(entries).items())
        for part in divided(f"{place[0]}.{place[1]}", without_unseen(operations))
    ]


def operations_of(entries: Iterable[Entry]) -> Mapping[Place, Sequence[Operation]]:
    """The operations by place, in the order of their calls.

    The books have whole milliseconds, rounded down: an operation ends a millisecond later, so that two of the same
    millisecond are at the same time. A fetch reads every place of its group.
    """
    found: defaultdict[Place, list[Operation]] = defaultdict(list)
    fetches: defaultdict[str, list[Fetch]] = defaultdict(list)
    for entry in entries:
        if isinstance(entry, Commit):
            return_ms = entry.ended_ms + 1 if entry.error is None else NEVER
            for place, offset in entry.places.items():
                found[place].append(Operation(entry.member, True, offset, entry.began_ms, return_ms))
        elif isinstance(entry, Fetch):
            fetches[entry.group_id].append(entry)
    for (group_id, partition), operations in found.items():
        operations += [
            Operation(fetch.member, False, fetch.offsets.get(partition, 0), fetch.began_ms, fetch.ended_ms + 1)
            for fetch in fetches[group_id]
        ]
        operations.sort(key=lambda one: (one.call_ms, one.return_ms))
    return found


def without_unseen(operations: Sequence[Operation]) -> list[Operation]:
    """The same question with less to search.

    A commit of which nobody knows, and whose value nobody else committed, is left out where no fetch found it: it may
    never have come. Where one did, it came before the first such fetch ended.
    """
    committed = Counter(one.value for one in operations if one.is_write)
    seen_ms: dict[int, int] = {}
    for one in operations:
        if not one.is_write:
            seen_ms[one.value] = min(one.return_ms, seen_ms.get(one.value, NEVER))
    kept = []
    for one in operations:
        if not one.is_write or one.return_ms != NEVER or committed[one.value] > 1:
            kept.append(one)
        elif one.value in seen_ms and seen_ms[one.value] >= one.call_ms:
            kept.append(one._replace(return_ms=seen_ms[one.value]))
        elif one.value in seen_ms:
            kept.append(one)  # it was found before it was committed: for the checker to object to
    return kept


def divided(name: str, operations: Sequence[Operation], operations_max: int = OPERATIONS_MAX) -> list[History]:
    """The history in parts. It may be divided where nothing is under way and one commit was clearly the last.

    Each part is linearizable if, and only if, the whole is.
    """
    parts: list[History] = []
    initial, begin = 0, 0
    ends_ms = -1
    last: Operation | None = None
    is_clear = True
    for number, one in enumerate(operations):
        if number - begin >= operations_max and one.call_ms > ends_ms and is_clear:
            parts.append(History(f"{name}.{len(parts)}", initial, operations[begin:number]))
            initial, begin = initial if last is None else last.value, number
        ends_ms = max(ends_ms, one.return_ms)
        if one.is_write:
            is_clear = last is None or last.return_ms < one.call_ms
            last = one if is_clear or last is None or one.return_ms > last.return_ms else last
    return [*parts, History(f"{name}.{len(parts)}" if parts else name, initial, operations[begin:])]
