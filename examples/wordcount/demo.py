"""The word count's main program: the text, the service, two Spark drivers, a kill, and the comparison of all counts."""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from examples.handover import command_line, requirements
from examples.handover.command_line import fail

BATCHES = 20
"""About so many batches make up the text. Few are soon done; with more, one is found to kill driver B in."""


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command_line.make_parser(
        "python -m examples.wordcount",
        "Count the words of a text in SQLite with two Spark drivers of one group, kill one of them in mid-work, and"
        " compare every count with the text's own.",
        output="wordcount-output",
        partitions=8,
    )
    parser.add_argument(
        "--text", type=Path, nargs="+", metavar="FILE",
        help="UTF-8 files to count the words of (default: README.md and the documents in docs)",
    )  # fmt: skip
    command_line.add_sink(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the word count; the exit status."""
    given = make_parser().parse_args(arguments)
    return command_line.begin(requirements.missing_parts(), given.output, lambda: play(given))


def play(given: argparse.Namespace) -> int:
    """Write the topic, run the story, compare; the exit status."""
    # Only now: without these packages `requirements` has said so already.
    from rich.console import Console  # noqa: PLC0415

    from examples.handover.books import Layout, read_progress  # noqa: PLC0415
    from examples.handover.closing import Findings, run_and_judge  # noqa: PLC0415
    from examples.handover.run import Piece, Scenario, bounds_of_pieces  # noqa: PLC0415
    from examples.wordcount import sinks, text  # noqa: PLC0415
    from examples.wordcount.proof import compare  # noqa: PLC0415
    from rallypoint.spark import FilesWriter  # noqa: PLC0415

    began = time.monotonic()
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    layout = Layout(given.output.resolve())
    try:
        lines = text.read_lines(given.text or text.find_documents())
    except text.NoText as error:
        return fail(str(error), 2)
    true = text.count_words(lines)
    database = layout.root / "words.db"
    sinks.make_table(database)
    first = lines[: len(lines) // 4]
    writer = FilesWriter(layout.topics, text.TOPIC, given.partitions)
    console.print(f"Writing {len(first):,} of {len(lines):,} lines as the topic lines, {given.partitions} partitions.")
    text.write_lines(writer, first, given.partitions)

    scenario = Scenario(
        group="word-count",
        topic=text.TOPIC,
        partitions=given.partitions,
        records=len(lines),
        kill_when=given.kill_when,
        driver=lambda name, url: [
            "-m", "examples.wordcount.driver", "--name", name, "--coordinator", url, "--topics", str(layout.topics),
            "--database", str(database), "--checkpoint", str(layout.checkpoint(name)),
            "--batch-records", str(len(lines) // BATCHES), "--sink", given.sink,
        ],
        look=lambda name: read_progress(layout.checkpoint(name)),
        late=[
            Piece(end - begin, partial(text.write_lines, writer, lines[begin:end], given.partitions))
            for begin, end in bounds_of_pieces(len(first), len(lines))
        ],
    )  # fmt: skip

    def judge() -> Findings:
        found = compare(sinks.read_counts(database), true)
        return Findings(
            problems=found.problems(),
            sentences=[
                f"Words: {found.occurrences:,} in {len(lines):,} lines, {found.words:,} different ones,"
                f" {found.lost:,} lost, {found.surplus:,} counted twice."
            ],
            success="Every word has the count that the text itself gives.",
            summary=f"{found.occurrences:,} words in {len(lines):,} lines, {given.partitions} partitions, two Spark"
            f" drivers, one killed: {found.lost:,} lost, {found.surplus:,} counted twice",
            metrics={"sink": given.sink, "records": len(lines), "counts": asdict(found)},
            written=[database],
        )

    return run_and_judge(layout, scenario, console, judge, name="The word count", began=began)
