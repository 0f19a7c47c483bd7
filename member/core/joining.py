"""Joining, and joining again: from the attempt over the leader's assigning and the sync to what the member then owns.

Here is also what a refusal of the membership means, since nearly all of them mean to join again.
"""

from pydantic import JsonValue

from rallypoint.assignors.contract import Assignor
from rallypoint.member.assignment import Assignment
from rallypoint.member.core import requests
from rallypoint.member.core.actions import Assign, CallBack, CompareCounts
from rallypoint.member.core.backoff import is_told
from rallypoint.member.core.context import ASSIGN, MEMBER, SESSION, Ending, MemberContext
from rallypoint.member.core.dispatch import Intent, Settled
from rallypoint.member.core.events import Callback, Draw
from rallypoint.member.core.heartbeats import Heartbeats
from rallypoint.member.core.leaving import Leaving
from rallypoint.member.core.outcomes import Answered, Refused, Waiting
from rallypoint.member.core.reactions import Reaction, reaction_to
from rallypoint.member.core.states import State
from rallypoint.member.errors import AssignorFailed, ServiceFailed, UnreadableAssignment, fatal_error
from rallypoint.member.subscription import read_assignment
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode

HANDOVER = "handover"
"""No slot of calls: it counts rebalances in a row that took something from this member."""


class Joining:
    """Of one member. `topics`, `user_data`: what the next join says."""

    def __init__(
        self, context: MemberContext, assignors: tuple[Assignor, ...], heartbeats: Heartbeats, leaving: Leaving
    ) -> None:
        self._context = context
        self._assignors = assignors
        self._heartbeats = heartbeats
        self._leaving = leaving
        self._protocol_name = ""
        self._leads = False
        self._found_in_place = False
        self._subscription_stale = False
        self._reason = ""
        self._rejoin_reason: str | None = None
        self._attempt = 0
        self.topics = context.options.topics
        self.user_data = context.options.user_data

    # --- the join ----------------------------------------------------------------------------------------------------

    def join(self, reason: str, now_ms: int, draw: Draw, delay_ms: int = 0) -> None:
        """A new attempt, with a new request id. The group's history shows `reason`."""
        context = self._context
        self._heartbeats.stop()
        context.kept_by = None
        self._reason = reason
        context.drop_assigning()
        self._subscription_stale = False
        self._rejoin_reason = None
        context.rejoin_by_ms = None
        if context.state not in {State.FINDING, State.JOINING}:
            context.move(State.JOINING, reason)
        self.user_data = draw.user_data(self.user_data)
        self._attempt += 1
        intent = requests.join(
            context.options,
            self._assignors,
            member_id=context.member_id,
            topics=self.topics,
            user_data=self.user_data,
            owned=context.owned.owned_for_join(),
            cooperative=context.cooperative,
            owns=context.owned.assignment is not None,
            reason=reason,
            request_id=draw.request_id,
            attempt=self._attempt,
        )
        context.owned.note_join()
        context.net.open(MEMBER, intent, now_ms, delay_ms=delay_ms)

    def join_ended(self, settled: Settled, now_ms: int, draw: Draw) -> None:
        """The answer to a join came."""
        context = self._context
        match settled.outcome:
            case Answered(m.JoinAnswer() as answer):
                context.answered(MEMBER)
                context.note_kept(MEMBER, answer)
                context.member_id = answer.member_id
                if self._subscription_stale and context.owned.assignment is None:
                    self.join("the subscription changed", now_ms, draw)
                else:
                    self._joined(answer, now_ms)
            case Waiting(answer):
                context.answered(MEMBER)
                intent = settled.intent
                if not context.member_id and answer.member_id:
                    context.member_id = answer.member_id
                    intent = requests.with_member_id(intent, answer.member_id)
                if self._subscription_stale and context.member_id and context.owned.assignment is None:
                    self.join("the subscription changed", now_ms, draw)
                else:
                    context.net.repeat(MEMBER, intent, now_ms)
            case Refused(problem):
                self.refused(problem, now_ms, draw)

    def _joined(self, answer: m.JoinAnswer, now_ms: int) -> None:
        context, heartbeats = self._context, self._heartbeats
        context.generation_id = answer.generation_id
        self._protocol_name = answer.protocol_name
        self._leads = answer.leader == answer.member_id
        heartbeats.set_interval(answer.heartbeat_interval_ms)
        role = "leader" if self._leads else "follower"
        context.move(State.SYNCING, f"joined generation {answer.generation_id} as {role}, {answer.member_id}")
        self._found_in_place = self._leads and answer.skip_assignment
        if self._leads and not answer.skip_assignment:
            context.assigning = answer
            self.assign()
            heartbeats.plan(now_ms + heartbeats.interval_ms, now_ms)
        else:
            self.sync((), now_ms)

    def tell_finding_from_joining(self) -> None:
        """After each event: whether the join waits for the coordinator to be found."""
        context = self._context
        blocked = context.net.slot(MEMBER).blocked
        if context.state is State.JOINING and blocked:
            context.move(State.FINDING, f"the coordinator is gone: {context.net.last_failure}")
        elif context.state is State.FINDING and not blocked:
            context.move(State.JOINING, f"the coordinator is {context.net.route.url}")

    # --- assigning, syncing ------------------------------------------------------------------------------------------

    def assign(self) -> None:
        """Have the assignment made, as leader."""
        context = self._context
        assert context.assigning is not None
        call_id = context.net.reserve(MEMBER)
        context.net.actions.append(Assign(call_id, context.assigning.protocol_name, context.assigning.members))

    def assignment_failed(self, error: Exception, retriable: bool, now_ms: int, draw: Draw) -> None:
        """It could not be made."""
        context = self._context
        if retriable:
            delay_ms = max(1, context.net.count_failure(MEMBER, draw.jitter))
            if is_told(context.net.slot(MEMBER).failures):
                context.warn(f"the partition counts cannot be had yet: {error}; trying again")
            context.net.set_timer(ASSIGN, now_ms + delay_ms)
            return
        failure = AssignorFailed(f"no assignment with {self._protocol_name!r}: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self._leaving.leave(Ending("its assignor failed", tell=True, error=failure), now_ms)

    def sync(self, made: tuple[m.SyncAssignment, ...], now_ms: int) -> None:
        """Ask for the assignment, as leader with everyone's."""
        context = self._context
        context.assigning = None
        self._heartbeats.stop()
        owns = context.owned.assignment is not None
        intent = requests.sync(
            context.options, context.member_id, context.generation_id, self._protocol_name, made, owns=owns
        )
        context.net.open(MEMBER, intent, now_ms)

    def sync_ended(self, settled: Settled, now_ms: int, draw: Draw) -> None:
        """The answer to a sync came."""
        match settled.outcome:
            case Answered(m.SyncAnswer()) if self._context.ending is None and self._session_ends_at_ms() <= now_ms:
                # The answer was so long on its way that others may have what it gives: only a newer one can tell.
                self._context.net.repeat(MEMBER, settled.intent, now_ms)
            case Answered(m.SyncAnswer() as answer):
                self._assigned(answer, now_ms, draw)
            case Waiting():
                self._context.answered(MEMBER)
                self._context.net.repeat(MEMBER, settled.intent, now_ms)
            case Refused(problem) if problem.error_code == ErrorCode.INVALID_REQUEST and _submits(settled.intent):
                failure = AssignorFailed(f"the assignment of {self._protocol_name!r} is refused: {problem.detail}")
                failure.__cause__ = fatal_error(problem)
                self._leaving.leave(Ending("its assignment is refused", tell=True, error=failure), now_ms)
            case Refused(problem):
                self.refused(problem, now_ms, draw)

    def _assigned(self, answer: m.SyncAnswer, now_ms: int, draw: Draw) -> None:
        context = self._context
        if context.ending is not None:
            self._leaving.leave_now(now_ms)
            return
        try:
            given = read_assignment(answer.assignment)
        except ValueError as error:
            failure = UnreadableAssignment(f"the leader's assignment is not one of partitions: {error}")
            self._leaving.leave(Ending("its assignment is unreadable", tell=True, error=failure), now_ms)
            return
        context.fenced = False
        context.net.reset_failures(MEMBER)
        context.move(State.STABLE, f"generation {context.generation_id}, {len(given.partitions)} partitions")
        context.net.set_timer(SESSION, self._session_ends_at_ms())
        context.silent = False
        new = Assignment(
            context.generation_id,
            context.member_id,
            self._leads,
            self._protocol_name,
            given.partitions,
            given.user_data,
            partition_counts=given.partition_counts,
        )
        self._take(new, now_ms, draw)
        if self._found_in_place:
            context.net.actions.append(CompareCounts())

    def _session_ends_at_ms(self) -> int:
        """What the answer to a sync gives is the member's own until then, if it hears no more of the group."""
        return self._context.net.slot(MEMBER).sent_at_ms + self._context.options.session_timeout_ms

    def _take(self, new: Assignment, now_ms: int, draw: Draw) -> None:
        """Give up what the new assignment takes away, then take what it adds. Rejoin if another member waits."""
        context = self._context
        if not context.owned.owned_at_join <= new.partitions:
            self._rejoin_reason = "what it gave up is free"
        else:
            context.net.reset_failures(HANDOVER)
        if revoked := context.owned.revoked_by(new):
            context.owned.promise(new)
            self._reason = f"{len(revoked)} partitions go to others"
            self._leaving.revoke(self._reason, revoked, now_ms)
            return
        context.net.actions.append(CallBack(Callback.ASSIGNED, context.owned.take(new)))
        if not self._rejoin_if_due(now_ms, draw):
            self._heartbeats.plan(now_ms, now_ms)

    def _rejoin_if_due(self, now_ms: int, draw: Draw) -> bool:
        """Rejoin if there is a reason. The first time at once; if every rebalance takes something, later and later,
        because an assignor that never settles must not keep a group busy.
        """
        if self._rejoin_reason is not None:
            delay_ms = self._context.net.count_failure(HANDOVER, draw.jitter)
            self.rejoin(self._rejoin_reason, now_ms, draw, delay_ms)
        elif self._subscription_stale:
            self.rejoin("the subscription changed", now_ms, draw)
        else:
            return False
        return True

    # --- joining again -----------------------------------------------------------------------------------------------

    def request_rebalance(self, reason: str, now_ms: int, draw: Draw) -> None:
        """Rejoin for the user; nothing if a rebalance is on."""
        context = self._context
        # A cooperative member that owns something lets a sync come to its end: in between it could not give up in
        # order what it subscribes to no more.
        turns_back = context.state is State.SYNCING and context.ending is None
        if context.state is State.STABLE or (
            turns_back and not (self._subscription_stale and context.owned.assignment)
        ):
            self.rejoin(reason, now_ms, draw)

    def rejoin(self, reason: str, now_ms: int, draw: Draw, delay_ms: int = 0) -> None:
        """Join again, after giving up what the protocol asks for: everything, or what nobody here subscribes to."""
        context = self._context
        if context.ending is not None:
            self._leaving.leave_now(now_ms)
            return
        first = context.owned.unwanted(self.topics if context.cooperative else ())
        if first or (context.owned.assignment is not None and not context.cooperative):
            self._reason = reason
            self._leaving.revoke(reason, first, now_ms)
        else:
            self.join(reason, now_ms, draw, delay_ms)

    def subscribe(self, topics: tuple[str, ...], user_data: JsonValue, now_ms: int, draw: Draw) -> None:
        """The user wants other topics, or says something else."""
        if (set(topics), user_data) == (set(self.topics), self.user_data):
            return
        self.topics, self.user_data = topics, user_data
        # A join on the wire is not abandoned for another: it may be done after its successor. Its answer comes first.
        self._subscription_stale = True
        self.request_rebalance("the subscription changed", now_ms, draw)

    def revoked(self, now_ms: int, draw: Draw) -> None:
        """`on_revoked` has returned: leave, or own what was promised, and join again."""
        context = self._context
        self._leaving.revoked()
        if context.ending is not None:
            self._leaving.leave_now(now_ms)
            return
        if (promised := context.owned.promised) is not None:
            context.net.actions.append(CallBack(Callback.ASSIGNED, context.owned.take(promised)))
        if not self._rejoin_if_due(now_ms, draw):
            self.rejoin(self._reason, now_ms, draw)

    # --- refusals ----------------------------------------------------------------------------------------------------

    def refused(self, problem: m.Problem, now_ms: int, draw: Draw) -> None:
        """A join, sync or heartbeat was refused for what the member is."""
        context = self._context
        context.kept_by = None
        reason = f"{problem.error_name}: {problem.detail}"
        joining = context.state in {State.FINDING, State.JOINING}
        match reaction_to(problem):
            case Reaction.TAKE_ID if problem.member_id and joining and not context.member_id:
                context.member_id = problem.member_id
                self.join(self._reason, now_ms, draw)
            case Reaction.TAKE_ID:
                self._leaving.fail(ServiceFailed("MEMBER_ID_REQUIRED came without a member id, or where there is one"))
            case Reaction.REJOIN:
                delay_ms = context.net.count_failure(MEMBER, draw.jitter) if joining else 0
                context.note_rejoin_within(problem.rejoin_within_ms, now_ms)
                self.rejoin("the group began another rebalance", now_ms, draw, delay_ms)
            case Reaction.FORGET_GENERATION:
                self.lose(reason, now_ms, draw)
            case Reaction.FORGET_ID:
                context.member_id = ""
                self.lose(reason, now_ms, draw)
            case _:
                self._leaving.fail(fatal_error(problem))

    def lose(self, reason: str, now_ms: int, draw: Draw) -> None:
        """The group does not hold the assignment for this member any more."""
        context = self._context
        context.report_lost()
        if context.state is State.REVOKING:
            # `on_revoked` runs and ends its part of the assignment; only then is there somewhere to go.
            context.fenced = True
            self._heartbeats.stop()
            return
        context.generation_id = -1
        if context.ending is not None:
            self._leaving.say_leave(now_ms)
        else:
            self.join(reason, now_ms, draw, delay_ms=context.net.count_failure(MEMBER, draw.jitter))


def _submits(intent: Intent) -> bool:
    """Whether it carries an assignment: then what is wrong with it is what the assignor gave."""
    return isinstance(intent.body, m.SyncRequest) and bool(intent.body.assignments)
