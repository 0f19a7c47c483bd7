"""`make cluster`: three nodes and three members of etcd on this machine, faults under a load, and an audit."""

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from examples.handover.command_line import STATUSES, begin, fail
from examples.handover.requirements import missing_packages

PACKAGES = ("grpc", "psutil", "rich")
GROUPS = 18
PARTITIONS = 4
INTERVAL_MS = 200
SHOWN_MAX = 20
"""So many problems are printed; report.json has all of them."""


def count(text: str) -> int:
    """The value of an option that counts."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= 1000):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")
    return int(text)


def _parser(faults: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.cluster", description=__doc__, epilog=STATUSES, allow_abbrev=False
    )
    parser.add_argument(
        "--output", type=Path, default=Path("cluster-output"), metavar="DIR",
        help="folder for etcd's data, logs, books, report.json and coordinators.svg; emptied at the start if an earlier"
        " run made it (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--rounds", type=count, default=1, metavar="N", help="how often each fault comes (default: 1)")
    parser.add_argument(
        "--faults", nargs="+", choices=faults, default=list(faults), help="which faults (default: all, in this order)"
    )
    parser.add_argument(
        "--groups", type=count, default=GROUPS, metavar="N", help="groups of the load (default: %(default)s)"
    )
    parser.add_argument(
        "--interval-ms", type=count, default=INTERVAL_MS, metavar="MS",
        help="time between the commits of a member (default: %(default)s)",
    )  # fmt: skip
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the exit status."""
    if missing := missing_packages(PACKAGES):
        return fail(missing, 2)
    from examples.cluster.run import FAULTS  # noqa: PLC0415 - it imports what may be missing

    given = _parser(FAULTS).parse_args(arguments)
    return begin([], given.output, lambda: _play(given))


def _play(given: argparse.Namespace) -> int:
    from examples.cluster.report import save, table_of  # noqa: PLC0415
    from examples.cluster.run import Plot, Run, judge, picture_of  # noqa: PLC0415
    from examples.cluster.servers import Failed, find_etcd  # noqa: PLC0415
    from rallypoint.coordinator.storage.etcd.client import EtcdError  # noqa: PLC0415

    console = Console()
    etcd = find_etcd()
    if etcd is None:
        return fail("There is no etcd, and none could be built.", 2)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - began:6.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)

    plot = Plot(etcd, given.output.resolve(), given.faults, given.rounds, given.groups, PARTITIONS, given.interval_ms)
    try:
        record = asyncio.run(Run(plot, say).play())
    except (Failed, EtcdError) as error:
        return fail(f"The run failed: {error}\nThe logs are in {os.path.relpath(given.output / 'logs')}.", 1)
    found = judge(record, plot)
    paths = save(given.output, found, picture_of(record, found))
    console.print(table_of(found))
    for sentence in (*found.sentences, *(f"Slower than by design: {one}." for one in found.slow)):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    if found.slow:
        load = f"its load average is {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        console.print(f"A busy machine makes pauses longer: {load}.", highlight=False, soft_wrap=True)
    for problem in found.problems[:SHOWN_MAX]:
        console.print(f"[bold red]✗[/] {escape(problem)}", soft_wrap=True)
    if not found.problems:
        console.print(
            "[green]✓[/] Nothing acknowledged is lost, no offset went back, nothing was written under an old epoch,"
            " no generation was made twice, and no group rebalanced.",
            soft_wrap=True,
        )
    elif len(found.problems) > SHOWN_MAX:
        console.print(f"[bold red]✗[/] and {len(found.problems) - SHOWN_MAX} more, in report.json")
    written = ", ".join(os.path.relpath(path) for path in paths)
    console.print(f"{time.monotonic() - began:.0f} s in all. Written: {written}", markup=False, soft_wrap=True)
    return 1 if found.problems else 0
