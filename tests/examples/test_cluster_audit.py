"""The judge of the cluster's run: a sound history and sound books pass, and it objects to each planted fault."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from examples.cluster.audit import Change, HistoryAudit, Revision, judge_books
from examples.cluster.books import Assigned, Commit, Entry, Failed, Fetch, Reader, Writer
from rallypoint.coordinator.core.records import Cause, GroupRecord, OffsetRecord, RebalanceRecord, Record
from rallypoint.coordinator.storage import codec

PREFIX = "p"
KEYSPACE = "shard-7"


def owner(node_id: str | None) -> Change:
    return Change(f"{PREFIX}/owner/{KEYSPACE}".encode(), None if node_id is None else node_id.encode())


def head(epoch: int, sequence: int) -> Change:
    return Change(f"{PREFIX}/head/{KEYSPACE}".encode(), f"{epoch} {sequence} tag".encode())


def stored(record: Record) -> Change:
    key, value = codec.encode(record)
    return Change(f"{PREFIX}/data/{KEYSPACE}/".encode() + key, value)


def offset(value: int, partition: int = 0) -> Change:
    return stored(OffsetRecord("g", "t", partition, value, None, "", 0))


def header(highest: int) -> Change:
    return stored(GroupRecord("g", "consumer", "range", highest, highest, None, 0))


def rebalance(rebalance_id: int, generation_id: int | None, began_at_ms: int = 5) -> Change:
    cause = Cause("member_joined", "started", None, None, None, 0)
    return stored(RebalanceRecord("g", rebalance_id, 0, began_at_ms, cause, generation_id))


SOUND: Sequence[Sequence[Change]] = (
    (owner("a"), head(0, 0)),  # revision 10
    (head(10, 1), offset(1), header(1), rebalance(1, 1)),
    (head(10, 2), offset(5)),
    (owner("b"), head(10, 3)),  # 13: handed over
    (owner("b"), head(0, 0)),  # 14: taken by the node that has it
    (head(14, 1), offset(5), offset(2, partition=1)),
    (owner(None),),  # 16: the lease has run out
    (owner("a"), head(0, 0)),
    (head(17, 1), offset(6), header(2), rebalance(2, 2)),
)


def audit_of(transactions: Sequence[Sequence[Change]]) -> HistoryAudit:
    audit = HistoryAudit(PREFIX, "t")
    for number, changes in enumerate(transactions, 10):
        audit.read(Revision(number, changes))
    return audit


def test_a_sound_history_passes_and_is_counted() -> None:
    audit = audit_of(SOUND)
    assert audit.problems == []
    assert audit.offsets == {("g", 0): 6, ("g", 1): 2}
    counts = (audit.revisions, audit.appends, audit.acquisitions, audit.hand_overs, audit.generations)
    assert counts == (9, 4, 3, 1, 2)
    assert audit.regressions == 0


PLANTED = {
    "went back from 6 to 4": (*SOUND, (head(17, 2), offset(4))),
    "under the epoch 14, when node a owned it under 17": (*SOUND, (head(14, 2), offset(7))),
    "under the epoch 10 while nobody owned it": (*SOUND[:3], (owner(None),), (head(10, 3), offset(7))),
    "node b took what node a owned": (*SOUND[:3], (owner("b"), head(0, 0))),
    "data were written without the head": (*SOUND, (offset(7),)),
    "the owner changed without the head": (*SOUND, (owner("b"),)),
    "an acquisition wrote data": (*SOUND[:3], (owner("a"), head(0, 0), offset(9))),
    "an acquisition wrote the head and no owner": (*SOUND, (head(0, 0),)),
    "the write 1 of its epoch came where 2 was next": (*SOUND, (head(17, 1), offset(7))),
    "the write 3 of its epoch came where 2 was next": (*SOUND, (head(17, 3), offset(7))),
    "is gone, which was 6": (*SOUND, (head(17, 2), Change(offset(0).key, None))),
    "the highest generation of g went back from 2 to 1": (*SOUND, (head(17, 2), header(1))),
    "the generation 2 of g was made by the rebalances 2 and 3": (*SOUND, (head(17, 2), rebalance(3, 2))),
    "the rebalance 2 of g began twice": (*SOUND, (head(17, 2), rebalance(2, 3, began_at_ms=6))),
    "cannot be read": (*SOUND, (head(17, 2), Change(offset(0).key, b"{}"))),
    "the head is none": (*SOUND, (Change(head(0, 0).key, b"?"),)),
}


@pytest.mark.parametrize("sentence", PLANTED)
def test_a_planted_fault_is_named_and_nothing_else(sentence: str) -> None:
    audit = audit_of(PLANTED[sentence])
    (problem,) = audit.problems
    assert sentence in problem
    assert audit.regressions == ("the offset of" in problem)


def test_another_topic_may_go_back() -> None:
    other = [stored(OffsetRecord("g", "other", 0, value, None, "", 0)) for value in (9, 3)]
    assert audit_of((*SOUND, (head(17, 2), other[0]), (head(17, 3), other[1]))).problems == []


# --- the books -------------------------------------------------------------------------------------------------------


def commit(value: int, began_ms: int, ended_ms: int, error: str | None = None) -> Commit:
    return Commit("g", "m", began_ms, ended_ms, {0: value}, error)


def fetch(value: int | None, began_ms: int, ended_ms: int) -> Fetch:
    return Fetch("g", "m", began_ms, ended_ms, {} if value is None else {0: value})


BOOKS: Sequence[Entry] = (
    Assigned("g", "m", 0, 1, (0,)),
    fetch(None, 0, 5),
    commit(1, 10, 20),
    commit(2, 30, 40, error="COORDINATOR_NOT_AVAILABLE"),
    fetch(1, 41, 42),
    commit(2, 50, 60),
    fetch(2, 61, 62),
)


def test_sound_books_pass() -> None:
    found = judge_books(BOOKS, {("g", 0): 2})
    assert found.problems == []
    assert (found.acknowledged, found.refused, found.fetches) == (2, 1, 3)


@pytest.mark.parametrize(
    ("entries", "offsets", "sentence"),
    [
        (BOOKS, {("g", 0): 1}, "2 was acknowledged, and 1 is stored"),
        (BOOKS, {}, "2 was acknowledged, and nothing is stored"),
        (BOOKS[:5], {("g", 0): 1}, "2 was refused"),
        ((*BOOKS, fetch(1, 61, 70)), {("g", 0): 2}, "1 was told after 2 was acknowledged"),
        ((*BOOKS, fetch(None, 61, 70)), {("g", 0): 2}, "0 was told after 2 was acknowledged"),
        ((*BOOKS, fetch(3, 61, 70)), {("g", 0): 2}, "3 was told when nobody had tried more than 2"),
        ((*BOOKS, Failed("g", "m", 70, "fenced")), {("g", 0): 2}, "member m of g: fenced"),
    ],
)
def test_planted_faults_of_the_books_are_named(
    entries: Sequence[Entry], offsets: dict[tuple[str, int], int], sentence: str
) -> None:
    (problem,) = judge_books(entries, offsets).problems
    assert sentence in problem


def test_a_fetch_beside_a_commit_may_say_either() -> None:
    beside = (commit(1, 10, 20), commit(2, 30, 40))
    for value in (1, 2):
        assert judge_books((*beside, fetch(value, 35, 39)), {("g", 0): 2}).problems == []


def test_the_books_are_read_line_by_line_as_they_grow(tmp_path: Path) -> None:
    path = tmp_path / "books"
    reader = Reader((path, tmp_path / "other"))
    assert reader.read() == []
    writer = Writer(path)
    for entry in BOOKS[:3]:
        writer.write(entry)
    assert reader.read() == list(BOOKS[:3])
    with path.open("ab") as file:
        file.write(b'{"type":"fet')
    assert reader.read() == []
    writer.close()
