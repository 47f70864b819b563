"""The state of upkeep as metrics: what an operator sees when retention or compaction fails."""

import asyncio
from collections.abc import Iterable

import pytest

from penstock.metrics.text_format import write_families
from penstock.model import Millis, TopicPartition
from penstock.upkeep.jobs import Cleaned, CleanJob, CorruptLog, JobFailed
from penstock.upkeep.metrics import upkeep_families
from penstock.upkeep.scheduler import Upkeep, UpkeepTarget
from penstock.upkeep.settings import Intervals, UpkeepSettings
from tests.support.settings import default_settings

FAILED_ROUNDS = 'penstock_upkeep_rounds_total{duty="retention",result="failed"}'
DONE_ROUNDS = 'penstock_upkeep_rounds_total{duty="sweep",result="done"}'


class Idle:
    """A worker that is never given a job."""

    async def run(self, job: CleanJob) -> Cleaned | CorruptLog | JobFailed:
        raise AssertionError(job)

    async def stop(self) -> None:
        return


def failing_upkeep() -> Upkeep:
    """Its partitions cannot be listed; each round is reported with an error as well."""

    def partitions() -> Iterable[UpkeepTarget]:
        raise RuntimeError("the table is being rebuilt")

    def on_round() -> None:
        raise ValueError("the status cannot be written")

    return Upkeep(
        partitions,
        Idle(),
        default_settings(UpkeepSettings),
        clock=lambda: Millis(0),
        steady_clock=lambda: Millis(0),
        on_round=on_round,
        intervals=Intervals(restart_ms=Millis(1), restart_max_ms=Millis(1)),
    )


def samples(upkeep: Upkeep) -> dict[str, float]:
    lines = "".join(write_families(upkeep_families(upkeep))).splitlines()
    rows = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in rows}


def test_failed_rounds_are_counted_and_no_error_ends_upkeep(
    caplog: pytest.LogCaptureFixture,
) -> None:
    upkeep = failing_upkeep()

    async def scene() -> None:
        running = asyncio.create_task(upkeep.run())
        while samples(upkeep)[FAILED_ROUNDS] < 3:
            assert not running.done(), "upkeep ended"
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(scene())
    assert samples(upkeep)[DONE_ROUNDS] == 0
    assert "the status cannot be written" in caplog.text


def test_partitions_that_fail_or_are_corrupt_are_counted() -> None:
    upkeep = failing_upkeep()
    orders, payments = TopicPartition("orders", 0), TopicPartition("payments", 1)
    upkeep.failing = {(orders, "retention"): "no space", (orders, "sweep"): "no space"}
    upkeep.corrupt = {orders: "no batch", payments: "no batch"}
    seen = samples(upkeep)
    assert seen["penstock_upkeep_failing_partitions"] == 1
    assert seen["penstock_upkeep_corrupt_partitions"] == 2
