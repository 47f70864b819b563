"""A fetch that waits: news that keeps coming is one answer, and none waits for long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.broker import waiting
from penstock.broker.waiting import GATHER_S, LongPoll


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(waiting, "perf_counter", clock)
    return clock


def a_poll(partition: Any, *, missing_bytes: int = 1, wait_s: float = 60) -> LongPoll:
    return LongPoll(
        [partition],
        committed_only=False,
        missing_bytes=missing_bytes,
        wait_s=wait_s,
        on_end=lambda answer: answer.set_result("read"),
    )


class Partition:
    """As much of one as a poll looks at."""

    def __init__(self) -> None:
        self.polls: set[LongPoll] = set()


async def turns(poll: LongPoll, partition: Any, news: int, clock: Clock, turn_s: float) -> int:
    """How many turns of the loop pass until the answer, the first of them with news."""
    for turn in range(1, 50):
        if turn <= news:
            poll.on_readable(partition, 10)
        clock.now_s += turn_s
        await asyncio.sleep(0)
        if poll.answer.done():
            return turn
    raise AssertionError("never answered")


def test_what_comes_once_is_answered_in_the_turn_after(clock: Clock) -> None:
    async def scene() -> None:
        partition = Partition()
        poll = a_poll(partition)
        assert await turns(poll, partition, 1, clock, turn_s=0.0) == 2
        await asyncio.sleep(0)
        assert partition.polls == set()

    asyncio.run(scene())


def test_what_comes_turn_after_turn_is_one_answer(clock: Clock) -> None:
    async def scene() -> None:
        partition = Partition()
        assert await turns(a_poll(partition), partition, 20, clock, turn_s=0.0) == 21

    asyncio.run(scene())


def test_no_answer_waits_longer_for_more_than_it_may(clock: Clock) -> None:
    async def scene() -> None:
        partition = Partition()
        assert await turns(a_poll(partition), partition, 20, clock, turn_s=GATHER_S / 4) <= 5

    asyncio.run(scene())


def test_too_little_is_no_news(clock: Clock) -> None:
    async def scene() -> None:
        partition = Partition()
        poll = a_poll(partition, missing_bytes=25)
        assert await turns(poll, partition, 3, clock, turn_s=0.0) == 4

    asyncio.run(scene())
