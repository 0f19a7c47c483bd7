"""What the engine asks of etcd: the protocol of a client, its requests and answers as plain values, and its errors.

`grpc_client` speaks to real servers. The tests have an etcd in memory behind the same protocol, so nothing here knows a
network, a thread or a clock.

A call is tried once, by one server. It ends in an answer or in one of these errors:

    EtcdRefused         definite: this call changed nothing. `trouble` says of what kind the refusal is
    EtcdLeaseNotFound   a refusal: the lease of the call does not exist, and never will again
    EtcdCompacted       a refusal: the revision of a read or a watch has been compacted
    EtcdNoSpace         the call was carried out, or never will be; a read tells which
    EtcdUnknown         the call may have been carried out, or may still be: nobody can tell from the answer
"""

from collections.abc import AsyncGenerator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol


class Trouble(Enum):
    """What is wrong with etcd, in words that name no host, for anybody to read."""

    AWAY = "etcd cannot be reached"
    SLOW = "etcd does not answer in time"
    NO_LEADER = "etcd has no quorum"
    NO_SPACE = "etcd's quota is used up"
    BUSY = "etcd has too many requests"
    CREDENTIALS = "etcd refuses the user or the password"
    PERMISSION = "etcd denies the permission"
    TLS = "the TLS connection to etcd fails"
    TOO_LARGE = "etcd refuses the size of a request"
    REFUSED = "etcd refuses a request"
    ANOTHER_NODE = "another node has the id of this one"
    GONE_BACK = "etcd has gone back to an earlier state"
    FAULT = "the node itself fails in renewing its lease"


class EtcdError(Exception):
    """Root of what a client raises. The text has the details, for the log."""

    def __init__(self, text: str, trouble: Trouble) -> None:
        super().__init__(text)
        self.trouble = trouble


class EtcdRefused(EtcdError):  # noqa: N818 - named by its outcome, as its siblings
    """The call changed nothing."""

    def __init__(self, text: str, trouble: Trouble = Trouble.REFUSED) -> None:
        super().__init__(text, trouble)


class EtcdLeaseNotFound(EtcdRefused):
    """The lease does not exist. etcd never uses the id of a lease twice."""


class EtcdCompacted(EtcdRefused):
    """The revision has been compacted."""


class EtcdNoSpace(EtcdError):  # noqa: N818
    """The quota is used up.

    etcd refuses a write before it is proposed, and says the same of one that it has carried out and that has filled the
    quota. It refuses each server's answer only after it has applied the write, so a later read shows what is true.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text, Trouble.NO_SPACE)


class EtcdUnknown(EtcdError):  # noqa: N818
    """The call may have been carried out, or may still be."""


class KeyRange(NamedTuple):
    """The keys from `key` on, below `end`; the one key itself where `end` is empty."""

    key: bytes
    end: bytes = b""


class KeyValue(NamedTuple):
    """A stored key. lease: 0 without one."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int


class ModEquals(NamedTuple):
    """The key was last written at this revision; 0: it is not there."""

    key: bytes
    revision: int


class LeaseEquals(NamedTuple):
    """The key hangs on this lease; 0: on none, or it is not there."""

    key: bytes
    lease: int


Compare = ModEquals | LeaseEquals


class Get(NamedTuple):
    """Read a range. limit: 0 for all. revision: 0 for the newest."""

    keys: KeyRange
    limit: int = 0
    revision: int = 0


class Put(NamedTuple):
    """Write a key."""

    key: bytes
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    """Delete a key; no error where it is not there."""

    key: bytes


Operation = Get | Put | Delete


class Txn(NamedTuple):
    """If every comparison holds, `success`, else `failure`: all of it at one revision."""

    compares: Sequence[Compare]
    success: Sequence[Operation]
    failure: Sequence[Operation] = ()


class Found(NamedTuple):
    """What a Get found, in the order of keys. more: there is more than its limit."""

    pairs: tuple[KeyValue, ...]
    more: bool


class TxnAnswer(NamedTuple):
    """The outcome of a Txn. revision: of the store after it. found: of the Gets of the branch, in their order."""

    succeeded: bool
    revision: int
    found: tuple[Found, ...]


class LeaseAnswer(NamedTuple):
    """A lease, and how long it lives from the instant at which etcd renewed it; 0: it does not exist."""

    lease: int
    ttl_s: int


class WatchEvent(NamedTuple):
    """A change of a key. value: None where it was deleted."""

    key: bytes
    value: bytes | None
    mod_revision: int


class WatchAnswer(NamedTuple):
    """Changes in the order of their revisions; those of one revision come together. Without any, etcd says that the
    watch has seen everything up to `revision`.
    """

    revision: int
    events: tuple[WatchEvent, ...]


class ServerStatus(NamedTuple):
    """What a server says of itself.

    alarms: its complaints, as etcd words them. quota_bytes: 0 where it does not say.
    """

    version: str
    alarms: tuple[str, ...]
    db_size_bytes: int
    quota_bytes: int


class EtcdClient(Protocol):
    """A client of one etcd. Its calls may be made in several event loops and threads at once.

    Each call raises EtcdError. `timeout_s` is how long it may take: then the outcome is unknown.
    """

    async def txn(self, txn: Txn, timeout_s: float) -> TxnAnswer:
        """Carry out a transaction. Reads are linearizable."""

    async def lease_grant(self, ttl_s: int, timeout_s: float) -> LeaseAnswer:
        """A new lease. etcd may grant a longer one than it was asked for."""

    async def lease_keep_alive(self, lease: int, timeout_s: float) -> LeaseAnswer:
        """Renew a lease."""

    async def lease_revoke(self, lease: int, timeout_s: float) -> None:
        """End a lease, and delete the keys that hang on it."""

    def watch(self, ranges: Sequence[KeyRange], start_revision: int) -> AsyncGenerator[WatchAnswer, None]:
        """The changes of the ranges from that revision on, without an end; each range's in their order.

        Raises EtcdUnknown where etcd has not been heard for too long, and EtcdCompacted. Close the generator.
        """

    async def status(self, timeout_s: float) -> ServerStatus:
        """How the server stands that answers just now."""

    async def close(self) -> None:
        """Give up every call under way, and close the connections."""
