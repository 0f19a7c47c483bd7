"""What a member does about each error, as one table. The error's number and words are in `protocol.errors`.

The column is about calls of membership (join, sync, heartbeat, leave). Commits and fetches share the part that only
concerns finding the coordinator and trying again; whatever else they are refused for goes to their caller, and never
changes the membership: clients that let it have lost whole assignments (librdkafka #4059, aiokafka #727).
"""

from enum import Enum

from rallypoint.protocol.errors import ERRORS, SUPERSEDED, ErrorCode
from rallypoint.protocol.messages import Problem


class Reaction(Enum):
    """What to do next; the value says it in words."""

    FOLLOW = "send the same request to the URL in the answer, or look the coordinator up"
    REDISCOVER = "look the coordinator up, send the same request there"
    BACK_OFF = "send the same request again, later"
    TAKE_ID = "join again with the id in the answer"
    REJOIN = "join again with the same member id"
    FORGET_GENERATION = "the assignment is lost; join again with the same member id"
    FORGET_ID = "the assignment is lost; join again without a member id"
    FAIL = "stop, and tell the user"


_REACTIONS = {
    ErrorCode.NOT_COORDINATOR: Reaction.FOLLOW,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.REDISCOVER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.BACK_OFF,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Reaction.BACK_OFF,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: Reaction.BACK_OFF,
    ErrorCode.MEMBER_ID_REQUIRED: Reaction.TAKE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: Reaction.FORGET_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.FORGET_ID,
}
"""Every other code is Reaction.FAIL, except one that this library does not know and that calls itself retriable."""

SAME_REQUEST = frozenset({Reaction.FOLLOW, Reaction.REDISCOVER, Reaction.BACK_OFF})
"""The reactions that need no rule of membership: the request stays as it is, and goes out again."""


def reaction_to(problem: Problem) -> Reaction:
    """The row for this problem.

    A superseded call is repeated like one that was refused for load: if a newer call of this member is under way
    the older one is closed already and its answer never gets here, so what does get here would wait for nobody.
    """
    if is_superseded(problem):
        return Reaction.BACK_OFF
    if problem.error_code in _REACTIONS:
        return _REACTIONS[ErrorCode(problem.error_code)]
    known = problem.error_code in ERRORS
    return Reaction.BACK_OFF if problem.retriable and not known else Reaction.FAIL


def casts_doubt(problem: Problem) -> bool:
    """Whether a commit that was refused so may mean that the member is none any more. A heartbeat finds out."""
    forgets = {Reaction.FORGET_ID, Reaction.FORGET_GENERATION}
    return reaction_to(problem) in forgets or problem.error_code == ErrorCode.FENCED_INSTANCE_ID


def is_superseded(problem: Problem) -> bool:
    """Whether the answer only says that a newer call of the same member took over the waiting."""
    return problem.type.rstrip("/").endswith(f"/errors/{SUPERSEDED}")
