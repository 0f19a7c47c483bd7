"""A load of plain calls: several clients commit different values to the same places, and fetch them, over HTTP alone.

A fetch asks one node, whichever, and takes a 421 for an answer; so a node that answers for what it does not coordinate
any more is found. A call is made once, and given up after a second and a half. SIGTERM ends the load.
"""

import argparse
import asyncio
import random
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from examples.cluster.books import TOPIC, Commit, Fetch, Writer
from rallypoint.protocol.operations import COMMIT, FETCH, path_of

REGISTERS_TOPIC = "registers"
WRITERS = 2
READERS = 2
WRITE_INTERVAL_S = 0.2
READ_INTERVAL_S = 0.15
CALL_TIMEOUT_S = 1.5


@dataclass(frozen=True, slots=True)
class Registers:
    """What all clients have in common.

    group_ids: of the registers, one in each. read_group_ids: groups of members, of whose offsets a fetch asks, too.
    """

    session: aiohttp.ClientSession
    urls: Sequence[str]
    group_ids: Sequence[str]
    read_group_ids: Sequence[str]
    books: Writer
    stop: asyncio.Event
    chance: random.Random

    async def pause(self, seconds: float) -> None:
        """About so long, or until the load is to end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), seconds * self.chance.uniform(0.5, 1.5))

    async def ask(self, method: str, url: str, **more: Any) -> tuple[int, Any]:
        """The status and the answer; 0 where there is none."""
        try:
            async with self.session.request(method, url, **more) as answer:
                return answer.status, await answer.json(content_type=None)
        except (TimeoutError, aiohttp.ClientError):
            return 0, None


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


async def write(registers: Registers, group_id: str, number: int) -> None:
    """Commit values that nobody else commits. The node that took the last one gets the next."""
    url = registers.chance.choice(registers.urls)
    value = number
    while not registers.stop.is_set():
        value += WRITERS
        body = {"generation_id": -1, "offsets": {REGISTERS_TOPIC: {"0": {"offset": value}}}}
        began_ms = _now_ms()
        status, answer = await registers.ask("POST", url + path_of(COMMIT, group_id=group_id), json=body)
        error = why_refused(status, answer)
        name = f"writer-{number}"
        registers.books.write(Commit(group_id, name, began_ms, _now_ms(), {0: value}, error))
        if error is not None:
            url = registers.chance.choice(registers.urls)
            if status == 421:
                continue  # nothing has changed hands: it was the wrong node
        await registers.pause(WRITE_INTERVAL_S)


def why_refused(status: int, answer: Any) -> str | None:
    """None where the commit is acknowledged."""
    if status == 200:
        name = answer["offsets"][REGISTERS_TOPIC]["0"]["error_name"]
        return None if name == "NONE" else str(name)
    return "no answer" if status == 0 else f"status {status}"


async def read(registers: Registers, group_ids: Sequence[str], topic: str, name: str) -> None:
    """Fetch of one group and one node after the other."""
    while not registers.stop.is_set():
        group_id, url = registers.chance.choice(group_ids), registers.chance.choice(registers.urls)
        began_ms = _now_ms()
        status, answer = await registers.ask("GET", url + path_of(FETCH, group_id=group_id))
        if status == 200:
            found = answer["offsets"].get(topic, {})
            offsets = {int(partition): int(one["offset"]) for partition, one in found.items()}
            registers.books.write(Fetch(group_id, name, began_ms, _now_ms(), offsets))
        await registers.pause(READ_INTERVAL_S / len(group_ids))


async def run_registers(
    urls: Sequence[str], group_ids: Sequence[str], read_group_ids: Sequence[str], books: Writer, seed: int
) -> None:
    """Run all clients until SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # A proxy that the environment names must not be asked for hosts of this machine, so none is looked for.
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT_S)) as session:
        registers = Registers(session, urls, group_ids, read_group_ids, books, stop, random.Random(seed))
        writers = [write(registers, group_id, number) for group_id in group_ids for number in range(WRITERS)]
        readers = [read(registers, group_ids, REGISTERS_TOPIC, f"reader-{number}") for number in range(READERS)]
        observers = [read(registers, read_group_ids, TOPIC, f"observer-{number}") for number in range(READERS)]
        await asyncio.gather(*writers, *readers, *observers)


def main(arguments: Sequence[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster_faults.registers", description=__doc__)
    parser.add_argument("--coordinator", required=True, help="URLs of the nodes, with commas between")
    parser.add_argument("--books", required=True, type=Path, help="file for what the clients are told")
    parser.add_argument("--registers", required=True, help="groups of a register each, with commas between")
    parser.add_argument("--groups", required=True, help="groups of members, with commas between")
    parser.add_argument("--seed", required=True, type=int, help="decides which node is asked when")
    given = parser.parse_args(arguments)
    books = Writer(given.books)
    try:
        asyncio.run(
            run_registers(
                given.coordinator.split(","), given.registers.split(","), given.groups.split(","), books, given.seed
            )
        )
    finally:
        books.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
