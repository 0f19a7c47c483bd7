"""One run of the cluster: a seed's plan on virtual time, judged; and a smaller plan that fails in the same way."""

import asyncio
import gc
import logging
import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulation.cluster.plan import ClusterPlan, cluster_plan_of
from tests.simulation.cluster.processes import ClusterLoop, in_no_process
from tests.simulation.cluster.stages import ClusterStages
from tests.simulation.cluster.world import ClusterWorld
from tests.simulation.runner import Result
from tests.simulation.trace import Trace, Violation

ROUNDS_OF_CANCELLING = 30


def run(seed: int, *, verbose: bool = False) -> Result:
    """Carry out one seed's plan."""
    return run_plan(cluster_plan_of(seed), verbose=verbose)


def run_plan(plan: ClusterPlan, *, verbose: bool = False) -> Result:
    """Carry out a plan, which may be a part of a seed's.

    The garbage collector waits until it is over: a generator that it ends would end at another turn in each process.
    """
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        return _run_plan(plan, verbose=verbose)
    finally:
        gc.collect()
        if was_collecting:
            gc.enable()


def _run_plan(plan: ClusterPlan, *, verbose: bool) -> Result:
    trace = Trace(verbose=verbose)
    loop = ClusterLoop(random.Random(f"order {plan.seed}") if plan.shuffles else None)
    heard = _Faults(loop)
    logger = logging.getLogger("rallypoint")
    before = logger.propagate, logger.level
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    logger.addHandler(heard)
    asyncio.set_event_loop(loop)
    world = ClusterWorld(plan, random.Random(f"run {plan.seed}"), trace, loop)
    violation: Violation | None = None
    try:
        in_no_process(loop.run_until_complete, ClusterStages(world).live())
    except Violation as found:
        violation = found
    except Exception as error:
        violation = Violation("NoFault", f"{type(error).__name__}: {error}")
        violation.__cause__ = error
    finally:
        world.is_over = True
        digest, lines = trace.digest, trace.lines()
        virtual_ms, turns = round(loop.time() * 1000), loop.turns
        logger.removeHandler(heard)
        _dispose(loop)
        logger.propagate = before[0]
        logger.setLevel(before[1])
    return Result(
        plan.seed,
        digest,
        turns,
        world.network.calls,
        virtual_ms,
        dict(trace.faults),
        dict(trace.done),
        violation,
        [] if violation is None else lines,
    )


def _dispose(loop: ClusterLoop) -> None:
    """Whatever is still there ends unseen, the dead included."""
    loop.after_turn = None
    loop.fault = None
    loop.set_exception_handler(lambda loop, context: None)
    try:
        for process in loop.processes:
            process.revive()
        for _ in range(ROUNDS_OF_CANCELLING):
            tasks = asyncio.all_tasks(loop)
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            for _ in range(5):
                loop.call_soon(loop.stop)
                loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


class _Faults(logging.Handler):
    """The product logs its own faults with a traceback; each is a violation."""

    def __init__(self, loop: ClusterLoop) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            fault = Violation("NoFault", f"{record.getMessage()}: {type(error).__name__}: {error}")
            fault.__cause__ = error
            self._loop.fault = self._loop.fault or fault


def shrunk(
    plan: ClusterPlan, law: str, runs_max: int = 80, carry_out: Callable[[ClusterPlan], Result] = run_plan
) -> ClusterPlan:
    """A plan with fewer steps and random faults that breaks the same law, as far as that many runs find one."""
    runs = 0

    def still_fails(candidate: ClusterPlan) -> bool:
        nonlocal runs
        runs += 1
        violation = carry_out(candidate).violation
        return violation is not None and violation.checker == law

    for kind in plan.faults:
        if runs < runs_max and still_fails(candidate := plan.without(frozenset({kind}))):
            plan = candidate
    size = max(1, len(plan.steps) // 2)
    while runs < runs_max:
        start = 0
        while start < len(plan.steps) and runs < runs_max:
            candidate = replace(plan, steps=plan.steps[:start] + plan.steps[start + size :])
            if still_fails(candidate):
                plan = candidate
            else:
                start += size
        if size == 1:
            break
        size //= 2
    return plan
