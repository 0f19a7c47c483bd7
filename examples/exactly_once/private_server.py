"""A PostgreSQL of one's own: a cluster in a new directory, with a socket there and no port. For tests, too.

PostgreSQL refuses to run as root, so for root it runs as the user that its package made.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 60.0
REMEDY = "sudo apt-get install --no-install-recommends postgresql"
USER = "postgres"
LOG_TAIL_LINES = 20


def find_programs() -> Path | None:
    """The directory of initdb and postgres: Debian keeps them off PATH, one directory a version."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    return found[-1].parent if found else None


def runner() -> str | None:
    """The user to run it as; None for whoever asks. LookupError where root has none to choose."""
    if os.getuid() != 0:
        return None
    return pwd.getpwnam(USER).pw_name


@contextmanager
def running_postgresql(programs: Path) -> Iterator[str]:
    """Run an empty cluster; its connection string, of a role that may do everything. It is gone afterwards.

    Errors: RuntimeError with the end of its log if it takes no connection within 60 s.
    """
    user = runner()
    directory = Path(tempfile.mkdtemp(prefix="rallypoint-postgresql-"))
    try:
        if user is not None:
            shutil.chown(directory, user)
        data, log = directory / "data", directory / "log"
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
            check=True,
            capture_output=True,
            user=user,
            cwd=directory,
        )
        settings = {"listen_addresses": "", "unix_socket_directories": directory}
        with log.open("wb") as out:
            process = subprocess.Popen(
                [
                    str(programs / "postgres"),
                    "-D",
                    str(data),
                    *(f"--{name}={value}" for name, value in settings.items()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                user=user,
                cwd=directory,
                start_new_session=True,  # Ctrl-C at a terminal is for whoever asked
            )
        try:
            wait_until_ready(programs, directory, process, log)
            yield f"host={directory} user={USER} dbname=postgres"
        finally:
            process.send_signal(signal.SIGINT)  # "fast": ends sessions, and writes everything
            process.wait(START_SECONDS)
    finally:
        shutil.rmtree(directory)


def wait_until_ready(programs: Path, directory: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return once it takes connections."""
    deadline = time.monotonic() + START_SECONDS
    ask = [str(programs / "pg_isready"), "-q", "-h", str(directory)]
    while time.monotonic() < deadline and process.poll() is None:
        if subprocess.run(ask, check=False).returncode == 0:
            return
        time.sleep(0.1)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
    raise RuntimeError(f"PostgreSQL is not ready; the end of its log:\n{tail}")
