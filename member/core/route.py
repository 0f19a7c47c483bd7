"""Which node to talk to: what is known about the coordinator's place, and whom to ask when nothing is."""

from urllib.parse import urlsplit

REMEMBERED_MAX = 8
"""Owners' URLs kept beside the configured ones, so that a group survives the loss of every configured node but not
without bound."""


class Route:
    """The coordinator's URL, once learned, and the nodes to ask for it: first the configured, then former owners."""

    def __init__(self, configured: tuple[str, ...]) -> None:
        self._configured = configured
        self._owners: list[str] = []
        self._asked = -1
        self.url: str | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node worth asking, in the order of asking."""
        return (*self._configured, *(url for url in self._owners if url not in self._configured))

    def next_node(self) -> str:
        """The next node to ask, round and round."""
        self._asked = (self._asked + 1) % len(self.nodes)
        return self.nodes[self._asked]

    def found_by_asking(self) -> None:
        """The node asked last answered: ask it first the next time."""
        self._asked -= 1

    def learn(self, url: str) -> None:
        """This is the coordinator; remembered for later look-ups too."""
        self.url = url.rstrip("/")
        if self.url in self._owners:
            self._owners.remove(self.url)
        self._owners.insert(0, self.url)
        del self._owners[REMEMBERED_MAX:]

    def forget(self, url: str) -> None:
        """`url` is not, or no longer, the coordinator. Nothing happens where another one was learned meanwhile."""
        if self.url == url:
            self.url = None


def is_usable(url: str) -> bool:
    """Whether `url` is an absolute http or https URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


def lowers_scheme(asked: str, named: str) -> bool:
    """Whether a node asked over https sends us to plain http, where the token could be read on the way."""
    return urlsplit(asked).scheme == "https" and urlsplit(named).scheme != "https"
