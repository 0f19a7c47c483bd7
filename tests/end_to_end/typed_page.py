"""A page whose blocks are typed as they stand: into terminals, in a folder of their own, against a service."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.end_to_end.program_process import wait_until
from tests.end_to_end.service_process import ServiceProcess
from tests.real.parts import PYTHON_PATH, ROOT

WRITTEN_URL = "http://127.0.0.1:8000"
SECONDS = 300.0
"""For each thing that is to be seen: on a busy machine Spark takes minutes to start."""
LINE_BUFFERED = "import sys\n\nsys.stdout.reconfigure(line_buffering=True)\n"
"""What Python does by itself on a terminal, where this is a file: a line is written as a whole, and at once. Two
programs in one terminal would else write into each other's lines.
"""


class Block(NamedTuple):
    """What is to be typed, or saved (`language` is python), and the paragraph before it."""

    language: str
    code: str
    before: str

    @property
    def terminal(self) -> str:
        """Into which it is to be typed; nothing where it goes into any."""
        found = re.match(r"\*\*Terminal (\w)\*\*", self.before)
        return "" if found is None else found[1]

    @property
    def waits(self) -> bool:
        """Whether the reader is told that nothing is answered yet."""
        return "and waits" in self.before


def blocks_of(text: str, heading: str) -> list[Block]:
    """Those of the page's part with this heading, in order."""
    (part,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return all_blocks(part)


def all_blocks(text: str) -> list[Block]:
    """Those of a text, in order."""
    prose, *rest = re.split(r"^```(\w*)\n(.*?)^```\n", text, flags=re.MULTILINE | re.DOTALL)
    before = [prose, *rest[2::3]]
    return [
        Block(language, code, paragraphs.strip().rpartition("\n\n")[2])
        for paragraphs, language, code in zip(before, rest[::3], rest[1::3], strict=False)
    ]


@dataclass
class Terminal:
    """A shell that is typed into; what it shows goes to a file."""

    folder: Path
    name: str
    environment: dict[str, str]
    _process: "subprocess.Popen[str]" = field(init=False)
    _typed: int = 0

    def __post_init__(self) -> None:
        with self._path.open("w") as shown:
            self._process = subprocess.Popen(
                ["bash"], cwd=self.folder, env=self.environment, stdin=subprocess.PIPE, stdout=shown,
                stderr=subprocess.STDOUT, text=True, start_new_session=True,
            )  # fmt: skip

    @property
    def _path(self) -> Path:
        return self.folder.parent / f"terminal-{self.name}.txt"

    def shown(self) -> str:
        """All that it shows."""
        return self._path.read_text()

    def type(self, text: str) -> None:
        """Type it, and Enter."""
        assert self._process.stdin is not None
        self._process.stdin.write(text.rstrip("\n") + "\n")
        self._process.stdin.flush()

    def paste(self, code: str) -> None:
        """Run the commands in this shell. What is typed until they have ended goes to them."""
        self._typed += 1
        commands = self.folder.parent / f"terminal-{self.name}-{self._typed}.sh"
        commands.write_text(code)
        self.type(f'source {commands}; echo "[{self._typed} ended with $?]"')

    def wait_until_done(self) -> None:
        """Until all that was pasted has ended, the last command of each well."""
        end = f"[{self._typed} ended with "
        self.wait_for(end)
        assert f"{end}0]" in self.shown(), self.shown()

    def wait_for(self, *texts: str) -> None:
        """Until each is to be seen."""
        wait_until(lambda: all(text in self.shown() for text in texts), " and ".join(texts), self.shown, SECONDS)

    def press_ctrl_c(self) -> None:
        """What a terminal does then: all that was started in it gets SIGINT; the shell goes on."""
        for process in psutil.Process(self._process.pid).children(recursive=True):
            process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """End it, with all that it started."""
        assert self._process.stdin is not None
        for process in psutil.Process(self._process.pid).children(recursive=True):
            process.kill()
        self._process.stdin.close()
        self._process.wait(SECONDS)


@dataclass
class Reader:
    """Who follows a page: a folder with the checkout's `.venv` and `scripts`, terminals, and the service."""

    folder: Path
    service: ServiceProcess
    terminals: dict[str, Terminal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        (self.folder / ".venv").symlink_to(sys.prefix)
        (self.folder / "scripts").symlink_to(ROOT / "scripts")
        self._customization.mkdir()
        (self._customization / "sitecustomize.py").write_text(LINE_BUFFERED)

    @property
    def _customization(self) -> Path:
        return self.folder.parent / "customization"

    def terminal(self, name: str) -> Terminal:
        """The one of this name; a new one the first time."""
        if name not in self.terminals:
            inherited = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
            own = {"PYTHONPATH": f"{self._customization}{os.pathsep}{PYTHON_PATH}", "SPARK_LOCAL_IP": "127.0.0.1"}
            self.terminals[name] = Terminal(self.folder, name, inherited | own)
        return self.terminals[name]

    def type(self, block: Block, *names: str) -> None:
        """Into each of the terminals. It has ended when this returns, or waits for others if the page says so."""
        for name in names:
            self.terminal(name).paste(self._here(block.code))
            if block.waits:
                wait_until(self._is_waiting, "a call that waits", self.terminal(name).shown, SECONDS)
            else:
                self.terminal(name).wait_until_done()

    def save(self, block: Block) -> None:
        """As the file that its first line names, and that the paragraph before it names, too."""
        (name,) = re.findall(r"\A# (try_\w+\.py)\n", block.code)
        assert f"`{name}`" in block.before
        (self.folder / name).write_text(self._here(block.code))

    def _here(self, code: str) -> str:
        return code.replace(WRITTEN_URL, self.service.url)

    def _is_waiting(self) -> bool:
        return self.service.metrics()["rallypoint_parked_calls"] > 0

    def group(self, group_id: str) -> dict[str, Any]:
        """What the service says of it."""
        status, described = self.service.send("GET", f"/v1/groups/{group_id}")
        assert status == 200, described
        return dict(described)

    def offsets(self, group_id: str) -> dict[str, int]:
        """What is committed of the topic, by partition."""
        return {part: found["offset"] for part, found in self.group(group_id)["offsets"]["clicks"].items()}
