"""The list of the groups of all nodes, made of one page of each.

Shards change hands while the nodes are asked. So each page names the shards that it is of, and what no page is of is
named as unavailable: a group is never left out without a word. A shard that two pages are of was handed over between
them; its groups stand in the list once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from operator import itemgetter

from rallypoint.coordinator.core.effects import Failure
from rallypoint.coordinator.core.group_order import GroupOrder, Place
from rallypoint.coordinator.http.access.control import Permit
from rallypoint.coordinator.http.cluster.peers import PeerClient, Unanswered
from rallypoint.coordinator.http.contract import ClusterService, GroupService
from rallypoint.coordinator.runtime.condition import READY
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol.errors import ErrorCode

Pages = Mapping[str, admin.ListGroupsAnswer | Unanswered]
"""By node id: the page of the node, or why there is none."""
BY_ID = GroupOrder()
_PLACE = itemgetter(0)


class GroupLists:
    """Lists the groups of all nodes."""

    def __init__(self, service: GroupService, cluster: ClusterService, peers: PeerClient) -> None:
        self._service = service
        self._cluster = cluster
        self._peers = peers

    async def list_groups(self, request: admin.ListGroupsRequest, permit: Permit) -> admin.ListGroupsAnswer | Failure:
        """One page of the groups of all nodes that the caller may see. A single node, and a request of `node_only`,
        asks nobody.

        Refused where this node would refuse its own list, but for shards that it cannot load; and where no node lists
        any shard. Cost: one request to each other node, all at once.
        """
        sees = None if permit.sees_all_groups else permit.sees
        if request.node_only or not self._cluster.is_shared:
            return await self._service.list_groups(request, sees)
        of_a_node = request.model_copy(update={"node_only": True})
        own = await self._service.list_groups(of_a_node, sees)
        if isinstance(own, Failure) and (own.code is ErrorCode.INVALID_REQUEST or self._service.phase != READY):
            return own
        peers = self._cluster.live_peers()
        asked = (self._peers.list_groups(peer, of_a_node, permit.caller) for peer in peers)
        answers = await asyncio.gather(*asked)
        pages = dict(zip((peer.node_id for peer in peers), answers, strict=True))
        pages[self._cluster.node_id] = Unanswered(own.detail.rstrip(".")) if isinstance(own, Failure) else own
        order = GroupOrder(request.sort, descending=request.descending)
        return join_pages(pages, self._cluster.shard_owners(), request.limit, order)


def join_pages(
    pages: Pages, owners: Sequence[str | None], limit: int, order: GroupOrder = BY_ID
) -> admin.ListGroupsAnswer | Failure:
    """One page of at most `limit` groups, and as many damaged ones, of the first pages behind one cursor.

    pages: of the same request, which named this limit and this order.
    owners: for each shard the id of its owner, None where there is none.
    """
    unavailable = why_unavailable(pages, owners)
    if len(unavailable) == len(owners):
        worst = max(unavailable, key=lambda shard: shard.error_code)
        return Failure(ErrorCode(worst.error_code), worst.detail)
    answered = [page for page in pages.values() if isinstance(page, admin.ListGroupsAnswer)]
    damaged = {group.group_id: group for page in answered for group in page.damaged_groups}
    groups: dict[str, admin.GroupListing] = {}
    for group in (group for page in answered for group in page.groups if group.group_id not in damaged):
        known = groups.get(group.group_id)
        if known is None or known.generation_id < group.generation_id:
            groups[group.group_id] = group
    placed = sorted(((order.place_of(group), group) for group in groups.values()), key=_PLACE)
    shut_off = sorted(((order.place_of_unknown(group_id), group) for group_id, group in damaged.items()), key=_PLACE)
    # Behind the first end of a page, what stands on that node's next page would be missing.
    ends = (order.read_cursor(page.next_cursor) for page in answered if page.next_cursor is not None)
    upto = _end(shut_off, _end(placed, min(ends, default=None), limit), limit)
    return admin.ListGroupsAnswer(
        groups=tuple(group for place, group in placed if upto is None or place <= upto),
        next_cursor=None if upto is None else order.cursor_of(upto),
        unavailable_shards=unavailable,
        damaged_groups=tuple(group for place, group in shut_off if upto is None or place <= upto),
        totals=_sum_of([page.totals for page in answered if page.totals is not None]),
    )


def _end(found: Sequence[tuple[Place, object]], upto: Place | None, limit: int) -> Place | None:
    """Up to which place the page goes, if it may have so many of these; None: up to the last."""
    within = [place for place, _ in found if upto is None or place <= upto]
    return within[limit - 1] if len(within) > limit else upto


def _sum_of(totals: Sequence[admin.GroupTotals]) -> admin.GroupTotals | None:
    """Of all nodes. A group that is handed over at this moment may count twice, or not at all."""
    if not totals:
        return None
    return admin.GroupTotals(
        group_count=sum(one.group_count for one in totals),
        matching_count=sum(one.matching_count for one in totals),
        by_state=_sum_by_key([one.by_state for one in totals]),
        by_status=_sum_by_key([one.by_status for one in totals]),
        lag=sum(one.lag for one in totals),
        member_count=sum(one.member_count for one in totals),
    )


def _sum_by_key(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    keys = sorted({key for one in counts for key in one})
    return {key: sum(one.get(key, 0) for one in counts) for key in keys}


def why_unavailable(pages: Pages, owners: Sequence[str | None]) -> tuple[admin.UnavailableShard, ...]:
    """The shards whose groups are on none of the pages, in order: why, as their own node says it if that answered."""
    answered = {node_id: page for node_id, page in pages.items() if isinstance(page, admin.ListGroupsAnswer)}
    listed = {shard for page in answered.values() for shard in page.listed_shards or ()}
    said: dict[int, admin.UnavailableShard] = {}
    for node_id, page in answered.items():
        for shard in page.unavailable_shards:
            if shard.shard not in said or owners[shard.shard : shard.shard + 1] == (node_id,):
                said[shard.shard] = shard
    return tuple(
        said.get(shard) or _unlisted(shard, owner, pages) for shard, owner in enumerate(owners) if shard not in listed
    )


def _unlisted(shard: int, owner: str | None, pages: Pages) -> admin.UnavailableShard:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if owner is None:
        detail = f"No node coordinates shard {shard} now; try again."
    elif isinstance(answer := pages.get(owner), Unanswered):
        detail = f"Shard {shard} is coordinated by node {owner!r}, which cannot be asked: {answer.why}."
    else:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        detail = f"Node {owner!r} takes shard {shard} over at this moment; try again."
    return admin.UnavailableShard(shard=shard, error_code=code, error_name=code.name, detail=detail)
