"""The errors of a load."""

from rallypoint.spark_bridge.errors import BridgeError


class LoadFailed(BridgeError):  # noqa: N818
    """The batch cannot be written. Nothing of it is written, except what a `write` function has committed itself."""


class PositionMoved(BridgeError):  # noqa: N818
    """Another driver has written some of the same rows concurrently. The batch is tried again without them."""
