"""The consumer for programs without asyncio: the same methods, waiting. Nothing about groups is decided here.

An event loop in a thread of its own carries the member; the handler, the source and the hooks run in further threads,
so they may block and take their time: heartbeats go on, and a stuck handler is noticed.
"""

import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from rallypoint.member.assignment import Assignment
from rallypoint.member.client import GroupMember
from rallypoint.member.consumer.batch import Batch
from rallypoint.member.consumer.consumer import Consumer
from rallypoint.member.consumer.contract import (
    BlockingCounts,
    BlockingSource,
    Counts,
    MakeMember,
    Offsets,
    Source,
    TopicPartition,
)
from rallypoint.member.consumer.options import ConsumerOptions
from rallypoint.member.consumer.threads import ASKED_AT_ONCE, threaded_in
from rallypoint.member.daemon_threads import DaemonThreads
from rallypoint.member.errors import MemberClosed
from rallypoint.member.loop_thread import LoopThread, run_in_thread
from rallypoint.member.observer import Observer
from rallypoint.protocol.messages import CommittedOffset

R = TypeVar("R")
A = TypeVar("A")

BlockingHandler = Callable[[Batch[R]], object]
"""As `Handler`, but may block."""

BlockingHook = Callable[[Assignment], object]

READS_MAX = 8
"""How many calls of the source run at once, beside the questions where partitions end."""


class BlockingConsumer(Generic[R]):
    """As `Consumer`; its methods may be called from any thread, and wait. The handler runs in threads of its own, as
    many as `concurrency`. `source` may be one for asyncio, too. Neither the handler nor a hook may call `stop`; they
    may call `request_stop`.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        source: BlockingSource[R] | Source[R],
        handler: BlockingHandler[R] | None = None,
        *,
        partition_counts: BlockingCounts | Mapping[str, int] | None = None,
        on_assigned: BlockingHook | None = None,
        on_revoked: BlockingHook | None = None,
        on_lost: BlockingHook | None = None,
        observer: Observer | None = None,
        make_member: MakeMember = GroupMember,
    ) -> None:
        self._handlers = DaemonThreads("rallypoint-handler", options.concurrency)
        self._readers = DaemonThreads("rallypoint-source", READS_MAX)
        self._askers = DaemonThreads("rallypoint-ends", ASKED_AT_ONCE)
        self._hooks = DaemonThreads("rallypoint-callback", 1)
        self._loop = LoopThread("rallypoint-consumer")
        self._inside = threading.local()
        self._has_handler = handler is not None
        self._stop_asked = False
        self._closing = threading.Lock()
        self._consumer: Consumer[R] = Consumer(
            options,
            threaded_in(source, self._readers, self._askers),
            None if handler is None else self._in(self._handlers, handler),
            partition_counts=self._asking(partition_counts) if callable(partition_counts) else partition_counts,
            on_assigned=None if on_assigned is None else self._in(self._hooks, on_assigned),
            on_revoked=None if on_revoked is None else self._in(self._hooks, on_revoked),
            on_lost=None if on_lost is None else self._in(self._hooks, on_lost),
            observer=observer,
            make_member=make_member,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish_batch()
        self.stop()

    def run(self) -> None:
        """As `Consumer.run`. A KeyboardInterrupt stops it in order, and goes on when it has stopped."""
        if not self._has_handler:
            raise RuntimeError("there is no handler to run: start the consumer, and poll")
        self.start()
        try:
            self.wait_ended()
        finally:
            self.stop()

    def start(self) -> None:
        """As `Consumer.start`. If `request_stop` came before, as from a signal, nothing is begun."""
        self._loop.start()
        self._loop.wait(self._start)

    async def _start(self) -> None:
        if self._stop_asked:
            self._consumer.request_stop()
        await self._consumer.start()

    def request_stop(self) -> None:
        """As `Consumer.request_stop`. May be called from a handler, a hook or a signal handler."""
        self._stop_asked = True  # the loop may not run yet, and then hears of nothing
        self._loop.tell(self._consumer.request_stop)

    def stop(self, timeout_ms: int | None = None) -> None:
        """As `Consumer.stop`; its threads are gone when it returns, but for those of handlers that do not return."""
        if getattr(self._inside, "now", False):
            raise RuntimeError("a handler or hook cannot wait for stop(), which waits for it; call request_stop()")
        self._loop.finish(lambda: self._consumer.stop(timeout_ms))
        if not self._loop.started:
            with self._closing:
                run_in_thread(self._consumer.stop)
        for threads in (self._handlers, self._readers, self._askers, self._hooks):
            threads.close()

    def poll(self, timeout_ms: int | None = None) -> Batch[R] | None:
        """As `Consumer.poll`; for one thread, since it says that the batch before is handled, whoever has that."""
        try:
            return self._loop.wait(lambda: self._consumer.poll(timeout_ms))
        except Exception:
            raise
        except BaseException:  # an interrupt from the keyboard: nobody has seen what came at that moment
            self.give_back_batch()
            raise

    def __iter__(self) -> Self:
        """As `Consumer.__aiter__`."""
        return self

    def __next__(self) -> Batch[R]:
        """As `Consumer.__anext__`."""
        try:
            batch = self.poll()
        except MemberClosed:
            if not self._loop.started or self.error is not None:
                raise
            raise StopIteration from None
        assert batch is not None, "it waits without a limit"
        return batch

    def finish_batch(self) -> None:
        """As `Consumer.finish_batch`."""
        self._loop.tell(self._consumer.finish_batch)

    def give_back_batch(self) -> None:
        """As `Consumer.give_back_batch`."""
        self._loop.tell(self._consumer.give_back_batch)

    def wait_ended(self) -> None:
        """As `Consumer.wait_ended`."""
        self._loop.wait(self._consumer.wait_ended)

    @property
    def error(self) -> Exception | None:
        """As `Consumer.error`."""
        return self._consumer.error

    @property
    def member_id(self) -> str:
        """As `Consumer.member_id`."""
        return self._consumer.member_id

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """As `Consumer.assignment`."""
        return self._consumer.assignment

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """As `Consumer.positions`."""
        return self._ask(lambda: self._consumer.positions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """As `Consumer.paused`."""
        return self._ask(lambda: self._consumer.paused)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.pause`."""
        self._ask(lambda: self._consumer.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.resume`."""
        self._ask(lambda: self._consumer.resume(partitions))

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """As `Consumer.seek`."""
        self._ask(lambda: self._consumer.seek(topic_partition, offset))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.seek_to_beginning`."""
        self._loop.wait(lambda: self._consumer.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.seek_to_end`."""
        self._loop.wait(lambda: self._consumer.seek_to_end(partitions))

    def position(self, topic_partition: TopicPartition) -> int | None:
        """As `Consumer.position`."""
        return self._ask(lambda: self._consumer.position(topic_partition))

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """As `Consumer.committed`."""
        return self._loop.wait(lambda: self._consumer.committed(partitions))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Consumer.beginning_offsets`."""
        return self._loop.wait(lambda: self._consumer.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Consumer.end_offsets`."""
        return self._loop.wait(lambda: self._consumer.end_offsets(partitions))

    def commit(self, offsets: Offsets | None = None, *, generation_id: int | None = None) -> None:
        """As `Consumer.commit`. A handler and `on_revoked` may call it."""
        self._loop.wait(lambda: self._consumer.commit(offsets, generation_id=generation_id))

    # --- inside ------------------------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[], A]) -> A:
        async def ask() -> A:
            return question()

        return self._loop.wait(ask)

    def _asking(self, counts: BlockingCounts) -> Counts:
        async def ask(topics: frozenset[str] | None) -> Mapping[str, int]:
            return await self._readers.call(lambda: counts(topics))

        return ask

    def _in(self, threads: DaemonThreads, call: Callable[[Any], object]) -> Callable[[Any], Awaitable[None]]:
        """`call` as a coroutine function that runs it in one of these threads."""

        def run(argument: object) -> None:
            self._inside.now = True
            try:
                call(argument)
            finally:
                self._inside.now = False

        async def wait(argument: object) -> None:
            await threads.call(lambda: run(argument))

        return wait
