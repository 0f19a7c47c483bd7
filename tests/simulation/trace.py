"""What happened in a run: its last events in readable lines, all of them as a digest, and how often each fault came."""

import hashlib
from collections import Counter, deque

from pydantic import BaseModel

from rallypoint.coordinator.core.commands import DeleteGroupRequest, ListRebalancesRequest
from rallypoint.coordinator.core.effects import Failure
from rallypoint.protocol import admin_messages as admin
from rallypoint.protocol import messages as m

KEPT = 60
"""Events shown with a failure."""


class Violation(AssertionError):  # noqa: N818 - the word for what is found, which is not the finder's error
    """An invariant does not hold. `checker` is its name."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker


class Trace:
    """Two runs of one seed have the same `digest`, whatever process they ran in."""

    def __init__(self, *, verbose: bool = False) -> None:
        self.faults: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self._last: deque[tuple[int, str]] = deque(maxlen=KEPT)
        self._hash = hashlib.blake2b(digest_size=16)
        self._verbose = verbose

    def note(self, at_ms: int, text: str) -> None:
        """Something happened."""
        self._last.append((at_ms, text))
        self._hash.update(f"{at_ms} {text}\n".encode())
        if self._verbose:
            print(f"{at_ms / 1000:9.3f}  {text}")

    def fault(self, at_ms: int, kind: str, text: str = "") -> None:
        """A fault was put in."""
        self.faults[kind] += 1
        self.note(at_ms, f"FAULT {kind} {text}")

    def happened(self, at_ms: int, kind: str, text: str) -> None:
        """An operator's word was done, or something expired: counted, to see that runs come so far."""
        self.done[kind] += 1
        self.note(at_ms, f"   {kind} {text}")

    @property
    def digest(self) -> str:
        """Of everything noted so far."""
        return self._hash.hexdigest()

    def lines(self) -> list[str]:
        """The last events."""
        return [f"{at_ms / 1000:9.3f}  {text}" for at_ms, text in self._last]


_SHOWN = ("code", "superseded", "member_id", "group_instance_id", "generation_id", "leader", "assignment")


def short(value: BaseModel | DeleteGroupRequest | ListRebalancesRequest | Failure) -> str:
    """A request or an answer in a few words, the same in every process."""
    if isinstance(value, Failure):
        found = {name: getattr(value, name) for name in ("code", "superseded", "member_id", "generation_id")}
    elif isinstance(value, DeleteGroupRequest | ListRebalancesRequest):
        found = {}
    else:
        found = {name: value.__dict__[name] for name in _SHOWN if name in value.__dict__}
    fields = [
        f"{name}={getattr(entry, 'name', entry)}" for name, entry in found.items() if entry not in (None, "", False)
    ]
    if isinstance(value, m.CommitRequest | m.CommitAnswer | m.FetchAnswer):
        shown = {
            f"{topic}-{partition}": getattr(entry, "error_name", None) or getattr(entry, "offset", None)
            for topic, entries in value.offsets.items()
            for partition, entry in entries.items()
        }
        fields.append(f"offsets={shown}")
    if isinstance(value, admin.ResetOffsetsRequest | admin.DeleteOffsetsRequest):
        fields.append(value.model_dump_json(exclude_none=True))
    if isinstance(value, m.JoinAnswer | m.LeaveRequest) and value.members:
        fields.append(f"members={[entry.member_id for entry in value.members]}")
    name = type(value).__name__.removesuffix("Request").removesuffix("Answer").lower()
    return f"{name}({', '.join(fields)})"
