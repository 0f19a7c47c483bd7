"""Everything a member raises. Each carries Kafka's number and name of the error, and whether to try again.

MemberError
  FatalError                 the member has stopped for good; every waiting and every later call raises it
    Fenced                   another process took over the `group_instance_id`
    InconsistentProtocol     the group uses other protocols
    InvalidConfiguration     the service refuses the group id, a timeout or another field
    NotAuthenticated         no token, or one that the service does not know
    NotAuthorized            the principal may not do this
    GroupFull                the group has as many members as it may
    ServiceFailed            the service reports its own fault
    InsecureCoordinator      the coordinator is on http, but was looked up over https
    AssignorFailed           this member led, and its assignor or partition counts raised, or its result was refused
    UnreadableAssignment     the leader sent something that is no assignment of partitions
    CallbackFailed           `on_assigned` raised
    MaxPollExceeded          the program left the member alone for longer than `max_poll_interval_ms`
  CommitFailed               the commit, or a part of it, was refused; the member goes on
    IllegalGeneration        the assignment it was made under is no longer this member's
    UnknownMember            the group has dropped the member meanwhile
    RebalanceInProgress      the group is between two generations; retriable
  TopicsUnavailable          how many partitions a topic has cannot be asked now; retriable
  CoordinatorUnavailable     a commit or fetch found no working coordinator in time; retriable
  MemberClosed               the member has left or was closed, or was never started

Mistakes in a program's own arguments are `ValueError`, `TypeError` or `RuntimeError`; a wait that takes too long is a
`TimeoutError`. Nothing here decides what a member does about an error: that is `member.core.reactions`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rallypoint.protocol.errors import ERRORS, ErrorCode

if TYPE_CHECKING:
    from rallypoint.protocol.messages import Problem


class MemberError(Exception):
    """The base of all errors of a member.

    Attributes:
        error_code: Kafka's number of the error.
        error_name: Kafka's name of the error.
        retriable: Whether the same call may succeed later, unchanged.
        detail: What happened, in a sentence.
    """

    default_code = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(
        self,
        detail: str,
        *,
        error_code: int | None = None,
        error_name: str | None = None,
        retriable: bool = False,
    ) -> None:
        self.error_code = int(self.default_code) if error_code is None else error_code
        self.error_name = _name_of(self.error_code) if error_name is None else error_name
        self.retriable = retriable
        self.detail = detail
        super().__init__(f"{self.error_name} ({self.error_code}): {detail}")


class FatalError(MemberError):
    """The member has stopped for good. Remove the cause, then make a new one."""


class Fenced(FatalError):  # noqa: N818 - named after the protocol's error, like all that follow
    """Another process joined with the same `group_instance_id` and owns the identity now."""

    default_code = ErrorCode.FENCED_INSTANCE_ID


class InconsistentProtocol(FatalError):  # noqa: N818
    """The group has another protocol type, or no assignor that this member and all the others offer."""

    default_code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidConfiguration(FatalError):  # noqa: N818
    """The service refuses an option of this member; the detail names the field or the bounds."""

    default_code = ErrorCode.INVALID_REQUEST


class NotAuthenticated(FatalError):  # noqa: N818
    """The service wants a token, or does not know this one."""

    default_code = ErrorCode.SASL_AUTHENTICATION_FAILED


class NotAuthorized(FatalError):  # noqa: N818
    """The principal has no right to the group or the topic."""

    default_code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class GroupFull(FatalError):  # noqa: N818
    """The group has `group_max_size` members already."""

    default_code = ErrorCode.GROUP_MAX_SIZE_REACHED


class ServiceFailed(FatalError):  # noqa: N818
    """The service answered that it has a fault, or with a code that this library does not know and may not retry."""

    default_code = ErrorCode.UNKNOWN_SERVER_ERROR


class InsecureCoordinator(FatalError):  # noqa: N818
    """A node that was asked over https named an http URL as the coordinator. The token is not sent there."""

    default_code = ErrorCode.NOT_COORDINATOR


class AssignorFailed(FatalError):  # noqa: N818
    """This member led the group and could not make an assignment. It has left, so another member may lead."""


class UnreadableAssignment(FatalError):  # noqa: N818
    """The group's leader, perhaps written in another language, sent no `ConsumerAssignment`."""


class MaxPollExceeded(FatalError):  # noqa: N818
    """The program called nothing of this member for longer than `max_poll_interval_ms`, so it has left the group."""


class CallbackFailed(FatalError):  # noqa: N818
    """`on_assigned` raised, so the member could not take its partitions; it has left. `__cause__` is what it raised."""


class CommitFailed(MemberError):  # noqa: N818
    """A commit, or a part of it, was refused.

    Attributes:
        partitions: Each partition that was refused, with its error; all others of the call are committed. Empty if the
            whole call was refused.
    """

    def __init__(
        self,
        detail: str,
        *,
        error_code: int | None = None,
        error_name: str | None = None,
        retriable: bool = False,
        partitions: "Mapping[tuple[str, int], PartitionError] | None" = None,
    ) -> None:
        super().__init__(detail, error_code=error_code, error_name=error_name, retriable=retriable)
        self.partitions = dict(partitions or {})


class IllegalGeneration(CommitFailed):
    """The generation is not the group's, or the assignment is no longer this member's. Do not repeat the commit: the
    next owner reads again what was read since the last one.
    """

    default_code = ErrorCode.ILLEGAL_GENERATION


class UnknownMember(CommitFailed):
    """The group does not know this member any more. Do not repeat the commit; `on_lost` follows."""

    default_code = ErrorCode.UNKNOWN_MEMBER_ID


class RebalanceInProgress(CommitFailed):
    """The group waits for its leader's assignment. Repeat the commit only for partitions that are kept."""

    default_code = ErrorCode.REBALANCE_IN_PROGRESS


class TopicsUnavailable(MemberError):  # noqa: N818
    """A function of partition counts raises this if it cannot tell them now. The leader calls it again a little later,
    and does not fail with `AssignorFailed`.
    """

    default_code = ErrorCode.COORDINATOR_NOT_AVAILABLE

    def __init__(self, detail: str) -> None:
        super().__init__(detail, retriable=True)


class CoordinatorUnavailable(MemberError):  # noqa: N818
    """No node coordinated the group within `call_timeout_ms`. The detail has the last refusal."""

    default_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class MemberClosed(MemberError):  # noqa: N818
    """The member is not running: it was not started, has left, or was closed."""

    default_code = ErrorCode.UNKNOWN_MEMBER_ID


@dataclass(frozen=True, slots=True)
class PartitionError:
    """Why one partition of a commit was refused."""

    error_code: int
    """Kafka's number of the error."""

    error_name: str
    """Kafka's name of the error."""


_FATAL: dict[int, type[FatalError]] = {
    ErrorCode.FENCED_INSTANCE_ID: Fenced,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: InconsistentProtocol,
    ErrorCode.INVALID_GROUP_ID: InvalidConfiguration,
    ErrorCode.INVALID_SESSION_TIMEOUT: InvalidConfiguration,
    ErrorCode.INVALID_REQUEST: InvalidConfiguration,
    ErrorCode.SASL_AUTHENTICATION_FAILED: NotAuthenticated,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.GROUP_MAX_SIZE_REACHED: GroupFull,
}

_OF_A_COMMIT: dict[int, type[CommitFailed]] = {
    ErrorCode.ILLEGAL_GENERATION: IllegalGeneration,
    ErrorCode.UNKNOWN_MEMBER_ID: UnknownMember,
    ErrorCode.REBALANCE_IN_PROGRESS: RebalanceInProgress,
}


def fatal_error(problem: "Problem") -> FatalError:
    """The error with which a member stops if its membership is refused. A code without a class is `ServiceFailed`."""
    kind = _FATAL.get(problem.error_code, ServiceFailed)
    return kind(problem.detail, error_code=problem.error_code, error_name=problem.error_name)


def commit_error(problem: "Problem") -> MemberError:
    """The error of a commit that is refused as a whole. Fencing and missing rights keep their own classes."""
    kind = _OF_A_COMMIT.get(problem.error_code)
    if kind is None and problem.error_code in _FATAL and problem.error_code != ErrorCode.INVALID_REQUEST:
        return fatal_error(problem)
    return (kind or CommitFailed)(
        problem.detail,
        error_code=problem.error_code,
        error_name=problem.error_name,
        retriable=problem.retriable and kind in {None, RebalanceInProgress},
    )


def call_error(problem: "Problem") -> MemberError:
    """The error of any other call, such as a fetch, that is refused."""
    if problem.error_code in _FATAL:
        return fatal_error(problem)
    return MemberError(
        problem.detail, error_code=problem.error_code, error_name=problem.error_name, retriable=problem.retriable
    )


def partitions_error(partitions: Mapping[tuple[str, int], PartitionError], retriable: bool) -> CommitFailed:
    """The error of a commit of which some partitions are refused. `retriable`: all of them may succeed later."""
    first, error = next(iter(sorted(partitions.items(), key=lambda item: item[0])))
    others = f" and {len(partitions) - 1} more" if len(partitions) > 1 else ""
    return CommitFailed(
        f"not committed: {first[0]}-{first[1]}{others}",
        error_code=error.error_code,
        error_name=error.error_name,
        retriable=retriable,
        partitions=partitions,
    )


def _name_of(code: int) -> str:
    return ErrorCode(code).name if code in ERRORS else f"CODE_{code}"
