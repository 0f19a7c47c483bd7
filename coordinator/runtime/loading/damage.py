"""Stored data that cannot be used: groups that are shut off, and records that belong to no known group.

A group is not loaded if one of its records cannot be read, or if its records contradict each other. The readable part
would be taken for the whole group, and later writes would replace the rest. The other groups of its shard are served.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.group_order import GroupOrder, Place
from rallypoint.coordinator.storage.codec import header_key
from rallypoint.coordinator.storage.contract import Write
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class DamagedGroup:
    """A group that is shut off: why, in a sentence that names a key, and `keys`, all those that are at fault."""

    group_id: str
    reason: str
    keys: tuple[bytes, ...] = ()

    def refusal(self) -> Failure:
        """The answer to whoever calls the group. It may be mended, so a member keeps trying."""
        detail = (
            f"The stored data of group {self.group_id!r} are damaged, so it is shut off, and nothing of it is changed:"
            f" {self.reason}. Start a release that can read them, restore the store from a copy, or delete the group."
        )
        return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail)

    def listing(self) -> admin.DamagedGroup:
        """How it stands in a list."""
        refusal = self.refusal()
        return admin.DamagedGroup(
            group_id=self.group_id,
            error_code=refusal.code,
            error_name=refusal.code.name,
            detail=refusal.detail,
        )

    def deletion(self, stored: Sequence[bytes]) -> list[Write]:
        """Takes away the keys that are stored of the group, in this order: cut off anywhere, what is left is damaged
        still, or no group. A sound half of it never comes back.
        """
        header, faulty = header_key(self.group_id), frozenset(self.keys)
        ordered = sorted(stored, key=lambda key: (key in faulty, key == header))
        return [Write(key, None) for key in ordered]


@dataclass(frozen=True, slots=True)
class StrayRecord:
    """A stored record whose key names no group, or one of another shard. It is left as it is."""

    key: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A stored record of a kind that a newer release of the same major version has added. It is left as it is."""

    key: bytes


def with_damaged(
    page: admin.ListGroupsAnswer,
    request: admin.ListGroupsRequest,
    order: GroupOrder,
    after: Place | None,
    damaged: Iterable[DamagedGroup],
) -> admin.ListGroupsAnswer:
    """The page with the damaged groups that fall between its cursor and the next, as many as it may have groups.

    Nothing is known of them but their ids: they stand where an order has what is not known.
    """
    upto = None if page.next_cursor is None else order.read_cursor(page.next_cursor)
    searched = request.search.casefold()
    placed = (
        (order.place_of_unknown(group.group_id), group)
        for group in damaged
        if group.group_id.startswith(request.prefix) and searched in group.group_id.casefold()
    )
    found = sorted(
        (one for one in placed if (after is None or one[0] > after) and (upto is None or one[0] <= upto)),
        key=lambda one: one[0],
    )
    if not found:
        return page
    shown, groups, next_cursor = found[: request.limit], page.groups, page.next_cursor
    if len(found) > len(shown):
        last = shown[-1][0]
        next_cursor = order.cursor_of(last)
        groups = tuple(group for group in groups if order.place_of(group) <= last)
    named = tuple(group.listing() for _, group in shown)
    return page.model_copy(update={"groups": groups, "next_cursor": next_cursor, "damaged_groups": named})
