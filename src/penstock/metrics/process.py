"""The metrics that every process of the platform has."""

import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.metrics import process_rows as rows
from penstock.metrics.loop_watch import LoopWatch
from penstock.metrics.text_format import Family
from penstock.version import __version__

_PAGE_BYTES: Final = resource.getpagesize()
_MEMORY: Final = Path("/proc/self/statm")


class ProcessMetrics:
    """Version, age, readiness, event loop, CPU and memory of this process."""

    def __init__(self, watch: LoopWatch) -> None:
        self._watch = watch
        self._started_at_s = time.time()

    def families(self, *, is_ready: bool) -> Iterator[Family]:
        yield rows.BUILD_INFO, [((__version__,), 1)]
        yield rows.START_TIME_SECONDS, [((), round(self._started_at_s, 3))]
        yield rows.HEALTH_READY, [((), int(is_ready))]
        yield rows.LOOP_TURN_MAX_SECONDS, [((), round(self._watch.turn_max_s, 6))]
        yield rows.LOOP_BUSY_RATIO, [((), round(self._watch.busy_ratio, 4))]
        yield rows.CPU_SECONDS, [((), round(time.process_time(), 3))]
        yield rows.RESIDENT_BYTES, [((), _resident_bytes())]


def _resident_bytes() -> int:
    return int(_MEMORY.read_text().split()[1]) * _PAGE_BYTES
