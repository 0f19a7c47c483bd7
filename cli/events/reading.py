"""Reads the event stream of one node, which tells the events of all, and goes on at another node after a loss."""

import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from rallypoint.cli.calls.client import Client
from rallypoint.cli.calls.event_stream import Event, events_of
from rallypoint.cli.calls.failures import CallFailed, Unreachable
from rallypoint.member.core.route import may_go_on_at

QUIET_S = 1.0
"""How long a stream that is not followed may say nothing before it counts as read."""
RETRY_S = 1.0
OPENED = "opened"
NODE_FOLLOWED = "node_followed"

OnLost = Callable[[CallFailed, str], None]
"""Told why a stream broke off, and at which URL it goes on."""


class Reading:
    """One stream, at one node after the other."""

    def __init__(
        self,
        client: Client,
        query: Mapping[str, Any],
        *,
        follows: bool,
        lost: OnLost,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nobody yet.

        query: the parameters, with the cursor to begin at.
        follows: whether to go on after the stream has ended or was quiet.
        lost: called for each loss, if another node is asked or the same one again.
        """
        self._client = client
        self._query = dict(query)
        self._follows = follows
        self._lost = lost
        self._sleep = sleep
        self._clock = clock
        self._urls = list(client.urls)

    def events(self) -> Iterator[dict[str, Any]]:
        """The events, in the order in which they are told. Raises CallFailed.

        Unreachable comes only if it is not followed, and after every node that is known was asked.
        """
        failures = 0
        began_ms: int | None = None
        while True:
            url = self._urls[0]
            failure: Unreachable | None = None
            try:
                silence_s = None if self._follows else QUIET_S
                with self._client.stream(url, self._query, silence_s=silence_s) as (headers, lines):
                    began_ms = began_ms or _date_ms(headers)
                    kept_at_s = self._clock()
                    for event in events_of(lines):
                        failures = 0
                        yield from self._told(url, event)
                        if self._follows or _was_kept(event, began_ms):
                            kept_at_s = self._clock()
                        elif self._clock() - kept_at_s > QUIET_S:
                            break  # so much happens that it is never quiet
            except Unreachable as error:
                failure = error
            except ValueError as error:
                raise CallFailed(f"{url} tells events that are not JSON: {error}.") from error
            if failure is None and not self._follows:
                return
            failures += 1
            if failure is not None and not self._follows and failures >= len(self._urls):
                raise failure
            self._urls.append(self._urls.pop(0))
            if failure is not None:
                self._lost(failure, self._urls[0])
            if failures >= len(self._urls):
                self._sleep(RETRY_S)

    def _told(self, url: str, event: Event) -> Iterator[dict[str, Any]]:
        if event.cursor is not None:
            self._query["cursor"] = event.cursor
        if event.data is None:
            return
        kind = event.data.get("kind")
        if kind in {OPENED, NODE_FOLLOWED}:
            self._learn(url)
        if kind != OPENED:
            yield event.data

    def _learn(self, url: str) -> None:
        """Know the nodes that run now at the URLs that they announce, besides those that were given."""
        try:
            nodes = self._client.call("describe_cluster")["nodes"]
        except CallFailed:
            return  # what is known is enough for now, and the stream says by itself if it breaks off
        announced = [node["url"].rstrip("/") for node in nodes if node["state"] != "gone" and node["url"]]
        if len(announced) > 1:  # a node by itself may announce what only its host reaches
            self._client.know(one for one in announced if may_go_on_at(url, one))
            self._urls = list(dict.fromkeys([url, *self._client.urls]))


def _date_ms(headers: Mapping[str, str]) -> int | None:
    """The service's clock when the stream began; None if it does not say."""
    try:
        return round(parsedate_to_datetime(headers["date"]).timestamp() * 1_000)
    except (KeyError, ValueError):
        return None


def _was_kept(event: Event, began_ms: int | None) -> bool:
    """Whether an event is from before the stream began, as far as is known."""
    at_ms = None if event.data is None else event.data.get("at_ms")
    return began_ms is None or not isinstance(at_ms, int) or at_ms < began_ms + 1_000  # whole seconds
