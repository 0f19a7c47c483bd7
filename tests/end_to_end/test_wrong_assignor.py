"""An assignor of the user's own that is wrong: its leader says so and goes; nothing that it gave reaches anybody."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import ClassVar, Literal

import pytest
from pydantic import JsonValue

from rallypoint import (
    Assignment,
    AssignorFailed,
    Batch,
    BlockingConsumer,
    BlockingGroupMember,
    CommitFailed,
    ConsumerOptions,
    MemberOptions,
)
from rallypoint.assignors.contract import Assignment as SharedOut
from rallypoint.assignors.contract import Assignor, GroupSpec
from rallypoint.assignors.roundrobin import RoundRobinAssignor
from rallypoint.member.testing import BlockingMemorySource
from tests.end_to_end.service_process import ServiceProcess, running_service

PARTITIONS = 6
EVERYTHING = [("clicks", n) for n in range(PARTITIONS)]


class Twice(Assignor):
    """Everybody gets everything."""

    name: ClassVar[str] = "mine"

    def assign(self, spec: GroupSpec) -> SharedOut:
        return dict.fromkeys(spec.subscriptions, tuple(EVERYTHING))


class Nothing(Twice):
    """Forgets to return what it made."""

    def assign(self, spec: GroupSpec) -> SharedOut:
        return None  # type: ignore[return-value] # what Python gives for a forgotten return


class Right(Twice):
    """What the name stands for where it is right."""

    def assign(self, spec: GroupSpec) -> SharedOut:
        return RoundRobinAssignor().assign(spec)


class NotHeldBack(Right):
    """Calls itself cooperative, and gives away what others own."""

    name: ClassVar[str] = "not-held-back"
    protocol: ClassVar[Literal["eager", "cooperative"]] = "cooperative"


class Ledger:
    """Who holds what at every moment, by what the callbacks were told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.holders: dict[tuple[str, int], set[str]] = {}
        self.doubles: list[tuple[tuple[str, int], frozenset[str]]] = []

    def takes(self, who: str, partitions: frozenset[tuple[str, int]]) -> None:
        with self._lock:
            for partition in partitions:
                self.holders.setdefault(partition, set()).add(who)
                if len(self.holders[partition]) > 1:
                    self.doubles.append((partition, frozenset(self.holders[partition])))

    def gives_up(self, who: str, partitions: frozenset[tuple[str, int]]) -> None:
        with self._lock:
            for partition in partitions:
                self.holders[partition].discard(who)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service"), "--group-initial-rebalance-delay-ms", "0") as service:
        assert service.send("PUT", "/v1/topics/clicks", {"partitions": PARTITIONS})[0] == 200
        yield service
        assert service.stop() == 0


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


class Crew:
    """Members of one group, whose callbacks write the ledger and commit as they give up."""

    def __init__(self, service: ServiceProcess, group_id: str) -> None:
        self.ledger = Ledger()
        self.members: list[BlockingGroupMember] = []
        self.revoked_after: list[float] = []
        self._service = service
        self._group_id = group_id

    def add(self, assignor: type[Assignor] | Assignor) -> BlockingGroupMember:
        who = f"m{len(self.members)}"

        def on_revoked(given_up: Assignment) -> None:
            began = time.monotonic()
            with suppress(CommitFailed):  # refused between two generations: the next owner reads from the last commit
                member.commit(dict.fromkeys(given_up.partitions, 1), generation_id=given_up.generation_id)
            self.revoked_after.append(time.monotonic() - began)
            self.ledger.gives_up(who, given_up.partitions)

        options = MemberOptions(
            coordinator=self._service.url,
            group_id=self._group_id,
            topics=("clicks",),
            client_id=who,
            assignors=(assignor,),
        )
        member = BlockingGroupMember(
            options,
            on_assigned=lambda added: self.ledger.takes(who, added.partitions),
            on_revoked=on_revoked,
            on_lost=lambda lost: self.ledger.gives_up(who, lost.partitions),
        )
        self.members.append(member)
        member.start()
        return member

    def running(self) -> list[BlockingGroupMember]:
        return [member for member in self.members if member.error is None]

    def is_assigned(self) -> bool:
        """Everything is held, by those that run, in one generation."""
        held = [member.assignment for member in self.running()]
        generations = {one.generation_id for one in held if one is not None}
        return (
            len(generations) == 1
            and sorted(partition for one in held if one is not None for partition in one.partitions) == EVERYTHING
        )

    def end(self) -> None:
        for member in self.members:
            member.leave()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Twice, r"clicks-0, which another member gets, too; and \d+ more such faults"),
        (Nothing, "it returns None, not a mapping from member ids to tuples of partitions"),
    ],
)
def test_a_leader_with_a_wrong_version_goes_and_the_next_one_shares_out(
    service: ServiceProcess, wrong: type[Assignor], words: str
) -> None:
    crew = Crew(service, f"wrong-{wrong.__name__}")
    try:
        bad = crew.add(wrong())  # it comes first, so it leads
        eventually(lambda: bad.assignment is not None or bad.error is not None, "it has joined")
        good = [crew.add(Right), crew.add(Right)]
        eventually(lambda: bad.error is not None, "the leader finds out")
        with pytest.raises(AssignorFailed, match=f"no assignment with 'mine': InvalidAssignment: .*{words}"):
            bad.wait_assigned(30_000)
        eventually(crew.is_assigned, "the others have everything")
        assert [member.error for member in good] == [None, None]
        assert crew.ledger.doubles == []
    finally:
        crew.end()


def test_where_all_are_wrong_each_leader_goes_in_turn_and_nobody_owns_what_another_does(
    service: ServiceProcess,
) -> None:
    """What one alone is given is right, so the last one has everything. Each that goes costs a round, and no more."""
    crew = Crew(service, "not-held-back")
    try:
        for count in range(1, 5):
            crew.add(NotHeldBack)
            eventually(lambda: len(crew.running()) == 1 and crew.is_assigned(), f"{count} have come")
        (last,) = crew.running()
        assert last is crew.members[-1]
        for member in crew.members[:-1]:
            with pytest.raises(AssignorFailed, match=r"gets clicks-\d, which m\d-\S+ still owns: a cooperative"):
                member.wait_assigned(30_000)
        assert crew.ledger.doubles == []
        assert {who for holders in crew.ledger.holders.values() for who in holders} == {"m3"}
        assert max(crew.revoked_after) < 20, "a commit between two generations is refused, not waited for"
        _, found = service.send("GET", "/v1/groups/not-held-back")
        assert (found["state"], len(found["members"])) == ("Stable", 1)
        assert found["generation_id"] <= 2 * len(crew.members)
        time.sleep(0.5)
        assert service.send("GET", "/v1/groups/not-held-back")[1]["generation_id"] == found["generation_id"]
    finally:
        crew.end()


class Standby(Right):
    """Tells each member who stands by for it, which an instance is made with."""

    name: ClassVar[str] = "standby"

    def __init__(self, zone: str) -> None:
        self._zone = zone

    def user_data(self, spec: GroupSpec, assignment: SharedOut) -> dict[str, JsonValue]:
        return {member_id: {"zone": self._zone, "has": len(share)} for member_id, share in assignment.items()}


def test_what_an_assignor_of_the_program_tells_reaches_the_member(service: ServiceProcess) -> None:
    crew = Crew(service, "told")
    try:
        members = [crew.add(Standby("a")), crew.add(Standby("a"))]
        eventually(lambda: all(one.assignment is not None for one in members) and crew.is_assigned(), "assigned")
        told = [member.wait_assigned(30_000).user_data for member in members]
        assert told == [{"zone": "a", "has": 3}] * 2
    finally:
        crew.end()


def test_a_consumer_of_a_wrong_assignor_raises_where_it_runs(service: ServiceProcess) -> None:
    options = ConsumerOptions(
        coordinator=service.url, group_id="consumer", topics=("clicks",), assignors=(Nothing,), idle_wait_ms=10
    )

    def handle(batch: Batch[str]) -> None:
        raise AssertionError("nothing is ever assigned")

    consumer = BlockingConsumer(options, BlockingMemorySource[str]({"clicks": PARTITIONS}), handle)
    with pytest.raises(AssignorFailed, match="it returns None"), consumer:
        consumer.wait_ended()
    assert service.send("GET", "/v1/groups/consumer")[1]["members"] == []
