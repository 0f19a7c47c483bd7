"""The real rules beside the plain group: whatever is said to both, both say and hold the same."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from rallypoint.coordinator.core import invariants
from rallypoint.coordinator.core.commands import Rules, TimerKind
from rallypoint.coordinator.core.effects import Failure
from rallypoint.protocol import messages as m
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.group_harness import GroupHarness, consumer
from tests.model.plain_group import PlainGroup, Tie
from tests.model.plain_state import CONSUMER, UNREADABLE, Join, Limits
from tests.model.words import describe, described, look, told
from tests.sizes import by_size

CLIENTS = 5
OFFERS = (("range",), ("range", "roundrobin"), ("roundrobin", "range"), ("roundrobin",))
USUALLY_RANGE = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3])
WHO = st.integers(0, CLIENTS - 1)
WAITS = st.sampled_from([None, None, None, 0, 701])
GENERATIONS = st.sampled_from([0, 0, 0, 0, 0, 0, -1, 1])
"""Added to the group's own: who is late, and who speaks of a generation that a crash has lost."""
PASSING = st.sampled_from([1, 7, 19, 97, 613, 1_499, 2_011, 3_023, 5_039, 9_043, 24_001])
TOPICS = st.sampled_from("ttuv")
GRACES = st.sampled_from([None, None, 0, 503, 6_007])
RARELY = st.sampled_from([False, False, False, False, False, True])


class Both(RuleBasedStateMachine):
    """Five clients, the last two with an instance id, who speak to the real group and to the plain one."""

    @initialize(
        delay_ms=st.sampled_from([0, 0, 0, 2_003]),
        linger_ms=st.sampled_from([0, 0, 251]),
        max_size=st.sampled_from([100, 100, 3]),
        unused_max=st.sampled_from([100, 100, 3]),
        short_retention=st.booleans(),
        new_member_ms=st.sampled_from([20_021, 4_021]),
        there=st.sampled_from([5, 4, 3, 2, 1, 0]),
        offers=st.integers(0, 3),
        waits_elsewhere=st.sampled_from([False, False, True]),
        crash=st.booleans(),
    )
    def begin(
        self,
        delay_ms: int,
        linger_ms: int,
        max_size: int,
        unused_max: int,
        short_retention: bool,
        new_member_ms: int,
        there: int,
        offers: int,
        waits_elsewhere: bool,
        crash: bool,
    ) -> None:
        limits = Limits(
            max_size=max_size,
            delay_ms=delay_ms,
            linger_ms=linger_ms,
            new_member_ms=new_member_ms,
            unused_max=unused_max,
        )
        if short_retention:
            # So that there is something to take away in the midst of a rebalance too.
            limits = replace(limits, retention_ms=2_999, look_every_ms=1_201)
        self.group_harness = GroupHarness(
            rules=Rules(
                group_min_session_timeout_ms=1,
                group_max_size=limits.max_size,
                group_initial_rebalance_delay_ms=limits.delay_ms,
                group_join_linger_ms=limits.linger_ms,
                group_pending_timeout_ms=limits.unused_ms,
                group_pending_max=limits.unused_max,
                parked_call_max_wait_ms=limits.wait_ms,
                new_member_join_timeout_ms=limits.new_member_ms,
                heartbeat_interval_ms=limits.heartbeat_interval_ms,
                offset_metadata_max_bytes=limits.metadata_length,
                offsets_retention_ms=limits.retention_ms,
                offsets_retention_check_interval_ms=limits.look_every_ms,
                disconnect_grace_ms=limits.grace_ms,
            )
        )
        self.plain = PlainGroup(limits, self.group_harness.now_ms)
        self.plain.ends = self.group_harness.ends = {"t": {0: 60, 1: 0}, "u": {0: 5}}
        self.ids: dict[int, list[str]] = {who: [""] for who in range(CLIENTS)}
        self.last_joins: dict[int, Join] = {}
        self.connection = dict.fromkeys(range(CLIENTS), 0)
        self.called: dict[int, tuple[int, int, bool]] = {}
        self.carried_by: dict[str, int] = {}
        self.compared: set[int] = set()
        for who in (0, 3, 1, 4, 2)[: max(there, 3) if waits_elsewhere else there]:
            self.join(who, 0, offers, "t", None, knows_itself=True)
            self.same()
        self.everyone_joins()
        if delay_ms and self.plain.members:
            for _ in range(3):
                self.advance(2_003)
                self.same()
        if linger_ms:
            self.advance(23)
            self.same()
        self.everyone_syncs()
        if waits_elsewhere:
            # The one whose heartbeats may wait for longer than its grace.
            self.same()
            self.wait_on_one_connection_and_lose_the_other(1, 1_901)
        self.crash(crash)

    # --- joining -----------------------------------------------------------------------------------------------------

    @staticmethod
    def instance(who: int) -> str | None:
        return f"i{who}" if who >= 3 else None

    def id_of(self, who: int, back: int) -> str:
        """The id that the client was given last, or one before it; at the beginning none."""
        return self.ids[who][max(0, len(self.ids[who]) - 1 - back)]

    @rule(
        who=WHO,
        back=st.sampled_from([0, 0, 0, 0, 0, 1, 9]),
        offers=USUALLY_RANGE,
        topic=st.sampled_from(["t", "t", "t", "t", "u", UNREADABLE]),
        wait_ms=WAITS,
        knows_itself=st.booleans(),
        stranger=RARELY,
        grace_ms=GRACES,
    )
    def join(
        self,
        who: int,
        back: int,
        offers: int,
        topic: str,
        wait_ms: int | None,
        knows_itself: bool,
        stranger: bool = False,
        grace_ms: int | None = None,
    ) -> None:
        """`knows_itself`: it says a request id, which it may repeat. `stranger`: its kind is not of consumers."""
        # Each has times of its own, which change with what it says, so that hardly two things are due at once.
        self.send(
            who,
            Join(
                member_id=self.id_of(who, back),
                instance=self.instance(who),
                kind="workers" if stranger else CONSUMER,
                offers=tuple((name, topic) for name in OFFERS[offers]),
                session_ms=(3_001, 8_009)[who % 2] + 13 * who + 307 * offers,
                rebalance_ms=5_003 + 17 * who + 1_109 * offers,
                wait_ms=wait_ms,
                request=f"q{self.group_harness.calls}" if knows_itself else None,
                # With times of its own here too, but for the one who is not waited for at all.
                grace_ms=grace_ms + 19 * who if grace_ms else grace_ms,
                network=f"2001:db8:0:{who // 2}",
                new_id="",
            ),
        )

    def send(self, who: int, wish: Join) -> None:
        call = self.group_harness.calls + 1
        wish = replace(wish, new_id=f"{wish.instance or f'c{who}'}-r{call}")
        self.last_joins[who] = wish
        self.plain.join(call, wish)
        self.group_harness.host = f"{wish.network}::{who}"
        self.group_harness.join(
            wish.member_id,
            instance=wish.instance,
            protocol_type=wish.kind,
            protocols=tuple((name, subscription(topic)) for name, topic in wish.offers),
            session_ms=wish.session_ms,
            rebalance_ms=wish.rebalance_ms,
            client_id=f"c{who}",
            max_wait_ms=wish.wait_ms,
            request_id=wish.request,
            grace_ms=wish.grace_ms,
        )
        self.note_call(call, who, wish.member_id)

    @rule(who=WHO, with_the_id=st.booleans())
    def join_once_more(self, who: int, with_the_id: bool) -> None:
        """The same bytes again; or the same request, now with the id that it was given."""
        if who in self.last_joins:
            last = self.last_joins[who]
            self.send(who, replace(last, member_id=self.id_of(who, 0)) if with_the_id else last)

    @rule(who=st.integers(3, CLIENTS - 1), offers=st.integers(0, 3), topic=st.sampled_from("ttu"))
    def a_static_member_comes_back(self, who: int, offers: int, topic: str) -> None:
        self.join(who, 9, offers, topic, None, knows_itself=True)

    @rule()
    def everyone_joins(self) -> None:
        """So that rebalances come to an end more often than chance would have it."""
        for who in range(CLIENTS):
            if self.id_of(who, 0):
                self.join(who, 0, 0, "t", None, knows_itself=False)
                self.same()

    # --- what else clients say ---------------------------------------------------------------------------------------

    @rule(
        who=WHO, ahead=GENERATIONS, wait_ms=WAITS, part=st.integers(0, 9), other=RARELY, stranger=RARELY, unsaid=RARELY
    )
    def sync(
        self, who: int, ahead: int, wait_ms: int | None, part: int, *, other: bool, stranger: bool, unsaid: bool
    ) -> None:
        call = self.group_harness.calls + 1
        member_id, instance, generation = self.id_of(who, 0), self.instance(who), self.plain.generation + ahead
        protocol = "other" if other else None if unsaid else self.plain.protocol
        kind = "stranger" if stranger else None if unsaid else self.plain.kind
        parts: dict[str, Any] = {x.member_id: [part, place] for place, x in enumerate(self.plain.members) if place != 2}
        parts["nobody"] = [part]
        self.plain.sync(call, member_id, instance, generation, protocol, kind, parts, wait_ms)
        self.group_harness.sync(
            member_id,
            generation,
            instance=instance,
            assignments=parts,
            protocol_name=protocol,
            protocol_type=kind,
            max_wait_ms=wait_ms,
        )
        self.note_call(call, who, member_id)

    @rule()
    def everyone_syncs(self) -> None:
        for who in range(CLIENTS):
            if self.plain.find(self.id_of(who, 0)) is not None:
                self.sync(who, 0, None, 1, other=False, stranger=False, unsaid=False)
                self.same()

    @rule(who=WHO, back=st.integers(0, 1), ahead=GENERATIONS, wait_ms=st.sampled_from([0, 0, 911, 7_013]))
    def heartbeat(self, who: int, back: int, ahead: int, wait_ms: int) -> None:
        call = self.group_harness.calls + 1
        member_id, generation = self.id_of(who, back), self.plain.generation + ahead
        self.plain.heartbeat(call, member_id, self.instance(who), generation, wait_ms)
        self.group_harness.heartbeat(member_id, generation, instance=self.instance(who), wait_ms=wait_ms)
        self.note_call(call, who, member_id)

    @rule(leavers=st.lists(st.tuples(WHO, st.booleans(), st.sampled_from([None, None, 3, 4])), min_size=1, max_size=3))
    def leave(self, leavers: list[tuple[int, bool, int | None]]) -> None:
        """Each says its id or none, and an instance id or none, not always its own."""
        call = self.group_harness.calls + 1
        named = [
            (self.id_of(who, 0) if says_id else "", self.instance(whose) if whose is not None else None)
            for who, says_id, whose in leavers
        ]
        self.plain.leave(call, named)
        members = tuple(m.LeaveMember(member_id=member_id, group_instance_id=of) for member_id, of in named)
        self.group_harness.call(m.LeaveRequest(members=members))

    @rule(whom=st.lists(st.tuples(WHO, st.booleans()), min_size=1, max_size=3), dry=RARELY)
    def kick(self, whom: list[tuple[int, bool]], dry: bool) -> None:
        """By id, or by the instance id of those who have one."""
        names = [(self.instance(who) if by_place else None) or self.id_of(who, 0) or "nobody" for who, by_place in whom]
        self.plain.kick(self.group_harness.calls + 1, names, dry)
        self.group_harness.remove(*names, dry_run=dry)

    @rule(dry=RARELY)
    def proceed(self, dry: bool) -> None:
        self.plain.proceed(self.group_harness.calls + 1, dry)
        self.group_harness.proceed(dry_run=dry)

    @rule(wait_ms=st.sampled_from([None, None, 17, 3_307, 5_417, 90_001]))
    def join_wait(self, wait_ms: int | None) -> None:
        self.plain.set_join_wait(self.group_harness.calls + 1, wait_ms)
        self.group_harness.join_wait(wait_ms)

    @rule(at=st.integers(0, 9))
    def hang_up(self, at: int) -> None:
        calls = sorted(self.plain.waiting)
        if calls:
            call = calls[at % len(calls)]
            self.plain.hang_up(call)
            self.group_harness.hang_up(call)

    # --- connections: each client has two, and uses one of them ------------------------------------------------------

    def note_call(self, call: int, who: int, member_id: str) -> None:
        """Where it was made, and whether with a name: that is where its member is carried from now on."""
        self.called[call] = who, self.connection[who], not member_id
        if member_id:
            self.carried_by[member_id] = self.connection[who]

    @rule(who=WHO)
    def use_the_other_connection(self, who: int) -> None:
        self.connection[who] = 1 - self.connection[who]

    @rule(who=WHO, which=st.integers(0, 1), comes_back=st.booleans(), rest_ms=st.sampled_from([1, 401, 1_601, 5_903]))
    def lose_a_connection(self, who: int, which: int, comes_back: bool, rest_ms: int) -> None:
        """Its pending responses are dropped; the members that it carries are told of. Some time passes, and
        perhaps the client says then that it lives.
        """
        for call in sorted(self.plain.waiting):
            if self.called.get(call, ())[:2] == (who, which):
                is_nameless = self.called[call][2]
                self.plain.hang_up(call, with_its_connection=is_nameless)
                self.group_harness.hang_up(call, connection_lost=is_nameless)
                self.same()
        for member_id in self.ids[who]:
            if self.carried_by.get(member_id) == which:
                del self.carried_by[member_id]
                self.plain.lose_connection(member_id)
                self.group_harness.lose_connection(member_id)
                self.same()
        self.advance(rest_ms)
        if comes_back:
            self.same()
            self.heartbeat(who, 0, 0, 0)

    @rule(who=WHO, rest_ms=st.sampled_from([601, 1_901]))
    def wait_on_one_connection_and_lose_the_other(self, who: int, rest_ms: int) -> None:
        """The lost one carried the member, which called on it last; a heartbeat waits on the other meanwhile, and still
        when the grace of those is over who have a short one. Chance hardly brings this about: some runs begin with it.
        """
        self.heartbeat(who, 0, 0, 7_013)
        self.same()
        self.use_the_other_connection(who)
        self.commit(who, 0, 0, "t", 7, "", nobody=False)
        self.same()
        self.lose_a_connection(who, self.connection[who], comes_back=False, rest_ms=rest_ms)

    # --- offsets -----------------------------------------------------------------------------------------------------

    @rule(
        who=WHO,
        back=st.integers(0, 1),
        ahead=GENERATIONS,
        topic=TOPICS,
        offset=st.integers(0, 99),
        metadata=st.sampled_from(["", "mmm", "mmmm"]),
        nobody=st.booleans(),
    )
    def commit(self, who: int, back: int, ahead: int, topic: str, offset: int, metadata: str, nobody: bool) -> None:
        call = self.group_harness.calls + 1
        member_id = "" if nobody else self.id_of(who, back)
        instance = None if nobody else self.instance(who)
        generation = -1 if nobody else self.plain.generation + ahead
        self.plain.commit(call, member_id, instance, generation, topic, who, offset, metadata)
        self.group_harness.commit(
            member_id, generation, offset, instance=instance, topic=topic, partition=who, metadata=metadata
        )
        self.note_call(call, who, member_id)

    @rule(often=RARELY)
    def delete_group(self, often: bool) -> None:
        if often:
            self.plain.delete_group(self.group_harness.calls + 1)
            self.group_harness.delete_group()

    @rule(
        topics=st.lists(TOPICS, max_size=2, unique=True), single=st.sets(st.tuples(TOPICS, WHO), max_size=2), dry=RARELY
    )
    def delete_offsets(self, topics: list[str], single: set[tuple[str, int]], dry: bool) -> None:
        self.plain.delete_offsets(self.group_harness.calls + 1, topics, single, dry)
        partitions = tuple(f"{topic}:{partition}" for topic, partition in sorted(single))
        self.group_harness.delete_offsets(*topics, partitions=partitions, dry_run=dry)

    @rule(
        to=st.sampled_from(["earliest", "latest", "offset", "shift"]),
        number=st.integers(0, 99),
        topics=st.none() | st.dictionaries(TOPICS, st.none() | st.lists(WHO, min_size=1, unique=True), min_size=1),
        dry=st.booleans(),
    )
    def reset(self, to: str, number: int, topics: dict[str, list[int] | None] | None, dry: bool) -> None:
        self.plain.reset(self.group_harness.calls + 1, to, number, topics, dry)
        value = {to: number} if to in {"offset", "shift"} else {}
        self.group_harness.reset(to, dry_run=dry, **value, **({} if topics is None else {"topics": topics}))

    # --- what happens ------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 3), topic=st.sampled_from("tuv"), goes=RARELY)
    def topics(self, count: int, topic: str, goes: bool) -> None:
        registry = {name: of for name, of in {**self.plain.registry, topic: count}.items() if not goes or name != topic}
        self.plain.topics(registry)
        self.group_harness.topics(**registry)

    @rule(ms=PASSING)
    def advance(self, ms: int) -> None:
        try:
            self.plain.advance(ms)
        except Tie:
            assume(False)
        self.group_harness.advance(ms)

    @rule()
    def everyone_leaves(self) -> None:
        for who in range(CLIENTS):
            self.leave([(who, True, None)])
            self.same()
        self.advance(2_003)

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
            self.group_harness.crash()

    # --- the comparison ----------------------------------------------------------------------------------------------

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "group_harness"):
            return
        group, plain = self.group_harness.group, self.plain
        invariants.check(group)
        for call, answer in self.group_harness.answers.items():
            if call not in self.compared:
                self.compared.add(call)
                self.learn(answer)
                assert told(answer) == plain.answers.get(call), f"call {call}"
        assert plain.answers.keys() == self.group_harness.answers.keys()
        assert described(self.group_harness) == describe(plain)
        fetched = look(self.group_harness, m.FetchRequest(topics=("t", "nothing")))
        offsets = {topic: {p: o.offset for p, o in of.items()} for topic, of in fetched.offsets.items()}
        assert offsets == {"t": plain.committed("t"), "nothing": {}}
        assert group.highest_generation_id == plain.highest
        assert group.protocol_name == plain.protocol
        assert [x.joined for x in group.by_seniority()] == [x.joined for x in plain.members]
        assert {c: (p.member_id, p.kind.value) for c, p in group.parked.items()} == {
            c: (w.member_id, w.kind) for c, w in plain.waiting.items()
        }
        self.same_times()

    def same_times(self) -> None:
        group, plain = self.group_harness.group, self.plain
        assert {x.member_id: x.deadline_ms for x in group.members.values() if not x.waits} == {
            x.member_id: x.until for x in plain.members if not plain.waits(x)
        }
        for kinds, words in (
            ({TimerKind.PENDING}, {"unused id"}),
            ({TimerKind.CALL}, {"wait"}),
            ({TimerKind.JOIN, TimerKind.SYNC}, {"join phase", "sync phase"}),
            ({TimerKind.RETENTION}, {"look"}),
            ({TimerKind.GRACE}, {"grace"}),
        ):
            timers = sorted((at, key.subject) for key, at in self.group_harness.timers.items() if key.kind in kinds)
            assert timers == sorted((at, str(whom or "")) for at, what, whom in plain.due() if what in words)
        sessions = {key.subject for key in self.group_harness.timers if key.kind is TimerKind.SESSION}
        assert sessions == {x.member_id for x in plain.members}

    def learn(self, answer: Any) -> None:
        """The client hears its id; that of a refused first join too."""
        member_id = getattr(answer, "member_id", None)
        is_id = not isinstance(answer, Failure) or answer.code.name == "MEMBER_ID_REQUIRED"
        if not is_id or not member_id:
            return
        ids = self.ids[int(member_id.rpartition("-")[0][1:])]
        if ids[-1] != member_id:
            ids.append(member_id)


def subscription(topic: str) -> OpaqueJson:
    return OpaqueJson.of({"says": "nothing"}) if topic == UNREADABLE else consumer(topic)


def test_who_came_before_a_crash_makes_no_phase_linger_after_it() -> None:
    """Seldom met by chance: a topic has grown when the group is loaded, in the instant in which somebody new came."""
    both = Both()
    both.begin(
        delay_ms=0,
        linger_ms=251,
        max_size=100,
        unused_max=100,
        short_retention=False,
        new_member_ms=20_021,
        there=2,
        offers=0,
        waits_elsewhere=False,
        crash=False,
    )
    both.topics(count=1, goes=False, topic="t")
    both.join(who=1, back=0, offers=0, topic="t", wait_ms=None, grace_ms=None, knows_itself=False, stranger=False)
    both.same()
    both.crash(often=True)
    both.same()
    both.everyone_joins()
    both.teardown()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_real_group_and_the_plain_one_say_and_hold_the_same() -> None:
    run_state_machine_as_test(
        Both,
        settings=settings(
            max_examples=by_size(0, 80, 600),
            stateful_step_count=40,
            suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
        ),
    )
