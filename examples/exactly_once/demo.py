"""The load's main program: orders, PostgreSQL, the service, two Spark drivers, a kill, and the count of the table."""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from examples.exactly_once import private_server
from examples.handover import command_line, requirements
from examples.handover.command_line import fail

if TYPE_CHECKING:
    from rich.console import Console

BATCHES = 20
"""About so many batches make up the topic. Few are soon done; with more, one is found to kill driver B in."""
RECORDS_MIN, RECORDS_MAX = 1_000, 1_000_000
NO_DATABASE = f"""\
There is no PostgreSQL. Name a database in which this program may make a schema:
    python -m examples.exactly_once --postgresql postgresql://USER:PASSWORD@HOST/DATABASE
or install its programs, and it starts one of its own for the time of the run:
    {private_server.REMEDY}"""


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command_line.make_parser(
        "python -m examples.exactly_once",
        "Load orders into PostgreSQL with two Spark drivers of one group, kill one of them in mid-work, and count the"
        " table: each order must be there once.",
        output="exactly-once-output",
        partitions=8,
    )
    parser.add_argument(
        "--postgresql", metavar="URL",
        help="the database, as a URI or as host=... dbname=...; a schema rallypoint_example is made in it, and"
        " recreated by the next run (default: a server of its own for the time of the run, if PostgreSQL is installed)",
    )  # fmt: skip
    parser.add_argument(
        "--records", type=record_count, default=20_000, metavar="N",
        help=f"orders to load, {RECORDS_MIN:,} to {RECORDS_MAX:,} (default: 20,000)",
    )  # fmt: skip
    command_line.add_sink(parser)
    return parser


def record_count(text: str) -> int:
    """The value of --records."""
    if not (text.isdecimal() and RECORDS_MIN <= int(text) <= RECORDS_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {RECORDS_MIN} to {RECORDS_MAX}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the load; the exit status."""
    given = make_parser().parse_args(arguments)
    missing = requirements.missing_parts("psycopg")
    if given.postgresql is None and private_server.find_programs() is None:
        missing.append(NO_DATABASE)
    return command_line.begin(missing, given.output, lambda: play(given))


def play(given: argparse.Namespace) -> int:
    """Find a database, and load into it; the exit status."""
    # Only now: without these packages `requirements` has said so already.
    from rich.console import Console  # noqa: PLC0415

    from examples.exactly_once.sinks import Unusable  # noqa: PLC0415

    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    with ExitStack() as server:
        conninfo = given.postgresql
        if conninfo is None:
            programs = private_server.find_programs()
            assert programs is not None, "main has looked"
            console.print("Starting a PostgreSQL for the time of the run.")
            try:
                conninfo = server.enter_context(private_server.running_postgresql(programs))
            except (RuntimeError, LookupError, OSError) as error:
                return fail(f"PostgreSQL did not start: {error}", 1)
        try:
            return load(given, conninfo, console)
        except Unusable as error:
            return fail(str(error), 2)


def load(given: argparse.Namespace, conninfo: str, console: "Console") -> int:
    """Write the topic, run the story, count; the exit status. Raises Unusable."""
    from examples.exactly_once import orders, sinks  # noqa: PLC0415
    from examples.exactly_once.proof import tally  # noqa: PLC0415
    from examples.handover.books import Layout, read_progress  # noqa: PLC0415
    from examples.handover.closing import Findings, run_and_judge  # noqa: PLC0415
    from examples.handover.run import Piece, Scenario, bounds_of_pieces  # noqa: PLC0415
    from rallypoint.spark import FilesWriter  # noqa: PLC0415

    began = time.monotonic()
    layout = Layout(given.output.resolve())
    conninfo = sinks.make_table(conninfo)
    sent = orders.lay_out(orders.make_orders(given.records), given.partitions)
    places = list(sent)
    first = places[: len(places) // 4]
    console.print(f"Writing {len(first):,} of {len(sent):,} orders as the topic orders, {given.partitions} partitions.")
    writer = FilesWriter(layout.topics, orders.TOPIC, given.partitions)
    orders.write_orders(writer, sent, first)

    scenario = Scenario(
        group="orders",
        topic=orders.TOPIC,
        partitions=given.partitions,
        records=len(sent),
        kill_when=given.kill_when,
        driver=lambda name, url: [
            "-m", "examples.exactly_once.driver", "--name", name, "--coordinator", url,
            "--topics", str(layout.topics), "--checkpoint", str(layout.checkpoint(name)),
            "--batch-records", str(len(sent) // BATCHES), "--sink", given.sink,
        ],
        look=lambda name: read_progress(layout.checkpoint(name)),
        environment={"ORDERS_DATABASE": conninfo},
        late=[
            Piece(end - begin, partial(orders.write_orders, writer, sent, places[begin:end]))
            for begin, end in bounds_of_pieces(len(first), len(places))
        ],
    )  # fmt: skip

    def judge() -> Findings:
        count = tally(sinks.read_rows(conninfo), sent)
        rows = ", ".join(f"{n:,} by driver {name}" for name, n in count.rows_by_driver.items())
        return Findings(
            problems=count.problems(),
            sentences=[
                f"Orders: {count.records:,} in the topic, {count.distinct:,} in the table, {count.lost:,} lost,"
                f" {count.twice:,} there twice.",
                f"Rows written: {rows}.",
            ],
            success=f"The table has each order of the topic once, {count.cents / 100:,.2f} in all.",
            summary=f"{count.records:,} orders, {given.partitions} partitions, two Spark drivers, one killed:"
            f" {count.lost:,} lost, {count.twice:,} twice in the table",
            metrics={"sink": given.sink, "records": asdict(count)},
        )

    return run_and_judge(layout, scenario, console, judge, name="The load", began=began)
