"""An assignor of a program's own, which is not installed: what `range` says, under another name."""

import threading

from rallypoint.assignors.range import RangeAssignor


class OwnAssignor(RangeAssignor):
    """For the option `assignor`, as `tests.spark_bridge.own_assignor:OwnAssignor`."""

    name = "own"


class HoldsALock(OwnAssignor):
    """Cannot be pickled, as one with a client or a connection cannot."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Exits(OwnAssignor):
    """Ends the process that makes one."""

    def __init__(self) -> None:
        raise SystemExit(7)


READY = OwnAssignor()
LOCKED = HoldsALock()
