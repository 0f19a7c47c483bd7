"""The command: read the options, run the benchmarks one after the other, print a table, write the JSON.

Exit status: 0 all measured, 1 an answer was wrong or a benchmark failed (what was measured is still reported),
2 called wrongly.
"""

import argparse
import asyncio
import gc
import resource
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from bench import beside, kafka, many_groups, permissions, report, scale, scenarios
from bench.beside import Result
from bench.cluster import parts as cluster_parts
from bench.cluster import scenarios as cluster
from bench.cluster.metrics import MoveResult, StretchResult, is_sound
from bench.crowd import WrongAnswerError
from bench.line import ConnectionBrokenError
from bench.machine import Surroundings, look_around
from bench.metrics import AssignorResult, CallbackResult, ScaleResult, is_right
from bench.plan import Benchmark, Plan
from bench.process import ProcessError
from bench.spark import scenarios as spark
from bench.spark.metrics import MovesResult, QueryResult, SpeedResult, is_whole
from rallypoint.coordinator.compiled import is_compiled

BENCHMARKS: Mapping[str, Benchmark] = {
    **scenarios.BENCHMARKS,
    **permissions.BENCHMARKS,
    **many_groups.BENCHMARKS,
    **scale.BENCHMARKS,
    **kafka.BENCHMARKS,
    **spark.BENCHMARKS,
    **cluster.BENCHMARKS,
}

BESIDE_KAFKA = report.kafka_section(is_compiled=is_compiled())

SECTIONS: Mapping[report.Section, frozenset[str]] = {
    report.ASSIGNORS: frozenset({"assignors"}),
    report.SCALE: frozenset(scale.BENCHMARKS),
    BESIDE_KAFKA: frozenset(kafka.BENCHMARKS),
    report.SPARK: frozenset(spark.BENCHMARKS),
    report.CLUSTER: frozenset(cluster.BENCHMARKS),
}
"""The tables of a document, and the benchmarks that write them."""

RESULTS = Path(__file__).resolve().parent / "results"


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure the service over HTTP on this machine, each benchmark with a process and a SQLite file of "
        "its own. The processors should have nothing else to do.",
        epilog="benchmarks:\n"
        + "\n".join(f"  {name:<29}{benchmark.summary}" for name, benchmark in BENCHMARKS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--only", action="append", choices=tuple(BENCHMARKS), metavar="NAME",
        help="run this benchmark alone; can be given more than once",
    )  # fmt: skip
    parser.add_argument(
        "--beside-kafka", action="store_true",
        help="run what a Kafka broker is compared by, on channels and at a broker in turns, with groups of 1,000; "
        "without Java 17 and Maven the broker's are left out",
    )  # fmt: skip
    parser.add_argument(
        "--spark", action="store_true",
        help="run what is measured with Spark drivers on a Kafka broker; needs Java 17, Maven and PostgreSQL, and is "
        "left out, with a sentence, where they are missing",
    )  # fmt: skip
    parser.add_argument(
        "--cluster", action="store_true",
        help="run what is measured of three nodes on three members of etcd; left out, with a sentence, where there is "
        "no etcd",
    )  # fmt: skip
    parser.add_argument(
        "--shards", type=_positive_int, metavar="N",
        help="shards of a cluster; what a shard costs is measured with a fifth of them and four times as many, too "
        "(default: 50)",
    )  # fmt: skip
    parser.add_argument(
        "--groups", type=_positive_int, metavar="N", help="groups of a cluster, and of loads of many (default: 1,000)"
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=_positive_int, metavar="N",
        help="how often a rebalance is measured, and how often Spark's drivers hand over and are killed (default: 5, "
        "and 20 with Spark)",
    )  # fmt: skip
    parser.add_argument(
        "--quick", action="store_true",
        help="short loads, one repetition, groups of 100: a smoke test, not a measurement",
    )  # fmt: skip
    parser.add_argument(
        "--members", type=_positive_int, metavar="N",
        help="size of the groups of the rebalances and of at-rest (default: rebalances with 100 and 1,000, at-rest "
        "with 1,000), and all members of channels-held, of groups that form at once and of a cluster (default: 10,000)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=_positive_float, metavar="S",
        help="length of each load (default: 10; at-rest takes half as long again)",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=Path, metavar="PATH",
        help="file for the results as JSON (default: bench/results/DATE-COMMIT.json)",
    )  # fmt: skip
    parser.add_argument(
        "--document", type=Path, metavar="PATH",
        help="a Markdown file that gets the tables of the assignors, of scale, beside Kafka, of Spark and of a cluster "
        "between its marks, as docs/performance.md",
    )  # fmt: skip
    parser.add_argument(
        "--data", type=Path, default=Path(tempfile.gettempdir()), metavar="DIRECTORY",
        help="where the SQLite files are made, and removed again: on the disk that counts (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--etcd", metavar="HOST:PORT,...",
        help="an etcd in place of the SQLite files, for benchmarks that start the service once; each gets a prefix of "
        "its own, which stays",
    )  # fmt: skip
    return parser


def _positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return value


def _positive_float(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError("it must be from 0.1 to 3600")
    return value


def plan_of(given: argparse.Namespace) -> Plan:
    """The plan that the options ask for."""
    usual = (1_000,) if given.beside_kafka else (100, 1_000)
    sizes = (given.members,) if given.members else (100,) if given.quick else usual
    return Plan(
        seconds=given.seconds or (2.0 if given.quick else 10.0),
        sizes=sizes,
        at_rest=sizes[-1],
        rounds=given.rounds or (1 if given.quick else 5),
        directory=given.data,
        held=given.members or (1_000 if given.quick else 10_000),
        moves=given.rounds or (2 if given.quick else 20),
        etcd=given.etcd,
        shards=given.shards or 50,
        groups=given.groups or (100 if given.quick else 1_000),
    )


def names_of(given: argparse.Namespace) -> tuple[str, ...]:
    """The benchmarks that the options ask for, in the order in which they run."""
    if given.beside_kafka:
        return beside.NAMES
    if given.spark:
        return tuple(spark.BENCHMARKS)
    if given.cluster:
        return tuple(cluster.BENCHMARKS)
    if given.only:
        return tuple(name for name in BENCHMARKS if name in given.only)
    return (*scenarios.BENCHMARKS, *many_groups.BENCHMARKS)


async def run(names: Sequence[str], plan: Plan) -> tuple[list[Result], list[str], list[str]]:
    """Run the benchmarks: the results, what one of them fails by, and which are left out and why; the others go on."""
    results: list[Result] = []
    failures: list[str] = []
    left_out: list[str] = []
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        try:
            async with asyncio.timeout(BENCHMARKS[name].timeout_s + 3 * plan.seconds):
                results += await BENCHMARKS[name].run(plan)
        except kafka.MissingPartError as missing:
            left_out.append(f"{name} is left out: {missing}")
        except (WrongAnswerError, ConnectionBrokenError, ProcessError, OSError) as error:
            failures.append(f"{name} failed: {type(error).__name__}: {error}")
        except TimeoutError:
            failures.append(f"{name} failed: it did not end in time")
    return results, failures, left_out


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = make_parser()
    given = parser.parse_args(arguments)
    if not given.data.is_dir():
        parser.error(f"--data: {given.data} is no directory")
    if (chosen := [flag for flag in ("--beside-kafka", "--spark", "--cluster", "--only") if _is_given(given, flag)])[
        1:
    ]:
        parser.error(f"{chosen[0]}: it says itself which benchmarks run; leave {' and '.join(chosen[1:])} out")
    plan, names = plan_of(given), names_of(given)
    sections = [section for section in SECTIONS if SECTIONS[section] & set(names)]
    if given.document and not (
        sections and all(report.has_section(_text_of(given.document), each) for each in sections)
    ):
        wanted = " and ".join(f"{each.begin} with a line {each.end} below" for each in sections) or "table of this run"
        parser.error(f"--document: {given.document} has no line {wanted}")
    _prepare_process()
    surroundings = look_around(plan.directory)
    if (kafka.BENCHMARKS.keys() | spark.BENCHMARKS.keys()) & set(names):
        surroundings = replace(surroundings, versions={**surroundings.versions, "kafka": kafka.VERSION})
    if cluster.BENCHMARKS.keys() & set(names):
        surroundings = replace(surroundings, versions={**surroundings.versions, **cluster_parts.versions()})
    if spark.BENCHMARKS.keys() & set(names):
        surroundings = replace(surroundings, versions={**surroundings.versions, **spark.VERSIONS})
    output = given.output or RESULTS / f"{surroundings.at[:10]}-{surroundings.commit}.json"
    try:
        results, failures, left_out = uvloop.run(run(names, plan))
    except KeyboardInterrupt:
        print("interrupted; nothing is reported", file=sys.stderr)
        return 130
    print(report.text(surroundings, results, failures, left_out))
    options: dict[str, Any] = {
        "seconds": plan.seconds,
        "rounds": plan.rounds,
        "sizes": plan.sizes,
        "held": plan.held,
        "moves": plan.moves,
        "shards": plan.shards,
        "groups": plan.groups,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(report.document(surroundings, options, results, failures, left_out), "utf-8")
    print(f"\nwritten to {output}", file=sys.stderr)
    if given.document:
        _write_tables(given.document, surroundings, results)
    return 0 if not failures and all(map(_is_right, results)) else 1


def _is_given(given: argparse.Namespace, flag: str) -> bool:
    return bool(getattr(given, flag.removeprefix("--").replace("-", "_")))


def _is_right(result: Result) -> bool:
    """Whether something was measured, and every answer was right and every record where it must be."""
    if isinstance(result, MovesResult):
        return is_whole(result)
    if isinstance(result, StretchResult | MoveResult):
        return is_sound(result)
    return isinstance(result, QueryResult | SpeedResult | CallbackResult) or is_right(result)


def _text_of(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""


def _write_tables(path: Path, found: Surroundings, results: Sequence[Result]) -> None:
    """Each into its section, where there is something to write; the section is there, as was asked before."""
    document = _text_of(path)
    assignors = [result for result in results if isinstance(result, AssignorResult)]
    moved = [result for result in results if isinstance(result, QueryResult | SpeedResult | MovesResult)]
    compared = beside.of_comparisons(results)
    clustered = [result for result in results if isinstance(result, StretchResult | MoveResult)]
    if assignors:
        document = report.put_into(document, report.ASSIGNORS, report.assignor_markdown(found, assignors))
    if scales := [result for result in results if isinstance(result, ScaleResult)]:
        document = report.put_into(document, report.SCALE, report.scale_markdown(found, scales))
    if beside.was_compared(compared):
        document = report.put_into(document, BESIDE_KAFKA, report.beside_markdown(found, compared))
    if moved:
        document = report.put_into(document, report.SPARK, report.spark_markdown(found, moved))
    if clustered:
        document = report.put_into(document, report.CLUSTER, report.cluster_markdown(found, clustered))
    path.write_text(document, "utf-8")


def _prepare_process() -> None:
    """Allow as many connections as the system does. Collect no garbage: a pause here would look like the service's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.disable()
