"""Writes a batch as files exactly once, even if several drivers write it: stage, commit to the log, move into place.

Nothing here knows Spark. The steps:

1. Read the last entry of the log, which holds the position of each partition. If its files are not in place yet,
   **move them first**, because its driver may have died. So an entry is added only when the previous entry's files
   are in place.
2. Write the rows at or above those positions to a new staging folder, which only this driver writes to.
3. Add an entry under the next number, with the new positions and the files. If another driver has added that entry,
   start over with its positions.
4. Start over in any case: now the last entry is this one or a later one. Readers never see staged files before their
   entry. Every driver moves the files of the last entry, and a file can be moved only once.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Protocol

from rallypoint.spark_bridge.errors import BridgeError
from rallypoint.spark_bridge.exactly_once.errors import LoadFailed
from rallypoint.spark_bridge.exactly_once.file_log import Entry, FileLog
from rallypoint.spark_bridge.exactly_once.file_store import FileStore
from rallypoint.spark_bridge.offsets import TopicPartition

log = logging.getLogger("rallypoint.spark")

SWEEPS_BY_AGE = 24
"""How often the staging folders are checked within the time after which one counts as abandoned."""


class Overtaken(BridgeError):  # noqa: N818
    """Other drivers made the next entry in each attempt. Nothing of the batch is written; it may be tried again."""


class Batch(Protocol):
    """The rows to write."""

    def ranges(self) -> Mapping[TopicPartition, tuple[int, int]]:
        """The lowest offset of each partition with rows, and the one after the highest."""

    def write(self, folder: str, above: Mapping[TopicPartition, int]) -> None:
        """Write files into a new folder.

        `above`: the first offset to write of some partitions. All rows of other partitions are written.
        """


@dataclass(frozen=True, slots=True)
class Staged:
    """Staged files that are in no entry yet."""

    name: str
    above: Mapping[TopicPartition, int]
    swept: int
    files: list[str]


class FileLoad:
    """Writes the batches of one load. Thread-safe, as queries of one session may share it.

    `name`: the name of the load.
    `store`: the file system.
    `log`: decides what is written.
    `folder`: holds the staging folders.
    `draw_name`: `draw_name(now_ms)` names a new staging folder; the name begins with the time and a dash.
    `pause`: `pause(conflicts)` waits before another attempt.
    `attempts`: the most conflicts of one batch.
    `abandoned_after_ms`: the age at which an undecided staging folder is deleted. A driver that is still writing there
    has to write its batch again.
    """

    def __init__(
        self,
        name: str,
        store: FileStore,
        log: FileLog,
        folder: str,
        *,
        now_ms: Callable[[], int],
        draw_name: Callable[[int], str],
        pause: Callable[[int], None],
        attempts: int,
        abandoned_after_ms: int,
    ) -> None:
        self._name = name
        self._store = store
        self._log = log
        self._folder = folder
        self._now_ms = now_ms
        self._draw_name = draw_name
        self._pause = pause
        self._attempts = attempts
        self._abandoned_after_ms = abandoned_after_ms
        self._sweep_interval_ms = abandoned_after_ms // SWEEPS_BY_AGE
        self._lock = threading.Lock()
        self._in_place = 0
        """The number of the last entry whose files were seen in place. It only grows, in `_note_in_place`."""
        self._swept_at_ms: int | None = None

    def write(self, batch: Batch) -> bool:
        """Write every row of the batch into place. Returns whether any row was new.

        Raises Overtaken after `attempts` conflicts. Raises LoadFailed if new rows produced no file, or if the log has
        lost entries. After any other error it is unknown what is written; writing the same batch again is safe.
        """
        ranges = batch.ranges()
        staged: Staged | None = None
        wrote, conflicts = False, 0
        while True:
            last = self._settled()
            if all(last.ends.get(tp, 0) >= end for tp, (_, end) in ranges.items()):
                if staged is not None:
                    self._store.remove(self._staging(staged.name))
                return wrote
            above = {tp: last.ends[tp] for tp, (first, _) in ranges.items() if last.ends.get(tp, 0) > first}
            if staged is None or (staged.above, staged.swept) != (above, last.swept):
                if staged is not None:
                    self._store.remove(self._staging(staged.name))
                staged = self._stage(batch, above, last.swept)
            if not staged.files and self._log.last() == last:  # otherwise a sweep may have deleted them
                self._store.remove(self._staging(staged.name))
                raise LoadFailed(
                    f"{self._name}: there are new rows, but no file was written that a reader would see: the format may"
                    " write its files elsewhere, or into a folder whose name begins with '.' or '_'"
                )
            ends = {tp: max(end, last.ends.get(tp, 0)) for tp, (_, end) in ranges.items()}
            if staged.files and self._log.put(self._decision(last, staged, ends)):
                wrote = True
                continue
            conflicts += 1
            if conflicts >= self._attempts:
                self._store.remove(self._staging(staged.name))
                raise Overtaken(f"{self._name}: other drivers were faster {conflicts} times")
            self._pause(conflicts)

    def forget(self, topic: str) -> int:
        """Delete the positions of a topic. Returns how many there were. Raises Overtaken if another driver writes."""
        last = self._settled()
        remaining = {tp: end for tp, end in last.ends.items() if tp[0] != topic}
        if len(remaining) < len(last.ends) and not self._log.put(_bare(last, remaining)):
            raise Overtaken(f"{self._name}: a driver writes; stop the queries first")
        return len(last.ends) - len(remaining)

    def _settled(self) -> Entry:
        """The last entry, with its files in place. Deletes abandoned staging folders now and then."""
        in_place = self._in_place  # before the log is read, because another thread may add to it
        last = self._log.last()
        if last.number < in_place:
            raise LoadFailed(
                f"{self._name}: the log ends at entry {last.number}, and this driver has seen entry {in_place}:"
                " was the folder replaced by another one? Stop all queries, copy `_rallypoint` of the old folder"
                " into it, and start them again; without it, records are written twice"
            )
        if last.number > in_place:
            self._put_in_place(last)
            self._note_in_place(last)
        now_ms = self._now_ms()
        if self._swept_at_ms is None or now_ms - self._swept_at_ms >= self._sweep_interval_ms:
            self._swept_at_ms = now_ms
            return self._sweep(last, now_ms)
        return last

    def _note_in_place(self, entry: Entry) -> None:
        with self._lock:
            self._in_place = max(self._in_place, entry.number)

    def _put_in_place(self, entry: Entry) -> None:
        if not entry.files:
            return
        staging = self._staging(entry.staging)
        there = set(self._store.files_below(staging))
        for source, target in entry.files.items():
            if source in there:
                self._store.move(f"{staging}/{source}", target)
        self._store.remove(staging)

    def _sweep(self, last: Entry, now_ms: int) -> Entry:
        """Delete abandoned staging folders, after an entry for it is in the log.

        A driver that still writes to one of them began before that entry. Its own entry fails, because the number is
        taken, and then it sees the sweep.
        """
        old = [
            name
            for name in sorted(self._store.children(self._folder))
            if now_ms - _made_at_ms(name) >= self._abandoned_after_ms
        ]
        if not old:
            return last
        entry = replace(_bare(last, last.ends), swept=last.number + 1)
        if not self._log.put(entry) or self._log.last() != entry:
            return self._settled()  # another driver was faster; the folders can wait
        self._note_in_place(entry)
        for name in old:
            log.info("%s: deleting the abandoned staging folder %s", self._name, name)
            self._store.remove(self._staging(name))
        return entry

    def _stage(self, batch: Batch, above: Mapping[TopicPartition, int], swept: int) -> Staged:
        name = self._draw_name(self._now_ms())
        try:
            batch.write(self._staging(name), above)
        except Exception:
            self._store.remove(self._staging(name))
            raise
        return Staged(name, above, swept, self._store.files_below(self._staging(name)))

    def _decision(self, last: Entry, staged: Staged, ends: Mapping[TopicPartition, int]) -> Entry:
        number = last.number + 1
        drawn = staged.name.rpartition("-")[2]
        files = {}
        for index, source in enumerate(staged.files):
            path = PurePosixPath(source)
            target = f"{self._name}-{number:08}-{drawn}-{index:05}{''.join(path.suffixes)}"
            files[source] = str(path.with_name(target))
        return replace(last, number=number, ends={**last.ends, **ends}, staging=staged.name, files=files)

    def _staging(self, name: str) -> str:
        return f"{self._folder}/{name}"


def _bare(last: Entry, ends: Mapping[TopicPartition, int]) -> Entry:
    """The next entry, without files."""
    return replace(last, number=last.number + 1, ends=ends, staging="", files={})


def _made_at_ms(name: str) -> int:
    """When a staging folder was named. One with another form of name is not ours, and never counts as old."""
    text = name.partition("-")[0]
    return int(text) if text.isdigit() else 2**63
