"""A change that is cut: after every chunk of it, a load finds the group as it was or as it will be, and never a mix."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings

from rallypoint.coordinator.core.commands import Command, Rules
from rallypoint.coordinator.core.group import State
from rallypoint.coordinator.core.records import GroupRecord, MemberForgotten, MemberRecord, OffsetRecord
from rallypoint.coordinator.runtime.appends.chunks import cut, cut_anywhere
from rallypoint.coordinator.runtime.loading.stored_groups import StoredGroup, StoredRecord, sort_out
from rallypoint.coordinator.storage.codec import decode, encode
from rallypoint.coordinator.storage.contract import BatchLimits, BatchTooLarge, Write
from rallypoint.protocol import messages as m
from rallypoint.protocol.opaque import OpaqueJson
from tests.conformance.group_harness import GroupHarness
from tests.coordinator.core.test_random_groups import RULES, SCRIPTS, Clients, Word
from tests.sizes import by_size

NARROW = 5
"""Writes in a batch that any change of one member needs: a slot that passes on, with its leadership, and a rebalance
that begins so and interrupts another.
"""


def limits_of(writes_max: int) -> BatchLimits:
    return BatchLimits(writes_max=writes_max, bytes_max=1_000_000)


Contents = dict[bytes, bytes]


def stored(contents: Contents, writes: list[Write]) -> Contents:
    after = dict(contents)
    for key, value in writes:
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return after


def load(contents: Contents) -> StoredGroup:
    records = [decode(key, value) for key, value in sorted(contents.items())]
    return sort_out("g", [record for record in records if isinstance(record, StoredRecord)])


def membership(contents: Contents) -> tuple[GroupRecord | None, dict[str, MemberRecord]]:
    records = load(contents).records
    header = next((record for record in records if isinstance(record, GroupRecord)), None)
    return header, {record.member_id: record for record in records if isinstance(record, MemberRecord)}


def offsets(contents: Contents) -> dict[tuple[str, int], OffsetRecord]:
    records = load(contents).records
    return {(record.topic, record.partition): record for record in records if isinstance(record, OffsetRecord)}


def member_keys(contents: Contents) -> int:
    return sum(key.startswith(b"g/g/m/") for key in contents)


def check_load(found: Contents, before: Contents, after: Contents) -> None:
    """What may be found between two chunks, and still while it is swept."""
    assert membership(found) in (membership(before), membership(after)), "a mix"
    if membership(found)[0] is None:
        had = offsets(before) if membership(before)[0] is None else {}
        assert offsets(found) == had, "offsets without their header are a group without a type"
    for key, record in offsets(found).items():
        assert record in (offsets(before).get(key), offsets(after).get(key))
    for key in offsets(before).keys() & offsets(after).keys():
        assert key in offsets(found)


def check_all_cuts(
    changes: list[tuple[Any, Write]], header: GroupRecord | None, before: Contents, limits: BatchLimits
) -> list[list[Write]]:
    """The chunks, after each of which the power may go, and again in the middle of the sweeping."""
    after = stored(before, [write for _, write in changes])
    chunks = cut(changes, header, limits)
    found = before
    for chunk in chunks:
        assert 0 < len(chunk) <= limits.writes_max
        assert len({write.key for write in chunk}) == len(chunk)
        found = stored(found, chunk)
        check_load(found, before, after)
        swept = found
        leftovers = [encode(record) for record in load(found).leftovers]
        for broom in cut_anywhere(leftovers, limits_of(1)):
            swept = stored(swept, broom)
            assert membership(swept) == membership(found), "the sweeping changed what counts"
        assert load(swept).leftovers == ()
    assert found == after, "what is stored in chunks is what is stored in one"
    return chunks


# --- whatever happens to a group -------------------------------------------------------------------------------------


@dataclass
class CutGroupHarness(GroupHarness):
    """A harness whose every step is cut as narrowly as can be, and the power goes everywhere."""

    contents: Contents = field(default_factory=dict)
    chunk_counts: list[int] = field(default_factory=list)
    narrow: int = NARROW
    changes: list[tuple[Any, Write]] = field(default_factory=list)

    def tell(self, command: Command) -> None:
        header = self.group.header
        self.changes = []
        super().tell(command)
        if self.changes:
            for writes_max in range(self.narrow, self.narrow + 4):
                chunks = check_all_cuts(self.changes, header, self.contents, limits_of(writes_max))
                self.chunk_counts.append(len(chunks))
            self.contents = stored(self.contents, [write for _, write in self.changes])

    def _store(self, record: Any) -> None:
        super()._store(record)
        self.changes.append((record, encode(record)))


@settings(max_examples=by_size(5, 30, 100))
@given(SCRIPTS)
def test_whatever_happens_a_load_between_two_chunks_finds_the_old_group_or_the_new(script: list[Word]) -> None:
    clients = Clients(CutGroupHarness(rules=RULES))
    for word, who, how in script:
        getattr(clients, word)(who, how)
        clients.look()


# --- large changes ---------------------------------------------------------------------------------------------------

MEMBERS = 30
TOPICS = by_size(4, 9)
BIG = Rules(group_min_session_timeout_ms=1, group_join_linger_ms=0, group_initial_rebalance_delay_ms=0)


class Large:
    """A group of thirty, two of them with a slot, and all the chunks of what happens to it."""

    def __init__(self, narrow: int = NARROW) -> None:
        self.group_harness = CutGroupHarness(rules=BIG, narrow=narrow)
        self.ids: list[str] = []
        calls = [self.group_harness.join(instance=f"i{number}") for number in range(2)]
        self.ids = [self.group_harness.group.static_members[f"i{number}"] for number in range(2)]
        for _ in range(MEMBERS - 2):
            member_id, call = self.group_harness.join_new()
            self.ids.append(member_id)
            calls.append(call)
        self.everyone_joins(*self.ids)
        self.share("first")

    def everyone_joins(self, *member_ids: str) -> None:
        for member_id in member_ids:
            self.group_harness.join(member_id)
        assert self.group_harness.state() is State.COMPLETING_REBALANCE

    def share(self, what: str) -> list[int]:
        """The leader assigns; how many chunks that took, by limit."""
        self.group_harness.chunk_counts.clear()
        leader = self.group_harness.group.leader
        assert leader is not None
        self.group_harness.sync(leader, assignments=dict.fromkeys(self.group_harness.group.members, what))
        assert self.group_harness.state() is State.STABLE
        return self.group_harness.chunk_counts


def test_a_first_assignment_is_stored_in_chunks() -> None:
    large = Large()
    header, members = membership(large.group_harness.contents)
    assert header is not None
    assert header.generation_id == large.group_harness.group.generation_id
    assert members.keys() == set(large.ids)
    assert member_keys(large.group_harness.contents) == MEMBERS


def test_everyone_changes_and_nobody_goes() -> None:
    large = Large()
    large.everyone_joins(*large.ids)
    counts = large.share("second")
    assert counts[0] >= 2 * MEMBERS // NARROW
    assert member_keys(large.group_harness.contents) == MEMBERS


@pytest.mark.parametrize("is_changed", [True, False])
def test_many_go_while_others_keep_what_they_have(is_changed: bool) -> None:
    large = Large()
    large.group_harness.leave(*large.ids[5:25])
    large.everyone_joins(*large.ids[:5], *large.ids[25:])
    counts = large.share("second" if is_changed else "first")
    assert counts[0] >= 3 * 20 // NARROW, "each who goes is hidden, then taken away, then nothing hides any more"
    assert membership(large.group_harness.contents)[1].keys() == {*large.ids[:5], *large.ids[25:]}
    assert member_keys(large.group_harness.contents) == 10, "no trace of the chunks is left"


def test_few_who_go_go_with_the_header() -> None:
    large = Large(narrow=10)
    large.group_harness.leave(*large.ids[5:10])
    large.everyone_joins(*large.ids[:5], *large.ids[10:])
    large.share("second")
    gone = [record for record, _ in large.group_harness.changes if isinstance(record, MemberForgotten)]
    assert len(gone) == MEMBERS, "the older records of those who stay, too"
    chunks = cut(large.group_harness.changes, _header_before(large), limits_of(10))
    deciding = [chunk for chunk in chunks if any(write.key == b"g/g/h" for write in chunk)]
    assert len(deciding) == 1
    taken = {write.key.split(b"/")[3].decode() for write in deciding[0] if write.value is None}
    assert taken >= set(large.ids[5:10])


def _header_before(large: Large) -> GroupRecord:
    assert large.group_harness.group.header is not None
    return GroupRecord("g", "consumer", "range", large.group_harness.group.generation_id - 1, 9, "x", 1)


def test_all_go_at_once() -> None:
    large = Large()
    large.group_harness.chunk_counts.clear()
    large.group_harness.leave(*large.ids)
    assert large.group_harness.state() is State.EMPTY
    assert large.group_harness.chunk_counts[0] <= -(-(MEMBERS + 3) // NARROW), "the header alone hides them"
    assert membership(large.group_harness.contents)[1] == {}


def test_a_slot_passes_on_and_others_go() -> None:
    large = Large()
    large.group_harness.join(instance="i1", protocols=(("range", OpaqueJson.of({"topics": ["other"]})),))
    passed = large.group_harness.group.static_members["i1"]
    assert passed != large.ids[1]
    large.group_harness.leave(*large.ids[2:20])
    large.everyone_joins(large.ids[0], *large.ids[20:])
    large.share("second")
    slots = {r.group_instance_id: r.member_id for r in membership(large.group_harness.contents)[1].values()}
    assert slots["i1"] == passed


def test_a_group_with_many_offsets_is_made_and_deleted_in_chunks() -> None:
    group_harness = CutGroupHarness(rules=BIG)
    many = {f"t{number}": {partition: m.OffsetCommit(offset=1) for partition in range(7)} for number in range(TOPICS)}
    group_harness.call(m.CommitRequest(generation_id=-1, offsets=many))
    assert group_harness.chunk_counts[0] == (1 + 7 * TOPICS + NARROW - 1) // NARROW
    group_harness.call(m.CommitRequest(generation_id=-1, offsets=many))
    group_harness.delete_offsets("t1", "t2", "t3")
    group_harness.reset("offset", offset=5)
    group_harness.delete_group()
    assert group_harness.contents == {}


def test_what_belongs_together_and_is_too_large_is_refused_before_anything_is_stored() -> None:
    large = Large()
    header = large.group_harness.group.header
    assert header is not None
    with pytest.raises(BatchTooLarge):
        cut([(header, encode(header))], None, BatchLimits(writes_max=3, bytes_max=50))
    pair = [MemberForgotten("g", member_id, 1) for member_id in ("a", "b")]
    with pytest.raises(BatchTooLarge):
        cut([(record, encode(record)) for record in pair], header, limits_of(1))
    commit = OffsetRecord("g", "t", 0, 1, None, "x" * 200, 1)
    with pytest.raises(BatchTooLarge):
        cut([(commit, encode(commit))], header, BatchLimits(writes_max=3, bytes_max=200))


def test_of_two_writes_of_a_key_the_last_counts_wherever_it_is_cut() -> None:
    first, last = (OffsetRecord("g", "t", 0, offset, None, "", 1) for offset in (1, 2))
    chunks = cut([(first, encode(first)), (last, encode(last))], None, limits_of(1))
    assert chunks == [[encode(last)]]
