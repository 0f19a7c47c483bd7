"""Lazy imports for the public modules: each name is imported when it is first used (PEP 562).

A program that uses one part, such as a Spark task that reads records, does not wait for the libraries of the others.
"""

from collections.abc import Callable, Mapping, MutableMapping
from importlib import import_module

_EXTRAS = {"confluent_kafka": "kafka", "psycopg": "postgresql"} | dict.fromkeys(
    ("numpy", "pandas", "pyarrow", "pyspark"), "spark"
)
"""By package that a name may need, the extra that brings it."""


def lazy_names(names: MutableMapping[str, object], homes: Mapping[str, str]) -> Callable[[str], object]:
    """Make the `__getattr__` of a module.

    Args:
        names: The globals of the module, which keep each name once it was imported.
        homes: By module, the names of `__all__` that are defined there, separated by spaces.
    """
    module_of = {name: module for module, listed in homes.items() for name in listed.split()}

    def find(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {names['__name__']!r} has no attribute {name!r}")
        try:
            found = names[name] = getattr(import_module(module_of[name]), name)
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get((error.name or "").partition(".")[0])
            if extra is None:
                raise
            text = f"{name} needs packages that are not here: pip install 'rallypoint[{extra}]' ({error})"
            raise ModuleNotFoundError(text, name=error.name) from error
        return found

    return find
