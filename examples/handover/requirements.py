"""What an example needs besides itself, looked at before anything starts. Each thing missing is one sentence."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

JAVA_MIN = 17
PACKAGES = ("pyspark", "pandas", "pyarrow", "rich", "psutil")
"""What every example imports."""


def missing_parts(*packages: str) -> list[str]:
    """One sentence for each part that is not there, with the line to type. `packages`: needed besides."""
    return [sentence for sentence in (missing_packages((*PACKAGES, *packages)), missing_java()) if sentence is not None]


def missing_packages(names: Sequence[str]) -> str | None:
    """Which of these cannot be imported. None of them is imported for it."""
    missing = [name for name in names if find_spec(name) is None]
    if not missing:
        return None
    return (
        f"Not installed: {', '.join(missing)}. `make setup` installs them into .venv; run this with .venv/bin/python."
    )


def missing_java() -> str | None:
    """Why Spark cannot start Java. Starts it, to ask for its version."""
    advice = (
        f"Spark needs Java {JAVA_MIN} or later: on Debian or Ubuntu, `sudo apt-get install openjdk-17-jre-headless`"
    )
    java = find_java()
    if java is None:
        return f"There is no Java. {advice}."
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = java_version(done.stderr)
    if version is None:
        return f"{java} -version does not say a version. {advice}."
    if version < JAVA_MIN:
        return f"{java} is Java {version}. {advice}, and set JAVA_HOME to it."
    return None


def find_java() -> str | None:
    """The program that PySpark will start: JAVA_HOME's, or without one that of PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return str(java) if os.access(java, os.X_OK) else None
    return shutil.which("java")


def java_version(text: str) -> int | None:
    """The major version in what `java -version` prints: 17 of "17.0.15", 8 of "1.8.0_412"."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None
