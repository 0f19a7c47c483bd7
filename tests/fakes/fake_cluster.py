"""Several fake coordinators of one group: one of them has it, the others send its members there."""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from tests.fakes.fake_coordinator import FakeCoordinator, FakeGroup
from tests.fakes.proxy import Proxy


class FakeCluster:
    """Use as `async with`. Each node is behind a line, which can fall silent; `urls` are those of the lines.

    `owner`: the number of the node that has the group and the topics, at first 0; None for no node.
    """

    def __init__(self, nodes: int = 3, transport: str = "channel", heartbeat_interval_ms: int = 20) -> None:
        self.nodes = [FakeCoordinator(transport=transport) for _ in range(nodes)]
        self.lines: list[Proxy] = []
        self.owner: int | None = 0
        self.group = FakeGroup()
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._stacks = [AsyncExitStack() for _ in range(nodes)]

    async def __aenter__(self) -> Self:
        for node, stack in zip(self.nodes, self._stacks, strict=True):
            await stack.enter_async_context(node)
            line = await stack.enter_async_context(Proxy(node.url))
            self.lines.append(line)
            node.public_url = line.url
            node.group = self.group
            node.owner_url = self._owner_url
            node.heartbeat_interval_ms = self._heartbeat_interval_ms
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stack in self._stacks:
            await stack.aclose()

    @property
    def urls(self) -> tuple[str, ...]:
        """Where the nodes are to be reached."""
        return tuple(line.url for line in self.lines)

    async def kill(self, number: int) -> None:
        """The node and its line are gone; who connects is refused."""
        await self._stacks[number].aclose()

    def _owner_url(self) -> str | None:
        return None if self.owner is None else self.urls[self.owner]
