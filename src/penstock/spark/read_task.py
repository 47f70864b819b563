"""A task's work: its ranges of offsets, fetched as raw batches, opened and made into rows.

Keeps nothing between tasks but what the process keeps: connections, learned schemas and sizes,
compiled programs. A worker holds a few chunks at a time, whatever the size of its ranges. What is
wrong with the log is an error that names topic, partition and offset. Imports no pyspark.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import pyarrow as pa

from penstock.columns.open_batches import Limits, open_pages
from penstock.columns.record_columns import RecordColumns
from penstock.columns.vm.slots import OutputTooLarge
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
from penstock.spark.connections import cluster
from penstock.spark.decode_rows import RowMaker, parts_wanted
from penstock.spark.fit_arrow import all_null
from penstock.spark.planning import OffsetRange
from penstock.spark.query_plan import ReadTask

logger = logging.getLogger(__name__)

CHUNK_BYTES: Final = 4 << 20  # fetched at a time; the next is under way meanwhile
_MARGIN: Final = 1.25
_MARGIN_BYTES: Final = 64 << 10
_UNKNOWN_TOPIC: Final = frozenset(
    {ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id}
)
_TOPICS_MAX: Final = 1_000
_PAGE: Final = Limits(page_bytes=4 << 20)  # of opened records: what is compressed may grow a lot


class _Sizes:
    """How many bytes an offset takes, by topic, as seen by this process.

    A short range of a long log is asked for by its size: a broker would send whole chunks else.
    """

    def __init__(self) -> None:
        self._offset_bytes: dict[str, float] = {}

    def note(self, topic: str, chunk: Chunk) -> None:
        if topic not in self._offset_bytes and len(self._offset_bytes) >= _TOPICS_MAX:
            self._offset_bytes.clear()  # what is read now is soon known again
        first = read_header(chunk.records)  # whole, also where the range begins or ends within it
        self._offset_bytes[topic] = first.size_bytes / (first.end_offset - first.base_offset)

    def about_bytes(self, asked: OffsetRange) -> int:
        """A little more than the range has: too little costs another request."""
        known = self._offset_bytes.get(asked.partition.topic)
        if known is None:
            return CHUNK_BYTES
        return int(known * (asked.end - asked.start) * _MARGIN) + _MARGIN_BYTES


_sizes = _Sizes()


def read_ranges(task: ReadTask, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """The records of these ranges as batches for Spark, in offset order."""
    lost: set[str] = set()  # topics that are not there: no other range of them is asked for
    for one in ranges:
        if one.partition.topic in lost:
            continue
        try:
            yield from _read_range(task, one)
        except Refused as refusal:
            if not _is_topic_gone(refusal):
                raise
            _report_loss(task, refusal)
            lost.add(one.partition.topic)


def _is_topic_gone(refusal: Refused) -> bool:
    return isinstance(refusal, TopicRecreated) or refusal.code in _UNKNOWN_TOPIC


def no_rows(task: ReadTask) -> pa.RecordBatch:
    """A batch with the columns alone."""
    schema = task.decoding.schema
    return pa.RecordBatch.from_arrays([all_null(0, one.type) for one in schema], schema=schema)


def _read_range(task: ReadTask, asked: OffsetRange) -> Iterator[pa.RecordBatch]:
    maker = RowMaker(task.decoding, asked.partition)
    left: OffsetRange | None = asked
    while left is not None:
        try:
            for chunk in cluster(task.kafka).stream(_fetching(task, left)):
                _sizes.note(asked.partition.topic, chunk)
                yield from _opened(task, maker, chunk, left)
                left = left._replace(start=chunk.end_offset)
                del chunk  # or two of them would be held while the next comes
            return
        except OffsetOutOfRange as gone:
            left = _after_loss(task, left, gone)


def _fetching(task: ReadTask, asked: OffsetRange) -> StreamOperation[Chunk]:
    settings = FetchSettings(
        isolation=task.isolation, chunk_bytes=min(CHUNK_BYTES, _sizes.about_bytes(asked))
    )
    return fetch_range(
        asked.partition, asked.start, asked.end, topic_id=asked.topic_id, settings=settings
    )


def _after_loss(task: ReadTask, asked: OffsetRange, gone: OffsetOutOfRange) -> OffsetRange | None:
    """What is left of a range whose start is not there; None: nothing."""
    _report_loss(task, gone)
    if gone.start_offset <= asked.start or gone.start_offset >= asked.end:
        return None
    return asked._replace(start=gone.start_offset)


def _report_loss(task: ReadTask, lost: Refused) -> None:
    """Refused if the query is to fail on lost records, a line in the log if not."""
    if task.fail_on_data_loss:
        raise Refused(
            lost.code,
            f"{lost.message}. Some records may have been missed; with failOnDataLoss=false it goes"
            " on with what is there",
        ) from lost
    logger.warning("records were lost, and failOnDataLoss is false: %s", lost.message)


def _opened(
    task: ReadTask, maker: RowMaker, chunk: Chunk, asked: OffsetRange
) -> Iterator[pa.RecordBatch]:
    """The rows of a chunk that are in the range."""
    for page in _pages(task, chunk, asked):
        if not len(page):
            continue
        try:
            yield maker.rows(page)
        except OutputTooLarge:
            if len(page) == 1:
                raise
            # Small payloads may say of themselves that they are huge: half as many at a time.
            first, middle = Offset(int(page.offsets[0])), Offset(int(page.offsets[len(page) // 2]))
            for start, end in ((first, middle), (middle, page.end_offset)):
                yield from _opened(task, maker, chunk, asked._replace(start=start, end=end))


def _pages(task: ReadTask, chunk: Chunk, asked: OffsetRange) -> Iterator[RecordColumns]:
    try:
        yield from open_pages(
            chunk.records,
            start_offset=max(chunk.start_offset, asked.start),
            end_offset=asked.end,
            wanted=parts_wanted(task.decoding),
            aborted=chunk.aborted if task.isolation is Isolation.READ_COMMITTED else None,
            limits=_PAGE,
        )
    except Malformed as wrong:
        raise Refused(
            ErrorCode.corrupt_message,
            f"{asked.partition} has a corrupt batch at offset"
            f" {_offset_at(chunk, wrong.position)}: {wrong.reason}",
        ) from wrong


def _offset_at(chunk: Chunk, position: int) -> Offset:
    """The first offset of the batch that a byte is in."""
    found = chunk.start_offset
    with suppress(Malformed):  # the headers before it are right, and the last of them is noted
        for start, header in iterate_headers(chunk.records):
            if start > position:
                break
            found = Offset(header.base_offset)
    return found
