"""Reads the event streams of all nodes at once, each in a thread, and goes on behind the last event after a loss."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from queue import Queue
from typing import Any

from rallypoint.cli.calls.client import Client
from rallypoint.cli.calls.event_stream import events_of
from rallypoint.cli.calls.failures import CallFailed, Unreachable
from rallypoint.member.core.route import may_go_on_at

RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Told:
    """What a node said: an event, or why its stream ended (None: it was read to its end)."""

    url: str
    event: dict[str, Any] | None = None
    failure: CallFailed | None = None
    is_end: bool = False


def urls_of_nodes(client: Client) -> tuple[str, ...]:
    """Where to read: the node that is asked if it is the only one, else all that run, at the URLs that they announce.

    Raises CallFailed.
    """
    nodes = [node for node in client.call("describe_cluster")["nodes"] if node["state"] != "gone"]
    asked = client.urls[0]
    if len(nodes) <= 1:
        return (asked,)
    return tuple(node["url"].rstrip("/") for node in nodes if node["url"] and may_go_on_at(asked, node["url"]))


class Reader(threading.Thread):
    """Reads the stream of one node into a queue. A daemon: it waits for events, and nothing is lost with it."""

    def __init__(
        self, client: Client, url: str, query: Mapping[str, Any], queue: "Queue[Told]", *, follows: bool, quiet_s: float
    ) -> None:
        """Start nothing yet.

        query: the parameters, with the cursor to begin at.
        follows: whether to go on after the stream has ended or was quiet.
        quiet_s: how long a stream that is not followed may say nothing before it counts as read.
        """
        super().__init__(name=f"events of {url}", daemon=True)
        self._client = client
        self._url = url
        self._query = dict(query)
        self._queue = queue
        self._follows = follows
        self._quiet_s = quiet_s

    def run(self) -> None:
        """Read until the process ends, or the stream does if it is not followed."""
        while True:
            failure = self._read()
            if not self._follows:
                self._queue.put(Told(self._url, failure=failure, is_end=True))
                return
            if failure is not None:
                self._queue.put(Told(self._url, failure=failure))
                if not isinstance(failure, Unreachable):
                    return
            time.sleep(RETRY_S)

    def _read(self) -> CallFailed | None:
        was_opened = False
        try:
            silence_s = None if self._follows else self._quiet_s
            with self._client.stream(self._url, self._query, silence_s=silence_s) as lines:
                for event in events_of(lines):
                    was_opened = True
                    if event.cursor is not None:
                        self._query["cursor"] = event.cursor
                    if event.data is not None and event.data.get("kind") != "opened":
                        self._queue.put(Told(self._url, event.data))
        except CallFailed as error:
            return None if was_opened and not self._follows else error
        return None
