"""The real worker process: it runs jobs, at a low priority, and may be killed."""

import asyncio
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.model import Offset, ProducerEpoch, ProducerId
from penstock.protocol.records import build_batch
from penstock.upkeep.jobs import (
    Cleaned,
    CorruptLog,
    JobFailed,
    LiveProducer,
    read_job,
    read_result,
    write_job,
    write_result,
)
from penstock.upkeep.worker import Throttle, serve
from penstock.upkeep.worker_process import WorkerProcess

FRAME = 4


def two_segments(compacted: Any) -> None:
    compacted.segment(0, build_batch([(b"a", b"1"), (b"b", b"1")]))
    compacted.segment(2, build_batch([(b"a", b"2")], base_offset=Offset(2)))


def test_jobs_and_results_are_read_back_as_written(compacted: Any, job_over: Any) -> None:
    two_segments(compacted)
    job = job_over(
        compacted.folder, producers=(LiveProducer(ProducerId(1), ProducerEpoch(2), None),)
    )
    assert read_job(write_job(job)[FRAME:]) == job
    for result in (compacted.clean(), CorruptLog("why"), JobFailed("how")):
        assert read_result(write_result(result)[FRAME:]) == result


def test_it_runs_one_job_after_another(compacted: Any, job_over: Any) -> None:
    two_segments(compacted)
    job = write_job(job_over(compacted.folder))
    results = io.BytesIO()
    serve(io.BytesIO(job + job), results, lambda: None)
    first_bytes = FRAME + int.from_bytes(results.getvalue()[:FRAME])
    first, second = results.getvalue()[:first_bytes], results.getvalue()[first_bytes:]
    assert isinstance(read_result(first[FRAME:]), Cleaned)
    assert first == second


def test_a_corrupt_partition_and_a_missing_one_have_different_results(
    compacted: Any, job_over: Any
) -> None:
    two_segments(compacted)
    job = job_over(compacted.folder)
    path = compacted.folder / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    results = io.BytesIO()
    serve(io.BytesIO(write_job(job)), results, lambda: None)
    assert isinstance(read_result(results.getvalue()[FRAME:]), CorruptLog)
    path.unlink()
    results = io.BytesIO()
    serve(io.BytesIO(write_job(job)), results, lambda: None)
    assert isinstance(read_result(results.getvalue()[FRAME:]), JobFailed)


def test_a_process_of_lowest_priority_runs_several_jobs(compacted: Any, job_over: Any) -> None:
    two_segments(compacted)

    async def scene() -> None:
        worker = WorkerProcess()
        try:
            job = job_over(compacted.folder)
            cleaned = await worker.run(job)
            assert isinstance(cleaned, Cleaned)
            assert [one.replaces for one in cleaned.segments] == [(0, 2)]
            pid = worker.pid
            assert psutil.Process(pid).nice() == 19
            assert await worker.run(job) == cleaned
            assert worker.pid == pid
        finally:
            await worker.stop()
        assert worker.pid is None

    asyncio.run(scene())


def test_a_killed_worker_fails_its_job_and_the_next_one_has_a_new_worker(
    compacted: Any, job_over: Any
) -> None:
    many = [build_batch([(b"%d" % o, b"x" * 1000)], base_offset=Offset(o)) for o in range(300)]
    compacted.segment(0, *many)
    compacted.segment(300, build_batch([(b"1", b"y")], base_offset=Offset(300)))
    before = {path.name: path.read_bytes() for path in compacted.folder.iterdir()}

    async def scene() -> None:
        worker = WorkerProcess()
        try:
            # Slow enough to be killed while the cleaned file is open.
            slow = job_over(compacted.folder, bytes_per_second=300_000)
            work = asyncio.create_task(worker.run(slow))
            while not list(compacted.folder.glob("*.cleaned")):
                await asyncio.sleep(0.01)
                assert not work.done()
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            assert isinstance(await work, JobFailed)
            for name, content in before.items():
                assert (compacted.folder / name).read_bytes() == content
            assert isinstance(await worker.run(job_over(compacted.folder)), Cleaned)
        finally:
            await worker.stop()

    asyncio.run(scene())


def test_a_cancelled_job_is_stopped(compacted: Any, job_over: Any) -> None:
    two_segments(compacted)

    async def scene() -> None:
        worker = WorkerProcess()
        work = asyncio.create_task(worker.run(job_over(compacted.folder, bytes_per_second=1)))
        while worker.pid is None:
            assert not work.done()
            await asyncio.sleep(0.01)
        process = psutil.Process(worker.pid)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert not process.is_running()

    asyncio.run(scene())


def test_the_broker_does_not_import_numba() -> None:
    modules = "penstock.upkeep.scheduler, penstock.upkeep.worker_process"
    code = f"import sys, {modules}; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_throttle_sleeps_in_proportion_to_the_bytes() -> None:
    now = 0.0
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        slept.append(seconds)

    throttle = Throttle(1000, clock=lambda: now, sleep=sleep)
    throttle.pay(500)
    throttle.pay(250)
    assert slept == [0.5, 0.25]
    now += 100  # idle time counts for one second at most
    throttle.pay(1000)
    throttle.pay(1000)
    assert slept == [0.5, 0.25, 1.0]
    Throttle(None, sleep=sleep).pay(1 << 40)
    assert slept == [0.5, 0.25, 1.0]


def test_a_worker_ends_with_its_broker(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = f"""
import subprocess, sys, os
worker = subprocess.Popen([sys.executable, "-m", "penstock.upkeep.worker"], stdin=subprocess.PIPE)
open({str(pid_file)!r}, "w").write(str(worker.pid))
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    process_id = int(pid_file.read_text())
    try:
        psutil.Process(process_id).wait(timeout=60)
    except psutil.NoSuchProcess:
        return


@pytest.mark.parametrize("cut", [3, 20, None])
def test_a_worker_whose_broker_was_killed_ends_without_a_traceback(
    compacted: Any, job_over: Any, cut: int | None
) -> None:
    """With half of a length or of a job, or a job whose result is not read."""
    two_segments(compacted)
    command = [sys.executable, "-m", "penstock.upkeep.worker"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stderr is not None
        worker.stdout.close()
        worker.stdin.write(write_job(job_over(compacted.folder))[:cut])
        worker.stdin.close()
        assert b"Traceback" not in worker.stderr.read()
        assert worker.wait(60) == 0
