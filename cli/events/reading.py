"""Reads the event stream of one node, which tells the events of all, and goes on at another node after a loss."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rallypoint.cli.calls.client import Client
from rallypoint.cli.calls.event_stream import Event, events_of
from rallypoint.cli.calls.failures import CallFailed, Unreachable
from rallypoint.member.core.route import may_go_on_at

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
    ) -> None:
        """Ask nobody yet.

        query: the parameters, with the cursor to begin at.
        follows: whether to go on when all that was kept is told, or the stream has ended.
        lost: called for each loss, if another node is asked or the same one again.
        """
        self._client = client
        self._query = dict(query)
        self._follows = follows
        self._lost = lost
        self._sleep = sleep
        self._urls = list(client.urls)

    def events(self) -> Iterator[dict[str, Any]]:
        """The events, in the order in which they are told. Raises CallFailed.

        Unreachable comes only if it is not followed, and after every node that is known was asked.
        """
        failures = 0
        while True:
            url = self._urls[0]
            failure: Unreachable | None = None
            try:
                with self._client.stream(url, self._query) as lines:
                    for event in events_of(lines):
                        failures = 0
                        yield from self._told(url, event)
                        # The first comment says that all that was kept is told, or that there is nothing to tell.
                        if event.data is None and not self._follows:
                            return
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
