"""How the public modules import what they name: each name when it is first asked for (PEP 562).

Who needs a part, as a task of Spark that reads records and is no member, does not wait for the libraries of the others.
"""

from collections.abc import Callable, Mapping, MutableMapping
from importlib import import_module


def lazy_names(names: MutableMapping[str, object], homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a module. `names`: its globals, in which a name stays once it was asked for. `homes`: where
    each name of `__all__` is, by module, separated by spaces.
    """
    module_of = {name: module for module, listed in homes.items() for name in listed.split()}

    def find(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {names['__name__']!r} has no attribute {name!r}")
        found = names[name] = getattr(import_module(module_of[name]), name)
        return found

    return find
