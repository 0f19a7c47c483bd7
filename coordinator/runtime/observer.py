"""Who is told what happens, once it may be known: metrics, logs, pushes to come."""

from typing import Protocol

from rallypoint.coordinator.core.effects import Event
from rallypoint.coordinator.storage.contract import AppendFigures


class Observer(Protocol):
    """Told on the event loop, in order; it neither waits nor raises."""

    def event(self, event: Event) -> None:
        """Something happened to a group, and what it rests on is durable."""

    def appended(self, figures: AppendFigures) -> None:
        """The store wrote something durably."""

    def parked(self, delta: int) -> None:
        """So many more calls are held back, or fewer."""


class NullObserver:
    """Nobody watches."""

    def event(self, event: Event) -> None:
        """Nothing."""

    def appended(self, figures: AppendFigures) -> None:
        """Nothing."""

    def parked(self, delta: int) -> None:
        """Nothing."""
