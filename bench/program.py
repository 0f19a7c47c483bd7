"""A program of the benchmarks in a process of its own, which says what happens to it and takes commands.

`bench.member_program` and `bench.residents` are such: one JSON object a line, with `what` and `at_s`.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.process import ProcessError, environment, last_lines, python

LINE_BYTES_MAX = 1024 * 1024
END_TIMEOUT_S = 30.0


class Program:
    """The process, while it runs. `log_path`: its log, whose end is told where it ends too early; None: it has none."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log_path: Path | None = None) -> None:
        self._name = name
        self._log_path = log_path
        self._process = process

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    async def line(self, *what: str, timeout_s: float = 60.0) -> dict[str, Any]:
        """The next line of that kind; those before it are passed over. ProcessError where it does not come."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                while text := await self._process.stdout.readline():
                    line: dict[str, Any] = json.loads(text)
                    if line["what"] in what:
                        return line
        except TimeoutError:
            raise ProcessError(f"{self._name} did not say {' or '.join(what)} within {timeout_s:.0f} s") from None
        log = "" if self._log_path is None else last_lines(self._log_path)
        raise ProcessError(f"{self._name} ended before it said {' or '.join(what)}{log}")

    def tell(self, command: str) -> None:
        """Send it a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())

    async def kill(self) -> None:
        """SIGKILL. Returns when it is gone."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def end(self) -> None:
        """Close its standard input, which ends it; kill it where it does not."""
        if self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                async with asyncio.timeout(END_TIMEOUT_S):
                    await self._process.communicate()
            except TimeoutError:
                await self.kill()


@asynccontextmanager
async def program(directory: Path, name: str, module: str, *arguments: str) -> AsyncIterator[Program]:
    """Run the module, with its log in the directory; it is gone at the end."""
    log_path = directory / f"{name}.log"
    with log_path.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *python(module, *arguments), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
            env=environment(os.environ), limit=LINE_BYTES_MAX,
        )  # fmt: skip
    running = Program(name, process, log_path)
    try:
        yield running
    finally:
        await running.end()
