"""The check that no test leaves a connection open finds one that does."""

import asyncio
import threading

from tests.open_connections import LEFT_OPEN, take_left_open

KEPT: list[asyncio.StreamWriter] = []
"""Holds what is left open, so that the collector does not come before the check."""


async def connect(*, and_close: bool) -> None:
    server = await asyncio.start_server(lambda _, accepted: accepted.close(), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == b"", "the other end was accepted, and is closed"
    server.close()
    KEPT.append(writer)
    if and_close:
        writer.close()


def test_a_connection_that_is_left_open_is_found_and_closed() -> None:
    asyncio.run(connect(and_close=False))
    (found,) = take_left_open()
    assert "SocketTransport" in found
    assert KEPT.pop().get_extra_info("socket").fileno() == -1


def test_so_is_one_of_a_loop_in_a_thread() -> None:
    thread = threading.Thread(target=asyncio.run, args=(connect(and_close=False),))
    thread.start()
    thread.join()
    assert len(take_left_open()) == 1
    KEPT.clear()


def test_nothing_is_found_where_the_end_was_begun() -> None:
    asyncio.run(connect(and_close=True))
    assert not LEFT_OPEN
    KEPT.clear()
