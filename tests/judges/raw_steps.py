"""Sequences of raw group requests by chance, and how one is made shorter. No I/O: tests/judges/raw_sides.py has it.

A step says what a client asks in symbols ("its own member id", "one generation too late"), for the ids that Kafka and
the service hand out differ. Four clients take part, two of them with an instance id. The versions of all requests are
drawn, too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile
from random import Random

from tests.judges.headers import APIS

CLIENTS = 4
STATIC_CLIENTS = frozenset({2, 3})
LONG_MS = 300_000
"""Time to join, and the session of clients that need not expire: none does because a sequence takes its time."""
STEPS_MAX = 16
COMMIT, FETCH, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, DELETE_GROUP, DELETE_OFFSETS = 8, 9, 11, 12, 13, 14, 15, 42, 47
LIST_GROUPS = 16
FIRST_STATIC = {JOIN: 5, SYNC: 3, HEARTBEAT: 3, LEAVE: 3, COMMIT: 7}
"""The first version of each API that can say an instance id."""
FIRST_REQUIRED = 4
"""The first version of JoinGroup in which a client is told the id that it has to come back with."""
LAST_BY_NAME = 9
"""Of OffsetCommit and OffsetFetch: the next version names topics by the broker's ids."""


class Who(StrEnum):
    """Whose member id a request says."""

    OWN = "own"
    NOBODY = "nobody"
    """None: the empty id."""
    STRANGER = "stranger"
    """An id that was never handed out."""
    PEER = "peer"
    """The one of the client after it."""
    FORMER = "former"
    """The one before its own."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request. `api`: its key; `EXPIRE` for none: a session's time passes in which the client sends no heartbeat.

    ahead: added to the generation that the client knows.
    variant: which of several forms of this request; what it means is said where the request is made.
    static: whether it says the client's instance id, if it has one.
    """

    api: int
    client: int
    version: int = 0
    who: Who = Who.OWN
    ahead: int = 0
    variant: int = 0
    static: bool = True

    def __str__(self) -> str:
        if self.api == EXPIRE:
            others = ", and the others live by heartbeats" if self.variant == ALL_ARE_SHORT else ""
            return f"client {self.client} is silent but for {SAID_MEANWHILE.get(self.variant, 'nothing')}{others}"
        name = APIS[self.api].request.name.removesuffix("Request")
        more = [f"as {self.who}" if self.who is not Who.OWN else "", f"generation {self.ahead:+}" if self.ahead else ""]
        more += [f"form {self.variant}" if self.variant else "", "" if self.static else "without instance"]
        return " ".join(part for part in (f"client {self.client}: {name} {self.version}", *more) if part)


EXPIRE = -1
SAID_MEANWHILE = {1: "a commit", 2: "a fetch"}
"""By the form of `EXPIRE`: what the client says when half of its session is over. Only the commit is a sign of life."""
ALL_ARE_SHORT = 3
"""Form of `EXPIRE`: the others' sessions are as short, and their heartbeats keep them alive."""
_WEIGHTS = {
    JOIN: 34, SYNC: 26, HEARTBEAT: 10, LEAVE: 7, COMMIT: 9, FETCH: 4, DESCRIBE: 6, DELETE_GROUP: 2, DELETE_OFFSETS: 2,
    LIST_GROUPS: 2,
}  # fmt: skip


LOOKS = Step(DESCRIBE, 0, 6), Step(FETCH, 0, 8, variant=1)
"""How each sequence ends: what has become of the group, and all that is committed."""


def random_steps(seed: int, *, with_expiry: bool) -> tuple[Step, ...]:
    """The sequence of this seed. `with_expiry`: clients fall silent, which takes as long as a session."""
    chance = Random(f"{seed} {with_expiry}")
    begin = _formation(chance) if chance.random() < 0.6 else []
    count = chance.randint(4, STEPS_MAX - len(begin))
    steps = begin + [_random_step(chance) for _ in range(count)]
    if with_expiry:
        form = chance.choice((0, 1, 1, 2, ALL_ARE_SHORT, ALL_ARE_SHORT))
        place = len(begin) if begin and chance.random() < 0.5 else chance.randint(2, min(len(steps), SILENT_FROM_MAX))
        if begin and form == ALL_ARE_SHORT:
            # The others wait for the first, who has yet to join again.
            place = len(list(takewhile(lambda step: step.api == JOIN, begin))) - 1
        client = chance.choice([step.client for step in steps[:place] if step.api == JOIN] or [0])
        if form == ALL_ARE_SHORT:
            del steps[place + SHORT_UNTIL_MAX :]
        # Who is still there, is to be seen.
        steps[place:place] = Step(EXPIRE, client, variant=form), Step(DESCRIBE, client, 6)
    return (*steps, *LOOKS)


SILENT_FROM_MAX, SHORT_UNTIL_MAX = 8, 4
"""Steps before a client falls silent, but for those that form a generation, which wait for little; and after it where
the others' sessions are as short: such steps take less time than a session.
"""


def _formation(chance: Random) -> list[Step]:
    """Two or three clients that become members of one generation: by chance alone that is rare. Whoever is told its id
    joins with it, and when the last one waits, the first comes again. Half of them go on until the group is Stable.
    """
    clients = chance.sample(range(CLIENTS), chance.choice((2, 2, 3)))
    versions = APIS[JOIN].request.versions
    joins = [Step(JOIN, client, chance.choice(versions)) for client in clients]
    if len(joins) > 2 and chance.random() < 0.5:
        # It is outvoted.
        place = chance.randrange(len(joins))
        joins[place] = replace(joins[place], variant=2)
    steps = [
        join for join in joins for _ in range(2 if join.version >= FIRST_REQUIRED and not says_instance(join) else 1)
    ]
    steps.append(joins[0])
    if chance.random() < 0.5:
        return steps
    # Each asks for its part in any order, some with assignments that only the leader may bring. Then one that has an
    # instance id is started anew, and knows no member id.
    versions = APIS[SYNC].request.versions
    order = chance.sample(clients, len(clients))
    steps += [Step(SYNC, client, chance.choice(versions), variant=chance.choice((0, 0, 3))) for client in order]
    back = [client for client in clients if client in STATIC_CLIENTS and chance.random() < 0.5]
    return steps + [Step(JOIN, client, chance.randint(FIRST_STATIC[JOIN], 9), Who.NOBODY) for client in back]


def _random_step(chance: Random) -> Step:
    api = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    # Half of the groups' life is two clients': they meet more often than four.
    client = chance.randrange(CLIENTS) if chance.random() < 0.5 else chance.randrange(2) * 2
    versions = [
        version for version in APIS[api].request.versions if api not in (COMMIT, FETCH) or version <= LAST_BY_NAME
    ]
    return Step(
        api,
        client,
        chance.choice(versions),
        chance.choices(list(Who), [40, 4 if api != JOIN else 6, 2, 2, 2])[0],
        chance.choices([0, -1, 1], [30, 2, 1])[0],
        chance.choices([0, 1, 2, 3], [14, 2, 2, 6] if api == SYNC else [24, 3, 2, 2])[0],
        chance.random() < 0.95,
    )


def says_instance(step: Step) -> bool:
    """Whether the request carries an instance id."""
    return step.static and step.client in STATIC_CLIENTS and step.version >= FIRST_STATIC.get(step.api, 1 << 15)


def simpler(steps: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """Sequences that are a little simpler: half or a single step less, then a step that is nearer to the usual one."""
    size = len(steps) // 2
    while size:
        for start in range(0, len(steps) - size + 1, size):
            yield (*steps[:start], *steps[start + size :])
        size //= 2
    for place, step in enumerate(steps):
        for change in (
            {"who": Who.OWN}, {"ahead": 0}, {"variant": 0}, {"static": False},
            {"version": APIS[step.api].request.versions[-1]} if step.api in (JOIN, SYNC, HEARTBEAT, LEAVE) else {},
        ):  # fmt: skip
            changed = replace(step, **change)
            if changed != step:
                yield (*steps[:place], changed, *steps[place + 1 :])


@dataclass(frozen=True, slots=True)
class Difference:
    """What Kafka answered and what the service did, in the terms of a sequence. `steps`: up to the one that differs."""

    steps: Sequence[Step]
    kafka: object
    service: object
    where: str

    def __str__(self) -> str:
        lines = [f"  {number}. {step}" for number, step in enumerate(self.steps, 1)]
        return "\n".join((*lines, f"  {self.where}", f"  Kafka:   {self.kafka}", f"  service: {self.service}"))
