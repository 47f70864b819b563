"""Holds a reader to a number of bytes a second, averaged over the time it works."""

import time
from collections.abc import Callable


class Throttle:
    """Call `pay` after each piece of work; it sleeps when the work ran ahead of the rate."""

    def __init__(
        self,
        bytes_per_second: int | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._paid_until = clock()  # the time that the bytes so far are worth

    def pay(self, size_bytes: int) -> None:
        if self._bytes_per_second is None:
            return
        now = self._clock()
        # Time in which nothing was read is not saved up for a burst.
        self._paid_until = max(self._paid_until, now - 1) + size_bytes / self._bytes_per_second
        if self._paid_until > now:
            self._sleep(self._paid_until - now)
