"""Real members as processes of their own, and what they were told about their partitions."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.end_to_end.network import Network
from tests.end_to_end.program_process import Line, ProgramProcess, wait_until
from tests.end_to_end.service_process import ServiceProcess, nothing_left_behind, running_service

TOPIC = "clicks"
PARTITIONS = 6


class MemberProcess(ProgramProcess):
    """`bench.member_program` with these options."""

    def __init__(self, folder: Path, name: str, options: dict[str, Any], namespace: Path | None = None) -> None:
        super().__init__(folder, name, "bench.member_program", (json.dumps(options),), namespace)

    def ask(self, command: str) -> Line:
        """Send it a command, and wait for the next line that is an answer to one."""
        mark = len(self.lines)
        self.tell(command)
        return self.wait_for("committed", "refused", since=mark)

    def leave(self) -> Line:
        """Let it leave and end; its last line."""
        return self.end("leave")

    @property
    def owned(self) -> frozenset[int]:
        """The partitions that are its own by what it was told."""
        owned: set[int] = set()
        for line in tuple(self.lines):
            if line.what == "assigned":
                owned |= set(line.more["partitions"])
            elif line.what in {"revoked", "lost"}:
                owned -= set(line.more["partitions"])
        return frozenset(owned)

    @property
    def generation_id(self) -> int:
        """Of the last assignment that it was told of; -1 before the first."""
        return max((line.more["generation_id"] for line in tuple(self.lines) if line.what == "assigned"), default=-1)

    def changes(self, since: int = 0) -> list[str]:
        """What happened to its ownership, in order."""
        return [line.what for line in self.lines[since:] if line.what in {"assigned", "revoked", "lost"}]


@contextmanager
def running_members(
    folder: Path, service: ServiceProcess, names: Sequence[str], *, network: Network | None = None, **options: Any
) -> Iterator[list[MemberProcess]]:
    """Members of the group "clicks", started and settled, on a topic of `PARTITIONS`; gone at the end whatever happens.

    `options` go to all; the name is the `client_id`, with `static=True` the `group_instance_id` too, and with a network
    that of the namespace.
    """
    assert service.send("PUT", f"/v1/topics/{TOPIC}", {"partitions": PARTITIONS})[0] == 200
    is_static = options.pop("static", False)
    common = {"coordinator": service.url, "group_id": TOPIC, "topics": [TOPIC], **options}
    members = [
        MemberProcess(
            folder,
            name,
            {**common, "client_id": name, "group_instance_id": name if is_static else None},
            None if network is None else network.namespace(name),
        )
        for name in names
    ]
    try:
        for member in members:
            member.start()
        settle(members)
        yield members
    finally:
        for member in members:
            member.make_sure_it_is_gone()


@contextmanager
def running_group(
    folder: Path,
    names: Sequence[str],
    *service_options: str,
    network: Network | None = None,
    on_start: Callable[[ServiceProcess], None] = lambda service: None,
    **member_options: Any,
) -> Iterator[tuple[ServiceProcess, list[MemberProcess]]]:
    """A service and its settled members; once those are gone the service must have nothing left of them.

    `on_start` is called when the service runs, and nobody else yet.
    """
    with running_service(folder, *service_options, network=network) as service:
        on_start(service)
        with (
            nothing_left_behind(service),
            running_members(folder, service, names, network=network, **member_options) as members,
        ):
            yield service, members


def check_nothing_left(last: Line) -> None:
    """Of a member that has ended: no task, thread or open file is there that was not before it began."""
    assert last.what == "ended"
    assert last.more == {"tasks": [], "threads": [], "files": []}


def settle(members: Sequence[MemberProcess]) -> int:
    """Wait until each partition has one owner among them, all in one generation; that generation."""

    def find() -> int | None:
        owned = sorted(partition for member in members for partition in member.owned)
        generations = {member.generation_id for member in members}
        is_settled = owned == list(range(PARTITIONS)) and len(generations) == 1
        return generations.pop() if is_settled else None

    return wait_until(find, "the members to come together", lambda: "\n".join(member.show() for member in members))
