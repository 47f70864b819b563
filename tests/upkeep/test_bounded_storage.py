"""However often keys are updated, a compacted log stays about as large as the live records."""

import asyncio
from pathlib import Path

from penstock.log.files import OpenFiles
from penstock.log.partition_log import PartitionLog
from penstock.log.settings import RetentionSettings
from penstock.model import LeaderEpoch, Millis
from penstock.protocol.records import build_batch
from penstock.upkeep.jobs import Cleaned, CleanJob, CorruptLog, JobFailed
from penstock.upkeep.scheduler import Upkeep, UpkeepTarget
from penstock.upkeep.settings import CompactionSettings, UpkeepSettings
from penstock.upkeep.worker import run_job
from tests.support.appending import append_batch
from tests.support.settings import default_log_settings, default_settings

NOW = Millis(1_700_000_000_000)
KEYS = 1000
UPDATES = 1_000_000
IN_BATCH = 250


class Inline:
    async def run(self, job: CleanJob) -> Cleaned | CorruptLog | JobFailed:
        return run_job(job, lambda: None)

    async def stop(self) -> None:
        return


def test_a_million_updates_of_a_thousand_keys_need_little_more_space_than_the_live_ones(
    tmp_path: Path,
) -> None:
    settings = default_log_settings(segment_bytes=4 << 20)
    log = PartitionLog.open(tmp_path / "topic-0", settings, OpenFiles(8), now=NOW, clean=True)
    batches = [
        build_batch(
            [(b"key-%04d" % key, b"%04d" % key * 25) for key in range(first, first + IN_BATCH)],
            timestamp=NOW,
        )
        for first in range(0, KEYS, IN_BATCH)
    ]
    live_bytes = sum(len(batch) for batch in batches)
    target = UpkeepTarget(
        log,
        default_settings(RetentionSettings, delete=False),
        default_settings(CompactionSettings, compact=True),
    )
    upkeep = Upkeep(
        lambda: [target],
        Inline(),
        default_settings(UpkeepSettings),
        clock=lambda: NOW,
        steady_clock=lambda: NOW,
    )
    for number in range(UPDATES // IN_BATCH):
        append_batch(log, batches[number % len(batches)], leader_epoch=LeaderEpoch(0), now=NOW)
        log.set_high_watermark(log.end_offset)
        if number % 1000 == 0:
            asyncio.run(upkeep.compact_one())
    log.roll(NOW)
    while asyncio.run(upkeep.compact_one()):
        continue
    assert log.end_offset == UPDATES
    assert log.size_bytes - log.active.size_bytes <= 1.2 * live_bytes
    log.close(sync=False)
