"""The end of an example: report.json, the picture of the ownership, and the verdict."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.handover.books import Layout
from examples.handover.command_line import fail
from examples.handover.report import picture_of, run_metrics, run_sentences, save
from examples.handover.run import DRIVERS, Failed, RunRecord, Scenario, run_scenario
from examples.handover.story import Stuck
from examples.handover.terminal import View, draw_letters, draw_timeline


@dataclass(frozen=True, slots=True)
class Findings:
    """What an example has counted after its run.

    `problems`: what is wrong, one sentence each; empty if the run is a success.
    `sentences`: the counts in words.
    `success`: the sentence to print if there are no problems.
    `summary`: one line for the picture.
    `metrics`: the example's own part of report.json.
    `written`: files besides the report and the picture.
    """

    problems: Sequence[str]
    sentences: Sequence[str]
    success: str
    summary: str
    metrics: Mapping[str, Any]
    written: Sequence[Path] = ()


def run_and_judge(
    layout: Layout,
    scenario: Scenario,
    console: Console,
    judge: Callable[[], Findings],
    *,
    name: str,
    began: float,
) -> int:
    """Run the scenario, write the report and print the verdict. Returns the exit status.

    `judge`: counts the output, once the run has ended.
    `name`: the example's name at the beginning of an error.
    `began`: when the example began, by `time.monotonic`.
    """
    try:
        seen = run_scenario(layout, scenario, console)
    except (Failed, Stuck) as error:
        return fail(f"{name} failed: {error}", 1)
    findings = judge()
    seconds = time.monotonic() - began
    metrics = {
        "ok": not findings.problems,
        "problems": findings.problems,
        "seconds": round(seconds, 1),
        "partitions": scenario.partitions,
        **findings.metrics,
        **run_metrics(seen),
    }
    paths = save(layout.root, metrics, picture_of(seen, scenario, findings.summary))
    show_ownership(console, seen, scenario)
    return print_verdict(
        console,
        [*findings.sentences, *run_sentences(seen)],
        findings.problems,
        findings.success,
        seconds=seconds,
        written=[*paths, *findings.written],
    )


def show_ownership(console: Console, seen: RunRecord, scenario: Scenario) -> None:
    """Print which driver owned which partition over time, in colours or letters."""
    view = View(
        now_ms=seen.end_ms,
        records=scenario.records,
        committed=seen.last.committed,
        generation_id=seen.last.generation_id,
        spans=seen.spans(seen.end_ms),
        partitions=scenario.partitions,
        drivers=DRIVERS,
        batches=(),
    )
    console.print("\nWho owned which partition")
    console.print(draw_timeline(view, console.width) if console.is_terminal else draw_letters(view), markup=False)


def print_verdict(
    console: Console,
    sentences: Sequence[str],
    problems: Sequence[str],
    good: str,
    *,
    seconds: float,
    written: Sequence[Path],
) -> int:
    """Print the sentences, then the problems, or `good` if there are none. Returns the exit status, 1 for problems."""
    for sentence in sentences:
        console.print(sentence, markup=False)
    for problem in problems:
        console.print(f"[bold red]✗[/] {problem}")
    if not problems:
        console.print(f"[green]✓[/] {good}")
    paths = ", ".join(os.path.relpath(path) for path in written)
    console.print(f"{seconds:.0f} s in all. Written: {paths}", markup=False)
    return 1 if problems else 0
