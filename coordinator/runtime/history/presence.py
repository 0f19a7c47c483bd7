"""Which members of a group came and went lately, by name: how those that do so in circles are found.

Kept are the members that are there, by name, and what happened to a name within the window of the rule, `SEEN_MAX`
events at most. Names of which nothing happened lately are forgotten when something happens to another one.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rallypoint.coordinator.core.flapping import CIRCLES_MIN, WINDOW_MS, Circles, Kind, Seen, circles
from rallypoint.coordinator.core.moves import OwnerNames

SEEN_MAX = 60
"""What is kept of one name: ten circles of three members, of 80 bytes each."""
NAMES_MAX = 1_000
"""Names of a group of which is kept what happened; of others it is not."""


class Name(NamedTuple):
    """An instance id; or a client id with its host, where that is None."""

    group_instance_id: str | None
    client_id: str
    host: str


class _Of:
    """What is known of one name."""

    __slots__ = ("present", "present_max", "seen")

    def __init__(self, present: int) -> None:
        self.present = self.present_max = present
        self.seen: list[Seen] = []


class GroupPresence:
    """Of one group."""

    __slots__ = ("_expired", "_lately", "_present")

    def __init__(self) -> None:
        self._present: dict[Name, int] = {}
        self._lately: dict[Name, _Of] = {}
        self._expired: set[str] = set()

    def was_there(self, names: OwnerNames) -> None:
        """The group was loaded with this member."""
        name = _name_of(names)
        self._present[name] = self._present.get(name, 0) + 1

    def came(self, names: OwnerNames, at_ms: int) -> None:
        """A new member."""
        name = _name_of(names)
        count = self._present[name] = self._present.get(name, 0) + 1
        known = self._see(name, "joined", at_ms)
        if known is not None:
            known.present_max = max(known.present_max, count)

    def expired(self, member_id: str) -> None:
        """The member's session has expired: it goes next."""
        self._expired.add(member_id)

    def went(self, names: OwnerNames, at_ms: int) -> None:
        """A member is gone."""
        name = _name_of(names)
        self._see(name, "expired" if names.member_id in self._expired else "left", at_ms)
        self._expired.clear()
        count = self._present.get(name, 0) - 1
        if count > 0:
            self._present[name] = count
        else:
            self._present.pop(name, None)

    def _see(self, name: Name, kind: Kind, at_ms: int) -> _Of | None:
        known = self._lately.pop(name, None)
        if known is None:
            self._forget_before(at_ms - WINDOW_MS)
            if len(self._lately) >= NAMES_MAX:
                return None
            known = _Of(self._present.get(name, 0))
        elif known.seen[-1].seen_ms < at_ms - WINDOW_MS:
            known = _Of(self._present.get(name, 0))
        # The one that something happened to last stands last.
        self._lately[name] = known
        known.seen.append(Seen(at_ms, kind))
        del known.seen[:-SEEN_MAX]
        return known

    def _forget_before(self, at_ms: int) -> None:
        while self._lately:
            name, known = next(iter(self._lately.items()))
            if known.seen[-1].seen_ms >= at_ms:
                break
            del self._lately[name]

    def flapping(self, now_ms: int) -> Iterator[tuple[Name, Circles]]:
        """Names whose members come and go in circles. Cost: a look at what happened to each lately."""
        for name, known in self._lately.items():
            if len(known.seen) < 2 * CIRCLES_MIN:
                continue
            found = circles(known.seen, known.present_max, now_ms)
            if found is not None:
                yield name, found


def _name_of(names: OwnerNames) -> Name:
    if names.group_instance_id is not None:
        return Name(names.group_instance_id, "", "")
    return Name(None, names.client_id, names.host)
