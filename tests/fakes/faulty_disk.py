"""A disk that fails as a test tells it to, under another process: `faulty_disk.c`, compiled and preloaded."""

import mmap
import os
import struct
import subprocess
import sys
from enum import IntEnum
from pathlib import Path

from tests.real.parts import require, require_program

SOURCE = Path(__file__).with_suffix(".c")
FOR_GOOD = 2**31 - 1
_PLAN = struct.Struct("iiiii")


class DiskCall(IntEnum):
    """In the order of the C source."""

    OPEN = 0
    READ = 1
    WRITE = 2
    SYNC = 3
    TRUNCATE = 4
    UNLINK = 5
    RENAME = 6
    MMAP = 7
    LOCK = 8


class FaultyDisk:
    """The plan of a disk's faults. It is a file, so that the test and the process under it see the same."""

    def __init__(self, plan: Path) -> None:
        """Open the plan, or make an empty one."""
        size = _PLAN.size * len(DiskCall)
        if not plan.exists():
            plan.write_bytes(bytes(size))
        with plan.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), size)

    def seen(self, call: DiskCall) -> int:
        """How many calls of the kind there were."""
        return int(_PLAN.unpack_from(self._shared, call * _PLAN.size)[0])

    def fail(self, call: DiskCall, error: int, *, after: int = 0, count: int = FOR_GOOD) -> None:
        """Of the next calls of the kind let `after` go through, then make `count` fail."""
        _PLAN.pack_into(self._shared, call * _PLAN.size, self.seen(call), error, self.seen(call) + after, count, 0)

    def delay(self, call: DiskCall, delay_ms: int) -> None:
        """Let each call of the kind take so long."""
        _PLAN.pack_into(self._shared, call * _PLAN.size, self.seen(call), 0, 0, 0, delay_ms)

    def heal(self) -> None:
        """No more faults."""
        for call in DiskCall:
            self.fail(call, 0, count=0)


def environment_of(folder: Path, below: Path) -> dict[str, str]:
    """What a process needs in its environment so that its calls on files below `below` fail by the plan in `folder`.

    Compiles the shim there. Skips the test if this machine cannot.
    """
    require(sys.platform == "linux", "Linux", "the faulty disk is preloaded as glibc's functions")
    compiler = require_program("cc", "sudo apt-get install --no-install-recommends gcc libc6-dev")
    library = folder / "faulty_disk.so"
    command = [str(compiler), "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    FaultyDisk(folder / "plan")
    return os.environ | {
        "LD_PRELOAD": str(library),
        "FAULTY_DISK_PLAN": str(folder / "plan"),
        "FAULTY_DISK_FOLDER": str(below),
    }
