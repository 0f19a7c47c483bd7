"""A Spark standalone cluster on hosts of its own, started by the commands of docs/spark-cluster.md.

A host is a network namespace, so nothing that listens on another one's loopback is there, and nothing is reached but by
its address. A worker's host does not see the driver's files, nor this project's: a mount namespace hides them.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tests.end_to_end.network import SERVICE, Network, way_in
from tests.real.java_classes import java_options
from tests.real.parts import ROOT, last_lines
from tests.real.spark_home import spark_home
from tests.spark_bridge.writing_snippets import ON_A_CLUSTER

PAGE = (ROOT / "docs" / "spark-cluster.md").read_text("utf-8")
SHIPPED = ("protocol", "assignors", "member", "spark_bridge")
"""What of this project a driver imports, and an executor."""


def block(language: str, name: str) -> str:
    """The text of an example of the page."""
    found = re.search(rf"^```{language} {name}\n(.*?)^```$", PAGE, re.M | re.S)
    assert found is not None, f"{name} is not on the page any more"
    return found[1]


def replaced(text: str, changes: Mapping[str, str]) -> str:
    """With these in the place of what stands there. AssertionError if something does not."""
    for old, new in changes.items():
        assert old in text, f"not in the example any more: {old}"
        text = text.replace(old, new)
    return text


def zip_project(target: Path) -> None:
    """The project's own packages, as the page's command has them in a wheel."""
    with zipfile.ZipFile(target, "w") as zipped:
        for file in sorted((ROOT / "src" / "rallypoint").glob("*.py")):
            zipped.write(file, file.relative_to(ROOT / "src"))
        for package in SHIPPED:
            for file in sorted((ROOT / package).rglob("*.py")):
                zipped.write(file, Path("rallypoint") / file.relative_to(ROOT))


class Program:
    """A command of the page that runs on a host, with all that it starts."""

    def __init__(self, command: str, log: Path, prefix: Sequence[str], environment: Mapping[str, str]) -> None:
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [*prefix, "bash", "-c", command],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, cwd=log.parent,
                start_new_session=True,
            )  # fmt: skip

    def check(self) -> None:
        """AssertionError with the end of its log if it has ended."""
        assert self._process.poll() is None, self.show()

    def text(self) -> str:
        """Its whole log."""
        return self._log.read_text(errors="replace")

    def show(self) -> str:
        """The end of its log."""
        return f"--- {self._log.name}\n{last_lines(self._log, 40)}"

    def kill(self) -> None:
        """SIGKILL to all of its session."""
        while pids := [pid for pid in psutil.pids() if self._is_of_the_session(pid)]:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait(20)

    def _is_of_the_session(self, pid: int) -> bool:
        with suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            return os.getsid(pid) == self._process.pid and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        return False


class Cluster:
    """The network, its folders and its programs. `driver` is seen on the driver's host alone, `shared` by all."""

    def __init__(self, network: Network, folder: Path, java_home: Path) -> None:
        self._network = network
        self._folder = folder
        self._driver_folder = folder / "driver"
        self.shared = folder / "shared"
        for path in (self._driver_folder, self.shared):
            path.mkdir()
        # Not in a folder of settings: that would be on the class path, and the archive of classes is of jars alone.
        self._settings = self._driver_folder / "driver.properties"
        self._settings.write_text("spark.ui.enabled false\nspark.driver.memory 512m\n")
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._environment = {
            **kept,
            "PATH": os.pathsep.join((f"{spark_home()}/bin", str(Path(sys.executable).parent), kept["PATH"])),
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": str(java_home),
            "JDK_JAVA_OPTIONS": f"{java_options(java_home)} -XX:+UseSerialGC",
            "SPARK_HOME": str(spark_home()),
        }
        self._programs: dict[str, Program] = {}

    @property
    def driver_host(self) -> Path:
        """The way into the namespace of the driver's host."""
        return self._network.namespace(SERVICE)

    def start_master(self) -> None:
        """On the driver's host."""
        self._start("master", block("bash", "master"), self._driver_folder, way_in(self.driver_host), {})

    def start_worker(self, name: str) -> None:
        """On a host of its own, which has two cores by its own account."""
        folder = self._folder / name
        folder.mkdir()
        command = replaced(
            block("bash", "worker"), {"10.77.0.2": self._network.address(name), "/var/lib/spark": str(folder / "work")}
        )
        hidden = (self._driver_folder, ROOT / "src")
        hide = " && ".join(f"mount -t tmpfs none {shlex.quote(str(path))}" for path in hidden)
        apart = ("unshare", "--mount", "sh", "-c", f'{hide} && exec "$@"', "sh")
        prefix = (*way_in(self._network.namespace(name)), *apart)
        self._start(name, command, folder, prefix, {"TMPDIR": str(folder)})

    def registered_workers(self) -> set[str]:
        """The addresses of those that have come since the master leads: it takes none before, and they wait long."""
        _, _, led = self._programs["master"].text().partition("I have been elected leader")
        return set(re.findall(r"Registering worker (\S+):[0-9]+ ", led))

    def is_led(self) -> bool:
        """Whether the master takes workers."""
        return "I have been elected leader" in self._programs["master"].text()

    def has_run_tasks(self, worker: str, executors: int) -> bool:
        """Whether so many executors of the worker have: each fetches what was shipped when its first task comes."""
        return len(list((self._folder / worker / "work").glob("app-*/*/rallypoint.zip"))) >= executors

    def submit(self, name: str, changes: Mapping[str, str]) -> None:
        """Start a driver of the page, with these changes of its text."""
        folder = self._driver_folder / name
        folder.mkdir()
        (folder / "driver.py").write_text(replaced(block("python", ON_A_CLUSTER), changes))
        zip_project(folder / "rallypoint.zip")
        command = replaced(
            block("bash", "submit"),
            {
                "/opt/rallypoint/bin/python": sys.executable,
                "/var/lib/clicks/one": str(folder / "checkpoint"),
                "spark-submit ": f"spark-submit --properties-file {self._settings} ",
            },
        )
        self._start(name, command, folder, way_in(self.driver_host), {"TMPDIR": str(folder)})

    def check(self) -> None:
        """AssertionError if one of those that were not killed has ended."""
        for program in self._programs.values():
            program.check()

    def show(self) -> str:
        """For a message: the end of each log."""
        return "\n".join(program.show() for program in self._programs.values())

    def kill(self, name: str) -> None:
        """SIGKILL to a program and to all that it has started: of a worker, its executors too."""
        self._programs.pop(name).kill()

    def close(self) -> None:
        """Kill what still runs, the last first."""
        for name in reversed(list(self._programs)):
            self.kill(name)

    def _start(self, name: str, command: str, folder: Path, prefix: Sequence[str], more: Mapping[str, str]) -> None:
        self._programs[name] = Program(command, folder / f"{name}.log", prefix, {**self._environment, **more})
