"""Which JVM is given the archive of Spark's classes, and what one does to which it does not fit."""

import subprocess
from pathlib import Path

import pytest

from tests.real.java_classes import QUICK, find_archive, java_options
from tests.real.parts import require

pytest.importorskip("pyspark", reason="missing pyspark: pip install 'rallypoint[spark]'")


def test_an_archive_is_named_once_it_is_made_and_of_one_java(tmp_path: Path) -> None:
    release = tmp_path / "release"
    release.write_text('JAVA_VERSION="17.0.15"')
    archive = find_archive(tmp_path, tmp_path)
    assert archive is not None
    assert java_options(tmp_path, tmp_path) == QUICK
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in java_options(tmp_path, tmp_path).split()
    release.write_text('JAVA_VERSION="17.0.16"')
    assert java_options(tmp_path, tmp_path) == QUICK


def test_a_jvm_of_other_classes_leaves_the_archive_aside_without_a_word(java_home: Path, tmp_path: Path) -> None:
    """What it said on standard output would be read as what the program says."""
    archive = find_archive(java_home)
    require(
        archive is not None and archive.is_file(), "the archive of Spark's classes", "python -m tests.real.java_classes"
    )
    java = str(java_home / "bin" / "java")
    command = [java, *java_options(java_home).split(), "-cp", str(tmp_path), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    assert "archive" not in done.stderr
