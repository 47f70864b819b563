"""A task's work: its offset ranges, fetched as raw batches, opened and made into rows.

Nothing is kept between tasks except what the process keeps: connections, learned schemas and sizes,
compiled programs. A worker has a few chunks in memory, whatever the size of its ranges. An error in
the log names topic, partition and offset. Imports no pyspark.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import pyarrow as pa

from penstock.columns.open_batches import PageLimits, open_pages
from penstock.columns.record_columns import RecordColumns
from penstock.columns.vm.payloads import OutputTooLargeError
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.link.fetch_range import (
    Chunk,
    FetchSettings,
    OffsetOutOfRange,
    TopicRecreated,
    fetch_range,
)
from penstock.link.offsets import Isolation
from penstock.link.routing import StreamOperation
from penstock.model import Offset
from penstock.protocol.batch import iterate_headers, read_header
from penstock.spark.connections import cluster_for
from penstock.spark.decode_rows import RowMaker, opened_parts
from penstock.spark.fit_arrow import all_null
from penstock.spark.planning import OffsetRange
from penstock.spark.read_plan import ReadPlan

logger: Final = logging.getLogger(__name__)

CHUNK_BYTES: Final = 4 << 20  # per request; the next one is under way meanwhile
_MARGIN: Final = 1.25
_MARGIN_BYTES: Final = 64 << 10
_UNKNOWN_TOPIC: Final = frozenset(
    {ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id}
)
_TOPICS_MAX: Final = 1_000
_PAGE: Final = PageLimits(page_bytes=4 << 20)  # of opened records: compressed ones may grow a lot


class _OffsetSizes:
    """How many bytes an offset takes, by topic, as seen by this process.

    A short range of a long log is requested by its size, or a broker would send whole chunks.
    """

    def __init__(self) -> None:
        self._offset_bytes: dict[str, float] = {}

    def note(self, topic: str, chunk: Chunk) -> None:
        """Learn from the first batch, which is whole even if the range starts or ends in it."""
        if topic not in self._offset_bytes and len(self._offset_bytes) >= _TOPICS_MAX:
            self._offset_bytes.clear()  # topics that are read now are soon known again
        first = read_header(chunk.records)
        self._offset_bytes[topic] = first.size_bytes / (first.end_offset - first.base_offset)

    def estimate(self, offsets: OffsetRange) -> int:
        """A little more than the range has: too little costs another request."""
        mean = self._offset_bytes.get(offsets.partition.topic)
        if mean is None:
            return CHUNK_BYTES
        return int(mean * (offsets.end - offsets.start) * _MARGIN) + _MARGIN_BYTES


_sizes = _OffsetSizes()


def read_ranges(plan: ReadPlan, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """The records of these ranges as batches for Spark, in offset order."""
    deleted: set[str] = set()  # their other ranges are not requested
    for offsets in ranges:
        if offsets.partition.topic in deleted:
            continue
        try:
            yield from _read_range(plan, offsets)
        except Refused as refusal:
            if not _is_topic_deleted(refusal):
                raise
            _report_loss(plan, refusal)
            deleted.add(offsets.partition.topic)


def _is_topic_deleted(refusal: Refused) -> bool:
    return isinstance(refusal, TopicRecreated) or refusal.code in _UNKNOWN_TOPIC


def empty_batch(plan: ReadPlan) -> pa.RecordBatch:
    """A batch with the columns and no rows."""
    schema = plan.decode.schema
    return pa.RecordBatch.from_arrays([all_null(0, field.type) for field in schema], schema=schema)


def _read_range(plan: ReadPlan, requested: OffsetRange) -> Iterator[pa.RecordBatch]:
    maker = RowMaker(plan.decode, requested.partition)
    remaining: OffsetRange | None = requested
    while remaining is not None:
        try:
            for chunk in cluster_for(plan.kafka).stream(_fetch(plan, remaining)):
                _sizes.note(requested.partition.topic, chunk)
                yield from _rows(plan, maker, chunk, remaining)
                remaining = remaining._replace(start=chunk.end_offset)
                del chunk  # or two of them would be in memory while the next arrives
            return
        except OffsetOutOfRange as deleted:
            remaining = _after_loss(plan, remaining, deleted)


def _fetch(plan: ReadPlan, offsets: OffsetRange) -> StreamOperation[Chunk]:
    settings = FetchSettings(
        isolation=plan.isolation, chunk_bytes=min(CHUNK_BYTES, _sizes.estimate(offsets))
    )
    return fetch_range(
        offsets.partition, offsets.start, offsets.end, topic_id=offsets.topic_id, settings=settings
    )


def _after_loss(
    plan: ReadPlan, offsets: OffsetRange, deleted: OffsetOutOfRange
) -> OffsetRange | None:
    """What remains of a range whose start was deleted; None: nothing."""
    _report_loss(plan, deleted)
    if deleted.start_offset <= offsets.start or deleted.start_offset >= offsets.end:
        return None
    return offsets._replace(start=deleted.start_offset)


def _report_loss(plan: ReadPlan, lost: Refused) -> None:
    """Refused if the query fails on lost records, a line in the log if not."""
    if plan.fail_on_data_loss:
        raise Refused(
            lost.code,
            f"{lost.message}. Some records may have been missed; with failOnDataLoss=false the"
            " query continues with the records that exist",
        ) from lost
    logger.warning("records were lost, and failOnDataLoss is false: %s", lost.message)


def _rows(
    plan: ReadPlan, maker: RowMaker, chunk: Chunk, offsets: OffsetRange
) -> Iterator[pa.RecordBatch]:
    """The rows of a chunk that are in the range."""
    for page in _pages(plan, chunk, offsets):
        if not len(page):
            continue
        try:
            yield maker.rows(page)
        except OutputTooLargeError:
            if len(page) == 1:
                raise
            # Small payloads may decode to very large values: half as many rows at a time.
            first, middle = Offset(int(page.offsets[0])), Offset(int(page.offsets[len(page) // 2]))
            for start, end in ((first, middle), (middle, page.end_offset)):
                yield from _rows(plan, maker, chunk, offsets._replace(start=start, end=end))


def _pages(plan: ReadPlan, chunk: Chunk, offsets: OffsetRange) -> Iterator[RecordColumns]:
    try:
        yield from open_pages(
            chunk.records,
            start_offset=max(chunk.start_offset, offsets.start),
            end_offset=offsets.end,
            parts=opened_parts(plan.decode),
            aborted=chunk.aborted if plan.isolation is Isolation.READ_COMMITTED else None,
            limits=_PAGE,
        )
    except Malformed as error:
        raise Refused(
            ErrorCode.corrupt_message,
            f"{offsets.partition} has a corrupt batch at offset"
            f" {_offset_at(chunk, error.position)}: {error.reason}",
        ) from error


def _offset_at(chunk: Chunk, position: int) -> Offset:
    """The first offset of the batch that contains a byte."""
    offset = chunk.start_offset
    with suppress(Malformed):  # the headers before the corrupt one are valid
        for start, header in iterate_headers(chunk.records):
            if start > position:
                break
            offset = Offset(header.base_offset)
    return offset
