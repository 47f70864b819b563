"""Which Protobuf messages a topic's last events are: found by reading a few of them.

Runs on the driver when a query is made, and only where a schema's file has several messages. Looks
at a bounded number of records, so an event in the middle of the topic may be of another message.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.client.registry import Registry
from penstock.link.blocking import BlockingCluster
from penstock.link.fetch_range import Chunk, FetchSettings, OffsetOutOfRange, fetch_range
from penstock.link.offsets import Isolation, end_offsets, partitions_of, start_offsets
from penstock.model import Offset
from penstock.serde.errors import DecodeError
from penstock.serde.frame import Headers, Side
from penstock.serde.serializers import Deserializer

PARTITIONS_MAX: Final = 32  # looked at; of a topic with more, the first that are not empty
OFFSETS_MAX: Final = 16  # of each of them, the last
_CHUNK_BYTES: Final = 64 << 10


class _Record(NamedTuple):
    """One side of a record; compares by time, then by offset."""

    timestamp: int
    offset: int
    content: bytes
    headers: Headers


def written_messages(
    brokers: BlockingCluster, registry: Registry, topic: str, side: Side, isolation: Isolation
) -> list[str]:
    """The full names of the messages among a topic's last events, the latest event's first."""
    read = Deserializer(registry, topic, side=side)
    names: dict[str, None] = {}
    for record in sorted(_last_records(brokers, topic, side, isolation), reverse=True):
        try:
            message = read.deserialize(record.content, record.headers)
        except DecodeError:
            continue  # an event that nobody can read says nothing
        if hasattr(message, "DESCRIPTOR"):
            names[message.DESCRIPTOR.full_name] = None
    return list(names)


def _last_records(
    brokers: BlockingCluster, topic: str, side: Side, isolation: Isolation
) -> Iterator[_Record]:
    places = brokers.run(partitions_of([topic]))
    starts = brokers.run(start_offsets(places))
    ends = brokers.run(end_offsets(places, isolation=isolation))
    settings = FetchSettings(isolation=isolation, chunk_bytes=_CHUNK_BYTES)
    for place in [one for one in places if starts[one] < ends[one]][:PARTITIONS_MAX]:
        start = Offset(max(starts[place], ends[place] - OFFSETS_MAX))
        try:
            for chunk in brokers.stream(fetch_range(place, start, ends[place], settings=settings)):
                yield from _opened(chunk, start, ends[place], side)
        except OffsetOutOfRange:
            continue  # retention passed it just now


def _opened(chunk: Chunk, start: Offset, end: Offset, side: Side) -> Iterator[_Record]:
    # Compiled kernels: not for every process.
    from penstock.columns.arrow_records import headers_to_arrow
    from penstock.columns.open_batches import open_pages

    for page in open_pages(
        chunk.records, start_offset=start, end_offset=end, aborted=chunk.aborted
    ):
        column = page.values if side is Side.VALUE else page.keys
        assert column is not None, "every column was opened"
        assert page.headers is not None, "every column was opened"
        headers = headers_to_arrow(page.headers).to_pylist()
        for row in range(len(page)):
            content = column.row(row)
            if content is not None:
                pairs = [(one["key"], one["value"]) for one in headers[row] or ()]
                yield _Record(int(page.timestamps[row]), int(page.offsets[row]), content, pairs)
