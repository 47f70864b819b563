"""The compaction worker: `python -m penstock.upkeep.worker`, started by the broker.

Reads jobs from standard input, one at a time, and writes results to standard output (see `jobs`).
Runs at the lowest CPU and disk priority and has no state between jobs: it may be killed at any
moment. It ends with its input, or within a job when the broker has ended.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import BinaryIO, Final

import psutil

from penstock.errors import Malformed
from penstock.upkeep.compact_partition import clean
from penstock.upkeep.jobs import (
    LENGTH,
    Cleaned,
    CleanJob,
    CorruptLog,
    JobFailed,
    read_job,
    write_result,
)


class Throttle:
    """Limits the bytes per second: `pay` sleeps when more were read."""

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
        self._paid_until = clock()  # when the bytes so far would be read at the limit

    def pay(self, size_bytes: int) -> None:
        if self._bytes_per_second is None:
            return
        now = self._clock()
        # Idle time does not allow a burst later.
        self._paid_until = max(self._paid_until, now - 1) + size_bytes / self._bytes_per_second
        if self._paid_until > now:
            self._sleep(self._paid_until - now)


logger: Final = logging.getLogger(__name__)

_NICE_MAX: Final = 19


def main() -> None:
    """Run jobs until the broker closes the pipe."""
    lower_priority()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the broker ends its worker on Ctrl-C
    sys.stdout = sys.stderr  # what a library prints is not a result
    # Unbuffered: nothing is written to a broken pipe when the interpreter ends.
    with open(os.dup(1), "wb", buffering=0) as results:
        serve(sys.stdin.buffer, results, _alive_check(os.getppid()))


def serve(jobs: BinaryIO, results: BinaryIO, check_alive: Callable[[], None]) -> None:
    """Run one job after another until there are no more, or the broker has ended."""
    while (message := _next_job(jobs)) is not None:
        result = memoryview(write_result(run_job(read_job(message), check_alive)))
        try:
            while result:
                result = result[results.write(result) :]
        except BrokenPipeError:
            return  # the broker was killed: the next one removes the files


def _next_job(jobs: BinaryIO) -> bytes | None:
    """None at the end of the pipe, also within a message."""
    length = jobs.read(LENGTH.size)
    if len(length) < LENGTH.size:
        return None
    size_bytes: int = LENGTH.unpack(length)[0]
    message = jobs.read(size_bytes)
    return message if len(message) == size_bytes else None


def run_job(job: CleanJob, check_alive: Callable[[], None]) -> Cleaned | CorruptLog | JobFailed:
    """Run one job; failures are results."""
    throttle = Throttle(job.bytes_per_second)

    def pace(size_bytes: int) -> None:
        check_alive()
        throttle.pay(size_bytes)

    try:
        return clean(job, pace)
    except Malformed as error:
        return CorruptLog(str(error))
    except OSError as error:
        return JobFailed(str(error))


def lower_priority() -> None:
    """Give CPU and disk to the brokers first."""
    os.nice(_NICE_MAX)
    try:
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    except (AttributeError, OSError, psutil.Error):  # not supported by every system and container
        logger.debug("the disk priority cannot be changed")


def _alive_check(broker: int) -> Callable[[], None]:
    def check_alive() -> None:
        if os.getppid() != broker:
            sys.exit()  # the broker has ended

    return check_alive


if __name__ == "__main__":
    main()
