"""`BlockingGroupMember`: the same life from threads, and no thread left when it is over."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rallypoint import (
    Assignment,
    BlockingGroupMember,
    CallbackFailed,
    Fenced,
    IllegalGeneration,
    MemberClosed,
    MemberOptions,
)
from rallypoint.member.blocking import CALLBACKS, COUNTS
from rallypoint.member.core.states import State
from rallypoint.protocol.errors import ErrorCode
from tests.fakes.fake_coordinator import FakeCoordinator, problem, running_in_thread
from tests.real.parts import ROOT


class Service:
    """The fake coordinator in its thread."""

    def __init__(self, fake: FakeCoordinator, loop: asyncio.AbstractEventLoop) -> None:
        self.fake = fake
        self._loop = loop

    def rebalance(self) -> None:
        asyncio.run_coroutine_threadsafe(self.fake.rebalance(), self._loop).result(30)

    def options(self, **changes: Any) -> MemberOptions:
        plain: dict[str, Any] = {
            "coordinator": self.fake.url,
            "group_id": "g",
            "topics": ("clicks",),
            "transport": self.fake.transport,
        }
        return MemberOptions(**(plain | changes))


@pytest.fixture(params=["channel", "http"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    """Every test that takes it is run with both transports."""
    before = set(threading.enumerate())
    fake = FakeCoordinator(transport=request.param)
    with running_in_thread(fake) as loop:
        yield Service(fake, loop)
    deadline = time.monotonic() + 60
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == set()


def members_threads() -> list[str]:
    ours = {"rallypoint-member", "rallypoint-callback", "rallypoint-counts"}
    return sorted(thread.name for thread in threading.enumerate() if thread.name in ours)


def test_each_join_asks_for_the_user_data_of_now(service: Service) -> None:
    with BlockingGroupMember(service.options(), user_data_at_join=lambda: {"weights": {"clicks": {"0": 7}}}) as member:
        member.wait_assigned(30_000)
    told = service.fake.bodies("join")[0].protocols[0].metadata.value["user_data"]
    assert told == {"weights": {"clicks": {"0": 7}}}


def test_a_whole_life_from_a_plain_program(service: Service) -> None:
    seen: list[tuple[str, int, str]] = []

    def on_assigned(held: Assignment) -> None:
        seen.append(("assigned", held.generation_id, threading.current_thread().name))

    def on_revoked(held: Assignment) -> None:
        time.sleep(0.05)
        member.commit({("clicks", 0): 10 + held.generation_id}, generation_id=held.generation_id)
        seen.append(("revoked", held.generation_id, threading.current_thread().name))

    with BlockingGroupMember(service.options(), on_assigned=on_assigned, on_revoked=on_revoked) as member:
        held = member.wait_assigned(30_000)
        assert member.assignment == held
        assert (member.state, member.revoking, member.rebalance_pending) == (State.STABLE, False, False)
        assert member.member_id == held.member_id
        member.commit({("clicks", 1): 5})
        service.rebalance()
        assert member.wait_assigned(30_000, newer_than=1).generation_id == 2
        committed = member.committed(["clicks"])
        assert {key: offset.offset for key, offset in committed.items()} == {("clicks", 0): 11, ("clicks", 1): 5}
    assert [(what, generation_id) for what, generation_id, _ in seen] == [
        ("assigned", 1), ("revoked", 1), ("assigned", 2), ("revoked", 2),
    ]  # fmt: skip
    assert all(name.startswith("rallypoint-callback") for _, _, name in seen)
    assert service.fake.group.offsets[("clicks", 0)].offset == 12
    assert members_threads() == []


class Worker:
    """A cooperative member in a plain program. `working`: the partitions on which it works now."""

    def __init__(self, service: Service, name: str) -> None:
        self.working: set[tuple[str, int]] = set()
        self.story: list[tuple[str, int, int]] = []
        options = service.options(client_id=name, assignors=("cooperative-sticky",))
        self.member = BlockingGroupMember(
            options, on_assigned=self.begin, on_revoked=self.finish, on_lost=self.working_is_lost
        )

    def begin(self, added: Assignment) -> None:
        assert not added.partitions & self.working
        self.working |= added.partitions
        self.story.append(("assigned", len(added.partitions), len(added.kept)))

    def finish(self, given_up: Assignment) -> None:
        assert given_up.partitions <= self.working
        time.sleep(0.05)  # as a worker that has something in hand
        offset = dict.fromkeys(given_up.partitions, 7)
        self.member.commit(offset, generation_id=given_up.generation_id)
        self.working -= given_up.partitions
        self.story.append(("revoked", len(given_up.partitions), len(given_up.kept)))

    def working_is_lost(self, lost: Assignment) -> None:
        raise AssertionError(f"nothing is lost here: {lost}")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.005)


def test_a_cooperative_member_works_on_with_what_it_keeps(service: Service) -> None:
    one, two = Worker(service, "one"), Worker(service, "two")
    with one.member:
        alone = one.member.wait_assigned(30_000)
        assert one.working == alone.partitions
        assert len(one.working) == 4
        with two.member:
            wait_until(lambda: len(one.working) == len(two.working) == 2)
            assert one.working | two.working == alone.partitions
            assert one.story == [("assigned", 4, 0), ("revoked", 2, 2), *one.story[2:]]
            kept = set(one.working)
            # The older generation stands for as long as the partitions were here.
            one.member.commit(dict.fromkeys(kept, 9), generation_id=alone.generation_id)
            with pytest.raises(IllegalGeneration):
                one.member.commit(dict.fromkeys(two.working, 9), generation_id=alone.generation_id)
        wait_until(lambda: len(one.working) == 4)
        assert kept <= one.working
    assert [what for what, count, _ in one.story if what == "revoked"] == ["revoked", "revoked"]
    assert one.story[-1] == ("revoked", 4, 0)
    offsets = {partition: commit.offset for partition, commit in service.fake.group.offsets.items()}
    assert set(offsets) == alone.partitions
    assert members_threads() == []


def test_heartbeats_go_on_while_a_callback_blocks(service: Service) -> None:
    def on_revoked(held: Assignment) -> None:
        time.sleep(0.1)

    with BlockingGroupMember(service.options(), on_revoked=on_revoked) as member:
        member.wait_assigned(30_000)
        service.rebalance()
        member.wait_assigned(30_000, newer_than=1)
        assert len([beat for beat in service.fake.bodies("heartbeat") if beat.wait_ms == 0]) >= 3


def test_partition_counts_may_block_and_the_subscription_may_change(service: Service) -> None:
    counts = {"clicks": 1, "orders": 2}

    def ask(topics: frozenset[str]) -> dict[str, int]:
        time.sleep(0.01)
        return {topic: counts[topic] for topic in topics}

    with BlockingGroupMember(service.options(), partition_counts=ask) as member:
        assert member.wait_assigned(30_000).partitions == {("clicks", 0)}
        counts["clicks"] = 2
        member.request_rejoin("clicks grew")
        assert len(member.wait_assigned(30_000, newer_than=1).partitions) == 2
        member.subscribe(["orders"])
        assert member.wait_assigned(30_000, newer_than=2).partitions == {("orders", 0), ("orders", 1)}
        with pytest.raises(ValueError, match="at least one"):
            member.subscribe([])


def test_racks_may_block(service: Service) -> None:
    asked: list[tuple[str, frozenset[str]]] = []

    def ask(topics: frozenset[str]) -> dict[str, list[list[str]]]:
        time.sleep(0.01)
        asked.append((threading.current_thread().name, topics))
        return {topic: [["x"]] * 4 for topic in topics}

    with BlockingGroupMember(service.options(), replica_racks=ask) as member:
        assert len(member.wait_assigned(30_000).partitions) == 4
    assert asked == [("rallypoint-counts", frozenset({"clicks"}))]
    with pytest.raises(ValueError, match="replica_racks: clicks"):
        BlockingGroupMember(service.options(), replica_racks={"clicks": "xy"})


def test_counts_that_hang_hold_back_no_callback(service: Service) -> None:
    may_answer, asked, lost = threading.Event(), threading.Semaphore(0), threading.Event()

    def count(topics: frozenset[str] | None) -> dict[str, int]:
        asked.release()
        may_answer.wait(30)
        return {"clicks": 4}

    member = BlockingGroupMember(
        service.options(metadata_max_age_ms=20), partition_counts=count, on_lost=lambda _: lost.set()
    )
    member.start()
    try:
        threads = member._runtime.threads
        hanging = [asyncio.run_coroutine_threadsafe(threads.call(COUNTS, lambda: count(None)), loop_of(member))]
        assert asked.acquire(timeout=60)
        assert asked.acquire(timeout=60), "the leader counts, and so does somebody else"
        callback = asyncio.run_coroutine_threadsafe(threads.call(CALLBACKS, lambda: "called"), loop_of(member))
        assert callback.result(10) == "called", "well before the counts give up"
        may_answer.set()
        assert [each.result(30) for each in hanging] == [{"clicks": 4}]
    finally:
        may_answer.set()
        member.close()


def loop_of(member: BlockingGroupMember) -> asyncio.AbstractEventLoop:
    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    return member._runtime.loop.wait(running)


def test_errors_reach_the_calling_thread_and_stay_after_the_end(service: Service) -> None:
    service.fake.plant("sync", problem(ErrorCode.FENCED_INSTANCE_ID))
    member = BlockingGroupMember(service.options())
    member.start()
    with pytest.raises(Fenced):
        member.wait_assigned(30_000)
    member.leave()
    assert members_threads() == []
    with pytest.raises(Fenced):
        member.commit({("clicks", 0): 1})
    assert isinstance(member.error, Fenced)


def test_a_callback_that_raises_is_told_with_its_cause(service: Service) -> None:
    def on_assigned(held: Assignment) -> None:
        raise OSError("disk full")

    member = BlockingGroupMember(service.options(), on_assigned=on_assigned)
    member.start()
    with pytest.raises(CallbackFailed, match="disk full"):
        member.wait_assigned(30_000)
    member.leave()


def test_waits_end_in_time(service: Service) -> None:
    service.fake.group.pending["somebody"] = "else"
    with BlockingGroupMember(service.options()) as member:
        wait_until(lambda: member.state is State.JOINING)
        with pytest.raises(TimeoutError, match="Joining"):
            member.wait_assigned(50)
        with pytest.raises(IllegalGeneration):
            member.commit({("clicks", 0): 1})


def test_a_callback_cannot_leave(service: Service) -> None:
    caught: list[BaseException] = []

    def on_assigned(held: Assignment) -> None:
        try:
            member.leave()
        except RuntimeError as error:
            caught.append(error)

    with BlockingGroupMember(service.options(), on_assigned=on_assigned) as member:
        member.wait_assigned(30_000)
    assert "callback" in str(caught[0])


def test_close_from_another_thread_ends_every_wait(service: Service) -> None:
    hold = threading.Event()

    def on_assigned(held: Assignment) -> None:
        hold.wait(120)

    member = BlockingGroupMember(service.options(), on_assigned=on_assigned)
    member.start()
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            member.wait_assigned(120_000)
        except MemberClosed as error:
            ended.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    while member.state is not State.STABLE:
        time.sleep(0.005)
    began = time.monotonic()
    member.close()
    waiter.join(60)
    assert time.monotonic() - began < 60
    assert len(ended) == 1
    assert service.fake.bodies("leave") == []
    hold.set()
    member.close()
    member.leave()


def test_a_member_that_was_never_started_has_nothing_to_end(service: Service) -> None:
    member = BlockingGroupMember(service.options())
    with pytest.raises(MemberClosed, match="not started"):
        member.committed()
    member.leave()
    member.close()
    assert members_threads() == []


def test_a_member_is_started_once(service: Service) -> None:
    with BlockingGroupMember(service.options()) as member, pytest.raises(RuntimeError, match="started once"):
        member.start()
    with pytest.raises(RuntimeError, match="started once"):
        member.start()


def test_many_threads_commit_at_once(service: Service) -> None:
    with BlockingGroupMember(service.options()) as member:
        member.wait_assigned(30_000)
        threads = [
            threading.Thread(target=member.commit, args=({("clicks", number % 4): number},)) for number in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(service.fake.bodies("commit")) == 16


STUCK_PROGRAM = """
import sys, time
from rallypoint import BlockingGroupMember, MemberOptions

def on_assigned(assignment):
    print("called", flush=True)
    time.sleep(600)

member = BlockingGroupMember(
    MemberOptions(coordinator=sys.argv[1], group_id="g", topics=("clicks",), transport="http"),
    partition_counts={"clicks": 1},
    on_assigned=on_assigned,
)
member.start()
sys.stdin.readline()
member.close()
print("closed", flush=True)
"""


STUCK_ASSIGNOR = """
import sys, threading
from rallypoint.assignors.contract import Assignor
from rallypoint import BlockingGroupMember, MemberOptions

class NeverReturns(Assignor):
    name = "never-returns"

    def assign(self, spec):
        print("called", flush=True)
        threading.Event().wait()

options = MemberOptions(
    coordinator=sys.argv[1], group_id="g", topics=("clicks",), transport="http", assignors=(NeverReturns,)
)
member = BlockingGroupMember(options, partition_counts={"clicks": 1})
member.start()
sys.stdin.readline()
member.close()
print("closed", flush=True)
"""


@pytest.mark.parametrize("program", [STUCK_PROGRAM, STUCK_ASSIGNOR], ids=["callback", "assignor"])
def test_a_process_ends_though_the_users_code_never_returns(program: str) -> None:
    fake = FakeCoordinator(transport="http")
    with running_in_thread(fake):
        command = [sys.executable, "-c", program, fake.url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
            assert child.stdout is not None
            try:
                assert child.stdout.readline() == "called\n"
                said, _ = child.communicate("close it\n", timeout=60)
                assert said == "closed\n"
                assert child.returncode == 0
            finally:
                child.kill()


def test_sys_exit_in_a_callback_is_an_error_of_the_callback_and_ends_no_thread(service: Service) -> None:
    member = BlockingGroupMember(
        service.options(), partition_counts={"clicks": 1}, on_assigned=lambda assignment: sys.exit(3)
    )
    with member, pytest.raises(CallbackFailed, match="SystemExit: 3"):
        member.wait_assigned(30_000)


def test_a_call_from_the_loops_own_thread_is_refused(service: Service) -> None:
    said: list[str] = []

    def user_data() -> str:
        """The one thing of the user's that is asked for in the event loop."""
        try:
            member.committed()
        except RuntimeError as error:
            said.append(str(error))
        return "asked"

    member = BlockingGroupMember(service.options(), partition_counts={"clicks": 1}, user_data_at_join=user_data)
    with member:
        member.wait_assigned(30_000)
    assert "called in the event loop of rallypoint-member" in said[0]


def test_a_forked_child_is_told_to_make_its_own(service: Service) -> None:
    def is_refused(call: Callable[[], object]) -> bool:
        try:
            call()
        except RuntimeError as error:
            return "forked" in str(error)
        return False

    with BlockingGroupMember(service.options(), partition_counts={"clicks": 1}) as member:
        member.wait_assigned(30_000)
        child = os.fork()
        if child == 0:
            calls: list[Callable[[], object]] = [member.committed, member.leave, member.close]
            refused = all(is_refused(call) for call in calls)
            os._exit(0 if refused else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert member.committed() == {}
