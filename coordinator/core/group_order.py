"""The orders in which groups are listed, and the cursors of their pages. Pure, and the same at every node.

A place in an order is a number and the group's id. What is not known counts as less than everything else. Groups of the
same number stand by their ids, in either direction. A cursor is the last place of a page; so it means something to
every node, and for as long as anybody keeps it. In the order of group ids it is the id itself.
"""

import base64
import json
from typing import Protocol

from rallypoint.coordinator.core.commit_windows import severity
from rallypoint.protocol.limits import OFFSET_MAX, OFFSET_MIN

Place = tuple[int, str]
"""Of a group in an order: the smaller one comes first."""

BY_GROUP_ID = "group_id"

STATE_RANKS = {"Dead": 0, "Empty": 1, "Stable": 2, "CompletingRebalance": 3, "PreparingRebalance": 4}
"""From rest to unrest, so that the descending order begins with groups that rebalance."""

_NOT_KNOWN = OFFSET_MIN


class Listed(Protocol):
    """What an order looks at."""

    @property
    def group_id(self) -> str:
        """The group's id."""

    @property
    def state(self) -> str:
        """Its state."""

    @property
    def member_count(self) -> int:
        """Its members."""

    @property
    def lag(self) -> int | None:
        """Its lag; None where it is not known."""

    @property
    def status(self) -> str | None:
        """Its status; None where it is not known."""

    @property
    def last_commit_at_ms(self) -> int | None:
        """When it last committed."""

    @property
    def last_rebalance_at_ms(self) -> int | None:
        """When its last rebalance began."""


class BadCursor(Exception):  # noqa: N818 - a reason to refuse, on its way to the answer
    """The cursor is not one of this order."""


class GroupOrder:
    """One order of groups."""

    def __init__(self, sort: str = BY_GROUP_ID, *, descending: bool = False) -> None:
        """`sort`: a name of `ListGroupsRequest.sort`."""
        self.sort = sort
        self.descending = descending
        self.needs_lag = sort == "lag"
        self.needs_status = sort == "status"

    @property
    def is_plain(self) -> bool:
        """By group ids, from the first."""
        return self.sort == BY_GROUP_ID and not self.descending

    def place_of(self, listed: Listed) -> Place:
        """The place of a group."""
        return self._place(_number_of(self.sort, listed), listed.group_id)

    def place_of_unknown(self, group_id: str) -> Place:
        """The place of a group of which nothing but the id is known."""
        return self._place(0 if self.sort == BY_GROUP_ID else _NOT_KNOWN, group_id)

    def _place(self, number: int, group_id: str) -> Place:
        if self.sort == BY_GROUP_ID and self.descending:
            return ReversedPlace((0, group_id))
        return (-number if self.descending else number), group_id

    def cursor_of(self, place: Place) -> str:
        """The cursor of the page that ends with the place."""
        if self.is_plain:
            return place[1]
        text = json.dumps([self.sort, self.descending, place[0], place[1]], separators=(",", ":"), ensure_ascii=False)
        return base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii").rstrip("=")

    def read_cursor(self, cursor: str) -> Place:
        """The place behind which the page begins. Raises BadCursor."""
        if self.is_plain:
            return 0, cursor
        try:
            text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
            sort, descending, number, group_id = json.loads(text.decode("utf-8", "surrogatepass"))
        except (ValueError, TypeError, RecursionError) as error:
            raise BadCursor from error
        is_sound = type(number) is int and isinstance(group_id, str) and OFFSET_MIN <= number <= OFFSET_MAX + 1
        if not is_sound or sort != self.sort or descending is not self.descending:
            raise BadCursor
        if self.sort == BY_GROUP_ID:
            return ReversedPlace((0, group_id))
        return number, group_id


class ReversedPlace(tuple[int, str]):
    """A place in the descending order of ids, which no number can turn around."""

    __slots__ = ()

    def __lt__(self, other: tuple[int, str]) -> bool:  # type: ignore[override]
        return tuple.__gt__(self, other)

    def __le__(self, other: tuple[int, str]) -> bool:  # type: ignore[override]
        return tuple.__ge__(self, other)

    def __gt__(self, other: tuple[int, str]) -> bool:  # type: ignore[override]
        return tuple.__lt__(self, other)

    def __ge__(self, other: tuple[int, str]) -> bool:  # type: ignore[override]
        return tuple.__le__(self, other)


def _number_of(sort: str, listed: Listed) -> int:
    if sort == BY_GROUP_ID:
        return 0
    if sort == "state":
        return STATE_RANKS[listed.state]
    if sort == "status":
        return severity(listed.status)
    known = {
        "lag": listed.lag,
        "member_count": listed.member_count,
        "last_commit": listed.last_commit_at_ms,
        "last_rebalance": listed.last_rebalance_at_ms,
    }[sort]
    return _NOT_KNOWN if known is None else known
