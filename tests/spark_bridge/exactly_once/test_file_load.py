"""The load into files between any two steps of several drivers: on each kind of file system, with deaths and pauses.

The file system is in memory, and each of its steps waits for its turn; so a schedule says which driver does what when,
and a driver that is not scheduled for long is one that was taken for dead. After every step a reader looks.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from rallypoint.spark_bridge.exactly_once.errors import LoadFailed
from rallypoint.spark_bridge.exactly_once.file_load import FileLoad, Overtaken
from rallypoint.spark_bridge.exactly_once.file_log import ENTRIES_KEPT, Entry, FileLog, check_log_location
from rallypoint.spark_bridge.exactly_once.moving import move
from rallypoint.spark_bridge.offsets import TopicPartition

Record = tuple[str, int, int]
TOPIC = "clicks"
LOG, STAGING = "_rallypoint/log", "_rallypoint/staging"


class Died(BaseException):
    """SIGKILL: nothing may catch it on its way."""


@dataclass
class Disk:
    """The files, each a text or a list of records. `copies`: a rename is a copy and a deletion, as in object stores,
    and fails where the name is taken; else it is one step, and `overwrites` what has the name already, as a POSIX
    rename does.
    """

    copies: bool = False
    overwrites: bool = True
    files: dict[str, object] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    """Entries of the log, each time that one was made."""

    def check_what_readers_see(self) -> None:
        """Whole files, no record twice."""
        records = Counter(self.records())
        twice = [record for record, count in records.items() if count > 1]
        assert not twice, f"seen twice: {twice}"

    def records(self) -> Iterator[Record]:
        for path, content in self.files.items():
            if not path.startswith("_"):
                assert isinstance(content, list)
                yield from content


class Turns:
    """Lets one thread go on by one step at a time."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._go: dict[int, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)
        self._dead: set[int] = set()
        self.errors: list[BaseException] = []
        self.ended: set[int] = set()

    def start(self, number: int, work: Callable[[], None]) -> None:
        """A driver stands before its first step."""
        self._go[number] = threading.Semaphore(0)

        def run() -> None:
            try:
                self.step(number)
                work()
            except Died:
                pass
            except BaseException as error:
                self.errors.append(error)
            self.ended.add(number)
            self._back.release()

        threading.Thread(target=run, name=str(number), daemon=True).start()
        self._back.acquire()

    def step(self, number: int) -> None:
        """Called by the driver: wait for its turn."""
        self._back.release()
        self._go[number].acquire()
        if number in self._dead:
            raise Died

    def step_of_this_thread(self) -> None:
        """The same, for whatever several drivers share."""
        self.step(int(threading.current_thread().name))

    def let(self, number: int, steps: int) -> None:
        """It takes so many steps, if it has them."""
        for _ in range(steps):
            if number in self.ended:
                return
            self._go[number].release()
            self._back.acquire()
            self._disk.check_what_readers_see()

    def kill(self, number: int) -> None:
        """It takes no step any more."""
        if number not in self.ended:
            self._dead.add(number)
            self._go[number].release()
            self._back.acquire()


class Store:
    """The disk as one driver sees it: before each of its steps it waits for its turn."""

    url = "memory:/disk"

    def __init__(self, disk: Disk, step: Callable[[], None]) -> None:
        self._disk = disk
        self.step = step

    def children(self, folder: str) -> list[str]:
        self.step()
        below = [path.removeprefix(f"{folder}/") for path in self._disk.files if path.startswith(f"{folder}/")]
        return list({name.partition("/")[0] for name in below})

    def files_below(self, folder: str) -> list[str]:
        self.step()
        return sorted(path.removeprefix(f"{folder}/") for path in self._disk.files if path.startswith(f"{folder}/"))

    def read(self, path: str) -> str | None:
        self.step()
        content = self._disk.files.get(path)
        assert content is None or isinstance(content, str)
        return content

    def put_if_absent(self, path: str, text: str) -> bool:
        self.step()
        if path in self._disk.files:
            return False
        self._disk.files[path] = text
        self._disk.made.append(path)
        return True

    def move(self, source: str, target: str) -> None:
        move(self, source, target)

    def rename(self, source: str, target: str) -> bool:
        self.step()
        files = self._disk.files
        if self._disk.copies and source not in files:
            raise FileNotFoundError(source)
        if self._disk.copies and target in files:
            raise FileExistsError(target)
        if source not in files or (target in files and not self._disk.overwrites):
            return False
        files[target] = files[source]
        if self._disk.copies:
            self.step()
        files.pop(source, None)
        return True

    def exists(self, path: str) -> bool:
        self.step()
        return path in self._disk.files

    def remove(self, path: str) -> None:
        for name in [name for name in self._disk.files if name == path or name.startswith(f"{path}/")]:
            self.step()
            self._disk.files.pop(name, None)


class Rows:
    """A batch, which becomes a file for each half of its records."""

    def __init__(self, store: Store, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self._store = store
        self._ranges = ranges

    def ranges(self) -> Mapping[TopicPartition, tuple[int, int]]:
        return {tp: (first, end) for tp, (first, end) in self._ranges.items() if first < end}

    def write(self, folder: str, above: Mapping[TopicPartition, int]) -> None:
        records = [
            (*tp, offset)
            for tp, (first, end) in self._ranges.items()
            for offset in range(max(first, above.get(tp, 0)), end)
        ]
        for half in (0, 1):
            self._store.step()
            self._store._disk.files[f"{folder}/day={half}/part-{half}.parquet"] = records[half::2]


class World:
    """One disk, the group's offsets, and drivers that plan from them."""

    def __init__(self, disk: Disk, partitions: int = 2, abandoned_after_ms: int = 50) -> None:
        self.disk = disk
        self.turns = Turns(disk)
        self.committed = {(TOPIC, partition): 0 for partition in range(partitions)}
        self.produced = dict.fromkeys(self.committed, 0)
        self._abandoned_after_ms = abandoned_after_ms
        self._drawn = 0
        self._now_ms = 0

    def load(self, store: Store, log: FileLog | None = None) -> FileLoad:
        return FileLoad(
            "load",
            store,
            log or FileLog(store, LOG),
            STAGING,
            now_ms=self._tick,
            draw_name=self._draw,
            pause=lambda conflicts: None,
            attempts=1000,
            abandoned_after_ms=self._abandoned_after_ms,
        )

    def driver(
        self, number: int, batches: list[dict[TopicPartition, int]], shared: tuple[Store, FileLoad] | None = None
    ) -> None:
        """One that reads so many records of each partition in each batch, from the group's offsets on. `shared`: with
        which store and load, where another one has the same.
        """

        def work() -> None:
            store = shared[0] if shared else Store(self.disk, lambda: self.turns.step(number))
            load = shared[1] if shared else self.load(store)
            positions = {tp: self.committed[tp] for batch in batches for tp in batch}
            for batch in batches:
                ranges = {tp: (positions[tp], positions[tp] + count) for tp, count in batch.items()}
                for tp, (_, end) in ranges.items():
                    self.produced[tp] = max(self.produced[tp], end)
                load.write(Rows(store, ranges))
                for tp, (_, end) in ranges.items():
                    positions[tp] = end
                    self.committed[tp] = max(self.committed[tp], end)

        self.turns.start(number, work)

    def settle(self, number: int = 99) -> None:
        """A last driver reads from the group's offsets to the end of all; then each record must be there once."""
        self.driver(number, [{tp: end - self.committed[tp] for tp, end in self.produced.items()}])
        self.turns.let(number, 100_000)
        assert not self.turns.errors, self.turns.errors
        self.check()

    def check(self) -> None:
        expected = Counter((*tp, offset) for tp, end in self.produced.items() for offset in range(end))
        assert Counter(self.disk.records()) == expected

    def _tick(self) -> int:
        self._now_ms += 10
        return self._now_ms

    def _draw(self, now_ms: int) -> str:
        self._drawn += 1
        return f"{now_ms}-{self._drawn:08}"


KINDS: dict[str, Callable[[], Disk]] = {
    "posix": Disk,
    "hdfs": lambda: Disk(overwrites=False),
    "object store": lambda: Disk(copies=True),
}
kinds = pytest.mark.parametrize("kind", KINDS)
ONE, TWO = (TOPIC, 0), (TOPIC, 1)


def steps_of_a_batch(kind: str) -> int:
    """How many there are where nobody else is about."""
    for steps in range(1, 1000):
        world = World(KINDS[kind]())
        world.driver(1, [{ONE: 10, TWO: 10}])
        world.turns.let(1, steps)
        if 1 in world.turns.ended:
            return steps
    raise AssertionError


@kinds
@pytest.mark.parametrize("dies", [True, False])
def test_a_driver_dies_or_stands_still_between_any_two_steps(kind: str, dies: bool) -> None:
    """The next owner plans the same records with other bounds, and goes on; then the first comes back, or does not."""
    for steps in range(steps_of_a_batch(kind) + 1):
        world = World(KINDS[kind]())
        world.driver(1, [{ONE: 10, TWO: 10}])
        world.turns.let(1, steps)
        if dies:
            world.turns.kill(1)
        world.driver(2, [{ONE: 15}, {ONE: 3, TWO: 4}])
        world.turns.let(2, 100_000)
        world.turns.let(1, 100_000)
        world.settle()


@kinds
def test_the_next_owner_dies_as_well_and_the_first_goes_on(kind: str) -> None:
    """Two that overlap, stopped at any two of their steps."""
    total = steps_of_a_batch(kind)
    for first in range(total + 1):
        for second in range(0, total + 1):
            world = World(KINDS[kind]())
            world.driver(1, [{ONE: 4, TWO: 4}])
            world.turns.let(1, first)
            world.driver(2, [{ONE: 7}])
            world.turns.let(2, second)
            world.turns.let(1, 3)
            world.turns.kill(2)
            world.turns.let(1, 100_000)
            world.settle()


@kinds
@pytest.mark.parametrize("seed", range(60))
def test_many_drivers_by_chance(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    world = World(KINDS[kind](), partitions=3, abandoned_after_ms=chance.choice([0, 50, 100_000]))
    alive = set(range(4))
    for number in alive:
        world.driver(number, [one_batch(chance, world) for _ in range(4)])
    for _ in range(60):
        if not alive:
            break
        number = chance.choice(sorted(alive))
        world.turns.let(number, chance.choice([1, 2, 5, 30]))
        if chance.random() < 0.02:
            world.turns.kill(number)
        alive -= world.turns.ended
    for number in alive:
        world.turns.let(number, 100_000)
    world.settle()


@kinds
def test_two_queries_of_one_session_share_a_load(kind: str) -> None:
    """Each in a thread of its own, with other partitions; one stands still at any step while the other goes on."""
    for steps in range(2 * steps_of_a_batch(kind) + 1):
        world = World(KINDS[kind]())
        store = Store(world.disk, world.turns.step_of_this_thread)
        shared = store, world.load(store)
        world.driver(1, [{ONE: 4}, {ONE: 4}], shared)
        world.turns.let(1, steps)
        world.driver(2, [{TWO: 3}, {TWO: 2}, {TWO: 1}], shared)
        world.turns.let(2, 100_000)
        world.turns.let(1, 100_000)
        world.settle()


def one_batch(chance: random.Random, world: World) -> dict[TopicPartition, int]:
    some = chance.sample(sorted(world.committed), chance.randint(1, 3))
    return {tp: chance.randint(0, 6) for tp in some}


@dataclass
class Quiet:
    """Nobody waits for a turn."""

    disk: Disk = field(default_factory=Disk)

    def world(self, **more: int) -> tuple[World, FileLoad, Store]:
        world, store = World(self.disk, **more), Store(self.disk, lambda: None)
        return world, world.load(store), store


def test_who_comes_back_after_its_entry_had_come_and_gone_changes_nothing() -> None:
    """Its number is free again, since old entries are removed. Its entry counts for nothing."""
    quiet = Quiet()
    world = World(quiet.disk, abandoned_after_ms=10**9)
    world.driver(1, [{ONE: 5}])
    while not any(path.startswith(STAGING) for path in world.disk.files):
        world.turns.let(1, 1)
    world.turns.let(1, 2)  # both files are staged; its entry would be the first
    world.driver(2, [{ONE: 5}] * (ENTRIES_KEPT + 3))
    world.turns.let(2, 100_000)
    assert f"{LOG}/{1:020}.json" not in world.disk.files
    world.turns.let(1, 100_000)
    assert world.disk.made.count(f"{LOG}/{1:020}.json") == 2
    assert not any(path.startswith(STAGING) for path in world.disk.files)
    world.settle()


def test_what_a_dead_driver_left_in_the_staging_is_deleted_by_age() -> None:
    quiet = Quiet()
    world, load, store = quiet.world(abandoned_after_ms=1000)
    quiet.disk.files[f"{STAGING}/5-dead/part-0.parquet"] = [(TOPIC, 0, 0)]
    quiet.disk.files[f"{STAGING}/someone's own/part-0.parquet"] = []
    load.write(Rows(store, {ONE: (0, 3)}))
    assert f"{STAGING}/5-dead/part-0.parquet" in quiet.disk.files
    world._now_ms = 5_000
    world.load(store).write(Rows(store, {ONE: (0, 3)}))
    assert [path for path in quiet.disk.files if path.startswith(STAGING)] == [
        f"{STAGING}/someone's own/part-0.parquet"
    ]
    last = FileLog(store, LOG).last()
    assert (last.number, last.swept, last.ends) == (2, 2, {ONE: 3})
    world.load(store).write(Rows(store, {ONE: (3, 4)}))
    assert FileLog(store, LOG).last().swept == 2


def test_a_write_that_fails_leaves_nothing_and_may_be_tried_again() -> None:
    quiet = Quiet()
    _, load, store = quiet.world(abandoned_after_ms=10**9)

    class Failing(Rows):
        def write(self, folder: str, above: Mapping[TopicPartition, int]) -> None:
            super().write(folder, above)
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        load.write(Failing(store, {ONE: (0, 3)}))
    assert not quiet.disk.files
    assert load.write(Rows(store, {ONE: (0, 3)}))
    assert not load.write(Rows(store, {ONE: (0, 3)}))
    assert sorted(quiet.disk.records()) == [(TOPIC, 0, offset) for offset in range(3)]


def test_a_topic_can_be_forgotten() -> None:
    quiet = Quiet()
    _, load, store = quiet.world()
    load.write(Rows(store, {ONE: (0, 3), ("orders", 0): (0, 2)}))
    assert load.forget(TOPIC) == 1
    assert load.forget(TOPIC) == 0
    assert FileLog(store, LOG).last().ends == {("orders", 0): 2}
    assert load.write(Rows(store, {ONE: (0, 1)}))


def test_a_driver_that_is_always_overtaken_gives_up() -> None:
    quiet = Quiet()

    class Busy(Store):
        def put_if_absent(self, path: str, text: str) -> bool:
            other = int(path.rpartition("/")[2].removesuffix(".json"))
            super().put_if_absent(path, Entry(other).to_json())
            return super().put_if_absent(path, text)

    busy = Busy(quiet.disk, lambda: None)
    load = FileLoad(
        "load", busy, FileLog(busy, LOG), STAGING, now_ms=lambda: 0, draw_name=lambda now: f"{now}-x",
        pause=lambda conflicts: None, attempts=3, abandoned_after_ms=10,
    )  # fmt: skip
    with pytest.raises(Overtaken, match="load: other drivers were faster 3 times"):
        load.write(Rows(busy, {ONE: (0, 3)}))
    assert not any(path.startswith(STAGING) for path in quiet.disk.files)


def test_a_log_is_of_one_folder() -> None:
    """Two loads of one name with one log between them: the positions of one say nothing about the other's files."""
    shared = Store(Disk(), lambda: None)

    def load(url: str) -> tuple[Store, FileLoad]:
        files, log = Store(Disk(), lambda: None), FileLog(shared, LOG, url)
        world = World(files._disk, abandoned_after_ms=1)
        return files, world.load(files, log)

    (one, first), (_, again), (two, second) = load("file:/one"), load("file:/one"), load("file:/two")
    assert first.write(Rows(one, {ONE: (0, 3), ("orders", 0): (0, 1)}))
    one._disk.files[f"{STAGING}/0-dead/part-0.parquet"] = []
    for _ in range(2):
        with pytest.raises(LoadFailed, match=r"memory:/disk/_rallypoint/log/0*1\.json is for file:/one, and not for f"):
            second.write(Rows(two, {ONE: (0, 3)}))
    assert not two._disk.files
    # What is said of the folder stays through a sweep and what is forgotten.
    assert first.forget("orders") == 1
    assert first.write(Rows(one, {ONE: (3, 5)}))
    assert (FileLog(shared, LOG, "file:/one").last().swept > 0, again.forget(TOPIC)) == (True, 1)
    assert FileLog(shared, LOG, "file:/one").last().folder == "file:/one"
    with pytest.raises(LoadFailed, match="is for file:/one, and not for that: a log belongs to one folder"):
        FileLog(shared, LOG).last()


def test_a_load_has_one_log() -> None:
    """One driver with a log elsewhere and one without would both write everything."""
    store = Store(Disk(), lambda: None)
    for _ in range(2):
        check_log_location(store, "_rallypoint/load/log-is-at", "log")
    with pytest.raises(
        LoadFailed, match="/load/log-is-at says that the log of this load is at log, and not at file:/l/load/log"
    ):
        check_log_location(store, "_rallypoint/load/log-is-at", "file:/l/load/log")


@pytest.mark.parametrize("partition", [0.0, "0", None])
@pytest.mark.parametrize("end", [3, Decimal(3)])
def test_what_cannot_be_noted_is_not_written_and_keeps_nobody_else_from_writing(partition: Any, end: Any) -> None:
    class Strange(Rows):
        def write(self, folder: str, above: Mapping[TopicPartition, int]) -> None:
            self._store._disk.files[f"{folder}/part-0.parquet"] = []

    quiet = Quiet()
    world, load, store = quiet.world(abandoned_after_ms=10**9)
    with pytest.raises(LoadFailed, match="this cannot be written to the log: "):
        load.write(Strange(store, {(TOPIC, partition): (0, end)}))
    assert not quiet.disk.made
    assert world.load(store).write(Rows(store, {ONE: (0, 3)}))
    assert len(list(quiet.disk.records())) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:30],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"swept": 0', '"swept": "0"'),
        lambda text: text.replace('"clicks": {', '"clicks": [], "more": {'),
        lambda text: text.replace('"0": 3', '"0.0": 3'),
        lambda text: text.replace('"0": 3', '"0": null'),
    ],
)
def test_an_entry_that_something_else_has_changed_is_named(change: Callable[[str], str]) -> None:
    quiet = Quiet()
    world, load, store = quiet.world()
    load.write(Rows(store, {ONE: (0, 3)}))
    (path,) = quiet.disk.made
    written = quiet.disk.files[path]
    assert isinstance(written, str)
    quiet.disk.files[path] = change(written)
    assert quiet.disk.files[path] != written
    for again in (load, world.load(store)):
        with pytest.raises(
            LoadFailed, match=rf"memory:/disk/{path} is no entry of a log \(.+\): it was changed or truncated"
        ):
            again.write(Rows(store, {ONE: (3, 4)}))
    quiet.disk.files[path] = written
    assert load.write(Rows(store, {ONE: (3, 4)}))


def test_new_rows_without_a_file_do_not_count_as_written() -> None:
    """As where their files lie in a folder that readers ignore."""

    class Hidden(Rows):
        def write(self, folder: str, above: Mapping[TopicPartition, int]) -> None:
            self._store.step()

    quiet = Quiet()
    _, load, store = quiet.world(abandoned_after_ms=10**9)
    with pytest.raises(LoadFailed, match="load: there are new rows, but no file was written"):
        load.write(Hidden(store, {ONE: (0, 3)}))
    assert not quiet.disk.files
    assert load.write(Rows(store, {ONE: (0, 3)}))
    # Nothing is new, so no file is missed.
    assert not load.write(Hidden(store, {ONE: (0, 3)}))
    assert not load.write(Hidden(store, {}))


def test_a_staging_folder_that_others_have_deleted_meanwhile_is_written_again() -> None:
    """It looks like one in which no file was made; the log tells them apart."""
    quiet = Quiet()
    world, load, store = quiet.world(abandoned_after_ms=1000)
    world.load(store).write(Rows(store, {TWO: (0, 1)}))
    written: list[str] = []

    class Slow(Rows):
        def write(self, folder: str, above: Mapping[TopicPartition, int]) -> None:
            written.append(folder)
            super().write(folder, above)
            if len(written) == 1:
                world._now_ms += 5000
                world.load(store).write(Rows(store, {TWO: (0, 1)}))
                assert not any(path.startswith(folder) for path in quiet.disk.files)

    assert load.write(Slow(store, {ONE: (0, 3)}))
    assert len(written) == 2
    assert sorted(quiet.disk.records()) == [*((TOPIC, 0, offset) for offset in range(3)), (TOPIC, 1, 0)]


@pytest.mark.parametrize("kept", [0, 1])
def test_a_log_that_has_lost_entries_is_noticed(kept: int) -> None:
    """As by a folder that was put in the place of another, without the log or with an old copy of it."""
    quiet = Quiet()
    _, load, store = quiet.world()
    for end in (3, 6):
        load.write(Rows(store, {ONE: (0, end)}))
    log = {path: quiet.disk.files.pop(path) for path in quiet.disk.made[kept:]}
    for _ in range(2):
        with pytest.raises(LoadFailed, match=f"load: the log ends at entry {kept}, and this driver has seen entry 2"):
            load.write(Rows(store, {ONE: (0, 9)}))
    quiet.disk.files.update(log)
    assert load.write(Rows(store, {ONE: (0, 9)}))
    assert sorted(quiet.disk.records()) == [(TOPIC, 0, offset) for offset in range(9)]


def test_an_entry_reads_as_it_was_written() -> None:
    entry = Entry(7, {("a", 0): 5, ("a", 11): 6, ("b", 2): 1}, "1-x", {"p": "q"}, 3, "file:/a")
    assert Entry.from_json(7, entry.to_json()) == entry
