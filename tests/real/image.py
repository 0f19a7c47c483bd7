"""The image of the Dockerfile, built by buildah, and containers of it without Docker.

The bases stand in the user's cache, made once from Debian's packages: no registry of images is asked.
`python -m tests.real.image` makes them and nothing else, so that a slow download is not a test's time.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.real.parts import ROOT, USER_CACHE, alone_in

SCRIPTS = ROOT / "scripts" / "image"
REMEDY = "as root: apt-get install --no-install-recommends buildah mmdebstrap, then python -m tests.real.image"
BASES = {"base": (), "build-base": ("--compiler",)}
"""What the image stands on, and what the package is built on: the options of base.sh."""
BASE_SECONDS = 900.0
BUILD_SECONDS = 1_500.0
"""The hot modules are compiled, which takes a processor four minutes, and this one may be shared."""
PROGRAMS = ("buildah", "mmdebstrap", "unshare", "nsenter", "setpriv", "chroot", "mount")


class ImageError(Exception):
    """The image, or what it stands on, could not be made; the message is that of the program."""


@dataclass(frozen=True, slots=True)
class Image:
    """root: its files. user: `UID:GID`. health: the command of its health check, without the word CMD."""

    root: Path
    user: str
    environment: Mapping[str, str]
    command: Sequence[str]
    folder: str
    health: Sequence[str]
    labels: Mapping[str, str]
    volumes: Sequence[str]
    stop_signal: str


@dataclass(frozen=True, slots=True)
class Container:
    """One that runs. process: what started it, and ends with its status. pid: of its first process, seen from here."""

    image: Image
    process: "subprocess.Popen[str]"
    pid: int
    environment: Mapping[str, str]

    def execute(self, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in it, as its user: `docker exec`."""
        uid, _, gid = self.image.user.partition(":")
        there = (f"--target={self.pid}", "--mount", "--pid", "--root", f"--setuid={uid}", f"--setgid={gid}")
        return subprocess.run(
            ["nsenter", *there, "--wd=/", *command],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


def find_base(name: str) -> Path:
    """One of `BASES`, a root file system; made where there is none, or another. Errors: ImageError."""
    script = SCRIPTS / "base.sh"
    base = USER_CACHE / "image" / f"{name}-{hashlib.sha256(script.read_bytes()).hexdigest()[:12]}.tar"
    with alone_in(base.parent):
        if not base.exists():
            _run([script, *BASES[name], base], BASE_SECONDS)
    return base


@contextmanager
def built_image(*options: str | Path) -> Iterator[Image]:
    """The image, built anew from this checkout, for as long as the context lasts. options: more of build.sh's.
    Errors: ImageError.
    """
    base = find_base("base")
    # Root of a container may write below /var/tmp; what pytest keeps of its runs is no place for hundreds of megabytes.
    with TemporaryDirectory(prefix="rallypoint-image-", dir="/var/tmp") as folder:
        _run([SCRIPTS / "build.sh", "--base", base, "--storage", folder, *options], BUILD_SECONDS)
        store = ("buildah", "--storage-driver", "vfs", "--root", f"{folder}/root", "--runroot", f"{folder}/run")
        (listed,) = [
            image
            for image in json.loads(_run([*store, "images", "--json"], 60))
            if any("/rallypoint:" in name for name in image["names"] or ())
        ]
        config = json.loads(_run([*store, "inspect", "--type", "image", listed["id"]], 60))["Docker"]["config"]
        container = _run([*store, "from", "--pull-never", listed["id"]], 120).strip()
        root = Path(_run([*store, "mount", container], 60).strip())
        try:
            yield Image(
                root=root,
                user=config["User"],
                environment=dict(entry.split("=", 1) for entry in config["Env"]),
                command=[*(config.get("Entrypoint") or ()), *config["Cmd"]],
                folder=config["WorkingDir"],
                health=config["Healthcheck"]["Test"][1:],
                labels=config["Labels"],
                volumes=list(config["Volumes"]),
                stop_signal=config["StopSignal"],
            )
        finally:
            _run([*store, "umount", container], 60)


@contextmanager
def container_of(image: Image, data: Path, **environment: str) -> Iterator[Container]:
    """Run the image's command as a strict orchestrator does: first process of its own, the image's user without any
    capability and none to gain, a read-only root, and nothing writable but `data` at its volume and an empty /tmp.

    environment: beside the image's. Whoever leaves the context kills what still runs.
    """
    root, (volume,) = str(image.root), image.volumes
    mounts = (
        'set -e; mount --bind "$0" "$0"; mount -o remount,bind,ro "$0"; mount --bind "$1" "$0$2"; '
        'mount -t tmpfs -o size=16m none "$0/tmp"; mount -t proc none "$0/proc"; mount --rbind /dev "$0/dev"; '
        'chroot=$3; shift 3; exec setpriv --no-new-privs chroot "--userspec=$chroot" --groups= "$@"'
    )
    uid, _, gid = image.user.partition(":")
    os.chown(data, int(uid), int(gid))
    given = {**image.environment, **environment}
    within = ["sh", "-c", 'cd "$0" && exec "$@"', image.folder, *image.command]
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    with subprocess.Popen(
        [*apart, "sh", "-c", mounts, root, str(data), volume, image.user, root, *within],
        env=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Container(image, process, _child_of(process), given)
        finally:
            process.kill()


def _child_of(process: "subprocess.Popen[str]") -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        if found := children.read_text().split():
            return int(found[0])
        time.sleep(0.01)
    raise ImageError("the container did not start")


def _run(command: Sequence[str | Path], seconds: float) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ImageError(str(error)) from error
    if done.returncode != 0:
        raise ImageError(
            f"{Path(command[0]).name} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return done.stdout


def what_is_missing() -> str | None:
    """A program that is not here, or the rights to use them; None where all is there."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return missing[0]
    asked = ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "none", "/mnt"]
    if os.geteuid() != 0 or subprocess.run(asked, capture_output=True, check=False).returncode != 0:
        return "rights: root, and a kernel that lets it make namespaces and mounts"
    return None


if __name__ == "__main__":
    if lacking := what_is_missing():
        sys.exit(f"The image cannot be built: {lacking} is missing; {REMEDY}")
    try:
        for name in BASES:
            find_base(name)
    except ImageError as error:
        sys.exit(f"A base of the image cannot be made: {error}")
