"""Log lines that repeat: at most one per key and interval; the next one counts those left out."""

import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Final

INTERVAL_S: Final = 60.0
KEYS_MAX: Final = 1000  # beyond that all keys are dropped, and may be logged again


class RateLimitedLog:
    """Safe for threads. Use keys with few values, such as a reason."""

    def __init__(
        self,
        logger: logging.Logger,
        *,
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._interval_s = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._logged: dict[Hashable, tuple[float, int]] = {}  # when, and how many left out since

    def log(self, key: Hashable, level: int, text: str, *arguments: Any) -> None:
        """Log a line unless one with this key was logged less than an interval ago."""
        now_s = self._clock()
        with self._lock:
            logged_s, left_out = self._logged.get(key, (None, 0))
            if logged_s is not None and now_s - logged_s < self._interval_s:
                self._logged[key] = (logged_s, left_out + 1)
                return
            if len(self._logged) >= KEYS_MAX:
                self._logged.clear()
            self._logged[key] = (now_s, 0)
        if left_out:
            text += " (%d more like this were not logged)"
            arguments = (*arguments, left_out)
        self._logger.log(level, text, *arguments)
