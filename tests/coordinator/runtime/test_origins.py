"""What happens to a group names the request that has asked for it, and what a timer does names none."""

import asyncio

from rallypoint.coordinator.core.effects import Event, JoinPhaseEnded, RebalanceBegan, SessionExpired
from rallypoint.coordinator.runtime.event_loop.clock import SystemClock
from rallypoint.coordinator.runtime.event_loop.faults import begin
from rallypoint.coordinator.runtime.origin import ORIGIN, Origin
from tests.fakes.manual_clock import settle
from tests.fakes.service_harness import ServiceHarness, join


class Noted(list[Event]):
    """Events, with the request for which each was told."""

    def __init__(self) -> None:
        super().__init__()
        self.request_ids: dict[type[Event], list[str | None]] = {}

    def append(self, event: Event) -> None:
        super().append(event)
        origin = ORIGIN.get()
        self.request_ids.setdefault(type(event), []).append(None if origin is None else origin.request_id)


async def test_an_event_names_the_request_that_asked_for_it_and_that_of_a_timer_none() -> None:
    harness = await ServiceHarness().start()
    noted = harness.watcher.events = Noted()
    member_id = await harness.new_id("g", "a")
    of_join = ORIGIN.set(Origin("asks-1"))
    joining = harness.ask("g", join("a", member_id))
    ORIGIN.reset(of_join)
    # The write of the group ends in the task of the store's writer, which works for everybody.
    await settle()
    assert joining.done()
    assert noted.request_ids[RebalanceBegan] == ["asks-1"]
    assert noted.request_ids[JoinPhaseEnded] == ["asks-1"]
    await harness.clock.run(60_000)
    await settle()
    assert noted.request_ids[SessionExpired] == [None]


async def test_two_requests_whose_steps_are_stored_together_keep_their_names() -> None:
    harness = await ServiceHarness().start()
    ids = await harness.form("g", "a", "b")
    noted = harness.watcher.events = Noted()
    harness.store.append_gate.shut()
    asked = []
    for name in ids:
        of_join = ORIGIN.set(Origin(f"of-{name}"))
        asked.append(harness.ask("g", join(name, ids[name])))
        ORIGIN.reset(of_join)
    await settle()
    assert not noted
    harness.store.append_gate.let_go()
    await settle()
    begun = noted.request_ids[RebalanceBegan]
    assert len(begun) == 1
    assert begun[0] in {"of-a", "of-b"}


async def test_what_outlives_a_request_does_not_keep_its_name() -> None:
    seen: list[Origin | None] = []
    fired = asyncio.Event()

    def fire() -> None:
        seen.append(ORIGIN.get())
        fired.set()

    async def look() -> None:
        seen.append(ORIGIN.get())

    of_request = ORIGIN.set(Origin("asks-1"))
    clock = SystemClock()
    clock.call_at(clock.now_ms() + 1, fire)
    await begin(look(), lambda: None)
    await begin(look(), lambda: None, is_of_request=True)
    ORIGIN.reset(of_request)
    async with asyncio.timeout(20):
        await fired.wait()
    assert [None if origin is None else origin.request_id for origin in seen] == [None, "asks-1", None]
