"""The demo's command line, its folder, and what it says when something is missing."""

from pathlib import Path

import pytest

from examples.flights.demo import main, make_parser
from examples.handover import requirements
from examples.handover.command_line import MARKER, make_folder
from examples.handover.run import child_environment
from examples.handover.service import url_in


def test_a_folder_that_it_did_not_make_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "thesis.txt"
    precious.write_text("years of work")
    problem = make_folder(tmp_path)
    assert problem is not None
    assert "--output" in problem
    assert precious.read_text() == "years of work"


def test_its_own_folder_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "out"
    assert make_folder(folder) is None
    (folder / "old.txt").touch()
    assert make_folder(folder) is None
    assert [path.name for path in folder.iterdir()] == [MARKER]


def test_an_empty_folder_will_do_and_a_file_will_not(tmp_path: Path) -> None:
    assert make_folder(tmp_path) is None
    (tmp_path / "file").touch()
    assert make_folder(tmp_path / "file") is not None
    assert make_folder(tmp_path / "file" / "below") is not None


@pytest.mark.parametrize("value", ["3", "65", "-4", "many", ""])
def test_a_number_of_partitions_out_of_range_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        make_parser().parse_args(["--partitions", value])
    assert "not a number from 4 to 64" in capsys.readouterr().err


def test_without_java_it_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["--output", str(tmp_path / "out")]) == 2
    assert "openjdk-17-jre-headless" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_412\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert any("is Java 8." in sentence for sentence in requirements.missing_parts())


@pytest.mark.parametrize(
    ("text", "version"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "21" 2023', 21), ('"1.8.0_412"', None), ("?", None)],
)
def test_the_version_is_read_from_what_java_prints(text: str, version: int | None) -> None:
    assert requirements.java_version(text) == version


def test_missing_packages_are_named() -> None:
    sentence = requirements.missing_packages(("rich", "no_such_package"))
    assert sentence is not None
    assert sentence.startswith("Not installed: no_such_package. ")
    assert requirements.missing_packages(("rich",)) is None


def test_settings_of_another_service_do_not_reach_the_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RALLYPOINT_TOKENS", "sha256:00")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xmx1g")
    environment = child_environment()
    assert environment["JDK_JAVA_OPTIONS"] == "-Xmx1g"
    assert "RALLYPOINT_TOKENS" not in environment
    assert environment["LANG"] == "C.UTF-8"


def test_the_url_is_read_from_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("2026 INFO: loading\n")
    assert url_in(log) is None
    log.write_text("2026 INFO: loading\nlistening on http://127.0.0.1:4711\nmore\n")
    assert url_in(log) == "http://127.0.0.1:4711"
