"""Joining, and joining again: from the attempt over the leader's assigning and the sync to what the member then owns.

Here is also what a refusal of the membership means, since nearly all of them mean to join again.
"""

from pydantic import JsonValue

from assignors.contract import Assignor
from member.assignment import Assignment
from member.core import requests
from member.core.actions import Assign, CallBack
from member.core.dispatch import Settled
from member.core.events import Callback, Draw
from member.core.heartbeats import Heartbeats
from member.core.leaving import Leaving
from member.core.outcomes import Answered, Refused, Waiting
from member.core.reactions import Reaction, reaction_to
from member.core.standing import ASSIGN, MEMBER, SESSION, Ending, Standing
from member.core.states import State
from member.errors import AssignorFailed, ServiceFailed, UnreadableAssignment, fatal_error
from member.subscription import read_assignment
from protocol import messages as m

HANDOVER = "handover"
"""No lane of calls: it counts rounds in a row that took something from this member."""


class Joining:
    """Of one member. `topics`, `user_data`: what the next join says."""

    def __init__(
        self, here: Standing, assignors: tuple[Assignor, ...], heartbeats: Heartbeats, leaving: Leaving
    ) -> None:
        self._here = here
        self._assignors = assignors
        self._heartbeats = heartbeats
        self._leaving = leaving
        self._protocol_name = ""
        self._leads = False
        self._subscription_stale = False
        self._reason = ""
        self._owes_round: str | None = None
        self._attempt = 0
        self.topics = here.options.topics
        self.user_data = here.options.user_data

    # --- the join ----------------------------------------------------------------------------------------------------

    def join(self, reason: str, now_ms: int, draw: Draw, delay_ms: int = 0) -> None:
        """A new attempt, with a new request id. The group's history shows `reason`."""
        here = self._here
        self._heartbeats.stop()
        self._reason = reason
        here.drop_assigning()
        self._subscription_stale = False
        self._owes_round = None
        if here.state not in {State.FINDING, State.JOINING}:
            here.move(State.JOINING, reason)
        self.user_data = draw.user_data(self.user_data)
        self._attempt += 1
        intent = requests.join(
            here.options,
            self._assignors,
            member_id=here.member_id,
            topics=self.topics,
            user_data=self.user_data,
            claims=here.owned.claims(),
            cooperative=here.cooperative,
            owns=here.owned.assignment is not None,
            reason=reason,
            request_id=draw.request_id,
            attempt=self._attempt,
        )
        here.owned.claim()
        here.net.open(MEMBER, intent, now_ms, delay_ms=delay_ms)

    def join_ended(self, settled: Settled, now_ms: int, draw: Draw) -> None:
        """The answer to a join came."""
        here = self._here
        match settled.outcome:
            case Answered(m.JoinAnswer() as answer):
                here.hear(now_ms)
                here.member_id = answer.member_id
                if self._subscription_stale and here.owned.assignment is None:
                    self.join("the subscription changed", now_ms, draw)
                else:
                    self._joined(answer, now_ms)
            case Waiting(answer):
                here.hear(now_ms)
                intent = settled.intent
                if not here.member_id and answer.member_id:
                    here.member_id = answer.member_id
                    intent = requests.with_member_id(intent, answer.member_id)
                if self._subscription_stale and here.member_id and here.owned.assignment is None:
                    self.join("the subscription changed", now_ms, draw)
                else:
                    here.net.repeat(MEMBER, intent, now_ms)
            case Refused(problem):
                self.refused(problem, now_ms, draw)

    def _joined(self, answer: m.JoinAnswer, now_ms: int) -> None:
        here, heartbeats = self._here, self._heartbeats
        here.generation_id = answer.generation_id
        self._protocol_name = answer.protocol_name
        self._leads = answer.leader == answer.member_id
        heartbeats.interval_ms = here.options.heartbeat_interval_ms or max(1, answer.heartbeat_interval_ms)
        role = "leader" if self._leads else "follower"
        here.move(State.SYNCING, f"joined generation {answer.generation_id} as {role}, {answer.member_id}")
        if self._leads and not answer.skip_assignment:
            here.assigning = answer
            self.assign()
            heartbeats.plan(now_ms + heartbeats.interval_ms, now_ms)
        else:
            self.sync((), now_ms)

    def tell_finding_from_joining(self) -> None:
        """After each event: whether the join waits for the coordinator to be found."""
        here = self._here
        blocked = here.net.lane(MEMBER).blocked
        if here.state is State.JOINING and blocked:
            here.move(State.FINDING, f"the coordinator is gone: {here.net.last_failure}")
        elif here.state is State.FINDING and not blocked:
            here.move(State.JOINING, f"the coordinator is {here.net.route.url}")

    # --- assigning, syncing ------------------------------------------------------------------------------------------

    def assign(self) -> None:
        """Have the assignment made, as leader."""
        here = self._here
        assert here.assigning is not None
        call_id = here.net.claim(MEMBER)
        here.net.actions.append(Assign(call_id, here.assigning.protocol_name, here.assigning.members))

    def assignment_failed(self, error: Exception, retriable: bool, now_ms: int, draw: Draw) -> None:
        """It could not be made."""
        here = self._here
        if retriable:
            here.warn(f"the partition counts cannot be had yet: {error}; trying again")
            here.net.set_timer(ASSIGN, now_ms + max(1, here.net.setback_ms(MEMBER, draw.jitter)))
            return
        failure = AssignorFailed(f"no assignment with {self._protocol_name!r}: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self._leaving.leave(Ending("its assignor failed", tell=True, error=failure), now_ms)

    def sync(self, made: tuple[m.SyncAssignment, ...], now_ms: int) -> None:
        """Ask for the assignment, as leader with everyone's."""
        here = self._here
        here.assigning = None
        self._heartbeats.stop()
        owns = here.owned.assignment is not None
        intent = requests.sync(here.options, here.member_id, here.generation_id, self._protocol_name, made, owns=owns)
        here.net.open(MEMBER, intent, now_ms)

    def sync_ended(self, settled: Settled, now_ms: int, draw: Draw) -> None:
        """The answer to a sync came."""
        match settled.outcome:
            case Answered(m.SyncAnswer() as answer):
                self._assigned(answer, now_ms, draw)
            case Waiting():
                self._here.hear(now_ms)
                self._here.net.repeat(MEMBER, settled.intent, now_ms)
            case Refused(problem):
                self.refused(problem, now_ms, draw)

    def _assigned(self, answer: m.SyncAnswer, now_ms: int, draw: Draw) -> None:
        here = self._here
        if here.ending is not None:
            self._leaving.leave_now(now_ms)
            return
        try:
            partitions, user_data = read_assignment(answer.assignment)
        except ValueError as error:
            failure = UnreadableAssignment(f"the leader's assignment is not one of partitions: {error}")
            self._leaving.leave(Ending("its assignment is unreadable", tell=True, error=failure), now_ms)
            return
        here.disowned = False
        here.net.calm(MEMBER)
        here.move(State.STABLE, f"generation {here.generation_id}, {len(partitions)} partitions")
        here.net.set_timer(SESSION, now_ms + here.options.session_timeout_ms)
        self._take(
            Assignment(here.generation_id, here.member_id, self._leads, self._protocol_name, partitions, user_data),
            now_ms,
            draw,
        )

    def _take(self, new: Assignment, now_ms: int, draw: Draw) -> None:
        """First what the new assignment takes away, then what it adds; and another round, where somebody waits."""
        here = self._here
        if not here.owned.claimed <= new.partitions:
            self._owes_round = "what it gave up is free"
        else:
            here.net.calm(HANDOVER)
        if revoked := here.owned.revoked_by(new):
            here.owned.promise(new)
            self._reason = f"{len(revoked)} partitions go to others"
            self._leaving.revoke(self._reason, revoked, now_ms)
            return
        here.net.actions.append(CallBack(Callback.ASSIGNED, here.owned.take(new)))
        if not self._go_another_round(now_ms, draw):
            self._heartbeats.beat(now_ms)

    def _go_another_round(self, now_ms: int, draw: Draw) -> bool:
        """Join again where that is owed. The first time at once; where every round takes something, slower and slower,
        for an assignor that never comes to rest must not keep a group busy.
        """
        if self._owes_round is not None:
            delay_ms = self._here.net.setback_ms(HANDOVER, draw.jitter)
            self.give_way(self._owes_round, now_ms, draw, delay_ms)
        elif self._subscription_stale:
            self.give_way("the subscription changed", now_ms, draw)
        else:
            return False
        return True

    # --- joining again -----------------------------------------------------------------------------------------------

    def another_round(self, reason: str, now_ms: int, draw: Draw) -> None:
        """The user wants one: now, or not at all where one is on."""
        here = self._here
        # A cooperative member that owns something lets a sync come to its end: in between it could not give up in
        # order what it subscribes to no more.
        turns_back = here.state is State.SYNCING and here.ending is None
        if here.state is State.STABLE or (turns_back and not (self._subscription_stale and here.owned.assignment)):
            self.give_way(reason, now_ms, draw)

    def give_way(self, reason: str, now_ms: int, draw: Draw, delay_ms: int = 0) -> None:
        """Join again, after giving up what the protocol asks for: everything, or what nobody here subscribes to."""
        here = self._here
        if here.ending is not None:
            self._leaving.leave_now(now_ms)
            return
        first = here.owned.unwanted(self.topics if here.cooperative else ())
        if first or (here.owned.assignment is not None and not here.cooperative):
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
        self.another_round("the subscription changed", now_ms, draw)

    def revoked(self, now_ms: int, draw: Draw) -> None:
        """`on_revoked` has returned: leave, or own what was promised, and join again."""
        here = self._here
        self._leaving.revoked()
        if here.ending is not None:
            self._leaving.leave_now(now_ms)
            return
        if (promised := here.owned.promised) is not None:
            here.net.actions.append(CallBack(Callback.ASSIGNED, here.owned.take(promised)))
        if not self._go_another_round(now_ms, draw):
            self.give_way(self._reason, now_ms, draw)

    # --- refusals ----------------------------------------------------------------------------------------------------

    def refused(self, problem: m.Problem, now_ms: int, draw: Draw) -> None:
        """A join, sync or heartbeat was refused for what the member is."""
        here = self._here
        reason = f"{problem.error_name}: {problem.detail}"
        joining = here.state in {State.FINDING, State.JOINING}
        match reaction_to(problem):
            case Reaction.TAKE_ID if problem.member_id and joining and not here.member_id:
                here.member_id = problem.member_id
                self.join(self._reason, now_ms, draw)
            case Reaction.TAKE_ID:
                self._leaving.fail(ServiceFailed("MEMBER_ID_REQUIRED came without a member id, or where there is one"))
            case Reaction.REJOIN:
                delay_ms = here.net.setback_ms(MEMBER, draw.jitter) if joining else 0
                self.give_way("the group began another rebalance", now_ms, draw, delay_ms)
            case Reaction.FORGET_GENERATION:
                self.lose(reason, now_ms, draw)
            case Reaction.FORGET_ID:
                here.member_id = ""
                self.lose(reason, now_ms, draw)
            case _:
                self._leaving.fail(fatal_error(problem))

    def lose(self, reason: str, now_ms: int, draw: Draw) -> None:
        """The group does not hold the assignment for this member any more."""
        here = self._here
        here.call_lost()
        if here.state is State.REVOKING:
            # `on_revoked` runs and ends its part of the assignment; only then is there somewhere to go.
            here.disowned = True
            self._heartbeats.stop()
            return
        here.generation_id = -1
        if here.ending is not None:
            self._leaving.say_leave(now_ms)
        else:
            self.join(reason, now_ms, draw, delay_ms=here.net.setback_ms(MEMBER, draw.jitter))
