"""One run: a seed's plan, carried out on virtual time with the real coordinator and real members, and judged."""

import asyncio
import logging
import random
from dataclasses import dataclass, field

from tests.simulation.loop import VirtualLoop
from tests.simulation.plan import plan_of
from tests.simulation.stages import Stages
from tests.simulation.trace import Trace, Violation
from tests.simulation.world import World


@dataclass(frozen=True, slots=True)
class Result:
    """How a run went. `violation` is None where every law held."""

    seed: int
    digest: str
    turns: int
    calls: int
    virtual_ms: int
    faults: dict[str, int]
    done: dict[str, int]
    violation: Violation | None
    lines: list[str] = field(default_factory=list)


def run(seed: int, focus: str | None = None, *, verbose: bool = False) -> Result:
    """Carry out one seed's plan, of that focus."""
    plan = plan_of(seed, focus)
    chance = random.Random(f"run {seed}")
    trace = Trace(verbose=verbose)
    loop = VirtualLoop(random.Random(f"order {seed}") if plan.shuffles else None)
    world = World(plan, chance, trace, loop)
    heard = _Faults(world)
    logger = logging.getLogger("rallypoint.coordinator")
    before = logger.propagate, logger.level
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    logger.addHandler(heard)
    asyncio.set_event_loop(loop)
    violation: Violation | None = None
    try:
        loop.run_until_complete(Stages(world).live())
    except Violation as found:
        violation = found
    except Exception as error:
        violation = Violation("NoFault", f"{type(error).__name__}: {error}")
        violation.__cause__ = error
    finally:
        world.is_over = True
        logger.removeHandler(heard)
        logger.propagate, logger.level = before
        logger.setLevel(before[1])
        _dispose(loop)
    return Result(
        seed,
        trace.digest,
        loop.turns,
        world.network.calls,
        round(loop.time() * 1000),
        dict(trace.faults),
        dict(trace.done),
        violation,
        [] if violation is None else trace.lines(),
    )


def _dispose(loop: VirtualLoop) -> None:
    """Whatever of a failed run is still there ends unseen."""
    loop.after_turn = None
    loop.fault = None
    loop.set_exception_handler(lambda loop, context: None)
    try:
        for _ in range(5):
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.call_soon(loop.stop)
            loop.run_forever()
    finally:
        asyncio.set_event_loop(None)
        loop.close()


class _Faults(logging.Handler):
    """The coordinator logs its own faults with a traceback; each is a violation."""

    def __init__(self, world: "World") -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            fault = Violation("NoFault", f"{record.getMessage()}: {type(error).__name__}: {error}")
            fault.__cause__ = error
            self._world.loop.fault = self._world.loop.fault or fault
