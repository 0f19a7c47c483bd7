"""Which node to call: the coordinator if it is known, else the node to ask for it."""

from urllib.parse import urlsplit

REMEMBERED_MAX = 8
"""Owners' URLs kept beside the configured ones, so that a group survives the loss of every configured node but not
without bound."""


class Route:
    """The coordinator's URL, once learned, and the nodes to ask for it: first the configured, then former owners.

    `draining`: the nodes that said that they stop. They are asked last, and so are those that did not answer.
    """

    def __init__(self, configured: tuple[str, ...]) -> None:
        self._configured = configured
        self._owners: list[str] = []
        self._silent: set[str] = set()
        self._first = configured[0]
        self._round: list[str] = []
        self.draining: set[str] = set()
        self.url: str | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node worth asking, in the order in which they became known."""
        return (*self._configured, *(url for url in self._owners if url not in self._configured))

    @property
    def some_node_answers(self) -> bool:
        """Whether a node answered when it was last called, or was not called yet."""
        return any(url not in self._silent for url in self.nodes)

    def begin_round(self) -> None:
        """Ask every node once from here on: first the one that answered last, and last those that may be gone."""
        nodes = self.nodes
        start = nodes.index(self._first) if self._first in nodes else 0
        self._round = sorted((*nodes[start:], *nodes[:start]), key=self._may_be_gone)

    def next_node(self) -> str:
        """The next node to ask; after the last one of a round another round begins."""
        if not self._round:
            self.begin_round()
        return self._round.pop(0)

    def knows_another(self, url: str) -> bool:
        """Whether a node besides `url` is known that may well be there."""
        return any(node != url and not self._may_be_gone(node) for node in self.nodes)

    def found_by(self, url: str) -> None:
        """The node at `url` named the coordinator: ask it first the next time."""
        self._first = url

    def heard(self, url: str) -> None:
        """The node at `url` answered."""
        self._silent.discard(url)

    def not_heard(self, url: str) -> None:
        """The node at `url` did not answer, or its channel is lost."""
        if url in self.nodes:
            self._silent.add(url)

    def is_silent(self, url: str) -> bool:
        """Whether the node at `url` did not answer when it was last called."""
        return url in self._silent

    def learn(self, url: str) -> None:
        """This is the coordinator; remembered for later look-ups too."""
        self.url = url.rstrip("/")
        if self.url in self._owners:
            self._owners.remove(self.url)
        self._owners.insert(0, self.url)
        del self._owners[REMEMBERED_MAX:]
        self._silent &= set(self.nodes)
        self.draining &= set(self.nodes)

    def forget(self, url: str) -> None:
        """`url` is not, or no longer, the coordinator. Nothing happens if another one was learned meanwhile."""
        if self.url == url:
            self.url = None

    def _may_be_gone(self, url: str) -> bool:
        return url in self._silent or url in self.draining


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
