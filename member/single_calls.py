"""Calls by whoever is no member: each is said to one node after another until one answers, and is not repeated.

They go over the members' HTTP, so what holds there holds here: no redirect of HTTP is followed, the token goes to no
node that a plain one could overhear, and whatever bytes come back, an outcome is made of them.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pydantic import BaseModel

from rallypoint.member.core.dispatch import REDIRECTS_MAX, describe
from rallypoint.member.core.outcomes import Outcome, Refused, Unreachable
from rallypoint.member.core.reactions import SAME_REQUEST, Reaction, reaction_to
from rallypoint.member.core.route import may_go_on_at
from rallypoint.member.http import HttpTransport
from rallypoint.member.tokens import Token
from rallypoint.protocol.operations import Operation

if TYPE_CHECKING:
    from ssl import SSLContext


async def call_once(
    urls: Iterable[str],
    operation: Operation,
    body: BaseModel | None,
    *,
    timeout_ms: int,
    group_id: str = "",
    topic: str = "",
    token: Token | None = None,
    ssl_context: "SSLContext | None" = None,
) -> Outcome:
    """What the first node says that does what it is asked, or refuses it for good; else what the last one said.

    `timeout_ms` is for each node. A failure names its node. Raises nothing for what a peer does.
    """
    http = HttpTransport(token, ssl_context)
    outcome: Outcome = Unreachable("no coordinator is named")
    try:
        for base in urls:
            url, outcome = base.rstrip("/"), Unreachable("")
            for _ in range(REDIRECTS_MAX + 1):
                outcome = await http.call(url, operation, body, group_id=group_id, topic=topic, timeout_ms=timeout_ms)
                named = _named_elsewhere(url, outcome)
                if named is None:
                    break
                url = named
            if not _is_of_this_node(outcome):
                return outcome
            if isinstance(outcome, Unreachable):
                outcome = Unreachable(f"{url}: {outcome.reason}")
        return outcome
    finally:
        await http.close()


def sentence_of(outcome: Refused | Unreachable) -> str:
    """What came in place of an answer, in one line."""
    return f"HTTP {outcome.problem.status}: {describe(outcome)}" if isinstance(outcome, Refused) else outcome.reason


def _named_elsewhere(url: str, outcome: Outcome) -> str | None:
    """The node at which the call is to go on, if any."""
    if not isinstance(outcome, Refused) or reaction_to(outcome.problem) is not Reaction.FOLLOW:
        return None
    named = outcome.problem.url
    return named.rstrip("/") if named is not None and may_go_on_at(url, named) else None


def _is_of_this_node(outcome: Outcome) -> bool:
    """Whether another node may say something else."""
    return isinstance(outcome, Unreachable) or (
        isinstance(outcome, Refused) and reaction_to(outcome.problem) in SAME_REQUEST
    )
