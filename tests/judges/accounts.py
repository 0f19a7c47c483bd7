"""What members of a group read, held against what was committed: nothing that is committed is read again.

A member reads a partition from where it was committed when the member got it, and on from there, record after record.
Commits are seen from outside, by the service's API, and never go back. So records that are read twice are those alone
whose reader lost its partition before it had committed them.
"""

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

from tests.judges.threads import meanwhile

LOOK_SECONDS = 0.2
ASK_SECONDS = 5.0
GRACE_SECONDS = 1.0
"""A client may have asked for what is committed so long before it says what it has."""


class Stint(NamedTuple):
    """Between two lines in which a member says what it has: when it said the first, by its clock, and what it read."""

    member: str
    began: float
    offsets: dict[int, list[int]]
    """By partition, in the order in which it read them."""


class Seen(NamedTuple):
    """The group's committed offsets by partition, at this time at the latest, by the wall clock."""

    at: float
    offsets: Mapping[int, int]


def wrong_commits(seen: Sequence[Seen]) -> list[str]:
    """A sentence for each committed offset that went back, or away."""
    return [
        f"partition {partition} was committed to {offset}, then to {later.offsets.get(partition)}"
        for earlier, later in pairwise(seen)
        for partition, offset in earlier.offsets.items()
        if later.offsets.get(partition, -1) < offset
    ]


def wrong_reads(stints: Iterable[Stint], seen: Sequence[Seen]) -> list[str]:
    """A sentence for each partition that was read from before its committed offset, or not record after record."""
    wrong = []
    for stint in stints:
        known = [one.offsets for one in seen if one.at < stint.began - GRACE_SECONDS]
        committed = known[-1] if known else {}
        for partition, offsets in stint.offsets.items():
            if offsets[0] < committed.get(partition, 0):
                begin = f"began partition {partition} at {offsets[0]}"
                wrong.append(f"{stint.member} {begin}, which was committed to {committed[partition]}")
            leaps = [(one, other) for one, other in pairwise(offsets) if other != one + 1]
            wrong += [f"{stint.member} read {other} of partition {partition} after {one}" for one, other in leaps]
    return wrong


@contextmanager
def watching_commits(service_url: str, group_id: str, topic: str) -> Iterator[list[Seen]]:
    """Look at them all the time. While the service is away there is nothing to be seen."""
    seen: list[Seen] = []

    def watch(stopped: threading.Event) -> None:
        url = f"{service_url}/v1/groups/{group_id}/offsets"
        while not stopped.wait(LOOK_SECONDS):
            try:
                with urllib.request.urlopen(url, timeout=ASK_SECONDS) as answer:
                    offsets = json.load(answer)["offsets"].get(topic, {})
            except (urllib.error.URLError, http.client.HTTPException, OSError):
                continue
            seen.append(Seen(time.time(), {int(number): one["offset"] for number, one in offsets.items()}))

    with meanwhile(watch):
        yield seen
