"""A real Prometheus for tests: a server that scrapes what it is told each second, and promtool's opinion of a page.

The server's data, configuration and log lie in the caller's directory, it listens on loopback only, and it is ended
by its process id.
"""

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.real.parts import free_port, last_lines, require_program, stop_process

START_SECONDS = 60.0
STOP_SECONDS = 20.0
REMEDY = "sudo apt-get install --no-install-recommends prometheus"


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of an answer: its labels (`__name__` too, where the expression keeps it) and its value."""

    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class PrometheusServer:
    """A running server, to be asked."""

    url: str

    def get(self, path: str) -> bytes:
        """The body of a GET. Errors: urllib's, for a refused connection and for any status but 2xx."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(self.url + path, timeout=10) as answer:
            body: bytes = answer.read()
        return body

    def query(self, expression: str) -> list[Sample]:
        """What an expression gives now: an instant vector, empty when no series matches."""
        answer = json.loads(self.get("/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
        assert answer["data"]["resultType"] == "vector", f"{expression} does not give an instant vector"
        return [Sample(series["metric"], float(series["value"][1])) for series in answer["data"]["result"]]

    def wait_for(self, expression: str, seconds: float = 30.0) -> list[Sample]:
        """Ask until the expression gives a sample, and give those; a scrape comes each second.

        Write the condition into the expression: `up == 1`, `sum(members) > 2`.
        Errors: AssertionError when the time is over.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if samples := self.query(expression):
                return samples
            time.sleep(0.2)
        raise AssertionError(f"nothing matches {expression} after {seconds} s")


def configuration(targets: Sequence[str], metrics_path: str) -> str:
    """What to scrape, in JSON (which is YAML too): one job named `tests`, each second."""
    job = {"job_name": "tests", "metrics_path": metrics_path, "static_configs": [{"targets": list(targets)}]}
    return json.dumps({"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job]})


@contextmanager
def running_prometheus(
    program: Path, directory: Path, targets: Sequence[str], metrics_path: str = "/metrics"
) -> Iterator[PrometheusServer]:
    """Run a server that scrapes `targets` ("host:port") with its files in the empty `directory`.

    Errors: RuntimeError with the end of its log if it is not ready within 60 s.
    """
    port = free_port()
    settings, log = directory / "prometheus.yml", directory / "prometheus.log"
    settings.write_text(configuration(targets or [f"127.0.0.1:{port}"], metrics_path))
    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={settings}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        server = PrometheusServer(f"http://127.0.0.1:{port}")
        wait_until_ready(process, server, log)
        yield server
    finally:
        stop_process(process, STOP_SECONDS)


def wait_until_ready(process: subprocess.Popen[bytes], server: PrometheusServer, log: Path) -> None:
    """Return once the server says that it is ready."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            server.get("/-/ready")
        except OSError:  # refused, or 503 while it starts: urllib's errors are all OSErrors
            time.sleep(0.1)
        else:
            return
    state = "ended" if process.poll() is not None else "is not ready"
    raise RuntimeError(f"Prometheus {state}; the end of its log:\n{last_lines(log)}")


def promtool_check_metrics(page: str) -> str:
    """What promtool has against a page in the text format: "" when it parses and follows the naming rules."""
    promtool = require_program("promtool", REMEDY)
    answer = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False, timeout=30
    )
    complaint = (answer.stdout + answer.stderr).strip()
    return complaint if answer.returncode else ""


@pytest.fixture
def start_prometheus(tmp_path: Path) -> Iterator[Callable[[Sequence[str]], PrometheusServer]]:
    """Start one server that scrapes the given targets ("host:port"), or itself when there are none."""
    program = require_program("prometheus", REMEDY)
    with ExitStack() as running:

        def start(targets: Sequence[str]) -> PrometheusServer:
            directory = tmp_path / "prometheus"
            directory.mkdir()
            return running.enter_context(running_prometheus(program, directory, targets))

        yield start
