"""The command line of `rallypoint groups`: the list of groups, page by page, filtered and sorted by the service."""

import argparse
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from rallypoint.cli.calls.client import PAGE_ROWS, Client, Json
from rallypoint.cli.calls.failures import STATUSES, CallFailed
from rallypoint.cli.look.conditions import above
from rallypoint.cli.output.columns import COLOURS, Column, Row, names, number, since, text, word
from rallypoint.cli.output.text import counted, list_text, shown
from rallypoint.cli.output.times import duration
from rallypoint.cli.output.view import Form, View
from rallypoint.cli.running import add_calling, run_view
from rallypoint.cli.words import number_flag

SORTS = ("group_id", "lag", "member_count", "state", "status", "last_commit", "last_rebalance")
STATUS_NAMES = ("ok", "warn", "err")


def notes_of(row: Row) -> str:
    """What is unusual about a group, in a few words."""
    notes = []
    if row.get("frozen_until_ms"):
        notes.append("frozen")
    for key, words in (
        ("held_count", "{} held"),
        ("awaited_count", "awaits {}"),
        ("flapping_member_count", "{} flapping"),
        ("idle_member_count", "{} idle"),
        ("unowned_partition_count", "{} unowned"),
    ):
        if row.get(key):
            notes.append(words.format(f"{row[key]:,}"))
    return ", ".join(notes)


GROUP_COLUMNS: tuple[Column, ...] = (
    text("group_id", "GROUP"),
    word("state", "STATE"),
    word("status", "STATUS", colours=COLOURS),
    number("member_count", "MEMBERS", rank=1),
    number("lag", "LAG"),
    since("last_commit_at_ms", "LAST COMMIT", rank=2),
    since("last_rebalance_at_ms", "LAST REBALANCE", rank=3),
    Column("notes", "NOTES", lambda value, _: str(value), shrinks=True, rank=1, of=notes_of),
    names("topics", "TOPICS", rank=4),
    number("generation_id", "GENERATION", wide=True),
    number("rebalance_id", "REBALANCES", wide=True),
    number("committed_partition_count", "COMMITTED", wide=True),
    number("useful_member_count", "USEFUL MEMBERS", wide=True),
    text("protocol_type", "TYPE", wide=True),
    Column(
        "frozen_until_ms",
        "FREEZE ENDS",
        lambda value, now_ms: f"in {duration(max(0, value - now_ms))}",
        right=True,
        wide=True,
    ),
)

NO_FILTERS = frozenset({"sort", "descending", "totals", "limit"})
"""Parameters that leave out no group."""


def add_groups(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "List groups. The service filters and sorts; pages are printed as they come, so a list may be of any length."
    )
    parser.epilog = STATUSES + " A list that lacks groups, since the service could not list them, ends with 1."
    parser.add_argument("--state", metavar="STATE", help="only groups in this state, such as Stable or Empty")
    parser.add_argument("--prefix", metavar="TEXT", help="only groups whose id begins so")
    parser.add_argument("--search", metavar="TEXT", help="only groups whose id has this text in it, in any case")
    parser.add_argument("--topic", metavar="TOPIC", help="only groups that subscribe to the topic or have committed it")
    parser.add_argument("--lag", type=above, metavar="'>N'", help="only groups whose lag is known and above N")
    parser.add_argument("--status", choices=STATUS_NAMES, help="only groups of this status")
    parser.add_argument(
        "--frozen", action=argparse.BooleanOptionalAction, default=None, help="only groups that are frozen, or are not"
    )
    parser.add_argument("--sort", choices=SORTS, help="the order. Default: group_id.")
    parser.add_argument("-r", "--descending", action="store_true", help="turn the order round")
    parser.add_argument("--limit", type=number_flag(1, 10**9), metavar="N", help="the first N groups alone")
    parser.add_argument("--totals", action="store_true", help="print also how many groups there are, and their lag")
    add_calling(parser, watches=True)


def query_of(given: argparse.Namespace) -> dict[str, Any]:
    """The parameters of the list: those alone that were asked for."""
    query = {
        "state": given.state,
        "prefix": given.prefix,
        "search": given.search,
        "topic": given.topic,
        "lag_above": given.lag,
        "status": given.status,
        "frozen": given.frozen,
        "sort": given.sort,
        "descending": True if given.descending else None,
        "totals": True if given.totals else None,
        "limit": None if given.limit is None else min(given.limit, PAGE_ROWS),
    }
    return {name: value for name, value in query.items() if value is not None}


def run_groups(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""
    return run_view(given, lambda client: groups_view(client, query_of(given), given.limit))


class GroupPages:
    """The rows of a list, and what its pages say besides."""

    def __init__(self, client: Client, query: dict[str, Any]) -> None:
        self._pages = client.pages("list_groups", query=query)
        self.totals: Json | None = None
        self._unavailable: dict[int, str] = {}
        self._damaged: dict[str, str] = {}

    def rows(self) -> Iterator[Row]:
        """The groups, as pages come. Raises CallFailed at the end of a list that lacks groups."""
        for page in self._pages:
            self.totals = page.get("totals") or self.totals
            self._unavailable |= {one["shard"]: one["detail"] for one in page.get("unavailable_shards", ())}
            self._damaged |= {one["group_id"]: one["detail"] for one in page.get("damaged_groups", ())}
            yield from page["groups"]

    def check_complete(self) -> None:
        """Raises CallFailed if groups are missing, with the first reason."""
        if self._unavailable:
            shards = list_text([str(shard) for shard in sorted(self._unavailable)])
            why = shown(next(iter(self._unavailable.values())))
            raise CallFailed(
                f"The list lacks the groups of {counted(len(self._unavailable), 'shard')} ({shards}): {why}"
            )
        if self._damaged:
            why = shown(next(iter(self._damaged.values())))
            raise CallFailed(
                f"The list lacks {counted(len(self._damaged), 'damaged group')}"
                f" ({list_text(list(self._damaged))}): {why}"
            )


def groups_view(client: Client, query: dict[str, Any], limit: int | None) -> View:
    """The list that the parameters ask for."""
    pages = GroupPages(client, query)

    def rows() -> Iterator[Row]:
        yield from islice(pages.rows(), limit)
        pages.check_complete()

    def totals(_: Form) -> Sequence[str]:
        return [] if pages.totals is None else ["", totals_line(pages.totals)]

    empty = "There are no such groups." if query.keys() - NO_FILTERS else "There are no groups yet."
    return View(GROUP_COLUMNS, rows(), "group_id", below=totals, empty=empty)


def totals_line(totals: Json) -> str:
    """How many there are, in a sentence."""
    by_state = ", ".join(f"{count:,} {shown(state)}" for state, count in totals["by_state"].items() if count)
    by_status = ", ".join(f"{count:,} {shown(status)}" for status, count in totals["by_status"].items() if count)
    lag = "" if totals.get("lag") is None else f"; lag {totals['lag']:,}"
    return (
        f"{totals['matching_count']:,} of {counted(totals['group_count'], 'group')}"
        f" with {counted(totals['member_count'], 'member')}{lag}; {by_state or 'none'}"
        + (f"; {by_status}" if by_status else "")
    )
