"""The rules of a policy: which principals have which rights on what.

Nothing is allowed that no rule allows, and a rule that denies wins over all that allow. A caller's rules are picked out
of the index once (`Policy.rights_of`); its decisions are then a look-up in a dictionary, however many rules there are
(`Rights.allows`). A policy never changes: a changed file makes another one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rallypoint.coordinator.access.principals import ANONYMOUS

DESCRIBE = "describe"
JOIN = "join"
OPERATE = "operate"
OFFSETS = "offsets"
DELETE = "delete"
TOPICS = "topics"
ADMIN = "admin"

CLUSTER = "cluster"
GROUP = "group"
TOPIC = "topic"

RIGHTS_ON: Mapping[str, tuple[str, ...]] = {
    CLUSTER: (DESCRIBE, ADMIN),
    GROUP: (DESCRIBE, JOIN, OPERATE, OFFSETS, DELETE),
    TOPIC: (DESCRIBE, TOPICS, DELETE),
}
"""By kind of resource the rights that there are on it."""
RIGHTS = tuple(dict.fromkeys(right for rights in RIGHTS_ON.values() for right in rights))

ANY = "*"
"""In `who` everybody who has authenticated; in `may` every right; at the end of a name whatever follows."""

DECISIONS_KEPT_MAX = 65_536
"""Decisions that are remembered of a caller, and then forgotten all at once."""
CALLERS_KEPT_MAX = 4_096
"""Callers whose rules are remembered."""


@dataclass(frozen=True, slots=True)
class Resource:
    """What a right is on. name: "" of the cluster. is_prefix: all whose names begin so."""

    kind: str
    name: str
    is_prefix: bool = False

    def covers(self, kind: str, name: str) -> bool:
        """Whether this is one of what is meant."""
        if kind != self.kind:
            return False
        return name.startswith(self.name) if self.is_prefix else name == self.name

    def __str__(self) -> str:
        return self.kind if self.kind == CLUSTER else f"{self.kind}:{self.name}{ANY if self.is_prefix else ''}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. line: where it begins in the file, for those who ask why."""

    allows: bool
    who: tuple[str, ...]
    may: frozenset[str]
    on: tuple[Resource, ...]
    line: int

    def is_about(self, principals: Iterable[str]) -> bool:
        """Whether it is about a caller with these principals."""
        return any(_is_meant(pattern, principal) for pattern in self.who for principal in principals)

    def covers(self, right: str, kind: str, name: str) -> bool:
        """Whether it is about this right on this resource."""
        return right in self.may and any(one.covers(kind, name) for one in self.on)


def _is_meant(pattern: str, principal: str) -> bool:
    if pattern == ANY:
        return principal != ANONYMOUS
    return principal.startswith(pattern[:-1]) if pattern.endswith(ANY) else principal == pattern


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether it is allowed, and the rule that decided; None where no rule is about it."""

    is_allowed: bool
    rule: Rule | None


@dataclass(slots=True)
class _Names:
    """The names that some rules are about."""

    exact: set[str] = field(default_factory=set)
    prefixes: set[str] = field(default_factory=set)
    starts: tuple[str, ...] = ()

    def close(self) -> None:
        self.starts = tuple(self.prefixes)

    def have(self, name: str) -> bool:
        return name in self.exact or name.startswith(self.starts)


class Rights:
    """What one caller may do by one policy."""

    __slots__ = ("_allowed", "_denied", "_known", "_known_count", "policy")

    def __init__(self, policy: "Policy | None", rules: Iterable[Rule]) -> None:
        """`rules`: all that are about the caller."""
        self.policy = policy
        self._allowed: dict[tuple[str, str], _Names] = {}
        self._denied: dict[tuple[str, str], _Names] = {}
        self._known: dict[tuple[str, str], dict[str, bool]] = {}
        self._known_count = 0
        for rule in rules:
            names = self._allowed if rule.allows else self._denied
            for resource in rule.on:
                for right in rule.may.intersection(RIGHTS_ON[resource.kind]):
                    found = names.setdefault((right, resource.kind), _Names())
                    (found.prefixes if resource.is_prefix else found.exact).add(resource.name)
        for names in (self._allowed, self._denied):
            for one in names.values():
                one.close()

    def allows(self, need: tuple[str, str], name: str) -> bool:
        """Whether the caller has the right on the kind of resource (`need`) that has this name."""
        known = self._known.get(need)
        if known is None:
            known = self._known[need] = {}
        found = known.get(name)
        if found is None:
            if self._known_count >= DECISIONS_KEPT_MAX:
                self._known.clear()
                self._known_count = 0
                known = self._known[need] = {}
            found = known[name] = self._decide(need, name)
            self._known_count += 1
        return found

    def _decide(self, need: tuple[str, str], name: str) -> bool:
        allowed, denied = self._allowed.get(need), self._denied.get(need)
        return allowed is not None and allowed.have(name) and not (denied is not None and denied.have(name))

    def allows_all(self, need: tuple[str, str]) -> bool:
        """Whether the caller has the right on every resource of the kind, for sure: then none has to be asked about."""
        allowed = self._allowed.get(need)
        return allowed is not None and "" in allowed.prefixes and need not in self._denied

    def listed(self, kind: str, name: str) -> tuple[str, ...]:
        """The rights that the caller has on a resource."""
        return tuple(right for right in RIGHTS_ON[kind] if self.allows((right, kind), name))


class _AllRights(Rights):
    """Those of everybody, if there is no policy."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, ())

    def allows(self, need: tuple[str, str], name: str) -> bool:
        """Yes."""
        return True

    def allows_all(self, need: tuple[str, str]) -> bool:
        """Yes."""
        return True


ALL_RIGHTS = _AllRights()


class Policy:
    """The rules of one file, by whom they are about.

    nodes: who the nodes of the cluster are to each other, in the form of a rule's `who`; they may ask in the name of a
    caller.
    """

    __slots__ = ("_by_principal", "_by_start", "_kept", "_of_everybody", "admits_anybody", "nodes", "rules")

    def __init__(self, rules: Iterable[Rule], nodes: Iterable[str] = ()) -> None:
        self.rules = tuple(rules)
        self.nodes = tuple(nodes)
        self.admits_anybody = any(rule.allows and ANONYMOUS in rule.who for rule in self.rules)
        """A rule allows something to those who have shown nothing."""
        self._kept: dict[tuple[str, ...], Rights] = {}
        self._by_principal: dict[str, list[int]] = {}
        self._by_start: dict[str, list[int]] = {}
        self._of_everybody: list[int] = []
        for number, rule in enumerate(self.rules):
            for pattern in rule.who:
                if pattern == ANY:
                    self._of_everybody.append(number)
                elif pattern.endswith(ANY):
                    self._by_start.setdefault(pattern[:-1], []).append(number)
                else:
                    self._by_principal.setdefault(pattern, []).append(number)

    def rights_of(self, principals: tuple[str, ...]) -> Rights:
        """What a caller with these principals may do. Cost: its own rules, and a look at each pattern, once."""
        rights = self._kept.get(principals)
        if rights is None:
            if len(self._kept) >= CALLERS_KEPT_MAX:
                self._kept.clear()
            rights = self._kept[principals] = Rights(self, self._rules_of(principals))
        return rights

    def _rules_of(self, principals: tuple[str, ...]) -> list[Rule]:
        numbers: set[int] = set()
        for principal in principals:
            numbers.update(self._by_principal.get(principal, ()))
            if principal != ANONYMOUS:
                numbers.update(self._of_everybody)
            for start, found in self._by_start.items():
                if principal.startswith(start):
                    numbers.update(found)
        return [self.rules[number] for number in sorted(numbers)]

    def is_node(self, principals: tuple[str, ...]) -> bool:
        """Whether a caller with these principals is a node of the cluster."""
        return any(_is_meant(pattern, principal) for pattern in self.nodes for principal in principals)

    def explain(self, principals: tuple[str, ...], right: str, kind: str, name: str) -> Decision:
        """Whether it is allowed, and by which rule: the first that denies it, else the first that allows it."""
        allowed: Rule | None = None
        for rule in self.rules:
            if rule.is_about(principals) and rule.covers(right, kind, name):
                if not rule.allows:
                    return Decision(False, rule)
                allowed = allowed or rule
        return Decision(allowed is not None, allowed)
