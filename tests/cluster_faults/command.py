"""`make cluster-faults`: nodes and members of etcd, each on a network host of its own, under faults, judged."""

import argparse
import asyncio
import os
import platform
import random
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from examples.cluster.demo import count
from examples.cluster.run import LEASE_TTL_MS
from examples.cluster.servers import Failed, find_etcd
from examples.handover.command_line import STATUSES, begin, fail
from rallypoint.coordinator.storage.etcd.client import EtcdError
from tests.cluster_faults.faults import FAULTS
from tests.cluster_faults.findings import save, sentences_of, table_of
from tests.cluster_faults.network import NotPermitted, enter_own_namespaces, missing_programs
from tests.cluster_faults.planted import copy_without_fence
from tests.cluster_faults.run import Plot, Run, findings_of
from tests.cluster_faults.servers import find_faketime, version_of
from tests.real.porcupine import REMEDY, find_porcupine

NOT_PERMITTED = 3
"""The exit status where this process may not make network namespaces."""
SHOWN_MAX = 20
TABLE_WIDTH = 140
SEEDS = 1_000_000
PARTITIONS = 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster_faults",
        description=__doc__,
        epilog=f"{STATUSES}, {NOT_PERMITTED} this process may not make network namespaces",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--output", type=Path, default=Path("cluster-faults-output"), metavar="DIR",
        help="folder for logs, books, report.json and drawings of histories; emptied at the start if an earlier run"
        " made it (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--rounds", type=count, default=1, metavar="N", help="how often each fault comes (default: 1)")
    parser.add_argument(
        "--faults", nargs="+", choices=FAULTS, default=list(FAULTS), metavar="FAULT",
        help=f"which, in this order: {', '.join(FAULTS)} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, help="of the first round; each later one adds 1 (default: drawn, and printed)"
    )
    parser.add_argument("--groups", type=count, default=9, metavar="N", help="groups of members (default: 9)")
    parser.add_argument(
        "--interval-ms", type=count, default=200, metavar="MS",
        help="time between the commits of a member (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--without-fence", action="store_true",
        help="run nodes whose fence is taken out, to see that the judges object: the exit status has to be 1",
    )  # fmt: skip
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit status."""
    given = _parser().parse_args(arguments)
    faketime = find_faketime() if "clock" in given.faults else None
    missing = missing_programs()
    if "clock" in given.faults and faketime is None:
        missing.append("There is no libfaketime: on Debian or Ubuntu, `sudo apt-get install libfaketime`.")
    if given.seed is None:
        given.seed = random.SystemRandom().randrange(SEEDS)
    return begin(missing, given.output, lambda: _play(given, faketime))


def _play(given: argparse.Namespace, faketime: Path | None) -> int:
    console = Console()
    etcd, porcupine = find_etcd(), find_porcupine()
    if etcd is None or porcupine is None:
        return fail(f"etcd or porcupine is not there, and could not be built. {REMEDY}", 2)
    try:
        enter_own_namespaces()
    except NotPermitted as refused:
        return fail(f"This process may not make network hosts: {refused}", NOT_PERMITTED)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - began:6.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)

    folder = given.output.resolve()
    root = copy_without_fence(folder / "without-fence") if given.without_fence else None
    plot = Plot(
        etcd,
        porcupine,
        folder,
        given.faults,
        given.rounds,
        given.seed,
        given.groups,
        PARTITIONS,
        given.interval_ms,
        root,
        faketime,
    )
    run = Run(plot, say)
    facts = _facts(given, etcd)
    try:
        asyncio.run(run.play())
        failure = None
    except (Failed, EtcdError) as error:
        failure = f"The run failed: {error}\nThe logs are in {os.path.relpath(folder / 'logs')}."
    found = findings_of(run, plot, facts)
    save(folder / "report.json", found)
    wide = Console(width=max(console.width, TABLE_WIDTH))
    wide.print(table_of(found, {name: fault.title for name, fault in FAULTS.items()}))
    for sentence in sentences_of(found):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    for problem in found.problems[:SHOWN_MAX]:
        console.print(f"[bold red]✗[/] {escape(problem)}", soft_wrap=True)
    if len(found.problems) > SHOWN_MAX:
        console.print(f"[bold red]✗[/] and {len(found.problems) - SHOWN_MAX} more, in report.json")
    console.print(
        f"{time.monotonic() - began:.0f} s in all; seeds {given.seed} to {given.seed + max(len(run.rounds) - 1, 0)}."
        f" Written: {os.path.relpath(folder / 'report.json')}",
        markup=False,
        soft_wrap=True,
    )
    if failure is not None:
        return fail(failure, 1)
    return 1 if found.problems else 0


def _facts(given: argparse.Namespace, etcd: Path) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores, {platform.platform()}",
        "python": sys.version.split()[0],
        "etcd": version_of(etcd),
        "lease_ttl_ms": LEASE_TTL_MS,
        "groups": given.groups,
        "interval_ms": given.interval_ms,
        "seed": given.seed,
        "rounds": given.rounds,
        "faults": given.faults,
        "without_fence": given.without_fence,
        "load_average": os.getloadavg(),
    }
