"""Finds an assignor by the name that members offer in a join request.

Assignors are entry points of the group `rallypoint.assignors`, which any installed distribution can add. The built-in
ones are found even if the project runs from its sources without metadata. If two distributions register different
classes under one name, the name is refused: a choice between them could differ between the members of a group.

A program can also pass a class or an instance of its own (`resolve`), without installing anything.

AssignorError
  UnknownAssignor     no assignor has the name
  AmbiguousAssignor   different classes are registered under the name
  UnusableAssignor    the registered object cannot be loaded, or is no assignor of that name
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract

from rallypoint.assignors.contract import Assignor
from rallypoint.protocol.limits import ID_LENGTH_MAX

Choice = str | type[Assignor] | Assignor
"""An assignor as a program passes it: its name, its class or an instance."""

GROUP = "rallypoint.assignors"
"""The group of entry points."""

BUILT_IN = tuple(
    EntryPoint(name=name, value=f"rallypoint.assignors.{place}", group=GROUP)
    for name, place in (
        ("range", "range:RangeAssignor"),
        ("roundrobin", "roundrobin:RoundRobinAssignor"),
        ("sticky", "sticky:StickyAssignor"),
        ("cooperative-sticky", "cooperative_sticky:CooperativeStickyAssignor"),
        ("metaq-default", "other_systems.metaq:MetaqDefaultAssignor"),
        ("metaq-consistent-hash", "other_systems.metaq:MetaqConsistentHashAssignor"),
        ("rocketmq-averagely", "other_systems.rocketmq:RocketmqAveragelyAssignor"),
        ("rocketmq-averagely-by-circle", "other_systems.rocketmq:RocketmqByCircleAssignor"),
        ("rocketmq-consistent-hash", "other_systems.rocketmq:RocketmqConsistentHashAssignor"),
        ("weighted", "weighted:WeightedAssignor"),
    )
)
"""The same entry points as the project's own metadata declares."""


class AssignorError(Exception):
    """The configured assignor cannot be used. The message says why."""


class UnknownAssignor(AssignorError):  # noqa: N818 - reads as a sentence, as the names of the protocol's errors do
    """No assignor has this name. The message lists the existing names."""


class AmbiguousAssignor(AssignorError):  # noqa: N818
    """Different classes are registered under this name. The message lists them."""


class UnusableAssignor(AssignorError):  # noqa: N818
    """The object registered under this name cannot be used: its import fails, or it is no `Assignor` of that name."""


def names(installed: Iterable[EntryPoint] | None = None) -> tuple[str, ...]:
    """All registered names, sorted. Nothing is imported, so an assignor may still prove unusable.

    `installed`: the entry points besides the built-in ones; None for those of the installed distributions.
    """
    return tuple(sorted({offer.name for offer in _offers(installed)}))


def find(name: str, installed: Iterable[EntryPoint] | None = None) -> Assignor:
    """A new assignor of this name.

    `name`: the name to look up.
    `installed`: as in `names`.

    Raises an AssignorError if there is not exactly one usable assignor. Reads the metadata of all installed
    distributions and imports a module, so call it when a member starts, not at each rebalance.
    """
    offers = _offers(installed)
    by_target = {offer.value: offer for offer in offers if offer.name == name}  # declared twice, the same class is one
    if not by_target:
        known = ", ".join(sorted({offer.name for offer in offers}))
        raise UnknownAssignor(f"no assignor is called {name!r}; there are: {known}")
    if len(by_target) > 1:
        raise AmbiguousAssignor(f"different assignors are called {name!r}: {', '.join(sorted(by_target))}")
    (offer,) = by_target.values()
    return _load(offer)


def resolve(choice: Choice) -> Assignor:
    """The assignor for `choice`: a name is looked up as by `find`, a class is created without arguments.

    Raises an AssignorError, also if another class has the name of a built-in assignor, because the other members would
    use the built-in one.
    """
    if isinstance(choice, str):
        return find(choice)
    described = f"the assignor {choice!r}"
    if isinstance(choice, type):
        _check_class(choice, described)
        assignor = _made(choice, described, "; pass an instance")
    elif isinstance(choice, Assignor):
        assignor = choice
    else:
        raise UnusableAssignor(
            f"{described} is no name, no subclass of rallypoint.assignors.Assignor and no instance of one"
        )
    _check_attributes(assignor, described)
    return assignor


def error_text(error: BaseException) -> str:
    """The message of an error in an assignor's own code. The message of a SystemExit alone says nothing."""
    return str(error) if isinstance(error, Exception) else repr(error)


def _offers(installed: Iterable[EntryPoint] | None) -> list[EntryPoint]:
    return [*BUILT_IN, *(entry_points(group=GROUP) if installed is None else installed)]


def _load(offer: EntryPoint) -> Assignor:
    described = f"assignor {offer.name!r} ({offer.value})"
    try:
        loaded = offer.load()
    except (Exception, SystemExit) as error:  # importing runs somebody else's code, which may fail in any way
        raise UnusableAssignor(f"{described} cannot be loaded: {error_text(error)}") from error
    _check_class(loaded, described)
    if getattr(loaded, "name", None) != offer.name:
        raise UnusableAssignor(f"{described} calls itself {getattr(loaded, 'name', None)!r}: the names must be equal")
    assignor = _made(loaded, described)
    _check_attributes(assignor, described)
    return assignor


def _check_class(loaded: object, described: str) -> None:
    if not (isinstance(loaded, type) and issubclass(loaded, Assignor)) or isabstract(loaded):
        raise UnusableAssignor(f"{described} is not a class that implements assignors.contract.Assignor")


def _made(kind: type[Assignor], described: str, instead: str = "") -> Assignor:
    try:
        return kind()
    except TypeError as error:
        raise UnusableAssignor(f"{described} cannot be made without arguments{instead}: {error}") from error
    except (Exception, SystemExit) as error:
        raise UnusableAssignor(f"{described} cannot be made: {error_text(error)}") from error


def _check_attributes(assignor: Assignor, described: str) -> None:
    """Check the attributes that members send in a join request and rely on."""
    name, protocol = getattr(assignor, "name", None), assignor.protocol
    if not isinstance(name, str) or not 1 <= len(name) <= ID_LENGTH_MAX:
        raise UnusableAssignor(f"{described} has no name, or not one of 1 to {ID_LENGTH_MAX} characters: {name!r}")
    if protocol not in ("eager", "cooperative"):
        raise UnusableAssignor(f'{described} has the protocol {protocol!r}, which is not "eager" or "cooperative"')
    kind = type(assignor)
    for offer in BUILT_IN:
        if offer.name == name and offer.value != f"{kind.__module__}:{kind.__qualname__}":
            raise UnusableAssignor(
                f"{described} calls itself {name!r}, as a built-in one is called; give it another name"
            )
