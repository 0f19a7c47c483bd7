"""The consumer for programs without asyncio: the same methods, waiting. Nothing about groups is decided here.

An event loop in a thread of its own carries the member; the handler, the source and the hooks run in further threads,
so they may block and take their time: heartbeats go on, and a stuck handler is noticed.
"""

import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from rallypoint.member.assignment import Assignment
from rallypoint.member.blocking_runtime import BlockingRuntime
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
from rallypoint.member.consumer.options import ConsumerOptions, check_options
from rallypoint.member.consumer.threaded_source import COUNTS_AT_ONCE, source_limits, threaded_in
from rallypoint.member.errors import MemberClosed
from rallypoint.member.loop_thread import run_in_thread
from rallypoint.member.observer import Observer
from rallypoint.member.user_code import check_plain
from rallypoint.protocol.messages import CommittedOffset

R = TypeVar("R")
T = TypeVar("T")

BlockingHandler = Callable[[Batch[R]], object]
"""As `Handler`, but may block."""

BlockingHook = Callable[[Assignment], object]

HANDLERS = "rallypoint-handler"
CALLBACKS = "rallypoint-callback"

COUNTS = "rallypoint-counts"
"""The threads of the user's `partition_counts`, which are no calls of the source: neither waits for the other."""


class BlockingConsumer(Generic[R]):
    """As `Consumer`, for programs without asyncio. Its methods wait, and may be called from any thread.

    The handler, the source and the hooks run in threads, so they may block. Neither the handler nor a hook may call
    `stop`; they may call `request_stop`.

    Args:
        options: As `Consumer`; the handler runs in `concurrency` threads at once.
        source: A blocking source, of which up to 8 calls run at once, or a source for asyncio.
        handler: As `Consumer`, as a plain function.
        partition_counts: As `Consumer`; a function may block.
        on_assigned: As `Consumer`, as a plain function.
        on_revoked: As `Consumer`, as a plain function.
        on_lost: As `Consumer`, as a plain function.
        observer: As `Consumer`: called in the event loop, so it must not block.
        make_member: For tests: `BlockingFakeGroup.make_member` of `rallypoint.testing`.
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
        check_options(options)
        self._runtime = BlockingRuntime(
            "rallypoint-consumer",
            {HANDLERS: options.concurrency, CALLBACKS: 1, COUNTS: COUNTS_AT_ONCE, **source_limits()},
        )
        self._has_handler = handler is not None
        self._stop_asked = False
        self._has_stopped = False
        self._closing = threading.Lock()
        awaitable = self._runtime.awaitable
        self._consumer: Consumer[R] = Consumer(
            options,
            threaded_in(source, self._runtime.threads),
            None if handler is None else awaitable(HANDLERS, handler),
            partition_counts=self._asking(partition_counts) if callable(partition_counts) else partition_counts,
            on_assigned=None if on_assigned is None else awaitable(CALLBACKS, on_assigned),
            on_revoked=None if on_revoked is None else awaitable(CALLBACKS, on_revoked),
            on_lost=None if on_lost is None else awaitable(CALLBACKS, on_lost),
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
        """As `Consumer.run`. A KeyboardInterrupt stops the consumer in order, and is raised when it has stopped."""
        if not self._has_handler:
            raise RuntimeError("there is no handler to run: start the consumer, and poll")
        self.start()
        try:
            self.wait_ended()
        finally:
            self.stop()

    def start(self) -> None:
        """As `Consumer.start`."""
        self._runtime.loop.start()
        self._runtime.loop.wait(self._start)

    async def _start(self) -> None:
        if self._stop_asked:
            self._consumer.request_stop()
        await self._consumer.start()

    def request_stop(self) -> None:
        """As `Consumer.request_stop`. May be called from a handler, a hook or a signal handler."""
        self._stop_asked = True  # the loop may not run yet, and then hears of nothing
        self._runtime.loop.call_soon(self._consumer.request_stop)

    def stop(self, timeout_ms: int | None = None) -> None:
        """As `Consumer.stop`. Its threads have ended when it returns, but for those of handlers that do not return."""
        if self._runtime.in_user_code:
            raise RuntimeError("a handler or hook cannot wait for stop(), which waits for it; call request_stop()")
        ran = self._runtime.loop.running
        self._runtime.loop.finish(lambda: self._consumer.stop(timeout_ms))
        self._has_stopped |= ran
        if not self._runtime.loop.started:
            with self._closing:
                run_in_thread(self._consumer.stop)
        self._runtime.threads.close()

    def poll(self, timeout_ms: int | None = None) -> Batch[R] | None:
        """As `Consumer.poll`. Call it from one thread, because it declares the previous batch handled."""
        try:
            return self._wait(lambda: self._consumer.poll(timeout_ms))
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
            if not self._runtime.loop.started or self.error is not None:
                raise
            raise StopIteration from None
        assert batch is not None, "it waits without a limit"
        return batch

    def finish_batch(self) -> None:
        """As `Consumer.finish_batch`."""
        self._runtime.loop.call_soon(self._consumer.finish_batch)

    def give_back_batch(self) -> None:
        """As `Consumer.give_back_batch`."""
        self._runtime.loop.call_soon(self._consumer.give_back_batch)

    def wait_ended(self) -> None:
        """As `Consumer.wait_ended`."""
        try:
            self._wait(self._consumer.wait_ended)
        except MemberClosed:
            if not self._has_stopped:
                raise

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
        return self._runtime.ask(lambda: self._consumer.positions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """As `Consumer.paused`."""
        return self._runtime.ask(lambda: self._consumer.paused)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.pause`."""
        self._runtime.ask(lambda: self._consumer.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.resume`."""
        self._runtime.ask(lambda: self._consumer.resume(partitions))

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """As `Consumer.seek`."""
        self._runtime.ask(lambda: self._consumer.seek(topic_partition, offset))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.seek_to_beginning`."""
        self._wait(lambda: self._consumer.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.seek_to_end`."""
        self._wait(lambda: self._consumer.seek_to_end(partitions))

    def position(self, topic_partition: TopicPartition) -> int | None:
        """As `Consumer.position`."""
        return self._runtime.ask(lambda: self._consumer.position(topic_partition))

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """As `Consumer.committed`."""
        return self._wait(lambda: self._consumer.committed(partitions))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Consumer.beginning_offsets`."""
        return self._wait(lambda: self._consumer.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Consumer.end_offsets`."""
        return self._wait(lambda: self._consumer.end_offsets(partitions))

    def commit(self, offsets: Offsets | None = None, *, generation_id: int | None = None) -> None:
        """As `Consumer.commit`. A handler and `on_revoked` may call it."""
        self._wait(lambda: self._consumer.commit(offsets, generation_id=generation_id))

    # --- inside ------------------------------------------------------------------------------------------------------

    def _wait(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Once the loop has ended, the error that stopped the consumer says more than that it has stopped."""
        try:
            return self._runtime.loop.wait(call)
        except MemberClosed:
            if self.error is not None:
                raise self.error from None
            raise

    def _asking(self, counts: BlockingCounts) -> Counts:
        """Not by `awaitable`: nothing waits for the counts, so they may call `stop`."""
        check_plain(counts)

        async def ask(topics: frozenset[str] | None) -> Mapping[str, int]:
            return await self._runtime.threads.call(COUNTS, lambda: counts(topics))

        return ask
