"""The loads, against connections without a network: what is counted, and from when."""

import asyncio
from typing import cast

from bench.line import Answer, ConnectionBrokenError, Line
from bench.load import run_closed, run_paced

OK = Answer(200, b"{}")


class FakeConnection:
    """Answers after a while; the last of its answers is for good."""

    def __init__(self, *answers: Answer | Exception, seconds: float = 0.0) -> None:
        self.sent: list[bytes] = []
        self._answers = list(answers)
        self._seconds = seconds

    async def exchange(self, frame: bytes) -> Answer:
        self.sent.append(frame)
        await asyncio.sleep(self._seconds)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def connections(*fakes: FakeConnection) -> list[Line]:
    return [cast(Line, fake) for fake in fakes]


def frame_of(index: int, number: int) -> bytes:
    return f"{index}:{number}".encode()


def fault_of(index: int, number: int, answer: Answer) -> str | None:
    return None if answer == OK else f"{index}:{number} got {answer.status}"


async def test_a_closed_load_counts_every_answer_and_numbers_its_requests() -> None:
    first, second = FakeConnection(OK), FakeConnection(OK, Answer(500, b""), OK)
    tally = await run_closed(connections(first, second), frame_of, fault_of, seconds=0.02)
    assert first.sent[:2] == [b"0:0", b"0:1"]
    assert second.sent[:3] == [b"1:0", b"1:1", b"1:2"]
    assert tally.count == len(first.sent) + len(second.sent)
    assert tally.errors == ["1:1 got 500"]


async def test_a_broken_connection_is_an_error_and_the_others_go_on() -> None:
    whole, broken = FakeConnection(OK), FakeConnection(ConnectionBrokenError("gone"))
    tally = await run_closed(connections(broken, whole), frame_of, fault_of, seconds=0.02)
    assert (tally.error_count, tally.errors) == (1, ["gone"])
    assert len(broken.sent) == 1
    assert len(tally.latencies_s) == len(whole.sent) > 1


async def test_a_paced_load_sends_one_request_an_interval() -> None:
    fakes = [FakeConnection(OK) for _ in range(5)]
    tally = await run_paced(connections(*fakes), frame_of, fault_of, interval_s=0.01, seconds=0.03)
    assert [len(fake.sent) for fake in fakes] == [3] * 5
    assert tally.count == 15


async def test_a_paced_latency_counts_from_when_the_request_was_due() -> None:
    slow = FakeConnection(OK, seconds=0.01)
    tally = await run_paced(connections(slow), frame_of, fault_of, interval_s=0.001, seconds=0.004)
    assert tally.count == 4
    assert tally.latencies_s[-1] >= 0.036
