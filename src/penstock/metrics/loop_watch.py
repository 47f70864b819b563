"""How busy an event loop is: its longest turn lately, and the share of time that it computes.

A timer that is due every 20 ms measures how late it runs. So a turn is seen as up to 20 ms shorter
than it was, and nothing is added to the turns themselves. While the loop hardly works the timer is
due every second, so that an idle process sleeps; a lone turn there is seen only if the timer was
due in it.
"""

import asyncio
import time
from collections import deque
from typing import Final

TICK_S: Final = 0.02
IDLE_TICK_S: Final = 1.0
IDLE_RATIO: Final = 0.05  # of CPU time: less is idle, unless a turn was long
LONG_TURN_S: Final = 0.1
WINDOW_S: Final = 10.0
WINDOWS: Final = 6  # what is shown covers the last minute


class LoopWatch:
    """Watches the running loop from `start` to `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._longest: deque[float] = deque([0.0], maxlen=WINDOWS)
        self._due_at = self._window_ends_at = 0.0
        self.tick_s: float = TICK_S  # between two looks
        self._judged_at = self._judged_cpu_s = self._longest_since_s = 0.0
        self._busy: deque[tuple[float, float]] = deque(maxlen=WINDOWS)  # time, CPU time

    def start(self) -> None:
        now = self._loop.time()
        self._window_ends_at = now + WINDOW_S
        self._judged_at, self._judged_cpu_s = now, time.thread_time()
        self._busy.append((now, self._judged_cpu_s))
        self._wait(now)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def turn_max_s(self) -> float:
        """The longest turn of the last minute."""
        return max(*self._longest, self._longest_since_s)

    @property
    def busy_ratio(self) -> float:
        """CPU time of the loop's thread per second, in the last minute."""
        began_at, spent_s = self._busy[0]
        passed_s = self._loop.time() - began_at
        return min((time.thread_time() - spent_s) / passed_s, 1.0) if passed_s > 0 else 0.0

    def _wait(self, now: float) -> None:
        self._due_at = now + self.tick_s
        self._timer = self._loop.call_at(self._due_at, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        late_s = now - self._due_at
        if late_s > self._longest_since_s:
            self._longest_since_s = late_s
        if now - self._judged_at >= IDLE_TICK_S:
            self._judge(now)
        self._wait(now)

    def _judge(self, now: float) -> None:
        """Once a second: keep what was seen, and choose how closely to look at the next one."""
        cpu_s = time.thread_time()
        busy_ratio = (cpu_s - self._judged_cpu_s) / (now - self._judged_at)
        is_idle = busy_ratio < IDLE_RATIO and self._longest_since_s < LONG_TURN_S
        self.tick_s = IDLE_TICK_S if is_idle else TICK_S
        self._judged_at, self._judged_cpu_s = now, cpu_s
        self._longest[-1] = max(self._longest[-1], self._longest_since_s)
        self._longest_since_s = 0.0
        if now >= self._window_ends_at:
            self._window_ends_at = now + WINDOW_S
            self._longest.append(0.0)
            self._busy.append((now, cpu_s))
