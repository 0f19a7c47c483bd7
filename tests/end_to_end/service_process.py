"""The service as a process of its own, to be killed and started again on the same store."""

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from examples.handover.processes import wait_until_stopped
from tests.end_to_end.forked_process import ForkedProcess
from tests.end_to_end.network import SERVICE, Network, call_inside, way_in
from tests.real.parts import free_port

START_TIMEOUT_SECONDS = 90
STOP_TIMEOUT_SECONDS = 20
RELEASE_TIMEOUT_SECONDS = 5


@dataclass
class ServiceProcess:
    """`rallypoint serve` on a free port and a store in `folder`; both stay the same over restarts.

    `host`, `namespace`: the address in that network namespace; a loopback one in this process's own by default.
    `files_max`: how many open files the system lets it have; by default as many as this process.
    `environment`: variables besides this process's own. `limits`: other ones than are fixed, by name.
    `client`: whom it is asked as, over TLS. `is_forked`: from a process that has imported its modules, where it can be;
    False where it counts what the system shows of its command line.
    """

    folder: Path
    options: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    host: str = "127.0.0.1"
    namespace: Path | None = None
    process: "subprocess.Popen[str] | ForkedProcess | None" = None
    files_max: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    client: ssl.SSLContext | None = None
    is_forked: bool = True

    @property
    def url(self) -> str:
        scheme = "https" if "--tls-certificate" in self.options else "http"
        return f"{scheme}://{self.host}:{self.port}"

    @property
    def log(self) -> str:
        """What it wrote to stderr, over all its lives."""
        return (self.folder / "service.log").read_text()

    def start(self) -> None:
        """Start it and wait for its one line."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RALLYPOINT_")}
        environment |= self.environment
        with (self.folder / "service.log").open("a") as log:
            self.process = self._begin(environment, log)
        alarm = threading.Timer(START_TIMEOUT_SECONDS, self.process.kill)
        alarm.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        alarm.cancel()
        assert line == f"listening on {self.url}\n", f"it said {line!r}; its log:\n{self.log}"

    def _begin(self, environment: Mapping[str, str], log: IO[str]) -> "subprocess.Popen[str] | ForkedProcess":
        """A fork, unless the system or the interpreter has to do something of its own for it."""
        module, argument = (
            ("tests.end_to_end.limited_service", json.dumps(dict(self.limits)))
            if self.limits
            else ("rallypoint.cli.main", "serve")
        )
        arguments = [argument, "--host", self.host, "--port", str(self.port)]
        arguments += ["--storage", f"sqlite:///{self.folder / 'rallypoint.db'}", *self.options]
        if self.is_forked and self.files_max is None and not self.environment:
            return ForkedProcess(module, arguments, environment, log, namespace=self.namespace)
        command = [
            *(() if self.namespace is None else way_in(self.namespace)),
            *(() if self.files_max is None else ("sh", "-c", f'ulimit -n {self.files_max} && exec "$@"', "sh")),
            *(sys.executable, "-m", module, *arguments),
        ]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)

    def kill(self) -> None:
        """SIGKILL: it gets no chance to tidy up."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait(STOP_TIMEOUT_SECONDS) == -signal.SIGKILL
        self._close()

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(STOP_TIMEOUT_SECONDS)
        self._close()
        return code

    def pause(self) -> None:
        """SIGSTOP: it stands still, and its connections stay open."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        wait_until_stopped(self.process.pid)

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def _close(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None

    def metrics(self) -> dict[str, float]:
        """What it counts now: each series, with its labels as they stand on the page."""
        _, page = self._ask(urllib.request.Request(self.url + "/metrics"), 10)
        lines = page.decode().splitlines()
        series = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in series}

    def open_files(self) -> int:
        """Files and sockets that the process has open."""
        assert self.process is not None
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def send(self, method: str, path: str, body: Any = None, timeout_seconds: float = 30) -> tuple[int, Any]:
        """One request without any of our own client code: (status, parsed answer)."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        status, answer = self._ask(request, timeout_seconds)
        return status, json.loads(answer)

    def _ask(self, request: urllib.request.Request, timeout_seconds: float) -> tuple[int, bytes]:
        def ask() -> tuple[int, bytes]:
            try:
                with urllib.request.urlopen(request, timeout=timeout_seconds, context=self.client) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read()

        return ask() if self.namespace is None else call_inside(self.namespace, ask)


@contextmanager
def nothing_left_behind(service: ServiceProcess) -> Iterator[None]:
    """In the end the service has no more open files, channels and waiting calls than before, within seconds."""
    time.sleep(0.2)  # until it has closed the connection of whatever was asked last
    before = possessions(service)
    yield
    deadline = time.monotonic() + RELEASE_TIMEOUT_SECONDS
    while (more := _more(possessions(service), before)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not more, f"there is more than the {before} of the beginning: {more}"


def possessions(service: ServiceProcess) -> dict[str, float]:
    """What grows with clients and must not outlive them."""
    files = service.open_files()
    counted = service.metrics()
    gauges = ("rallypoint_channels", "rallypoint_parked_calls", "rallypoint_event_streams")
    return {"files": files, **{name: counted[name] for name in gauges}}


def _more(now: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in now.items() if value > before[name]}


@contextmanager
def running_service(
    folder: Path, *options: str, network: Network | None = None, limits: Mapping[str, int] | None = None
) -> Iterator[ServiceProcess]:
    """Started, and gone at the end whatever happens. With a network it is in the namespace of the service."""
    service = ServiceProcess(folder, options, limits=limits or {})
    if network is not None:
        service.host, service.namespace = network.address(SERVICE), network.namespace(SERVICE)
        service.options = (*options, "--insecure")
    try:
        service.start()
        yield service
    finally:
        if service.process is not None:
            service.process.kill()
            service.process.wait(STOP_TIMEOUT_SECONDS)
            service._close()
