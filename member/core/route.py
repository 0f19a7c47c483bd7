"""Which node to call: the coordinator if it is known, else the node to ask for it."""

from urllib.parse import urlsplit

REMEMBERED_MAX = 8
"""Owners' URLs kept beside the configured ones, so that a group survives the loss of every configured node but not
without bound."""


class Route:
    """The coordinator's URL, once learned, and the nodes to ask for it: first the configured, then former owners."""

    def __init__(self, configured: tuple[str, ...]) -> None:
        self._configured = configured
        self._owners: list[str] = []
        self._last_index = -1
        self.url: str | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node worth asking, in the order of asking."""
        return (*self._configured, *(url for url in self._owners if url not in self._configured))

    def next_node(self) -> str:
        """The next node to ask; after the last one the first."""
        self._last_index = (self._last_index + 1) % len(self.nodes)
        return self.nodes[self._last_index]

    def keep_last(self) -> None:
        """The node asked last answered: ask it first the next time."""
        self._last_index -= 1

    def learn(self, url: str) -> None:
        """This is the coordinator; remembered for later look-ups too."""
        self.url = url.rstrip("/")
        if self.url in self._owners:
            self._owners.remove(self.url)
        self._owners.insert(0, self.url)
        del self._owners[REMEMBERED_MAX:]

    def forget(self, url: str) -> None:
        """`url` is not, or no longer, the coordinator. Nothing happens if another one was learned meanwhile."""
        if self.url == url:
            self.url = None


def is_usable(url: str) -> bool:
    """Whether `url` is an absolute http or https URL, whose host and port can be looked up."""
    if not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        # What asks for an address encodes the host so, and fails if a label is empty or too long.
        return parts.scheme in {"http", "https"} and bool((parts.hostname or "").encode("idna")) and parts.port != 0
    except ValueError:  # also of a port that is none
        return False


def lowers_scheme(asked: str, named: str) -> bool:
    """Whether a node asked over https sends us to plain http, where the token could be read on the way."""
    return urlsplit(asked).scheme == "https" and urlsplit(named).scheme != "https"


def may_go_on_at(asked: str, named: str) -> bool:
    """Whether a call to `asked` may follow its answer to `named`, with the token."""
    return is_usable(named) and not lowers_scheme(asked, named)
