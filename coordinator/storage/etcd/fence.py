"""The fence of a keyspace: which transactions its owner may send, and what their answers mean. Pure.

An owner knows two revisions: that at which it became the owner (the epoch), and that of the last write of the
keyspace's head (`head_revision`). Each of its transactions compares both and writes the head. So of all the copies of a
transaction that are on their way only one can be carried out, and none once anything else has been written. A head
holds a tag that belongs to one transaction alone: who finds the own tag in a head that has changed knows that an
earlier copy was carried out.

`seq` in the head is for people and for audits; the tag decides.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rallypoint.coordinator.storage.contract import Write
from rallypoint.coordinator.storage.etcd.client import (
    Delete,
    Found,
    Get,
    KeyRange,
    KeyValue,
    LeaseEquals,
    ModEquals,
    Operation,
    Put,
    Txn,
    TxnAnswer,
)
from rallypoint.coordinator.storage.etcd.keys import Keys


class Outcome(Enum):
    """What became of a transaction of an owner."""

    STORED = "stored"
    STORED_AND_LOST = "stored, and then the keyspace went to another owner"
    FENCED = "not stored by this copy: the keyspace is another owner's"
    NO_TARGET = "the node that was to get the keyspace has no such lease; nothing has changed"


class Head(NamedTuple):
    """The value of a head. epoch: 0 where it was written by the acquisition itself, which cannot know its revision."""

    epoch: int
    sequence: int
    tag: str

    def encode(self) -> bytes:
        """As it is stored."""
        return f"{self.epoch} {self.sequence} {self.tag}".encode()


def tag_of(value: bytes) -> str:
    """The tag in the value of a head; empty where there is none."""
    return value.decode("utf-8", "replace").rpartition(" ")[2]


def only(found: Found) -> KeyValue | None:
    """What a Get of one key found."""
    return found.pairs[0] if found.pairs else None


def _revision_of(pair: KeyValue | None) -> int:
    """Of its last write; 0 where it is not there."""
    return 0 if pair is None else pair.mod_revision


class Seen(NamedTuple):
    """The owner and the head of a keyspace, as a transaction read them."""

    owner: KeyValue | None
    head: KeyValue | None


class Taken(NamedTuple):
    """An acquisition. The head was written with it, so its revision is the epoch."""

    epoch: int


@dataclass(slots=True)
class Acquisition:
    """Becoming the owner of a keyspace: `look`, then `take` under what was seen, until one or the other decides."""

    keys: Keys
    keyspace: str
    node_id: str
    lease: int
    tag: str

    def look(self) -> Txn:
        """Read the owner and the head."""
        return Txn((), self._reads())

    def take(self, seen: Seen) -> Txn:
        """Become the owner if nothing has changed since.

        The owner alone would not tell: after a release there is none, as there was none before. The head does, so a
        late copy does not take back what another copy has taken and its owner has released.
        """
        owner, head = self.keys.owner(self.keyspace), self.keys.head(self.keyspace)
        return Txn(
            (ModEquals(owner, _revision_of(seen.owner)), ModEquals(head, _revision_of(seen.head))),
            (Put(owner, self.node_id.encode(), self.lease), Put(head, Head(0, 0, self.tag).encode())),
            self._reads(),
        )

    def seen_in(self, answer: TxnAnswer) -> Seen:
        """What `look` read, or `take` where it failed."""
        owner, head = answer.found
        return Seen(only(owner), only(head))

    def taken_in(self, answer: TxnAnswer) -> Taken | None:
        """Whether `take` succeeded."""
        return Taken(answer.revision) if answer.succeeded else None

    def taken_before(self, seen: Seen) -> Taken | None:
        """Whether an earlier copy of this very acquisition succeeded, and nothing was written since."""
        owner, head = seen
        if owner is None or head is None or tag_of(head.value) != self.tag:
            return None
        return Taken(owner.mod_revision) if owner.mod_revision == head.mod_revision else None

    def holder(self, seen: Seen) -> str | None:
        """The other node that has the keyspace; None where this node may take it."""
        if seen.owner is None:
            return None
        node_id = seen.owner.value.decode("utf-8", "replace")
        return None if node_id == self.node_id else node_id

    def _reads(self) -> tuple[Operation, ...]:
        return (
            Get(KeyRange(self.keys.owner(self.keyspace))),
            Get(KeyRange(self.keys.head(self.keyspace))),
        )


class Fence:
    """What an owner of a keyspace knows, and what it may send under that."""

    def __init__(self, keys: Keys, keyspace: str, epoch: int) -> None:
        self.epoch = epoch
        self.head_revision = epoch
        self.sequence = 0
        self._owner = keys.owner(keyspace)
        self._head = keys.head(keyspace)
        self._data = keys.data(keyspace)

    def append(self, writes: Iterable[Write], tag: str) -> Txn:
        """Store the writes, one for each key."""
        changes = [
            Delete(self._data + write.key) if write.value is None else Put(self._data + write.key, write.value)
            for write in writes
        ]
        return Txn(self._compares(), (self._new_head(tag), *changes), self._reads())

    def judge(self, answer: TxnAnswer, tag: str) -> Outcome:
        """What an answer to an append says of the transaction with the tag, of which other copies may be under way."""
        if answer.succeeded:
            self._went_on(answer.revision)
            return Outcome.STORED
        owner, head = (only(found) for found in answer.found[:2])
        if head is None or tag_of(head.value) != tag:
            return Outcome.FENCED
        self._went_on(head.mod_revision)
        is_owner = owner is not None and owner.mod_revision == self.epoch
        return Outcome.STORED if is_owner else Outcome.STORED_AND_LOST

    def is_as_left(self, answer: TxnAnswer) -> bool:
        """Whether a look shows that nobody has written the owner or the head since this owner did."""
        owner, head = (only(found) for found in answer.found[:2])
        return (_revision_of(owner), _revision_of(head)) == (self.epoch, self.head_revision)

    def hand_over(self, target: bytes, target_key: bytes, lease: int, tag: str) -> Txn:
        """Make the node `target` the owner, on its lease, if that is still the lease of its announcement."""
        return Txn(
            (*self._compares(), LeaseEquals(target_key, lease)),
            (Put(self._owner, target, lease), self._new_head(tag)),
            self._reads(),
        )

    def judge_hand_over(self, answer: TxnAnswer, target: bytes, tag: str) -> Outcome:
        """What an answer to a hand-over says."""
        if answer.succeeded:
            return Outcome.STORED_AND_LOST
        owner, head = (only(found) for found in answer.found[:2])
        if head is not None and tag_of(head.value) == tag:
            return Outcome.STORED_AND_LOST
        is_owner = owner is not None and owner.mod_revision == self.epoch
        if is_owner and head is not None and head.mod_revision == self.head_revision:
            return Outcome.NO_TARGET
        # The target has taken what it was handed, and has written its own head already.
        return Outcome.STORED_AND_LOST if owner is not None and owner.value == target else Outcome.FENCED

    def look(self) -> Txn:
        """Read the owner and the head, to judge as an append or a hand-over that failed its comparisons."""
        return Txn((ModEquals(self._owner, -1),), (), self._reads())

    def release(self) -> Txn:
        """Be the owner no more; nothing happens where somebody else is."""
        return Txn((ModEquals(self._owner, self.epoch),), (Delete(self._owner),))

    def page(self, keys: KeyRange, limit: int, revision: int) -> Txn:
        """A page of a scan, for the owner alone."""
        return Txn((ModEquals(self._owner, self.epoch),), (Get(keys, limit, revision),))

    def _compares(self) -> tuple[ModEquals, ModEquals]:
        return ModEquals(self._owner, self.epoch), ModEquals(self._head, self.head_revision)

    def _new_head(self, tag: str) -> Put:
        return Put(self._head, Head(self.epoch, self.sequence + 1, tag).encode())

    def _reads(self) -> tuple[Operation, ...]:
        return Get(KeyRange(self._owner)), Get(KeyRange(self._head))

    def _went_on(self, head_revision: int) -> None:
        self.head_revision = head_revision
        self.sequence += 1


def coalesced(batches: Iterable[Sequence[Write]]) -> dict[bytes, bytes | None]:
    """The last write of each key: etcd refuses a key twice in one transaction."""
    return {write.key: write.value for batch in batches for write in batch}
