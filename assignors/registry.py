"""Finds an assignor by the name that members offer in a join. What an assignor does is not said here.

Assignors come from entry points of the group `rallypoint.assignors`: any installed distribution may add one. The
built-in ones are known even where the project runs from its sources and has no metadata. A name means one class: where
two distributions offer different classes under it, the name is refused rather than one of them chosen, since the
members of a group would then disagree without a word.

AssignorError
  UnknownAssignor     nobody offers the name
  AmbiguousAssignor   different classes are offered under the name
  UnusableAssignor    what is offered cannot be loaded, or is no assignor of that name
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract

from assignors.contract import Assignor

GROUP = "rallypoint.assignors"
"""The group of entry points."""

BUILT_IN = (
    EntryPoint(name="range", value="assignors.range:RangeAssignor", group=GROUP),
    EntryPoint(name="roundrobin", value="assignors.roundrobin:RoundRobinAssignor", group=GROUP),
    EntryPoint(name="sticky", value="assignors.sticky:StickyAssignor", group=GROUP),
    EntryPoint(name="cooperative-sticky", value="assignors.cooperative_sticky:CooperativeStickyAssignor", group=GROUP),
    EntryPoint(name="metaq-default", value="assignors.metaq:MetaqDefaultAssignor", group=GROUP),
    EntryPoint(name="metaq-consistent-hash", value="assignors.metaq:MetaqConsistentHashAssignor", group=GROUP),
    EntryPoint(name="rocketmq-averagely", value="assignors.rocketmq:RocketmqAveragelyAssignor", group=GROUP),
    EntryPoint(name="rocketmq-averagely-by-circle", value="assignors.rocketmq:RocketmqByCircleAssignor", group=GROUP),
    EntryPoint(name="rocketmq-consistent-hash", value="assignors.rocketmq:RocketmqConsistentHashAssignor", group=GROUP),
    EntryPoint(name="weighted", value="assignors.weighted:WeightedAssignor", group=GROUP),
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
    """A new assignor of this name. Raises one of this module's errors where there is not exactly one to use.

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


def _offers(installed: Iterable[EntryPoint] | None) -> list[EntryPoint]:
    return [*BUILT_IN, *(entry_points(group=GROUP) if installed is None else installed)]


def _load(offer: EntryPoint) -> Assignor:
    described = f"assignor {offer.name!r} ({offer.value})"
    try:
        loaded = offer.load()
    except Exception as error:  # importing runs somebody else's code, which may fail in any way
        raise UnusableAssignor(f"{described} cannot be loaded: {error}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, Assignor)) or isabstract(loaded):
        raise UnusableAssignor(f"{described} is not a class that implements assignors.contract.Assignor")
    if getattr(loaded, "name", None) != offer.name:
        raise UnusableAssignor(f"{described} calls itself {getattr(loaded, 'name', None)!r}: the names must be equal")
    try:
        return loaded()
    except TypeError as error:
        raise UnusableAssignor(f"{described} cannot be made without arguments: {error}") from error
