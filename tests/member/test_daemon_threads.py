"""The pool of threads for calls that block: each kind has its own limit, and kinds share the threads."""

import asyncio
import threading

import pytest

from rallypoint.member.daemon_threads import DaemonThreads


def named_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name in {"reads", "asks"}}


async def test_a_kind_that_hangs_delays_no_other_kind_and_runs_as_often_as_its_limit_says() -> None:
    threads = DaemonThreads({"reads": 1, "asks": 2})
    may_return, asked = threading.Event(), threading.Semaphore(0)

    def hang() -> bool:
        asked.release()
        return may_return.wait(30)

    hanging = [asyncio.create_task(threads.call("asks", hang)) for _ in range(3)]
    assert all([await asyncio.to_thread(asked.acquire, timeout=30) for _ in range(2)])
    assert await threads.call("reads", lambda: "read") == "read"
    assert not asked.acquire(blocking=False), "the third waits for its turn"
    may_return.set()
    assert await asyncio.gather(*hanging) == [True] * 3
    threads.close()
    assert not named_threads()


async def test_work_for_which_no_thread_could_begin_is_done_by_no_other() -> None:
    threads = DaemonThreads({"reads": 1, "asks": 1})
    done: list[str] = []
    before = threading.stack_size(1 << 46)  # more than any system gives
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await threads.call("reads", lambda: done.append("refused"))
    finally:
        threading.stack_size(before)
    await threads.wait_idle("reads", "asks")
    await threads.call("asks", lambda: done.append("asked"))
    await threads.call("reads", lambda: done.append("read"))
    assert done == ["asked", "read"]
    threads.close()
    assert not named_threads()


async def test_an_idle_thread_takes_the_next_call_of_any_kind_under_its_name() -> None:
    threads = DaemonThreads({"reads": 1, "asks": 1})
    seen = []
    for kind in ("reads", "asks", "reads"):
        seen.append(await threads.call(kind, lambda: (threading.current_thread(), threading.current_thread().name)))
        while threads._idle == 0:  # noqa: ASYNC110 - the thread tells nobody
            await asyncio.sleep(0.001)
    assert named_threads() == {thread for thread, _ in seen}
    assert len(named_threads()) == 1
    assert [name for _, name in seen] == ["reads", "asks", "reads"]
    threads.close()
    assert not named_threads()


async def test_what_is_idle_is_known_by_kind_and_counts_calls_whose_caller_is_gone() -> None:
    threads = DaemonThreads({"reads": 1, "asks": 1})
    may_return, begun = threading.Event(), threading.Event()

    def hang() -> bool:
        begun.set()
        return may_return.wait(30)

    caller = asyncio.create_task(threads.call("asks", hang))
    assert await asyncio.to_thread(begun.wait, 30)
    caller.cancel()
    await asyncio.wait({caller})
    await threads.wait_idle("reads")
    idle = asyncio.create_task(threads.wait_idle("reads", "asks"))
    await asyncio.sleep(0.01)
    assert not idle.done()
    may_return.set()
    await idle
    threads.close()
