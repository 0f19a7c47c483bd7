"""Every limit of a service: those that settings set, and those that are fixed.

The parts hold them as frozen dataclasses, and a fixed limit is the default of a field. They are put together here, so
that a service can be built with any limits (tests use 0, 1 and 2). Operators cannot change what is fixed.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from rallypoint.coordinator.core.commands import Rules
from rallypoint.coordinator.http.channel.channel import ChannelLimits
from rallypoint.coordinator.http.events.stream import StreamLimits
from rallypoint.coordinator.http.limits.admission import ConnectionLimits
from rallypoint.coordinator.http.requests.inputs import BodyLimits
from rallypoint.coordinator.runtime.contract import NodeCapacity
from rallypoint.coordinator.settings import Settings
from rallypoint.coordinator.storage.contract import BatchLimits
from rallypoint.protocol.limits import PREVIEW_SIZE_MAX
from rallypoint.protocol.request_limits import RequestLimits


@dataclass(frozen=True, slots=True)
class Limits:
    """What the parts of a service take."""

    requests: RequestLimits
    bodies: BodyLimits
    connections: ConnectionLimits
    channels: ChannelLimits
    streams: StreamLimits
    rules: Rules
    capacity: NodeCapacity
    preview_size_max: int
    batch: BatchLimits


_PARTS = (RequestLimits, BodyLimits, ConnectionLimits, ChannelLimits, StreamLimits, Rules, NodeCapacity)

_DEFAULTS: Mapping[str, int] = {
    **{field.name: field.default for part in _PARTS for field in fields(part) if field.default is not MISSING},
    "preview_size_max": PREVIEW_SIZE_MAX,
    "storage_batch_writes_max": BatchLimits().writes_max,
    "storage_batch_bytes_max": BatchLimits().bytes_max,
}

NAMES = frozenset(_DEFAULTS)
"""All limits."""

FIXED: Mapping[str, int] = {name: _DEFAULTS[name] for name in sorted(NAMES - Settings.model_fields.keys())}
"""Those that no setting sets, with their values, by name."""

RENAMED: Mapping[str, str] = {
    "sessions_max": "channels_max",
    **{
        f"session_{what}": f"channel_{what}"
        for what in (
            "authenticate_timeout_ms",
            "calls_max",
            "control_frames_max",
            "groups_max",
            "ping_interval_ms",
            "unsent_max_bytes",
        )
    },
}
"""Former names of limits, with what they are called now."""


def limits_of(settings: Settings, given: Mapping[str, int] | None = None) -> Limits:
    """What the settings say, and what is fixed. `given` go before both, whatever they are: for tests."""
    values = {**_DEFAULTS, **settings.model_dump(include=set(NAMES)), **(given or {})}
    return Limits(
        requests=_part(RequestLimits, values),
        bodies=_part(BodyLimits, values),
        connections=_part(ConnectionLimits, values),
        channels=_part(ChannelLimits, values),
        streams=_part(StreamLimits, values),
        rules=_part(Rules, values),
        capacity=_part(NodeCapacity, values),
        preview_size_max=values["preview_size_max"],
        batch=BatchLimits(values["storage_batch_writes_max"], values["storage_batch_bytes_max"]),
    )


def _part(part: Any, values: Mapping[str, int]) -> Any:
    return part(**{field.name: values[field.name] for field in fields(part)})


def words_of_fixed(name: str) -> str | None:
    """Answers an attempt to set what is fixed or has another name now, in a sentence without its full stop.

    None if the name was never that of a setting.
    """
    now = RENAMED.get(name, name)
    if now in FIXED:
        called = "" if now == name else f", which is called {now} now,"
        return f"{name}{called} is fixed at {FIXED[now]}"
    return None if now == name else f"{name} is called {now}"
