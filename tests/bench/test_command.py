"""The options of the command, and what surrounds the numbers."""

from pathlib import Path

import pytest

from bench import kafka, machine, process
from bench.main import BENCHMARKS, main, make_parser, names_of, plan_of, run
from bench.plan import Plan


def plan(*arguments: str) -> Plan:
    return plan_of(make_parser().parse_args(["--data", "/", *arguments]))


def test_plans() -> None:
    assert plan() == Plan(10.0, (100, 1000), 1000, 5, Path("/"))
    assert plan("--quick") == Plan(2.0, (100,), 100, 1, Path("/"), held=1_000, moves=2, groups=100)
    assert plan("--beside-kafka").sizes == (1000,)
    assert plan("--quick", "--members", "7", "--seconds", "0.5") == Plan(
        0.5, (7,), 7, 1, Path("/"), held=7, moves=2, groups=100
    )


@pytest.mark.parametrize(
    "arguments", [["--members", "0"], ["--seconds", "0"], ["--only", "nothing"], ["--data", "/no/such/place"]]
)
def test_wrong_options_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_help_names_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in BENCHMARKS)


def names(*arguments: str) -> tuple[str, ...]:
    return names_of(make_parser().parse_args(arguments))


def test_a_broker_is_measured_where_it_is_asked_for_and_right_after_our_own() -> None:
    assert not [name for name in names() if "kafka" in name]
    assert names("--only", "kafka-commit", "--only", "channel-commit") == ("channel-commit", "kafka-commit")
    compared = names("--beside-kafka")
    assert set(kafka.BENCHMARKS) == set(compared[1::2])
    assert set(compared) <= set(BENCHMARKS)
    assert all(ours.startswith(("channel-", "channels-")) for ours in compared[::2])


def test_what_is_compared_is_not_chosen_twice(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--beside-kafka", "--only", "kafka-commit"])
    assert "--beside-kafka" in capsys.readouterr().err


async def test_without_a_broker_it_is_left_out_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("bench.kafka.find_java_home", lambda: Path("/java"))
    results, failures, left_out = await run(["kafka-commit"], plan("--quick"))
    assert (results, failures) == ([], [])
    (sentence,) = left_out
    assert sentence.startswith("kafka-commit is left out: it needs Maven")


def test_the_process_under_measurement_sees_no_setting_of_ours() -> None:
    given = {"RALLYPOINT_SHARDS": "1", "PATH": "/bin", "PYTHONPATH": "/elsewhere"}
    environment = process.environment(given)
    assert environment["PATH"] == "/bin"
    assert "RALLYPOINT_SHARDS" not in environment
    assert environment["PYTHONPATH"].endswith(":/elsewhere")


def test_the_surroundings_say_what_there_is(tmp_path: Path) -> None:
    found = machine.look_around(tmp_path)
    assert found.cores >= 1
    assert found.memory_bytes > 0
    assert found.flush_p50_ms > 0
    assert found.cpu_model
    assert found.file_system != "unknown"
    assert {"python", "aiohttp", "uvloop", "pydantic", "sqlite", "rallypoint"} == set(found.versions)
    assert list(tmp_path.iterdir()) == []
