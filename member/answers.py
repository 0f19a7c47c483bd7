"""What came of a user's call: the answer's model, or the exception that says what came instead of it. Pure."""

from collections.abc import Callable, Iterable, Mapping

from rallypoint.member import errors
from rallypoint.member.core.dispatch import describe
from rallypoint.member.core.outcomes import Answered, Outcome, Refused, Unreachable
from rallypoint.member.core.reactions import SAME_REQUEST, reaction_to
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ERRORS, ErrorCode


def answer_of(outcome: Outcome, error_of: Callable[[m.Problem], errors.MemberError]) -> object:
    """The answer's model, or the exception for what came instead of it."""
    if isinstance(outcome, Answered):
        return outcome.answer
    assert isinstance(outcome, Refused | Unreachable)
    if isinstance(outcome, Refused) and reaction_to(outcome.problem) not in SAME_REQUEST:
        raise error_of(outcome.problem)
    raise errors.CoordinatorUnavailable(f"no coordinator answered in time: {describe(outcome)}", retriable=True)


def check_partitions(offsets: Iterable[tuple[str, int]], results: Mapping[tuple[str, int], m.PartitionResult]) -> None:
    """Raise CommitFailed unless every partition is acknowledged; one without a word about it is not."""
    silent = m.PartitionResult(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_name="UNKNOWN_SERVER_ERROR")
    refused = {}
    for topic_partition in offsets:
        result = results.get(topic_partition, silent)
        if result.error_code != ErrorCode.NONE:
            refused[topic_partition] = errors.PartitionError(result.error_code, result.error_name)
    if refused:
        raise errors.partitions_error(refused, retriable=all(_is_retriable(error) for error in refused.values()))


def _is_retriable(error: errors.PartitionError) -> bool:
    return error.error_code in ERRORS and ERRORS[ErrorCode(error.error_code)].retriable
