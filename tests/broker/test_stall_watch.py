"""A process that was paused detects the pause before it serves the next request."""

import asyncio

import pytest

from penstock.broker.stall_watch import StallWatch


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_first_request_after_a_stall_reports_it_once() -> None:
    clock, stalls = Clock(), list[float]()
    watch = StallWatch(1.0, stalls.append, clock)
    watch.check()
    clock.now_s += 0.9
    watch.check()
    assert stalls == []
    clock.now_s += 5.0
    watch.check()
    watch.check()
    assert stalls == [pytest.approx(5.9)]


def test_a_loop_that_turns_is_not_stalled() -> None:
    clock, stalls = Clock(), list[float]()

    async def run() -> None:
        watch = StallWatch(0.02, stalls.append, clock)
        watch.start()
        for _ in range(5):
            await asyncio.sleep(0.01)  # the loop ticks meanwhile
            clock.now_s += 0.015
            watch.check()
            await asyncio.sleep(0.01)
        watch.close()

    asyncio.run(run())
    assert stalls == []
