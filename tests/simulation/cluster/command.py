"""`python -m tests.simulation.cluster`: run seeds of three nodes over an etcd, count, show how to repeat a failure."""

import argparse
import gc
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, takewhile
from multiprocessing import get_context

from tests.simulation.__main__ import law_of, summary_of
from tests.simulation.cluster.plan import FOCI, ClusterPlan, cluster_plan_of
from tests.simulation.cluster.runner import run_plan, shrunk
from tests.simulation.runner import Result

PROGRESS_S = 30.0
INTERRUPTED = 130
"""The exit status of a command that Ctrl-C has ended."""


def _count(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.cluster", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; without --schedules this one alone")
    parser.add_argument(
        "--focus", default="", choices=("", *FOCI), help="what every schedule is about (default: everything)"
    )
    parser.add_argument("--schedules", type=_count, help="how many schedules to run (default 1000, or 1 with --seed)")
    parser.add_argument("--processes", type=_count, default=1, metavar="N", help="run so many at a time (default 1)")
    parser.add_argument("--minutes", type=float, help="begin no more schedules after so long")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure, and tell of each")
    parser.add_argument("--until", metavar="LAWS", help="a failure is only where one of these is broken, with commas")
    parser.add_argument("--steps", help="only these steps of the plan, by their numbers from 0, with commas")
    parser.add_argument("--without", default="", help="without these random faults, with commas")
    parser.add_argument("--shrink", action="store_true", help="look for fewer steps that fail in the same way")
    parser.add_argument("--verbose", action="store_true", help="print every event of every schedule")
    parser.add_argument("--digest", action="store_true", help="print the digest of each schedule's trace")
    return parser


def main() -> int:
    """Exit code 0 where every law held in every schedule."""
    chosen = _parser().parse_args()
    first = chosen.seed or 1
    number = chosen.schedules or (1_000 if chosen.seed is None else 1)
    book = Book(first, number)
    seeds = iter(range(first, first + number))
    if chosen.minutes is not None:
        seeds = takewhile(lambda seed: book.seconds < chosen.minutes * 60, seeds)
    told_s = 0.0
    status = 0
    try:
        with closing(_carried_out(partial(_carry_out, chosen), seeds, chosen.processes)) as ended:
            for one in ended:
                book.add(one)
                if chosen.digest:
                    print(f"{one.result.seed} {one.result.digest}")
                if one.failure:
                    print(one.failure, flush=True)
                    if not chosen.keep_going:
                        break
                if book.seconds - told_s > PROGRESS_S:
                    told_s = book.seconds
                    print(book.progress(), file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = INTERRUPTED
    print(book.summary())
    return 1 if book.failed else status


@dataclass(frozen=True, slots=True)
class Ended:
    """A schedule is over. result: without its violation, which no process can hand to another.

    failure: what a person needs to see, if a law was broken that counts. cpu_s: the time of processors that it took.
    """

    result: Result
    failure: str
    cpu_s: float


@dataclass(slots=True)
class Book:
    """What has come of so many schedules from the first seed on."""

    first: int
    number: int
    began_s: float = field(default_factory=time.perf_counter)
    cpu_s: float = 0.0
    totals: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self.began_s

    def add(self, ended: Ended) -> None:
        """Count one more."""
        result = ended.result
        self.totals.update(schedules=1, turns=result.turns, calls=result.calls, virtual_ms=result.virtual_ms)
        self.faults.update(result.faults)
        self.cpu_s += ended.cpu_s
        if ended.failure:
            self.failed.append(result.seed)

    def progress(self) -> str:
        """One line."""
        done = self.totals["schedules"]
        a_second = done / max(self.seconds, 1e-9)
        left_minutes = (self.number - done) / max(a_second, 1e-9) / 60
        return (
            f"{done:,} of {self.number:,} schedules in {self.seconds:,.0f} s, {a_second:.1f} a second, about"
            f" {left_minutes:,.0f} minutes left; {self.totals['turns']:,} steps, {self.cpu_s:,.0f} s of processors,"
            f" {len(self.failed)} failed"
        )

    def summary(self) -> str:
        """One paragraph."""
        text = summary_of(self.first, self.totals, self.faults, Counter(), self.seconds)
        failed = f"; failed: {', '.join(map(str, sorted(self.failed)))}" if self.failed else ""
        return f"{text}\n{self.cpu_s:,.1f} s of processors{failed}"


def _carried_out(
    carry_out: Callable[[int], Ended], seeds: Iterable[int], processes: int
) -> Generator[Ended, None, None]:
    """What comes of the seeds, as it comes. Closed, it begins no more and waits for those under way."""
    if processes == 1:
        _keep_what_is_loaded()
        yield from map(carry_out, seeds)
        return
    seeds = iter(seeds)
    # Not by a fork: each process begins as the command itself does.
    with ProcessPoolExecutor(processes, get_context("spawn"), _begin_process) as pool:
        under_way: set[Future[Ended]] = set()
        while True:
            under_way |= {pool.submit(carry_out, seed) for seed in islice(seeds, 2 * processes - len(under_way))}
            if not under_way:
                return
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def _begin_process() -> None:
    """Ctrl-C reaches all processes: the first of them says what comes of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _keep_what_is_loaded()


def _keep_what_is_loaded() -> None:
    """After each schedule all garbage is collected. What was there before the first is none."""
    gc.collect()
    gc.freeze()


def _carry_out(chosen: argparse.Namespace, seed: int) -> Ended:
    began_s = time.process_time()
    plan = _part_of(cluster_plan_of(seed, chosen.focus), chosen.steps, chosen.without)
    result = run_plan(plan, verbose=chosen.verbose)
    failure = ""
    if result.violation is not None and (chosen.until is None or law_of(result) in chosen.until.split(",")):
        failed = result
        if chosen.shrink:
            plan = shrunk(plan, result.violation.checker)
            failed = run_plan(plan)
        failure = failure_of(plan, failed, chosen.focus)
    return Ended(replace(result, violation=None, lines=[]), failure, time.process_time() - began_s)


def _part_of(plan: ClusterPlan, steps: str | None, without: str) -> ClusterPlan:
    if without:
        plan = plan.without(frozenset(without.split(",")))
    if steps is None:
        return plan
    return replace(plan, steps=tuple(plan.steps[int(number)] for number in steps.split(",") if number))


def failure_of(plan: ClusterPlan, result: Result, focus: str = "") -> str:
    """What a person needs to see: the plan, the last events, the law, and the command that shows it again."""
    whole = cluster_plan_of(plan.seed, focus).steps
    more = f" --focus {focus}" if focus else ""
    if len(plan.steps) < len(whole):
        more += f" --steps {','.join(str(whole.index(step)) for step in plan.steps)}"
    if plan.left_out:
        more += f" --without {','.join(sorted(plan.left_out))}"
    lines = "\n".join((*plan.describe(), "", *result.lines))
    return (
        f"{lines}\n\nseed {result.seed}: {result.violation}\n"
        f"again: python -m tests.simulation.cluster --seed {result.seed}{more} --verbose"
    )
