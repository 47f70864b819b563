"""The metrics of upkeep, read from its counts when a broker is scraped."""

from collections.abc import Iterator

from penstock.metrics import broker_rows as rows
from penstock.metrics.text_format import Family
from penstock.upkeep.scheduler import Upkeep


def upkeep_families(upkeep: Upkeep) -> Iterator[Family]:
    stats = upkeep.stats
    yield (
        rows.COMPACTIONS,
        [
            (("done",), stats.compactions),
            (("failed",), stats.failed_compactions),
        ],
    )
    ratios = list(upkeep.dirty_ratios.items())[: rows.TOPICS_MAX]
    yield rows.COMPACTION_DIRTY_RATIO, [((topic,), round(ratio, 4)) for topic, ratio in ratios]
    yield rows.COMPACTION_NOT_SHOWN, [((), len(upkeep.dirty_ratios) - len(ratios))]
    yield rows.COMPACTION_LAST_RUN, [((), max(upkeep.compacted_at, 0) / 1000)]
    yield rows.COMPACTION_REMOVED_BYTES, [((), stats.read_bytes - stats.retained_bytes)]
    yield rows.RETENTION_REMOVED_SEGMENTS, [((), stats.deleted_segments)]
    yield (
        rows.UPKEEP_ROUNDS,
        [
            sample
            for name, duty in stats.duties.items()
            for sample in (((name, "done"), duty.rounds), ((name, "failed"), duty.failed_rounds))
        ],
    )
    failing = {partition for partition, _ in upkeep.failing}
    yield rows.UPKEEP_FAILING, [((), len(failing))]
    yield rows.CORRUPT_PARTITIONS, [((), len(upkeep.corrupt))]
