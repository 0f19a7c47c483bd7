"""Fetch the libraries of the operators' page from the npm registry into coordinator/http/ui/vendor/.

The page has no build: what a browser gets are the files of this folder. So the few names by which the libraries import
each other are made relative here, and references to source maps are taken out. Nothing else is changed.
`vendored.json` says what each file is: package, version, licence, the hash of the package as npm gives it, and the
SHA-256 of the file as it lies here. A test compares them.

    python scripts/vendor_page_libraries.py            # fetch the versions below anew

To upgrade a library, change its version here, run this, and run the tests marked `browser`.
"""

import base64
import hashlib
import json
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parents[1] / "coordinator" / "http" / "ui" / "vendor"


class Library(NamedTuple):
    """A package, and its files that the page needs: the name here, by the path in the package."""

    package: str
    version: str
    files: dict[str, str]


LIBRARIES = (
    Library("preact", "11.2.0", {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "preact-hooks.js"}),
    Library("@preact/signals-core", "1.14.5", {"dist/signals-core.mjs": "signals-core.js"}),
    Library("@preact/signals", "2.11.4", {"dist/signals.mjs": "signals.js"}),
    Library("htm", "3.1.1", {"dist/htm.mjs": "htm.js"}),
    Library("uplot", "1.6.32", {"dist/uPlot.iife.min.js": "uplot.js", "dist/uPlot.min.css": "uplot.css"}),
)
IMPORTS = {
    "preact": "./preact.js",
    "preact/hooks": "./preact-hooks.js",
    "@preact/signals-core": "./signals-core.js",
}
"""Where a browser finds what the libraries import by name. An import map would be an inline script."""

_IMPORT = re.compile(r"""(\bfrom\s*|\bimport\s*)(["'])([^"'./][^"']*)\2""")
_SOURCE_MAP = re.compile(r"\n?(//|/\*)# sourceMappingURL=[^\n]*\n?")


def as_served(name: str, text: str) -> str:
    """The text of a library's file as the page can load it."""
    text = _SOURCE_MAP.sub("\n", text)
    if name == "uplot.js":
        # Its one minified form makes a global variable; as a module it hands it out.
        return text.rstrip() + "\nexport default uPlot;\n"
    return _IMPORT.sub(lambda found: f"{found[1]}{found[2]}{IMPORTS[found[3]]}{found[2]}", text)


def fetch(library: Library, folder: Path) -> dict[str, Any]:
    """Bring the package's files into FOLDER; what is to be noted of it."""
    command = ["npm", "pack", "--json", "--silent", "--ignore-scripts", f"{library.package}@{library.version}"]
    packed = json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout)[0]
    archive = folder / str(packed["filename"])
    algorithm, _, digest = str(packed["integrity"]).partition("-")
    if hashlib.new(algorithm, archive.read_bytes()).digest() != base64.b64decode(digest):
        raise SystemExit(f"{archive.name} is not what npm says it is")
    notes: dict[str, str] = {}
    with tarfile.open(archive) as package:

        def read(path: str) -> str:
            found = package.extractfile(f"package/{path}")
            assert found is not None, path
            return found.read().decode()

        licence_file = f"{library.package.removeprefix('@').replace('/', '-')}.LICENSE.txt"
        (FOLDER / licence_file).write_text(read("LICENSE"), "utf-8")
        licence = json.loads(read("package.json"))["license"]
        for path, name in library.files.items():
            text = as_served(name, read(path))
            (FOLDER / name).write_text(text, "utf-8")
            notes[name] = hashlib.sha256(text.encode()).hexdigest()
    return {
        "package": library.package,
        "version": library.version,
        "licence": licence,
        "licence_file": licence_file,
        "integrity": packed["integrity"],
        "sha256": notes,
    }


def main() -> None:
    """Fetch all of them anew."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        noted = [fetch(library, Path(folder)) for library in LIBRARIES]
    (FOLDER / "vendored.json").write_text(json.dumps(noted, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
