"""What is reported with the results: machine, versions, load, commit. Results are meaningless without them."""

import os
import platform
import sqlite3
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

import psutil

from bench.metrics import percentile
from rallypoint.coordinator.compiled import is_compiled

LIBRARIES = ("aiohttp", "uvloop", "pydantic")
ROOT = Path(__file__).resolve().parent.parent
FLUSHES = 50
MEASURED = (
    "protocol",
    "assignors",
    "coordinator",
    "cli",
    "spark_bridge",
    "bench/*.py",
    "bench/cluster",
    "bench/spark",
    "pyproject.toml",
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The machine and the time of the measurement. `flush_p50_ms`: how long the disk takes to make 4 KiB durable."""

    at: str
    commit: str
    cpu_model: str
    cores: int
    memory_bytes: int
    kernel: str
    versions: dict[str, str]
    file_system: str
    flush_p50_ms: float
    load_average: tuple[float, float, float]


def look_around(data_directory: Path) -> Surroundings:
    """The surroundings now; `data_directory` is where the stores are made."""
    return Surroundings(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit(),
        cpu_model=cpu_model(),
        cores=psutil.cpu_count() or 1,
        memory_bytes=int(psutil.virtual_memory().total),
        kernel=f"{platform.system()} {platform.release()}",
        versions={
            "rallypoint": version("rallypoint") + (", compiled" if is_compiled() else ""),
            "python": platform.python_version(),
            **{name: version(name) for name in LIBRARIES},
            "sqlite": sqlite3.sqlite_version,
        },
        file_system=file_system(data_directory),
        flush_p50_ms=flush_p50_ms(data_directory),
        load_average=os.getloadavg(),
    )


def commit() -> str:
    """The commit that is checked out, with `+` where what is measured differs from it; "unknown" outside a clone."""
    described = _git("rev-parse", "--short=12", "HEAD")
    if not described:
        return "unknown"
    return described + ("+" if _git("status", "--porcelain", "--", *MEASURED) else "")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def cpu_model() -> str:
    """The processor's name for people."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def file_system(directory: Path) -> str:
    """Kind of file system that holds the directory: a flush to `tmpfs` costs nothing, and proves nothing."""
    path = directory.resolve()
    holders = [part for part in psutil.disk_partitions(all=True) if path.is_relative_to(part.mountpoint)]
    return max(holders, key=lambda part: len(part.mountpoint)).fstype if holders else "unknown"


def flush_p50_ms(directory: Path) -> float:
    """The median time of a write of 4 KiB and its fdatasync, as a commit to the store needs at least one of."""
    path = directory / "flush"
    times_s = []
    with path.open("wb", buffering=0) as file:
        for _ in range(FLUSHES):
            began = perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            times_s.append(perf_counter() - began)
    path.unlink()
    return percentile(times_s, 50) * 1000
