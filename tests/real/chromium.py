"""A real browser: Debian's Chromium, driven by playwright-core in Node; axe-core says whether a page is accessible.

Both libraries are fetched from npm into .cache/. `python -m tests.real.chromium` fetches them and nothing else.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.real.languages import MakeError, run_tool
from tests.real.parts import CACHE, ROOT, alone_in, require, require_program

DRIVER = ROOT / "tests" / "real" / "chromium.mjs"
LIBRARIES = {"playwright-core": "1.65.1", "axe-core": "4.14.1"}
REMEDY = "sudo apt-get install --no-install-recommends chromium nodejs npm"
END_SECONDS = 20.0


class BrowserError(Exception):
    """What was asked of the browser did not come about; the message says what, and what the page showed."""


class Browser:
    """A browser with an empty profile of its own. It has one page at a time, which `open` makes anew."""

    def __init__(self, command: list[str | Path], profile: Path) -> None:
        self._process = subprocess.Popen(
            [*command, profile],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TZ": "UTC"},
        )

    def ask(self, what: str, **more: Any) -> Any:
        """One command of chromium.mjs, and its answer. Raises BrowserError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"what": what, **more}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "the browser is gone"}')
        if "error" in answer:
            raise BrowserError(answer["error"])
        return answer.get("value")

    def open(self, url: str, width: int = 1600, height: int = 900, scheme: str = "light") -> None:
        """A new page, of a visitor who has never been here."""
        self.ask("open", url=url, width=width, height=height, scheme=scheme)

    def look(self, width: int, height: int = 900, scheme: str = "light") -> None:
        """Another size of the window, or other colours."""
        self.ask("look", width=width, height=height, scheme=scheme)

    def go(self, hash_: str) -> None:
        """Another place of the same page."""
        self.ask("go", hash=hash_)

    def wait(self, selector: str, *, text: str = "", gone: bool = False, seconds: float = 60) -> str:
        """Until an element is there, with the text in it; its whole text."""
        found: str = self.ask("wait", selector=selector, text=text, gone=gone, ms=seconds * 1000)
        return found

    def texts(self, selector: str) -> list[str]:
        """Of all elements that match."""
        found: list[str] = self.ask("texts", selector=selector)
        return found

    def click(self, selector: str) -> None:
        """Click the first that matches."""
        self.ask("click", selector=selector)

    def fill(self, selector: str, text: str) -> None:
        """Type into a field."""
        self.ask("fill", selector=selector, text=text)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        self.ask("press", keys=keys)

    def evaluate(self, expression: str) -> Any:
        """What a JavaScript expression gives."""
        return self.ask("evaluate", expression=expression)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """What is in sight, as a PNG."""
        self.ask("picture", path=str(path), whole=whole)

    def violations(self) -> list[str]:
        """What axe-core finds wrong with the page as it stands."""
        found: list[str] = self.ask("axe")
        return found

    def complaints(self) -> list[str]:
        """Errors of scripts, and what the policy refused, since `open`. Failed requests are not among them."""
        found: list[str] = self.ask("complaints")
        return found

    def end(self) -> None:
        """Close it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def install_libraries(npm: Path) -> Path:
    """The folder in which Node finds them. Errors: MakeError."""
    with alone_in(CACHE / "chromium"):
        home = CACHE / "chromium" / "-".join(f"{name}-{version}" for name, version in LIBRARIES.items())
        if not (home / "node_modules").is_dir():
            partial = home.with_name(f"{home.name}-{os.getpid()}")
            partial.mkdir(parents=True)
            try:
                (partial / "package.json").write_text(json.dumps({"private": True, "dependencies": LIBRARIES}))
                options = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
                run_tool((npm, "install", *options, "--cache", CACHE / "npm"), partial, {})
                home.mkdir(exist_ok=True)
                (partial / "node_modules").rename(home / "node_modules")
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        # Node looks for libraries beside the file that asks for them.
        shutil.copy(DRIVER, home)
    return home


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser for all tests of this process."""
    chromium = require_program("chromium", REMEDY)
    node, npm = require_program("node", REMEDY), require_program("npm", REMEDY)
    try:
        home = install_libraries(npm)
    except MakeError as error:
        require(False, "playwright-core and axe-core", str(error))
        raise
    with TemporaryDirectory(prefix="chromium-") as profile:
        started = Browser([node, home / DRIVER.name, chromium], Path(profile))
        try:
            yield started
        finally:
            started.end()


def main() -> None:
    """Fetch the libraries if it can be done; if not, say so. The tests decide what that means."""
    npm = shutil.which("npm")
    try:
        if npm:
            install_libraries(Path(npm))
    except MakeError as error:
        print(f"Not all tests of the page can run: {error}")
    if not (npm and shutil.which("chromium")):
        print(f"Not all tests of the page can run: {REMEDY}")


if __name__ == "__main__":
    main()
