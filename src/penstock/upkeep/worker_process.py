"""The compaction worker as the broker sees it: one process, one job at a time.

Started when first needed and again after it ended; stopped when idle, because numba needs much
memory. Never imports the worker: the broker has no numba.
"""

import asyncio
import sys
from typing import Final

from penstock.upkeep.jobs import (
    LENGTH,
    MESSAGE_BYTES_MAX,
    Cleaned,
    CleanJob,
    CorruptLog,
    JobFailed,
    read_result,
    write_job,
)

_MODULE: Final = "penstock.upkeep.worker"


class WorkerProcess:
    """Runs jobs in another process. A worker that dies fails its job and nothing else."""

    def __init__(self) -> None:
        self._running: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the worker, if it runs."""
        return None if self._running is None else self._running.pid

    async def run(self, job: CleanJob) -> Cleaned | CorruptLog | JobFailed:
        """The worker's result, or JobFailed when it ended without one."""
        try:
            running = await self._start()
            return await _run(running, job)
        except (OSError, EOFError) as error:
            await self.stop()
            return JobFailed(f"the compaction worker ended: {error!r}")
        except asyncio.CancelledError:
            await self.stop()  # it must not write any more files
            raise

    async def stop(self) -> None:
        """End the worker, also within a job."""
        running, self._running = self._running, None
        if running is None:
            return
        if running.returncode is None:
            running.kill()
        assert running.stdin is not None
        running.stdin.close()
        await running.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        if self._running is None or self._running.returncode is not None:
            await self.stop()
            self._running = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                _MODULE,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        return self._running


async def _run(
    running: asyncio.subprocess.Process, job: CleanJob
) -> Cleaned | CorruptLog | JobFailed:
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(write_job(job))
    await running.stdin.drain()
    (length,) = LENGTH.unpack(await running.stdout.readexactly(LENGTH.size))
    assert length <= MESSAGE_BYTES_MAX
    return read_result(await running.stdout.readexactly(length))
