"""Whether the hot modules of this package are compiled. What is compiled, and how: setup.py of the source."""

from importlib.util import find_spec

ONE_OF_THEM = "rallypoint.coordinator.core.decide"


def is_compiled() -> bool:
    """Whether they are extension modules, made by mypyc; in a pure wheel and in a checkout they are Python."""
    found = find_spec(ONE_OF_THEM)
    return found is not None and found.origin is not None and not found.origin.endswith(".py")
