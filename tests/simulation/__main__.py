"""`python -m tests.simulation`: run seeds, count, and show how to repeat the one that fails."""

import argparse
import sys
import time
from collections import Counter

from tests.simulation.plan import FOCI
from tests.simulation.runner import Result, run


def main() -> int:
    """Exit code 0 where every law held in every schedule."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one schedule")
    parser.add_argument("--schedules", type=int, default=1_000, help="how many schedules to run (default 1000)")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--until", metavar="LAWS", help="stop only where one of these laws is broken, with commas")
    parser.add_argument("--focus", choices=FOCI, help="what all schedules have, which a seed gives to some otherwise")
    parser.add_argument("--verbose", action="store_true", help="print every event of every schedule")
    parser.add_argument("--digest", action="store_true", help="print the digest of each schedule's trace")
    chosen = parser.parse_args()
    first, number = (chosen.first, chosen.schedules) if chosen.seed is None else (chosen.seed, 1)
    began = time.perf_counter()
    results: list[Result] = []
    totals: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    done: Counter[str] = Counter()
    for seed in range(first, first + number):
        result = run(seed, chosen.focus, verbose=chosen.verbose)
        totals.update(schedules=1, turns=result.turns, calls=result.calls, virtual_ms=result.virtual_ms)
        faults.update(result.faults)
        done.update(result.done)
        if chosen.digest:
            print(f"{seed} {result.digest}")
        if result.violation is not None and (chosen.until is None or law_of(result) in chosen.until.split(",")):
            results.append(result)
            break
    seconds = time.perf_counter() - began
    for result in results:
        print(failure_of(result, chosen.focus))
    print(summary_of(first, totals, faults, done, seconds))
    return 1 if results else 0


def law_of(result: Result) -> str:
    """The name of the law that was broken."""
    return str(result.violation).partition(":")[0]


def failure_of(result: Result, focus: str | None = None) -> str:
    """What a person needs to see: the law, the last events, and the command that shows it again."""
    lines = "\n".join(result.lines)
    more = "" if focus is None else f" --focus {focus}"
    make = f"make sim SEED={result.seed}" + (f' ARGS="{more.strip()}"' if more else "")
    return (
        f"{lines}\n\nseed {result.seed}: {result.violation}\n"
        f"again: {make}   or: python -m tests.simulation --seed {result.seed}{more} --verbose"
    )


def summary_of(first: int, totals: Counter[str], faults: Counter[str], done: Counter[str], seconds: float) -> str:
    """One paragraph of numbers."""
    last = first + totals["schedules"] - 1
    kinds, deeds = (
        ", ".join(f"{kind} {count:,}" for kind, count in sorted(counts.items())) or "none" for counts in (faults, done)
    )
    return (
        f"{totals['schedules']:,} schedules (seeds {first} to {last}), {totals['turns']:,} steps, "
        f"{totals['calls']:,} calls, {totals['virtual_ms'] / 3_600_000:,.1f} virtual hours in {seconds:,.1f} s: "
        f"{totals['turns'] / max(seconds, 1e-9):,.0f} steps a second\n"
        f"faults: {kinds}\ndone by operators and by time: {deeds}"
    )


if __name__ == "__main__":
    sys.exit(main())
