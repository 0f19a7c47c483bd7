"""The keys in etcd, and what stands in the values that the engine itself writes.

    PREFIX/node/NODE_ID         a live node: who it is, and its announcement (on its lease)
    PREFIX/owner/KEYSPACE       the id of the node that owns the keyspace (on that node's lease)
    PREFIX/head/KEYSPACE        the last transaction of the keyspace: "EPOCH SEQUENCE TAG"
    PREFIX/data/KEYSPACE/KEY    what the keyspace holds
    PREFIX/fact/NAME            a fact that belongs to no node

Ids and names may hold any character. Only `/` and `%` are encoded, so that a key has as many parts as it should.
"""

import hashlib
from typing import NamedTuple

from rallypoint.coordinator.storage.etcd.client import KeyRange

PREFIX_BYTES_MAX = 128
"""Each key of a transaction begins with the prefix, so it counts 127 times in the size that etcd allows a request."""


def encode(name: str) -> str:
    """A name as one part of a key."""
    return name.replace("%", "%25").replace("/", "%2F")


def decode(part: str) -> str:
    """The name of which this is the part."""
    return part.replace("%2F", "/").replace("%25", "%")


def end_of_prefix(prefix: bytes) -> bytes:
    """The first key after all that begin so: what etcd wants as the end of a range. NUL, for all, of nothing else."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\0"


def range_of_prefix(prefix: bytes) -> KeyRange:
    """Every key that begins so."""
    return KeyRange(prefix, end_of_prefix(prefix))


class Keys(NamedTuple):
    """The keys below one prefix."""

    prefix: str

    def node(self, node_id: str) -> bytes:
        """Of a live node."""
        return f"{self.prefix}/node/{encode(node_id)}".encode()

    def owner(self, keyspace: str) -> bytes:
        """Of who owns a keyspace."""
        return f"{self.prefix}/owner/{encode(keyspace)}".encode()

    def head(self, keyspace: str) -> bytes:
        """Of the last transaction of a keyspace."""
        return f"{self.prefix}/head/{encode(keyspace)}".encode()

    def data(self, keyspace: str) -> bytes:
        """With what the keys of a keyspace's contents begin."""
        return f"{self.prefix}/data/{encode(keyspace)}/".encode()

    def fact(self, name: str) -> bytes:
        """Of a fact."""
        return f"{self.prefix}/fact/{encode(name)}".encode()

    def all_of(self, kind: str) -> KeyRange:
        """Every key of a kind: node, owner, fact."""
        return range_of_prefix(f"{self.prefix}/{kind}/".encode())

    def name_in(self, kind: str, key: bytes) -> str:
        """The name that a key of the kind is of."""
        return decode(key.decode().removeprefix(f"{self.prefix}/{kind}/"))


def node_value(identity: bytes, announcement: bytes | None) -> bytes:
    """The value of a node's key: a hash of what makes it the same node after a restart, and what it announces."""
    hashed = hashlib.sha256(identity).hexdigest().encode()
    return hashed if announcement is None else hashed + b"\n" + announcement


def is_of_identity(value: bytes, identity: bytes) -> bool:
    """Whether the value of a node's key is of this identity."""
    return value.partition(b"\n")[0] == node_value(identity, None)


def announcement_in(value: bytes) -> bytes | None:
    """What the node announces; None where it has not announced anything yet."""
    _, separator, announcement = value.partition(b"\n")
    return announcement if separator else None
