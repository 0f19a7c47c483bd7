"""scripts/image/build.sh where a base cannot be pulled, or the call is wrong. Fakes stand in for other programs."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.deploy.test_prometheus_rules import ROOT

SCRIPT = ROOT / "scripts" / "image" / "build.sh"


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def build(folder: Path, *arguments: str, uid: int = 0, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The script, called by that user, with a buildah that pulls nothing and notes what else it is asked."""
    program(folder / "id", f"echo {uid}")
    program(folder / "buildah", f'echo "$@" >>{folder}/asked; [[ " $* " != *" pull "* ]]')
    return subprocess.run(
        [SCRIPT, *arguments],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_pinned_base_is_not_replaced_by_another(tmp_path: Path) -> None:
    digest = f"sha256:{'0' * 64}"
    done = build(tmp_path, str(tmp_path / "image.tar"), BASE_DIGEST=digest)
    assert done.returncode == 1
    assert f"@{digest} cannot be pulled" in done.stderr
    assert " build " not in (tmp_path / "asked").read_text()


def test_a_given_base_is_taken_by_the_name_in_the_dockerfile(tmp_path: Path) -> None:
    done = build(tmp_path, "--base", str(tmp_path / "base.tar"), "--storage", str(tmp_path / "store"))
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "asked").read_text().splitlines()
    (name,) = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("ARG BASE=")]
    words = [line.split(f"--runroot {tmp_path}/store/run ")[1] for line in asked]
    assert [line.split()[0] for line in words] == ["from", "add", "commit", "build"]
    assert words[2].endswith(f" {name.partition('=')[2]}")
    assert "--isolation chroot" in words[3]
    assert "--pull-never" in words[3]
    assert "--build-arg COMPILED=1" in words[3]
    assert "BUILD_BASE" not in words[3]


def test_the_package_is_built_on_another_base_where_one_is_given(tmp_path: Path) -> None:
    base, other = str(tmp_path / "base.tar"), str(tmp_path / "other.tar")
    done = build(tmp_path, "--build-base", other, "--base", base, str(tmp_path / "image.tar"))
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "asked").read_text().splitlines()
    (added,) = [number for number, line in enumerate(asked) if f" {other} " in line]
    (built,) = [line for line in asked if " build " in line]
    assert built.split("--build-arg BUILD_BASE=")[1].split()[0] == asked[added + 1].split()[-1]


def test_a_pure_image_is_asked_for_by_the_argument_of_the_dockerfile(tmp_path: Path) -> None:
    done = build(tmp_path, "--pure", "--base", str(tmp_path / "base.tar"), str(tmp_path / "image.tar"))
    assert done.returncode == 0, done.stderr
    assert "--build-arg COMPILED=0" in (tmp_path / "asked").read_text()
    assert "\nARG COMPILED=1\n" in (ROOT / "Dockerfile").read_text()


def test_who_is_not_root_is_told_so(tmp_path: Path) -> None:
    done = build(tmp_path, uid=1000)
    assert done.returncode == 1
    assert "takes root" in done.stderr
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("arguments", [("--bse",), ("--base",), ("a.tar", "b.tar")])
def test_a_wrong_call_is_shown_the_right_one(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = build(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("scripts/image/build.sh [--pure] [--base FILE.tar]")


def test_help_shows_every_option_and_builds_nothing(tmp_path: Path) -> None:
    done = build(tmp_path, "--help", uid=1000)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Build the image of the Dockerfile")
    assert all(f"  {option} " in done.stdout for option in ("--pure", "--base", "--build-base", "--storage"))
    assert "set -euo" not in done.stdout
    assert not (tmp_path / "asked").exists()
