"""The demo's main program: real flights, the service, two Spark drivers, a kill, and the proof. `--help` for options.

Exit status: 0 all is well, 1 a record was lost or the run failed, 2 something is missing or it was called wrongly,
130 interrupted.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from examples.flights import requirements

PARTITIONS_MIN, PARTITIONS_MAX = 4, 64
"""With fewer, driver B has too few tasks in a batch to be caught in the middle of one."""
MARKER = ".rallypoint-demo"


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.flights.demo",
        description="Share 336,776 real flights out between two Spark drivers, kill one of them in mid-work, and prove"
        " that no flight is lost. `make demo` runs this.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), metavar="DIR",
        help="folder for data, logs, report.json and ownership.svg; emptied at the start if an earlier run made it"
        " (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--partitions", type=partition_count, default=12, metavar="N",
        help=f"partitions of the topic, {PARTITIONS_MIN} to {PARTITIONS_MAX} (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--kill-when", choices=("running", "written"), default="running",
        help="when driver B is killed: while the tasks of a batch run, or when a batch's output is in place and its"
        " end not committed yet, so that it is read twice (default: %(default)s)",
    )  # fmt: skip
    return parser


def partition_count(text: str) -> int:
    """The value of --partitions."""
    if not (text.isdecimal() and PARTITIONS_MIN <= int(text) <= PARTITIONS_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {PARTITIONS_MIN} to {PARTITIONS_MAX}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the exit status."""
    given = make_parser().parse_args(arguments)
    missing = requirements.missing_parts()
    if missing:
        return _fail("\n".join(missing), 2)
    if problem := make_folder(given.output):
        return _fail(problem, 2)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        return play(given)
    except KeyboardInterrupt:
        return _fail("Interrupted. Everything that was started has ended.", 130)


def play(given: argparse.Namespace) -> int:
    """Write the topic, run the story, tell what came of it; the exit status."""
    # Only now: without these packages `requirements` has said so already.
    from rich.console import Console  # noqa: PLC0415

    from examples.flights import dataset, report  # noqa: PLC0415
    from examples.flights.batches import Layout  # noqa: PLC0415
    from examples.flights.closing import tell  # noqa: PLC0415
    from examples.flights.run import Failed, Run  # noqa: PLC0415
    from examples.flights.screen import make_screen  # noqa: PLC0415
    from examples.flights.story import Stuck  # noqa: PLC0415

    began = time.monotonic()
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    layout = Layout(given.output.resolve())
    console.print("Reading the flights that left New York City in 2013.")
    try:
        flights = dataset.read_flights()
    except dataset.DataMissing as error:
        return _fail(str(error), 2)
    console.print(f"Writing {len(flights):,} flights as the topic flights, {given.partitions} partitions.")
    placement = dataset.place(dataset.keys_of(flights), given.partitions)
    sizes = dataset.write_topic(flights, placement, layout.topics, given.partitions)

    run_began = time.monotonic()

    def clock() -> int:
        return int((time.monotonic() - run_began) * 1000)

    try:
        with make_screen(console, clock) as screen:
            seen = Run(
                layout,
                partitions=given.partitions,
                records=len(flights),
                kill_when=given.kill_when,
                screen=screen,
                clock=clock,
            ).play()
    except (Failed, Stuck) as error:
        return _fail(f"The demo failed: {error}", 1)
    outcome = report.judge(layout, seen, flights, sizes, seconds=time.monotonic() - began)
    paths = [os.path.relpath(path) for path in report.save(outcome, layout.root)]
    return tell(console, outcome, dataset.read_airlines(), paths)


def make_folder(root: Path) -> str | None:
    """Make the output folder, empty. Only what an earlier run made is deleted: the text says why it cannot be used."""
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        if not (root / MARKER).is_file():
            return f"{root} is there already and was not made by the demo; name another folder with --output."
        shutil.rmtree(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        (root / MARKER).write_text("Made by Rallypoint's demo, which empties this folder when it runs again.\n")
    except OSError as error:
        return f"The folder {root} cannot be made: {error.strerror}."
    return None


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Once: a second Ctrl-C must not interrupt the ending of the children."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt


def _fail(text: str, status: int) -> int:
    print(text, file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
