"""The policy file: TOML into a policy, or sentences about what is wrong with it.

nodes = ["token:nodes"]

[[allow]]
who = ["token:clicks", "cert:clicks"]
may = ["describe", "join"]
on = ["group:clicks*", "topic:clicks*"]

[[deny]]
…

[[issuer]]
url = "https://login.example.org"
audience = "rallypoint"
"""

import re
import tomllib
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rallypoint.coordinator.access.issuers import (
    ALGORITHMS,
    ALGORITHMS_DEFAULT,
    CLOCK_SKEW_DEFAULT_SECONDS,
    CLOCK_SKEW_MAX_SECONDS,
    ISSUERS_MAX,
    Issuer,
    is_issuer_name,
    is_safe_url,
    may_name,
)
from rallypoint.coordinator.access.policy import (
    ANY,
    CLUSTER,
    RIGHTS,
    RIGHTS_ON,
    Policy,
    Resource,
    Rule,
)
from rallypoint.coordinator.access.principals import CERTIFICATE, OIDC, OIDC_GROUP, TOKEN, is_principal
from rallypoint.coordinator.access.tokens import is_token_name

FILE_MAX_BYTES = 1_048_576
RULES_MAX = 10_000
SHOWN_MAX = 60

_TABLE = re.compile(r"\s*\[\[?\s*([A-Za-z_-]+)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*['\"]?([^'\"=\s]+)['\"]?\s*=")
_KEYS = {"nodes", "allow", "deny", "issuer"}
_RULE_KEYS = ("who", "may", "on")
_ISSUER_KEYS = (
    "url",
    "audience",
    "name",
    "algorithms",
    "subject_claim",
    "groups_claim",
    "jwks_url",
    "ca",
    "clock_skew_seconds",
)
_ISSUER_TEXTS = ("url", "audience", "name", "subject_claim", "jwks_url", "ca")


@dataclass(frozen=True, slots=True)
class AccessFile:
    """What a file says. problems: sentences; with any, the rest is not to be used."""

    policy: Policy = field(default_factory=lambda: Policy(()))
    issuers: tuple[Issuer, ...] = ()
    problems: tuple[str, ...] = ()


def read_access(text: str) -> AccessFile:
    """What the file says, or all that is wrong with it."""
    if not text.strip():
        return AccessFile(problems=("It is empty.",))
    try:
        values = tomllib.loads(text)
    except RecursionError:
        return AccessFile(problems=("It is not TOML that can be read: it is nested too deeply.",))
    except ValueError as error:  # TOMLDecodeError, or a number with too many digits
        return AccessFile(problems=(f"It is not TOML: {error}.",))
    reader = _Reader(text)
    policy = reader.read(values)
    return AccessFile(policy, reader.issuers, tuple(reader.problems))


class _Reader:
    """Reads the values, and collects what is wrong, each with the line and the key."""

    def __init__(self, text: str) -> None:
        self.problems: list[str] = []
        self.issuers: tuple[Issuer, ...] = ()
        self._knows_issuers = False
        self._lines = text.splitlines()
        self._tables: dict[str, list[int]] = {}
        self._table_lines: list[int] = []
        self._key_lines: dict[str, list[int]] = {}
        for number, line in enumerate(self._lines, 1):
            if found := _TABLE.match(line):
                self._tables.setdefault(found[1], []).append(number)
                self._table_lines.append(number)
            elif found := _KEY.match(line):
                self._key_lines.setdefault(found[1], []).append(number)

    def read(self, values: Mapping[str, Any]) -> Policy:
        for key in sorted(values.keys() - _KEYS):
            self._say(self._line_of_key(key, 1), f"there is no key `{_shown(key)}`; there are: {_KEYS_SHOWN}")
        before = len(self.problems)
        self.issuers = self._issuers(values.get("issuer", []))
        self._knows_issuers = len(self.problems) == before  # or whom they name is not known either
        rules = [*self._rules("allow", values), *self._rules("deny", values)]
        if len(rules) > RULES_MAX:
            self.problems.append(f"It has {len(rules)} rules, and may have {RULES_MAX}.")
        nodes = self._texts(values.get("nodes", []), self._line_of_key("nodes", 1), "nodes")
        for principal in nodes:
            self._check_principal(principal, self._line_of_key("nodes", 1), "nodes", is_principal(principal))
        return Policy(sorted(rules, key=lambda rule: rule.line), nodes)

    # --- rules

    def _rules(self, key: str, values: Mapping[str, Any]) -> Iterator[Rule]:
        tables = values.get(key, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self._say(self._line_of_key(key, 1), f"`{key}` is a list of tables, each below `[[{key}]]`")
            return
        lines = self._tables.get(key, [])
        for at, table in enumerate(tables):
            line = lines[at] if len(lines) == len(tables) else self._line_of_key(key, 1)
            rule = self._rule(key, table, line)
            if rule is not None:
                yield rule

    def _rule(self, key: str, table: Mapping[str, Any], line: int) -> Rule | None:
        before = len(self.problems)
        for name in sorted(table.keys() - set(_RULE_KEYS)):
            self._say(self._line_of_key(name, line), f"a rule has no key `{_shown(name)}`; it has: who, may, on")
        texts = {}
        for name in _RULE_KEYS:
            texts[name] = self._texts(table.get(name), self._line_of_key(name, line), name)
            if name not in table:
                self._say(line, f"the rule has no `{name}`")
            elif texts[name] == () and len(self.problems) == before:
                self._say(self._line_of_key(name, line), f"`{name}` is empty, so the rule is about nothing")
        self._check_who(texts["who"], self._line_of_key("who", line))
        on = self._resources(texts["on"], self._line_of_key("on", line))
        may = self._rights(texts["may"], on, self._line_of_key("may", line))
        if len(self.problems) > before:
            return None
        return Rule(key == "allow", _with_lower_case(texts["who"]), may, on, line)

    def _check_who(self, who: tuple[str, ...], line: int) -> None:
        for pattern in who:
            self._check_principal(pattern, line, "who", _may_be_meant(pattern))

    def _check_principal(self, text: str, line: int, key: str, is_one: bool) -> None:
        if not is_one:
            self._say(line, f"{key}: {_quoted(text)} is no principal{_PRINCIPALS}")
        elif self._knows_issuers and (problem := why_nobody(text, self.issuers)) is not None:
            self._say(line, f"{key}: {_quoted(text)} {problem}")

    def _resources(self, texts: tuple[str, ...], line: int) -> tuple[Resource, ...]:
        found = []
        for text in texts:
            resource = read_resource(text)
            if resource is None:
                self._say(line, f"on: {_quoted(text)} is no resource; there are: {_RESOURCES}")
            else:
                found.append(resource)
        return tuple(found)

    def _rights(self, texts: tuple[str, ...], on: tuple[Resource, ...], line: int) -> frozenset[str]:
        if ANY in texts:
            return frozenset(RIGHTS)
        kinds = {resource.kind for resource in on}
        for text in texts:
            if text not in RIGHTS:
                self._say(line, f"may: there is no right {_quoted(text)}; there are: {', '.join(RIGHTS)}, {ANY}")
            elif kinds and not any(text in RIGHTS_ON[kind] for kind in kinds):
                fitting = " or ".join(kind for kind, rights in RIGHTS_ON.items() if text in rights)
                self._say(line, f"may: `{text}` is a right on a {fitting}, and `on` names none")
        return frozenset(texts)

    # --- issuers

    def _issuers(self, tables: Any) -> tuple[Issuer, ...]:
        line = self._line_of_key("issuer", 1)
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self._say(line, "`issuer` is a list of tables, each below `[[issuer]]`")
            return ()
        lines = self._tables.get("issuer", [])
        found: list[Issuer] = []
        for at, table in enumerate(tables):
            line = lines[at] if len(lines) == len(tables) else line
            issuer = self._issuer(table, line)
            if issuer is None:
                continue
            if any(issuer.url == one.url for one in found):
                self._say(line, "issuer: another one has this `url`")
            if issuer.name and any(issuer.name == one.name for one in found):
                self._say(line, "issuer: another one has this `name`, which tells their subjects apart")
            found.append(issuer)
        if len(tables) > 1 and any(not one.name for one in found):
            self._say(line, "issuer: each of several has a `name`, which tells their subjects apart")
        if len(tables) > ISSUERS_MAX:
            self._say(line, f"issuer: there are {len(tables)}, and may be {ISSUERS_MAX}")
        return tuple(found)

    def _issuer(self, table: Mapping[str, Any], line: int) -> Issuer | None:
        before = len(self.problems)

        def say(key: str, text: str) -> None:
            self._say(self._line_of_key(key, line), f"issuer: {text}")

        for key in sorted(table.keys() - set(_ISSUER_KEYS)):
            say(key, f"there is no key `{_shown(key)}`; there are: {', '.join(_ISSUER_KEYS)}")
        for key in _ISSUER_TEXTS:
            if key in table and (not isinstance(table[key], str) or not table[key]):
                say(key, f"`{key}` is a text that is not empty")
        for key in ("url", "audience"):
            if key not in table:
                say(key, f"`{key}` is missing")
        if len(self.problems) > before:
            return None
        for key in ("url", "jwks_url"):
            if key in table and not is_safe_url(table[key]):
                say(key, f"`{key}` is no URL of https, nor one of http on this machine")
        if "?" in table["url"]:
            say("url", "`url` has a query, which the URL of an issuer has not")
        if "name" in table and not is_issuer_name(table["name"]):
            say("name", "`name` is letters, digits, dots, dashes and underscores, 64 at the most")
        algorithms = self._texts(table.get("algorithms", list(ALGORITHMS_DEFAULT)), line, "algorithms")
        for algorithm in algorithms:
            if algorithm not in ALGORITHMS:
                say("algorithms", f"`algorithms` has {_quoted(algorithm)}; there are: {', '.join(ALGORITHMS)}")
        if not algorithms and len(self.problems) == before:
            say("algorithms", "`algorithms` is empty, so no token could be checked")
        claim = table.get("groups_claim", [])
        claim = [claim] if isinstance(claim, str) else claim
        if not isinstance(claim, list) or not all(isinstance(one, str) and one for one in claim):
            say("groups_claim", "`groups_claim` is the name of a claim, or a list of names that lead into objects")
        skew = table.get("clock_skew_seconds", CLOCK_SKEW_DEFAULT_SECONDS)
        if type(skew) is not int or not 0 <= skew <= CLOCK_SKEW_MAX_SECONDS:
            say("clock_skew_seconds", f"`clock_skew_seconds` is a whole number from 0 to {CLOCK_SKEW_MAX_SECONDS}")
        if len(self.problems) > before:
            return None
        texts = {key: table[key] for key in _ISSUER_TEXTS if key in table}
        return Issuer(**texts, algorithms=algorithms, groups_claim=tuple(claim), clock_skew_seconds=skew)

    # --- words

    def _texts(self, value: Any, line: int, key: str) -> tuple[str, ...]:
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self._say(line, f"`{key}` is a list of texts")
            return ()
        return tuple(value)

    def _line_of_key(self, key: str, after: int) -> int:
        """Where the key stands, from a line on and up to the next table; the line itself where it is not found."""
        numbers = self._key_lines.get(key, [])
        at, next_table = bisect_left(numbers, after), bisect_right(self._table_lines, after)
        is_there = at < len(numbers)
        if is_there and (next_table == len(self._table_lines) or numbers[at] < self._table_lines[next_table]):
            return numbers[at]
        return after

    def _say(self, line: int, text: str) -> None:
        self.problems.append(f"Line {line}: {text}.")


def _may_be_meant(pattern: str) -> bool:
    """Whether there can be a principal that the pattern means."""
    if pattern == ANY:
        return True
    kind, colon, name = pattern.partition(":")
    if kind + colon == TOKEN:
        name = name.removesuffix(ANY)
        return is_token_name(name) or pattern == TOKEN + ANY
    return is_principal(pattern)


def _with_lower_case(who: tuple[str, ...]) -> tuple[str, ...]:
    """Names of hosts in certificates count in lower case, however a rule has them."""
    found = []
    for pattern in who:
        found.append(pattern)
        if pattern.startswith(CERTIFICATE) and "://" not in pattern:
            found.append(pattern.lower())
    return tuple(dict.fromkeys(found))


def why_nobody(principal: str, issuers: Collection[Issuer]) -> str | None:
    """Why nobody can be called so by this file: a clause behind the principal, or the pattern. None: somebody can."""
    of_kind = {OIDC: tuple(issuers), OIDC_GROUP: tuple(one for one in issuers if one.groups_claim)}
    for kind, named in of_kind.items():
        if not principal.startswith(kind) or (named and may_name(principal.removeprefix(kind), named)):
            continue
        if not named:
            return f"is nobody: no [[issuer]] {'has a `groups_claim`' if kind == OIDC_GROUP else 'is in the file'}"
        names = " or ".join(f"`{kind}{one.prefix}…`" for one in named)
        return f"is nobody: what the issuers of this file name is {names}"
    return None


_PRINCIPALS = "; it is `token:NAME`, `cert:NAME`, `oidc:SUBJECT`, `oidc-group:GROUP` or `anonymous`"
_KEYS_SHOWN = "allow, deny, issuer, nodes"
_RESOURCES = "cluster, group:NAME, group:PREFIX*, topic:NAME, topic:PREFIX*"


def read_resource(text: str) -> Resource | None:
    """The resource; None where it is none. A name may end in `*`, and then means all that begin with the rest."""
    if text == CLUSTER:
        return Resource(CLUSTER, "")
    kind, colon, name = text.partition(":")
    if not colon or not name or kind not in RIGHTS_ON or kind == CLUSTER:
        return None
    return Resource(kind, name.removesuffix(ANY), name.endswith(ANY))


def _shown(text: str) -> str:
    printable = "".join(char if char.isprintable() else "?" for char in text)
    return printable if len(printable) <= SHOWN_MAX else f"{printable[:SHOWN_MAX]}…"


def _quoted(text: str) -> str:
    return repr(_shown(text))
