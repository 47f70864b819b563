"""One span for each micro-batch that a stream reads, linked to the spans that sent its records.

Lives on the driver, in the process in which Spark plans the source. A few records of a few ranges
are fetched there for the links, and only if the sampler chose the span. Tracing never ends a query:
what fails is logged, and the span has fewer links.
"""

import importlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from penstock.client.tracing import RecordHeaders, Tracing
from penstock.errors import Malformed, Refused
from penstock.link.fetch_range import FetchSettings, fetch_range
from penstock.link.offsets import Isolation
from penstock.protocol.batch import iterate_headers
from penstock.protocol.records import iterate_records
from penstock.spark.connections import cluster_for
from penstock.spark.given_options import option_error
from penstock.spark.planning import OffsetRange

if TYPE_CHECKING:
    from opentelemetry.trace import Span

logger: Final = logging.getLogger(__name__)

RANGES_MAX: Final = 8  # of a micro-batch, from which records are fetched
RECORDS_MAX: Final = 4  # of each
_SAMPLE: Final = FetchSettings(
    isolation=Isolation.READ_UNCOMMITTED, chunk_bytes=16 << 10, stall_ms=2_000
)
_OPENED_BYTES_MAX: Final = 4 << 20


class StreamTracing:
    """The spans of one stream; `function` is the option, None: no spans."""

    def __init__(self, function: str | None, properties: Mapping[str, str]) -> None:
        self._function = function
        self._properties = properties
        self._tracing: Tracing | None = None
        self._span: Span | None = None

    def start(self, ranges: Sequence[OffsetRange]) -> None:
        """A micro-batch of these ranges begins, so the one before it has ended."""
        if self._function is None:
            return
        self.finish()
        if not ranges:
            return
        if self._tracing is None:
            set_up(self._function)
            self._tracing = Tracing()
        self._span = self._tracing.start_micro_batch(
            {each.partition.topic for each in ranges},
            sum(each.end - each.start for each in ranges),
            self._sample(ranges),
        )

    def finish(self) -> None:
        """The micro-batch is done."""
        span, self._span = self._span, None
        if span is not None:
            span.end()

    def _sample(self, ranges: Sequence[OffsetRange]) -> Iterator[RecordHeaders]:
        step = -(-len(ranges) // RANGES_MAX)
        for offsets in ranges[::step]:
            try:
                yield from islice(self._headers(offsets), RECORDS_MAX)
            except (OSError, Refused, Malformed) as failure:
                logger.warning("no links to the records of %s: %s", offsets.partition, failure)

    def _headers(self, offsets: OffsetRange) -> Iterator[RecordHeaders]:
        fetched = fetch_range(offsets.partition, offsets.start, offsets.end, settings=_SAMPLE)
        chunk = next(iter(cluster_for(self._properties).stream(fetched)), None)
        for position, header in iterate_headers(b"" if chunk is None else chunk.records):
            if header.is_control or chunk is None:
                continue
            for record in iterate_records(chunk.records, position, max_bytes=_OPENED_BYTES_MAX):
                if offsets.start <= record.offset < offsets.end:
                    yield record.headers


def set_up(function: str) -> None:
    """Call the function that the option names, as `module:name`."""
    module, _, name = function.partition(":")
    try:
        called = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise option_error("tracing", f"is {function!r}, not module:function: {error}") from None
    called()
