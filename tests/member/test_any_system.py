"""A client runs where the service does not: nothing that it imports is of Unix or of the service alone.

Each test is a process of its own, in which these modules cannot be imported.
"""

import subprocess
import sys

import pytest

from tests.real.parts import ROOT

OF_UNIX = ("fcntl", "resource", "uvloop", "pwd", "grp", "termios", "_posixshmem")
OF_THE_SERVICE = ("rallypoint.coordinator", "rallypoint.cli", "pydantic_settings", "prometheus_client")


def run(code: str, *without: str) -> "subprocess.CompletedProcess[str]":
    """Run it where these cannot be imported."""
    blocked = f"import sys\nfor name in {without!r}: sys.modules[name] = None\n"
    return subprocess.run(
        [sys.executable, "-c", blocked + code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


EVERY_MODULE = """
import importlib, pkgutil
for package in ("rallypoint.protocol", "rallypoint.assignors", "rallypoint.member"):
    there = importlib.import_module(package)
    for module in pkgutil.walk_packages(there.__path__, f"{package}."):
        if module.name not in EXCEPT:
            importlib.import_module(module.name)
            print(module.name)
"""


def test_every_module_of_a_client_is_imported_without_unix_and_without_the_service() -> None:
    pytest.importorskip("confluent_kafka")
    # asyncio looks for msvcrt itself, so it comes first.
    windows = "import asyncio, types\nsys.modules['msvcrt'] = types.SimpleNamespace(LK_NBLCK=2, locking=print)\n"
    with_metrics = {"prometheus_client"}
    for allowed, left_out in ((set[str](), {"rallypoint.member.metrics"}), (with_metrics, set[str]())):
        without = [name for name in (*OF_UNIX, *OF_THE_SERVICE) if name not in allowed]
        done = run(f"EXCEPT = {left_out!r}\n{windows}{EVERY_MODULE}", *without)
        assert (done.returncode, done.stderr) == (0, "")
        assert "rallypoint.member.sources.writer" in done.stdout
        assert ("rallypoint.member.metrics" in done.stdout) == bool(allowed)


def test_a_wrong_import_is_seen() -> None:
    for name in ("fcntl", "rallypoint.coordinator.settings"):
        done = run(f"import {name}", *OF_UNIX, *OF_THE_SERVICE)
        assert done.stderr.splitlines()[-1].startswith("ModuleNotFoundError: ")


WRITING = """
import asyncio, tempfile, types
calls = []
def locking(handle, mode, size):
    calls.append((mode, size))
    if len(calls) % 2:
        raise PermissionError("another has it")
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
from rallypoint.member.sources.files import FilesSource
from rallypoint.member.sources.records import Record
from rallypoint.member.sources.writer import FilesWriter
folder = tempfile.mkdtemp()
FilesWriter(folder, "clicks", 1).append(0, [Record(b"a"), Record(b"b")])
print([record.value for record in FilesSource(folder).read("clicks", 0, 0, 10).records], set(calls), len(calls))
"""


def test_files_are_written_with_the_locks_of_windows_where_there_are_no_others() -> None:
    done = run(WRITING, *OF_UNIX)
    assert (done.stderr, done.stdout) == ("", "[b'a', b'b'] {(2, 1)} 4\n")


SERVING = "from rallypoint.cli.main import main\nsys.exit(main(['serve', '--port', '0', '--storage', 'memory:']))"


def test_the_service_says_that_it_does_not_run_on_such_a_system() -> None:
    done = run(SERVING, *OF_UNIX)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "rallypoint: The service runs on Linux, macOS and systems like them. Members run here, too.\n"
    )
