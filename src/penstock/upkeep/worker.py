"""The compaction worker: `python -m penstock.upkeep.worker`, started by the broker beside it.

Takes jobs from standard input, one at a time, and answers on standard output (see `work`). Runs at
the lowest CPU and disk priority and holds no state between jobs: it may be killed at any moment.
It ends when its input does, and stops in the middle of a job when the broker is gone.

Holds a reader to a number of bytes a second, averaged over the time it works.
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
    write_answer,
)


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


logger: Final = logging.getLogger(__name__)

_NICEST: Final = 19


def main() -> None:
    """Serve until the broker closes the pipe."""
    step_back()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which ends its worker
    sys.stdout = sys.stderr  # whatever a library prints must not reach the broker as an answer
    # Without a buffer: what a broken pipe did not take is not tried again at the interpreter's end.
    with open(os.dup(1), "wb", buffering=0) as answers:
        serve(sys.stdin.buffer, answers, _alive_check(os.getppid()))


def serve(jobs: BinaryIO, answers: BinaryIO, check_alive: Callable[[], None]) -> None:
    """Answer each job in turn until there are no more, or the broker is gone."""
    while (message := _next_job(jobs)) is not None:
        answer = memoryview(write_answer(carry_out(read_job(message), check_alive)))
        try:
            while answer:
                answer = answer[answers.write(answer) :]
        except BrokenPipeError:
            return  # killed: the next broker removes what was written


def _next_job(jobs: BinaryIO) -> bytes | None:
    """None at the end of the pipe, also in the middle of a message."""
    length = jobs.read(LENGTH.size)
    if len(length) < LENGTH.size:
        return None
    size_bytes: int = LENGTH.unpack(length)[0]
    message = jobs.read(size_bytes)
    return message if len(message) == size_bytes else None


def carry_out(job: CleanJob, check_alive: Callable[[], None]) -> Cleaned | CorruptLog | JobFailed:
    """One job, whatever becomes of it."""
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


def step_back() -> None:
    """Leave processor and disk to the brokers wherever they want them."""
    os.nice(_NICEST)
    try:
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    except (AttributeError, OSError, psutil.Error):  # not every system and container knows it
        logger.debug("the disk priority stays as it is")


def _alive_check(broker: int) -> Callable[[], None]:
    def check_alive() -> None:
        if os.getppid() != broker:
            sys.exit()  # the broker is gone

    return check_alive


if __name__ == "__main__":
    main()
