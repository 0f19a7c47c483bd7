"""Rebalances held back: by an operator's freeze, and by the cool-down after each rebalance. One mechanism, one timer.

While one of the two holds, nothing leads out of Stable but an operator's own word. What would have (a member came,
left, was not heard of, says something new; a topic changed) is remembered, and when the hold is over one rebalance
starts for all of it. Until then

    a new member has joined and waits; it has no part in the generation, and may do nothing in it
    a member that joins again (the leader, one with another subscription) has joined and waits
    one that leaves, or is not heard of, is out at once; its partitions have no owner
    all others go on as if nothing were

A hold protects an assignment that somebody uses. When the last member of the generation has gone, it holds nothing:
whoever waits forms a generation, or the group is Empty. A rebalance under way goes on to its end.

    frozen until    stored, for a restart does not thaw; at most `rebalance_freeze_max_ms` from now, also at a load;
                    members that have come may end it before (`roster`)
    cooling until   since when the group is Stable, which is stored too and never later than the load, plus the
                    cool-down

The causes are memory. After a crash the members whom the store has come back, and who of them had gone expires; who
waited joins again; and the topics are compared with those of the assignment: what was a reason becomes one again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import islice

from rallypoint.coordinator.core import rebalance_history, roster
from rallypoint.coordinator.core import records as r
from rallypoint.coordinator.core import transient_facts as t
from rallypoint.coordinator.core.commands import Call, DecisionContext, Rebalance, TimerFired, Trigger
from rallypoint.coordinator.core.decision import Draft, hold_timer, linger_timer
from rallypoint.coordinator.core.effects import Failure, GroupFrozen, GroupThawed, RebalanceHeld
from rallypoint.coordinator.core.group import Group, State, check_exists
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import limits
from rallypoint.protocol.errors import ErrorCode
from rallypoint.protocol.limits import REASON_LENGTH_MAX

# --- questions -------------------------------------------------------------------------------------------------------


def frozen_until(group: Group) -> int | None:
    """When the freeze ends; None where the group is not frozen. The timer takes a freeze away that is over."""
    return None if group.hold is None else group.hold.frozen_until_ms


def cooldown_of(group: Group, context: DecisionContext) -> int:
    """The cool-down in force: the group's own, within what the settings allow now, or theirs."""
    own = None if group.hold is None else group.hold.cooldown_ms
    return context.rules.rebalance_cooldown_ms if own is None else min(own, context.rules.rebalance_cooldown_max_ms)


def join_wait_of(group: Group, context: DecisionContext) -> int | None:
    """The longest wait for a join in force, the group's own or that of the settings; None: the rebalance timeouts."""
    own = None if group.hold is None else group.hold.join_wait_max_ms
    return context.rules.join_wait_max_ms if own is None else own


def cooling_until(group: Group, context: DecisionContext) -> int | None:
    """When the cool-down ends; None where it does not run."""
    if group.state is not State.STABLE:
        return None
    until_ms = group.state_at_ms + cooldown_of(group, context)
    return until_ms if until_ms > context.now_ms else None


def held_until(group: Group, context: DecisionContext, without: Collection[str] = ()) -> int | None:
    """Until when nothing leads out of Stable; None where nothing holds. `without`: members that are as good as gone.

    Cost: a look at members, up to the first that has a part in the generation.
    """
    if group.state is not State.STABLE or all(
        member.is_new or member.member_id in without for member in group.members.values()
    ):
        return None
    # Not 0 where nothing holds: a machine may take the present for a time before 1970, and nothing holds until then.
    untils = (frozen_until(group), cooling_until(group, context))
    return max((until_ms for until_ms in untils if until_ms is not None and until_ms > context.now_ms), default=None)


# --- what is held, and let go ----------------------------------------------------------------------------------------


def hold(group: Group, command: Rebalance, context: DecisionContext, draft: Draft) -> bool:
    """Remember the cause instead of starting a rebalance, if something holds; false: start it."""
    until_ms = None if command.trigger is Trigger.OPERATOR else held_until(group, context)
    if until_ms is None:
        return False
    draft.fact(t.CauseHeld(rebalance_history.cause_of(command, context)))
    _set_timer(group, until_ms, draft)
    draft.notify(RebalanceHeld(group.group_id, command.trigger, command.member_id, command.reason, until_ms))
    return True


def _set_timer(group: Group, until_ms: int, draft: Draft) -> None:
    """A freeze is taken away when it ends, even where a cool-down goes on holding."""
    until = frozen_until(group)
    draft.set_timer(hold_timer(), until_ms if until is None else until)


def let_go(group: Group, draft: Draft) -> None:
    """A rebalance starts, for all that was held; what is left for the timer is the end of a freeze."""
    if group.held and frozen_until(group) is None:
        draft.cancel_timer(hold_timer())


def review(group: Group, context: DecisionContext, draft: Draft) -> None:
    """The timer fired, the group was loaded, an operator has changed something, or those whom a freeze waits for have
    come: what holds now?
    """
    until = frozen_until(group)
    members_came = roster.has_come(group)
    if until is not None and (until <= context.now_ms or members_came):
        store(group, _freeze_ended, draft)
        draft.notify(GroupThawed(group.group_id, lifted=False, members_came=members_came))
        draft.then.append(TimerFired(hold_timer()))
    elif group.held:
        until_ms = held_until(group, context)
        if until_ms is None:
            draft.cancel_timer(hold_timer())
            first = group.held[0]
            draft.then.append(
                Rebalance(
                    Trigger(first.trigger), first.reason, first.member_id, first.client_id, first.host, was_held=True
                )
            )
        else:
            _set_timer(group, until_ms, draft)
    elif until is not None:
        draft.set_timer(hold_timer(), until)
    else:
        draft.cancel_timer(hold_timer())


def bound_freeze(group: Group, context: DecisionContext, draft: Draft) -> None:
    """At a load: a freeze goes on for no longer than one that begins now may. The clock may have been put back."""
    until_ms, latest_ms = frozen_until(group), context.now_ms + context.rules.rebalance_freeze_max_ms
    if until_ms is not None and until_ms > latest_ms:
        store(group, lambda stands: replace(stands, frozen_until_ms=latest_ms), draft)


# --- what operators ask ----------------------------------------------------------------------------------------------


def freeze(group: Group, call: Call, request: admin.FreezeRequest, context: DecisionContext, draft: Draft) -> None:
    """Hold the group's rebalances from now on; a duration of 0 thaws. Errors: INVALID_REQUEST for one that is too long,
    GROUP_ID_NOT_FOUND.
    """
    if not request.duration_ms:
        thaw(group, call, context, draft)
        return
    waited_for = {} if request.until == "time" else roster.roster_of(group)
    failure = (
        check_exists(group)
        or _check_bound(
            "duration_ms", request.duration_ms, "rebalance_freeze_max_ms", context.rules.rebalance_freeze_max_ms
        )
        or (None if request.until == "time" else _check_roster(waited_for))
    )
    if failure is not None:
        draft.reply(call, failure)
        return
    until_ms = context.now_ms + request.duration_ms
    reason = None if request.reason is None else request.reason[:REASON_LENGTH_MAX]
    freeze_until = None if request.until == "time" else request.until
    store(
        group,
        lambda stands: replace(
            stands,
            frozen_until_ms=until_ms,
            freeze_reason=reason,
            freeze_until=freeze_until,
            freeze_roster=waited_for,
        ),
        draft,
    )
    draft.notify(GroupFrozen(group.group_id, until_ms, reason or "not provided", request.until))
    # Of a freeze that begins now everyone is there, and nobody has been replaced yet.
    replaced = Counter(waited_for.values()) if request.until == roster.REPLACED else Counter[str]()
    draft.reply(
        call,
        admin.FreezeAnswer(
            group_id=group.group_id,
            frozen_until_ms=until_ms,
            reason=reason,
            held_count=group.held_count,
            freeze_until=request.until,
            freeze_missing=shown(replaced),
            freeze_missing_count=replaced.total(),
        ),
    )
    draft.then.append(TimerFired(hold_timer()))


def _check_roster(waited_for: Mapping[str, str]) -> Failure | None:
    """Whether members can end the freeze."""
    if not waited_for:
        return Failure(
            ErrorCode.INVALID_REQUEST, "The group has no members to wait for: freeze by time.", field="until"
        )
    if roster.is_too_large(waited_for):
        detail = "The names of the group's members are too long to be remembered: freeze by time."
        return Failure(ErrorCode.INVALID_REQUEST, detail, field="until")
    return None


def shown(missing: Mapping[str, int]) -> tuple[str, ...]:
    """The first of the names of missing members."""
    return tuple(islice(missing, limits.FREEZE_MISSING_SHOWN_MAX))


def thaw(group: Group, call: Call, context: DecisionContext, draft: Draft) -> None:
    """End the freeze; what was held starts a rebalance, unless the group cools down. A group that is not frozen stays
    as it is.
    """
    failure = check_exists(group)
    if failure is not None:
        draft.reply(call, failure)
        return
    if frozen_until(group) is not None:
        store(group, _freeze_ended, draft)
        draft.notify(GroupThawed(group.group_id, lifted=True))
        draft.then.append(TimerFired(hold_timer()))
    still_held = group.held_count if cooling_until(group, context) is not None else 0
    draft.reply(
        call,
        admin.FreezeAnswer(group_id=group.group_id, frozen_until_ms=None, reason=None, held_count=still_held),
    )


def set_cooldown(
    group: Group, call: Call, request: admin.CooldownRequest, context: DecisionContext, draft: Draft
) -> None:
    """Set the group's own cool-down, or leave it to the settings. Counts for the time after the last rebalance too.

    Errors: INVALID_REQUEST for one that is too long, GROUP_ID_NOT_FOUND.
    """
    failure = check_exists(group) or _check_bound(
        "cooldown_ms", request.cooldown_ms or 0, "rebalance_cooldown_max_ms", context.rules.rebalance_cooldown_max_ms
    )
    if failure is not None:
        draft.reply(call, failure)
        return
    store(group, lambda stands: replace(stands, cooldown_ms=request.cooldown_ms), draft)
    is_default = request.cooldown_ms is None
    cooldown_ms = context.rules.rebalance_cooldown_ms if request.cooldown_ms is None else request.cooldown_ms
    draft.reply(call, admin.CooldownAnswer(group_id=group.group_id, cooldown_ms=cooldown_ms, is_default=is_default))
    draft.then.append(TimerFired(hold_timer()))


def start_rebalance(
    group: Group, call: Call, request: admin.StartRebalanceRequest, context: DecisionContext, draft: Draft
) -> None:  # fmt: skip
    """Start a rebalance at an operator's word, whatever holds; one that is under way is answered instead.

    Errors: GROUP_ID_NOT_FOUND.
    """
    failure = check_exists(group)
    if failure is not None:
        draft.reply(call, failure)
        return
    rebalance_id, started = group.rebalance_id, False
    if group.state is State.STABLE:
        reason = "not provided" if not request.reason else request.reason[:REASON_LENGTH_MAX]
        draft.then.append(Rebalance(Trigger.OPERATOR, f"an operator asked for it: {reason}", host=call.host))
        rebalance_id, started = rebalance_history.last_id(group) + 1, True
    draft.reply(call, admin.StartedRebalance(group_id=group.group_id, rebalance_id=rebalance_id, started=started))


def _check_bound(field: str, value: int, limit_name: str, most: int) -> Failure | None:
    if value <= most:
        return None
    detail = f"{field} must not be above {most}, for {limit_name} is fixed; it is {value}."
    return Failure(ErrorCode.INVALID_REQUEST, detail, field=field, limit=most, limit_name=limit_name)


# --- what is stored --------------------------------------------------------------------------------------------------


def _freeze_ended(stands: r.HoldRecord) -> r.HoldRecord:
    return replace(stands, frozen_until_ms=None, freeze_reason=None, freeze_until=None, freeze_roster={})


def store(group: Group, change: Callable[[r.HoldRecord], r.HoldRecord], draft: Draft) -> None:
    """Write what is set for the group; nothing set is no record."""
    record = change(group.hold or r.HoldRecord(group.group_id, None, None, None))
    if (record.frozen_until_ms, record.cooldown_ms, record.join_wait_max_ms) != (None, None, None):
        draft.fact(record)
    elif group.hold is not None:
        draft.fact(r.HoldForgotten(group.group_id))
    if group.lingers_until_ms is not None:
        # A join phase may have lingered for those whom a freeze waits for. Until when it does now is looked at anew.
        draft.fact(t.LingerSet(None))
        draft.cancel_timer(linger_timer(group))


def forget(group: Group, draft: Draft) -> None:
    """Take it away with the group."""
    if group.hold is not None:
        draft.fact(r.HoldForgotten(group.group_id))
        draft.cancel_timer(hold_timer())
