"""The word count's main program: the text, the service, two Spark drivers, a kill, and the comparison of all counts."""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from examples.handover import command_line, requirements
from examples.handover.command_line import fail

BATCHES = 10
"""About so many batches make up the text: enough to hand over between, few enough to be done soon."""


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

    from examples.handover.books import Layout, look_at_books  # noqa: PLC0415
    from examples.handover.closing import show_ownership, tell_verdict  # noqa: PLC0415
    from examples.handover.report import picture_of, run_figures, run_sentences, save  # noqa: PLC0415
    from examples.handover.run import Failed, Plot, perform  # noqa: PLC0415
    from examples.handover.story import Stuck  # noqa: PLC0415
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
    first, rest = lines[: len(lines) // 4], lines[len(lines) // 4 :]
    writer = FilesWriter(layout.topics, text.TOPIC, given.partitions)
    console.print(f"Writing {len(first):,} of {len(lines):,} lines as the topic lines, {given.partitions} partitions.")
    text.write_lines(writer, first, given.partitions)

    plot = Plot(
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
        look=lambda name: look_at_books(layout.checkpoint(name)),
        write_rest=lambda: text.write_lines(writer, rest, given.partitions),
    )  # fmt: skip
    try:
        seen = perform(layout, plot, console)
    except (Failed, Stuck) as error:
        return fail(f"The word count failed: {error}", 1)

    found = compare(sinks.read_counts(database), true)
    seconds = time.monotonic() - began
    summary = (
        f"{found.occurrences:,} words in {len(lines):,} lines, {given.partitions} partitions, two Spark drivers, one"
        f" killed: {found.lost:,} lost, {found.surplus:,} counted twice"
    )
    figures = {
        "ok": not found.problems(),
        "problems": found.problems(),
        "seconds": round(seconds, 1),
        "sink": given.sink,
        "partitions": given.partitions,
        "records": len(lines),
        "counts": asdict(found),
        **run_figures(seen),
    }
    show_ownership(console, seen, plot)
    return tell_verdict(
        console,
        [
            f"Words: {found.occurrences:,} in {len(lines):,} lines, {found.words:,} different ones,"
            f" {found.lost:,} lost, {found.surplus:,} counted twice.",
            *run_sentences(seen),
        ],
        found.problems(),
        "Every word has the count that the text itself gives.",
        seconds=seconds,
        written=[*save(layout.root, figures, picture_of(seen, plot, summary)), database],
    )
