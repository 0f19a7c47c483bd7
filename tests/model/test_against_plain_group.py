"""The real rules beside the plain group: whatever is said to both, both say and hold the same."""

from typing import Any

from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.core import invariants
from coordinator.core.commands import Rules, TimerKind
from coordinator.core.effects import Failure
from protocol import messages as m
from tests.conformance.desk import Desk, consumer
from tests.model.plain_group import Answer, Offers, PlainGroup, Tie

CLIENTS = 5
OFFERS = (("range",), ("range", "roundrobin"), ("roundrobin", "range"))
WHO = st.integers(0, CLIENTS - 1)
WAITS = st.sampled_from([None, None, None, 0, 701])
GENERATIONS = st.sampled_from([0, 0, 0, 0, 0, 0, -1, 1])
"""Added to the group's own: who is late, and who speaks of a generation that a crash has lost."""
PASSING = st.sampled_from([1, 97, 613, 1_499, 2_011, 3_023, 5_039, 9_043, 24_001])


class Both(RuleBasedStateMachine):
    """Five clients, the last two with an instance id, who speak to the real group and to the plain one."""

    @initialize(
        delay_ms=st.sampled_from([0, 0, 0, 2_003]),
        max_size=st.sampled_from([100, 3]),
        there=st.sampled_from([5, 4, 3, 2, 1, 0]),
        offers=st.integers(0, 2),
        crash=st.booleans(),
    )
    def begin(self, delay_ms: int, max_size: int, there: int, offers: int, crash: bool) -> None:
        limits = {"wait_limit_ms": 9_011, "new_member_ms": 20_021}
        self.plain = PlainGroup(max_size=max_size, delay_ms=delay_ms, **limits)
        self.desk = Desk(
            rules=Rules(
                group_min_session_timeout_ms=1,
                group_max_size=max_size,
                group_initial_rebalance_delay_ms=delay_ms,
                parked_call_max_wait_ms=limits["wait_limit_ms"],
                new_member_join_timeout_ms=limits["new_member_ms"],
            )
        )
        self.plain.now = self.desk.now_ms
        self.ids: dict[int, list[str]] = {who: [""] for who in range(CLIENTS)}
        self.compared: set[int] = set()
        for who in (0, 3, 1, 4, 2)[:there]:
            self.join(who, 0, offers, "t", None)
            self.same()
        self.everyone_joins()
        if there and delay_ms:
            for _ in range(3):
                self.advance(2_003)
                self.same()
        self.everyone_syncs()
        self.crash(crash)

    # --- what clients say --------------------------------------------------------------------------------------------

    @staticmethod
    def instance(who: int) -> str | None:
        return f"i{who}" if who >= 3 else None

    def id_of(self, who: int, back: int) -> str:
        """The id that the client was given last, or one before it; at the beginning none."""
        return self.ids[who][max(0, len(self.ids[who]) - 1 - back)]

    @rule(
        who=WHO,
        back=st.sampled_from([0, 0, 0, 0, 0, 1, 9]),
        offers=st.sampled_from([0, 0, 0, 1, 2]),
        topic=st.sampled_from("ttttu"),
        wait_ms=WAITS,
    )
    def join(self, who: int, back: int, offers: int, topic: str, wait_ms: int | None) -> None:
        call = self.desk.calls + 1
        # Each has times of its own, which change with what it says, so that hardly two things are due at once.
        session_ms = (3_001, 8_009)[who % 2] + 13 * who + 307 * offers
        rebalance_ms = 5_003 + 17 * who + 1_109 * offers
        offered: Offers = tuple((name, topic) for name in OFFERS[offers])
        member_id, instance = self.id_of(who, back), self.instance(who)
        new_id = f"{instance or f'c{who}'}-r{call}"
        self.plain.join(call, new_id, member_id, instance, offered, session_ms, rebalance_ms, wait_ms)
        self.desk.join(
            member_id,
            instance=instance,
            protocols=tuple((name, consumer(of)) for name, of in offered),
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
            client_id=f"c{who}",
            max_wait_ms=wait_ms,
        )

    @rule(who=st.integers(3, CLIENTS - 1), offers=st.integers(0, 2), topic=st.sampled_from("ttu"))
    def a_static_member_comes_back(self, who: int, offers: int, topic: str) -> None:
        self.join(who, 9, offers, topic, None)

    @rule()
    def everyone_joins(self) -> None:
        """So that rounds come to an end more often than chance would have it."""
        for who in range(CLIENTS):
            if self.id_of(who, 0):
                self.join(who, 0, 0, "t", None)
                self.same()

    @rule(who=WHO, ahead=GENERATIONS, wait_ms=WAITS, part=st.integers(0, 9), other=st.booleans())
    def sync(self, who: int, ahead: int, wait_ms: int | None, part: int, other: bool) -> None:
        call = self.desk.calls + 1
        generation = self.plain.generation + ahead
        protocol = "other" if other and part == 9 else self.plain.protocol
        parts = {x.member_id: [part, place] for place, x in enumerate(self.plain.members) if place != 2}
        self.plain.sync(call, self.id_of(who, 0), self.instance(who), generation, protocol, parts, wait_ms)
        self.desk.sync(
            self.id_of(who, 0),
            generation,
            instance=self.instance(who),
            assignments=parts,
            protocol_name=protocol,
            max_wait_ms=wait_ms,
        )

    @rule()
    def everyone_syncs(self) -> None:
        for who in range(CLIENTS):
            if self.plain.find(self.id_of(who, 0)) is not None:
                self.sync(who, 0, None, 1, other=False)
                self.same()

    @rule(who=WHO, back=st.integers(0, 1), ahead=GENERATIONS, wait_ms=st.sampled_from([0, 0, 911]))
    def heartbeat(self, who: int, back: int, ahead: int, wait_ms: int) -> None:
        call = self.desk.calls + 1
        member_id, generation = self.id_of(who, back), self.plain.generation + ahead
        self.plain.heartbeat(call, member_id, self.instance(who), generation, wait_ms)
        self.desk.heartbeat(member_id, generation, instance=self.instance(who), wait_ms=wait_ms)

    @rule(who=WHO, others=st.lists(WHO, max_size=2))
    def leave(self, who: int, others: list[int]) -> None:
        call = self.desk.calls + 1
        members = [self.id_of(each, 0) for each in (who, *others)]
        self.plain.leave(call, members)
        self.desk.leave(*members)

    @rule(who=WHO, back=st.integers(0, 1), ahead=GENERATIONS, offset=st.integers(0, 99), nobody=st.booleans())
    def commit(self, who: int, back: int, ahead: int, offset: int, nobody: bool) -> None:
        call = self.desk.calls + 1
        member_id = "" if nobody else self.id_of(who, back)
        instance = None if nobody else self.instance(who)
        generation = -1 if nobody else self.plain.generation + ahead
        self.plain.commit(call, member_id, instance, generation, who, offset)
        self.desk.commit(member_id, generation, offset, instance=instance, partition=who)

    @rule(at=st.integers(0, 9))
    def hang_up(self, at: int) -> None:
        calls = sorted(self.plain.waiting)
        if calls:
            call = calls[at % len(calls)]
            self.plain.hang_up(call)
            self.desk.hang_up(call)

    # --- what happens ------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 3), topic=st.sampled_from("tuv"))
    def topics(self, count: int, topic: str) -> None:
        registry = {**self.plain.registry, topic: count}
        self.plain.topics(registry)
        self.desk.topics(**registry)

    @rule(ms=PASSING)
    def advance(self, ms: int) -> None:
        try:
            self.plain.advance(ms)
        except Tie:
            assume(False)
        self.desk.advance(ms)

    @rule(but=WHO)
    def everyone_but_one_lives_on(self, but: int) -> None:
        for who in range(CLIENTS):
            if who != but and self.plain.find(self.id_of(who, 0)) is not None:
                self.heartbeat(who, 0, 0, 0)
                self.same()
        self.advance(2_011)

    @rule(often=st.sampled_from([False, False, True]))
    def crash(self, often: bool) -> None:
        if often:
            self.plain.crash()
            self.desk.crash()

    # --- the comparison ----------------------------------------------------------------------------------------------

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "desk"):
            return
        group, plain = self.desk.group, self.plain
        invariants.check(group)
        for call, answer in self.desk.answers.items():
            if call not in self.compared:
                self.compared.add(call)
                self.learn(answer)
                assert told(answer) == plain.answers.get(call), f"call {call}"
        assert plain.answers.keys() == self.desk.answers.keys()
        assert group.state.value == plain.state
        assert (group.generation_id, group.highest_generation_id) == (plain.generation, plain.highest)
        assert (group.leader, group.protocol_name) == (plain.leader, plain.protocol)
        assert [x.member_id for x in group.by_seniority()] == [x.member_id for x in plain.members]
        assert [x.joined for x in group.by_seniority()] == [x.joined for x in plain.members]
        assert {x.member_id: x.deadline_ms for x in group.pending.values()} == plain.pending
        assert {x.member_id: x.deadline_ms for x in group.members.values() if not x.waits} == {
            x.member_id: x.until for x in plain.members if not plain.waits(x)
        }
        phases = [at for key, at in self.desk.timers.items() if key.kind in {TimerKind.JOIN, TimerKind.SYNC}]
        assert phases == [at for at, what, _ in plain.due() if what in {"join phase", "sync phase"}]
        assert {c: (p.member_id, p.box.value) for c, p in group.parked.items()} == {
            c: (w.member_id, w.box) for c, w in plain.waiting.items()
        }
        assert {p: record.offset for p, record in group.offsets.get("t", {}).items()} == plain.offsets

    def learn(self, answer: Any) -> None:
        """The client hears its id; that of a refused first join too."""
        member_id = getattr(answer, "member_id", None)
        is_id = not isinstance(answer, Failure) or answer.code.name == "MEMBER_ID_REQUIRED"
        if not is_id or not member_id:
            return
        prefix = member_id.rpartition("-")[0]
        ids = self.ids[int(prefix[1:])]
        if ids[-1] != member_id:
            ids.append(member_id)


def told(answer: Any) -> Answer:
    """A real answer, in the words of the plain group."""
    match answer:
        case Failure(superseded=True):
            return ("superseded",)
        case Failure(code=code) if code.name == "MEMBER_ID_REQUIRED":
            return (code.name, answer.member_id)
        case Failure(code=code):
            return (code.name,)
        case m.JoinAnswer():
            everyone = tuple((x.member_id, topic_of(x)) for x in answer.members)
            return (
                "joined",
                answer.generation_id,
                answer.protocol_name,
                answer.leader,
                answer.member_id,
                everyone,
                answer.skip_assignment,
            )
        case m.SyncAnswer():
            return ("part", answer.assignment.value)
        case m.WaitingAnswer():
            return ("202",)
        case m.LeaveAnswer():
            return tuple(x.error_name for x in answer.members)
        case m.CommitAnswer():
            return tuple(x.error_name for of in answer.offsets.values() for x in of.values())
        case m.HeartbeatAnswer():
            return ("NONE",)
    raise AssertionError(answer)


def topic_of(member: m.JoinedMember) -> str | None:
    value = member.metadata.value
    return str(value["topics"][0]) if isinstance(value, dict) else None  # type: ignore[index]


TestAgainstPlainGroup = Both.TestCase
TestAgainstPlainGroup.settings = settings(
    max_examples=400,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
