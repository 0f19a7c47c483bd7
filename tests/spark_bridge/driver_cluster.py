"""Several drivers that read one topic: their processes, their ledgers, and who has which partitions."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.spark_bridge.driver_process import DriverProcess, HeldBatch, IdleDrivers
from tests.spark_bridge.driver_program import Spec
from tests.spark_bridge.ledger import LedgerFiles, Place
from tests.spark_bridge.spark_run import PATIENCE_SECONDS, wait_until
from tests.spark_bridge.topic_fixture import TopicFixture, describe

PRODUCING_SECONDS = 3.0


class DriverCluster(TopicFixture):
    """A topic read by drivers that are processes of their own. A driver's member bears its name.

    `files`: where they write to, exactly once, beside the ledger.
    """

    def __init__(
        self,
        idle: IdleDrivers,
        url: str,
        path: Path,
        partitions: int,
        options: Mapping[str, str],
        files: Path | None = None,
    ) -> None:
        super().__init__(url, path, partitions)
        self._idle = idle
        self._options = options
        self._into = files
        self._folder = path.parent / f"{path.name}-drivers"
        self._folder.mkdir()
        self._files = LedgerFiles(self._folder)
        self.ledger = self._files.ledger
        self.drivers: list[DriverProcess] = []
        self._wanted = threading.Event()
        self._known: dict[str, int] = {}
        """The lines of a driver up to the last failure that was waited for."""

    def open(self, name: str) -> DriverProcess:
        """A driver, to `begin` with: one that is there, or a new one, which is ready some seconds later."""
        driver = self._idle.take(name)
        self.drivers.append(driver)
        return driver

    def begin(self, driver: DriverProcess, checkpoint: str = "") -> None:
        """Start its query, whose checkpoint is named as the driver is, or so."""
        options = self.options(clientId=driver.name, **self._options)
        ledger, place = self._folder / f"{driver.name}.ledger", self._checkpoint(checkpoint or driver.name)
        driver.begin(Spec(options, ledger, place, files=self._into))

    def give_back(self) -> None:
        """Let other tests have the drivers that were not killed: the last step of one that found nothing wrong."""
        while self.drivers:
            if self.drivers[-1].is_running:
                self._idle.give_back(self.drivers[-1])
            # Not before: `close` kills one that does not become idle.
            self.drivers.pop()

    def close(self) -> None:
        """Kill what still runs, and was not given back."""
        for driver in self.drivers:
            driver.make_sure_it_is_gone()

    def read(self) -> None:
        """Take over into the ledger what the drivers have written so far."""
        self._files.read()

    def shares(self) -> dict[str, set[int]]:
        """The partitions of each driver by the group's assignment; empty while there is none."""
        group = describe(self.url, self.group)
        if group["state"] != "Stable":
            return {}
        return {
            member["client_id"]: {
                partition for partitions in member["assignment"]["partitions"].values() for partition in partitions
            }
            for member in group["members"]
        }

    def wait_for_end(self, driver: DriverProcess, batch: HeldBatch) -> None:
        """Until the query has ended this batch, by Spark's own account. The checkpoint is named as the driver is."""
        ended = self._checkpoint(driver.name) / "commits" / str(batch.number)
        wait_until(ended.exists, f"the batch that {driver.name} had in hand to end", failed=self.find_failure)

    def _checkpoint(self, name: str) -> Path:
        return self._folder / f"checkpoint-{name}"

    def wait_for_shares(self, *drivers: DriverProcess) -> dict[str, set[int]]:
        """Until these have all partitions among them, none more than one above another."""
        wanted = {driver.name for driver in drivers}

        def are_shared() -> bool:
            shares = self.shares()
            sizes = [len(share) for share in shares.values()]
            return shares.keys() == wanted and sum(sizes) == len(self.ends) and max(sizes) - min(sizes) <= 1

        wait_until(are_shared, f"equal shares for {sorted(wanted)}", failed=self.find_failure)
        return self.shares()

    def wait_for_reading(self, *drivers: DriverProcess) -> None:
        """Until each has its share, and has read of each of its partitions what was produced since. Needs producing."""
        self.wait_for_reading_since(list(self.ends), self.wait_for_shares(*drivers))

    def wait_for_reading_since(self, ends: Sequence[int], shares: Mapping[str, set[int]]) -> None:
        """Until each driver has read of each partition of its share what was produced after it had this end."""

        self._wanted.set()

        def are_read() -> bool:
            self.read()
            return all(
                share <= {p for _, p, offset in self.ledger.by(name) if offset >= ends[p]}
                for name, share in shares.items()
            )

        wait_until(are_read, f"all to read their {shares}", failed=self.find_failure)

    def wait_for_all(self) -> None:
        """Until everything is committed. By then it must be written, which is the caller's to check."""
        wait_until(
            lambda: self.committed() == self.ends,
            "everything to be committed",
            failed=self.find_failure,
        )
        self.read()

    def wait_for_others(self, driver: DriverProcess, batch: HeldBatch) -> None:
        """Until the group has committed this batch, which is the work of others: the driver has it in hand still.

        AssertionError if its records were not written by others then.
        """

        def is_committed() -> bool:
            committed = self.committed()
            return all(offset < committed[partition] for _, partition, offset in batch.places)

        wait_until(is_committed, f"others to commit the batch of {driver.name}", failed=self.find_failure)
        self.read()
        others: set[Place] = set()
        for name in {name for batches in self.ledger.written.values() for name, _ in batches} - {driver.name}:
            others |= self.ledger.by(name)
        lost = sorted(batch.places - others)
        assert not lost, f"committed, but written by {driver.name} at the most: {lost[:20]}"

    @contextmanager
    def producing(self) -> Iterator[None]:
        """A record a partition meanwhile: whenever somebody begins to wait for reading, and now and then besides. Not
        more often, for a batch takes a driver half a second of CPU time, however small.
        """
        ended = threading.Event()

        def produce() -> None:
            while not ended.is_set():
                self._wanted.wait(PRODUCING_SECONDS)
                self._wanted.clear()
                self.produce(1)

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            self._wanted.set()
            thread.join()

    def wait_for_failure(self, driver: DriverProcess) -> str:
        """Until its query has failed, as it should; the sentence."""
        mark = self._known.get(driver.name, 0)
        line = driver.wait_for("failed", since=mark, seconds=PATIENCE_SECONDS)
        self._known[driver.name] = driver.lines.index(line) + 1
        return str(line.more["sentence"])

    def find_failure(self) -> str:
        """What a driver says that has failed and should not have; empty while none has."""
        return "".join(
            driver.show()
            for driver in self.drivers
            if any(line.what == "failed" for line in driver.lines[self._known.get(driver.name, 0) :])
        )
