"""One real member as a process of its own: it does no work, and says what happens to it.

`python -m bench.member_program '{"coordinator": "http://…", "group_id": "g", "topics": ["t"], …}'` takes the options of
`MemberOptions`. Each line on standard output is one JSON object with `what` and `at_s`, the system's monotonic clock,
which all processes of a machine share. What is said of partitions has `late_s`, too: so much earlier it would have been
said, had the machine had the time. Each line on standard input is a command:

- `commit`: commit one record more of each partition of the last assignment that was announced, held still or not. Says
  `committed`, or `refused` with the error.
- `leave`, `close`: end in that way. The end of standard input is a `close`: nobody is there any more to ask for more.

The last line is `ended`, with what this member left behind in its process: tasks, threads and open files beyond those
of before its start. The log of the member goes to standard error.
"""

import asyncio
import json
import logging
import os
import sys
import threading
import time
from typing import Any

from rallypoint import Assignment, GroupMember, MemberError, MemberOptions

LISTS = ("coordinator", "topics", "assignors")
"""Options that are tuples, and lists in JSON."""
SETTLING_S = 1.0
"""How long what ends may take to be gone: a transport closes its file in a later turn of the loop."""
TICK_S = 0.05
"""How often the event loop is looked at, whether it comes to its turn."""


def say(what: str, **more: Any) -> None:
    """Write one line."""
    print(json.dumps({"what": what, "at_s": time.monotonic(), **more}), flush=True)


class Lateness:
    """How late the event loop is now. Whatever is said may be as late: the process waits for a processor."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due_s = self._loop.time() + TICK_S
        self._timer = self._loop.call_at(self._due_s, self._tick)
        self._last_s = 0.0

    @property
    def now_s(self) -> float:
        """The lateness of the last turn, or of this one, whichever is more."""
        return max(self._last_s, self._loop.time() - self._due_s)

    def _tick(self) -> None:
        self._last_s = self._loop.time() - self._due_s
        self._due_s = self._loop.time() + TICK_S
        self._timer = self._loop.call_at(self._due_s, self._tick)

    def end(self) -> None:
        """Look no more."""
        self._timer.cancel()


class Program:
    """The member, and the last assignment that it was told of."""

    def __init__(self, options: MemberOptions, lateness: Lateness) -> None:
        self._lateness = lateness
        self._held: Assignment | None = None
        self._offset = 0
        self.member = GroupMember(
            options, on_assigned=self._on_assigned, on_revoked=self._on_revoked, on_lost=self._on_lost
        )

    async def _on_assigned(self, held: Assignment) -> None:
        self._held = held
        self._say_of("assigned", held)

    async def _on_revoked(self, held: Assignment) -> None:
        self._say_of("revoked", held)

    async def _on_lost(self, held: Assignment) -> None:
        self._say_of("lost", held)

    def _say_of(self, what: str, held: Assignment) -> None:
        say(
            what, generation_id=held.generation_id, member_id=held.member_id, late_s=self._lateness.now_s,
            partitions=[partition for _, partition in sorted(held.partitions)],
        )  # fmt: skip

    async def commit(self) -> None:
        """Commit under the last assignment."""
        if self._held is None:
            say("refused", error="NothingAssigned")
            return
        self._offset += 1
        offsets = dict.fromkeys(self._held.partitions, self._offset)
        try:
            await self.member.commit(offsets, generation_id=self._held.generation_id)
        except MemberError as error:
            say("refused", error=type(error).__name__, generation_id=self._held.generation_id)
        else:
            say("committed", offset=self._offset, generation_id=self._held.generation_id)

    async def obey(self, commands: asyncio.StreamReader) -> None:
        """Do what is asked until the end."""
        while True:
            match (await commands.readline()).decode().strip():
                case "commit":
                    await self.commit()
                case "leave":
                    await self.member.leave()
                    return
                case "close" | "":
                    await self.member.close()
                    return
                case other:
                    say("refused", error=f"there is no command {other!r}")


async def run(options: dict[str, Any]) -> None:
    """Be a member from the start of the program to its end."""
    given: dict[str, Any] = {
        name: tuple(value) if name in LISTS and isinstance(value, list) else value for name, value in options.items()
    }
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    before = _possessions()
    lateness = Lateness()
    program = Program(MemberOptions(**given), lateness)
    await program.member.start()
    say("started")
    await program.obey(commands)
    lateness.end()
    say("ended", **await _left_behind(before))


def _possessions() -> dict[str, list[str]]:
    """What the process has, by kind."""
    here = "/proc/self/fd"
    files = []
    for number in os.listdir(here):
        try:
            files.append(f"{number} {os.readlink(f'{here}/{number}')}")
        except FileNotFoundError:
            continue  # the one that was open to list them
    return {
        "tasks": [task.get_name() for task in asyncio.all_tasks()],
        "threads": [thread.name for thread in threading.enumerate()],
        "files": files,
    }


async def _left_behind(before: dict[str, list[str]]) -> dict[str, list[str]]:
    """What the process has that it had not before, when it had its time to go."""
    deadline = time.monotonic() + SETTLING_S
    while True:
        now = _possessions()
        left = {kind: sorted(set(names) - set(before[kind])) for kind, names in now.items()}
        if not any(left.values()) or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    asyncio.run(run(json.loads(sys.argv[1])))
