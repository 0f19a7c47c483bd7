"""Finds an assignor by the name that members offer in a join. What an assignor does is not said here.

Assignors come from entry points of the group `rallypoint.assignors`: any installed distribution may add one. The
built-in ones are known even if the project runs from its sources and has no metadata. A name means one class: if
two distributions offer different classes under it, the name is refused rather than one of them chosen, since the
members of a group would then silently disagree.

A program may also hand over a class or an instance of its own (`resolve`), with nothing installed.

AssignorError
  UnknownAssignor     nobody offers the name
  AmbiguousAssignor   different classes are offered under the name
  UnusableAssignor    what is offered cannot be loaded, or is no assignor of that name
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract

from rallypoint.assignors.contract import Assignor
from rallypoint.protocol.limits import ID_LENGTH_MAX

Choice = str | type[Assignor] | Assignor
"""What a program may name an assignor by."""

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
    """There is no one assignor to use under a name. The text says why, in words for whoever configured it."""


class UnknownAssignor(AssignorError):  # noqa: N818 - reads as a sentence, as the names of the protocol's errors do
    """Nobody offers an assignor of this name. The text lists the names there are."""


class AmbiguousAssignor(AssignorError):  # noqa: N818
    """Different classes are offered under this name. The text lists them."""


class UnusableAssignor(AssignorError):  # noqa: N818
    """What is offered under this name cannot be used: the import fails, or it is no `Assignor` of that name."""


def names(installed: Iterable[EntryPoint] | None = None) -> tuple[str, ...]:
    """All names that are offered, sorted. Nothing is imported, so a name may still prove unusable.

    `installed`: the entry points to look at besides the built-in ones; None for those of this Python's distributions.
    """
    return tuple(sorted({offer.name for offer in _offers(installed)}))


def find(name: str, installed: Iterable[EntryPoint] | None = None) -> Assignor:
    """A new assignor of this name. Raises one of this module's errors if there is not exactly one to use.

    Reads the metadata of all installed distributions and imports one module: for the start of a member, not for each
    rebalance. `installed` is as in `names`.
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
    """The assignor that is meant: by its name as `find`, an instance itself, a class made without arguments.

    Raises one of this module's errors; also if it goes by the name of a built-in one that it is not, for the others
    in the group would take it for that.
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
    _check_terms(assignor, described)
    return assignor


def said_by(error: BaseException) -> str:
    """What went wrong in an assignor's own code. What a program exits with says nothing by itself."""
    return str(error) if isinstance(error, Exception) else repr(error)


def _offers(installed: Iterable[EntryPoint] | None) -> list[EntryPoint]:
    return [*BUILT_IN, *(entry_points(group=GROUP) if installed is None else installed)]


def _load(offer: EntryPoint) -> Assignor:
    described = f"assignor {offer.name!r} ({offer.value})"
    try:
        loaded = offer.load()
    except (Exception, SystemExit) as error:  # importing runs somebody else's code, which may fail in any way
        raise UnusableAssignor(f"{described} cannot be loaded: {said_by(error)}") from error
    _check_class(loaded, described)
    if getattr(loaded, "name", None) != offer.name:
        raise UnusableAssignor(f"{described} calls itself {getattr(loaded, 'name', None)!r}: the names must be equal")
    assignor = _made(loaded, described)
    _check_terms(assignor, described)
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
        raise UnusableAssignor(f"{described} cannot be made: {said_by(error)}") from error


def _check_terms(assignor: Assignor, described: str) -> None:
    """What it says of itself is what members offer in a join, and go by."""
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
