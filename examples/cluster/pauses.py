"""How long the members waited while their groups moved from node to node. Pure.

A group's pause is its longest commit of those that were under way while its shard changed hands.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from examples.cluster.books import Assigned, Commit, Entry

MARGIN_MS = 500
"""A commit that begins so soon after the last change may wait for the node to load the shard."""


class OwnerChange(NamedTuple):
    """The owner of a shard changed; None: it has none."""

    at_ms: int
    shard: int
    node_id: str | None


class Episode(NamedTuple):
    """Something that was done to the cluster, until all shards were where they belong. kind: what."""

    kind: str
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class EpisodeFindings:
    """What the members saw of all episodes of a kind.

    times: how often it was done.
    moved: groups whose shard changed hands, each as often as it did so in another episode.
    median_ms, p90_ms, worst_ms: of their pauses; 0 where none moved.
    rebalances: generations that were assigned meanwhile.
    """

    kind: str
    times: int
    moved: int
    median_ms: int
    p90_ms: int
    worst_ms: int
    rebalances: int
    acknowledged: int
    refused: int


def findings_of(
    kind: str,
    episodes: Sequence[Episode],
    changes: Sequence[OwnerChange],
    entries: Sequence[Entry],
    shards: Mapping[str, int],
) -> EpisodeFindings:
    """What was seen of the episodes of this kind. shards: of each group."""
    mine = [episode for episode in episodes if episode.kind == kind]
    commits = [entry for entry in entries if isinstance(entry, Commit)]
    ended = [commit for commit in commits if any(_has(episode, commit.ended_ms) for episode in mine)]
    pauses = sorted(pause for episode in mine for pause in pauses_in(episode, changes, commits, shards))
    return EpisodeFindings(
        kind,
        len(mine),
        len(pauses),
        quantile(pauses, 0.5),
        quantile(pauses, 0.9),
        quantile(pauses, 1.0),
        len(
            {
                (entry.group_id, entry.generation_id)
                for entry in entries
                if isinstance(entry, Assigned) and any(_has(episode, entry.at_ms) for episode in mine)
            }
        ),
        sum(commit.error is None for commit in ended),
        sum(commit.error is not None for commit in ended),
    )


def quantile(ordered: Sequence[int], share: float) -> int:
    """The least of the ordered values that is not below the share of them; 0 of none."""
    if not ordered:
        return 0
    return ordered[max(-int(-len(ordered) * share // 1), 1) - 1]


def usual_of(entries: Iterable[Entry]) -> tuple[int, int]:
    """How long a commit took, median and 90%, whatever was done: most are of groups that stayed where they were."""
    times = sorted(entry.ended_ms - entry.began_ms for entry in entries if isinstance(entry, Commit))
    return quantile(times, 0.5), quantile(times, 0.9)


def _has(episode: Episode, at_ms: int) -> bool:
    return episode.began_ms <= at_ms < episode.ended_ms


def pauses_in(
    episode: Episode, changes: Iterable[OwnerChange], commits: Sequence[Commit], shards: Mapping[str, int]
) -> list[int]:
    """How long each group waited whose shard changed hands in the episode, in milliseconds. shards: of each group."""
    times: dict[int, list[int]] = {}
    for change in changes:
        if _has(episode, change.at_ms):
            times.setdefault(change.shard, []).append(change.at_ms)
    pauses = []
    for group_id, shard in shards.items():
        if shard in times:
            first_ms, last_ms = min(times[shard]) - MARGIN_MS, max(times[shard]) + MARGIN_MS
            longest_ms = longest_commit_ms(commits, group_id, first_ms, last_ms)
            pauses += [] if longest_ms is None else [longest_ms]
    return pauses


def longest_commit_ms(commits: Iterable[Commit], group_id: str, first_ms: int, last_ms: int) -> int | None:
    """Of the group's commits that were under way between these times; None where there was none."""
    return max(
        (
            commit.ended_ms - commit.began_ms
            for commit in commits
            if commit.group_id == group_id and commit.began_ms <= last_ms and commit.ended_ms >= first_ms
        ),
        default=None,
    )


class Span(NamedTuple):
    """A shard belonged to a node from `start_ms` up to `end_ms`."""

    shard: int
    node_id: str
    start_ms: int
    end_ms: int


def spans_of(changes: Iterable[OwnerChange], end_ms: int) -> list[Span]:
    """Who coordinated which shard. A node that takes what it has goes on with it."""
    spans: list[Span] = []
    open_since: dict[int, OwnerChange] = {}
    for change in changes:
        before = open_since.get(change.shard)
        if before is not None and before.node_id == change.node_id:
            continue
        if before is not None and before.node_id is not None:
            spans.append(Span(change.shard, before.node_id, before.at_ms, change.at_ms))
        open_since[change.shard] = change
    held = [
        Span(last.shard, last.node_id, last.at_ms, end_ms) for last in open_since.values() if last.node_id is not None
    ]
    return spans + held
