"""What users import: each name is there, and costs nothing before it is asked for."""

import subprocess
import sys
from importlib import import_module

import pytest

import rallypoint
from rallypoint._lazy import lazy_names

LAZY = ("rallypoint", "rallypoint.sources", "rallypoint.spark", "rallypoint.testing")


@pytest.mark.parametrize("face", LAZY)
def test_every_name_is_there_and_stays(face: str) -> None:
    module = import_module(face)
    assert sorted(set(module.__all__)) == sorted(module.__all__) == dir(module)
    for name in module.__all__:
        assert getattr(module, name) is vars(module)[name]


def test_the_names_are_those_of_the_table() -> None:
    for face in LAZY:
        module = import_module(face)
        assert sorted(" ".join(module._HOMES.values()).split()) == sorted(module.__all__)


def test_the_example_of_the_package_makes_a_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[rallypoint.BlockingConsumer[object]] = []
    monkeypatch.setattr(rallypoint, "run", started.append)
    assert rallypoint.__doc__ is not None
    code = [
        line.removeprefix("    ") for line in rallypoint.__doc__.splitlines() if line.startswith("    ") or not line
    ]
    names: dict[str, object] = {}
    exec("\n".join(code), names)
    assert [type(consumer) for consumer in started] == [names["BlockingConsumer"]]


def test_a_name_that_is_not_there_is_refused_as_of_any_module() -> None:
    with pytest.raises(AttributeError, match=r"module 'rallypoint' has no attribute 'Member'"):
        import_module("rallypoint").Member  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Member'"):
        from rallypoint import Member  # type: ignore[attr-defined]  # noqa: F401, PLC0415


@pytest.mark.parametrize(
    ("face", "name", "package", "extra"),
    [
        ("rallypoint.sources", "KafkaSource", "confluent_kafka", "kafka"),
        ("rallypoint.sources", "KafkaTopics", "confluent_kafka", "kafka"),
        ("rallypoint.spark", "OffsetMirror", "confluent_kafka", "kafka"),
        ("rallypoint.spark", "PostgreSQL", "psycopg", "postgresql"),
        ("rallypoint.spark", "ProgressCommits", "pyspark", "spark"),
        ("rallypoint.spark", "record_schema", "pyarrow", "spark"),
    ],
)
def test_a_name_without_its_packages_says_what_to_install(face: str, name: str, package: str, extra: str) -> None:
    program = (
        "import sys\n"
        f"class Gone:\n"
        f"    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {package!r}: raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)\n"
        "sys.meta_path.insert(0, Gone())\n"
        f"try:\n    from {face} import {name}\n"
        "except ModuleNotFoundError as error:\n    print(error.name, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    said = f"{name} needs packages that are not here: pip install 'rallypoint[{extra}]' (No module named '{package}')"
    assert done.stdout == f"{package} {said}\n"


def test_a_fault_of_a_module_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rallypoint.broken_for_a_test", None)
    find = lazy_names({"__name__": "faces"}, {"rallypoint.broken_for_a_test": "Thing"})
    with pytest.raises(ModuleNotFoundError, match=r"^import of rallypoint\.broken_for_a_test halted"):
        find("Thing")


def test_the_public_modules_alone_import_nothing_else() -> None:
    program = (
        f"import sys, {', '.join(LAZY)}\n"
        "print(sorted(n for n in sys.modules if n.startswith(('rallypoint.', 'aiohttp', 'pydantic', 'pyspark'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{sorted([*LAZY[1:], 'rallypoint._lazy'])}\n"
