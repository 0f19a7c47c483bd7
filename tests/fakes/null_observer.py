"""An observer of the service for tests that look at something else."""

from rallypoint.coordinator.core.effects import Event
from rallypoint.coordinator.storage.contract import AppendMetrics


class NullObserver:
    """Ignores everything."""

    def event(self, event: Event) -> None:
        pass

    def appended(self, append_metrics: AppendMetrics) -> None:
        pass
