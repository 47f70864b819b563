"""Which Protobuf messages a topic's last events are, by reading a few of them.

Runs on the driver when a query is created, and only if a schema's file has several messages. Reads
a bounded number of records, so an event in the middle of the topic may be of another message.
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

PARTITIONS_MAX: Final = 32  # of a topic with more, the first that are not empty
OFFSETS_MAX: Final = 16  # the last of each partition
_CHUNK_BYTES: Final = 64 << 10


class _Sample(NamedTuple):
    """The key or the value of a record; compares by time, then by offset."""

    timestamp: int
    offset: int
    content: bytes
    headers: Headers


def written_messages(
    cluster: BlockingCluster, registry: Registry, topic: str, side: Side, isolation: Isolation
) -> list[str]:
    """The full names of the messages among a topic's last events, the latest event's first."""
    deserializer = Deserializer(registry, topic, side=side)
    names: dict[str, None] = {}
    for sample in sorted(_last_records(cluster, topic, side, isolation), reverse=True):
        try:
            message = deserializer.deserialize(sample.content, sample.headers)
        except DecodeError:
            continue
        if hasattr(message, "DESCRIPTOR"):
            names[message.DESCRIPTOR.full_name] = None
    return list(names)


def _last_records(
    cluster: BlockingCluster, topic: str, side: Side, isolation: Isolation
) -> Iterator[_Sample]:
    partitions = cluster.run(partitions_of([topic]))
    starts = cluster.run(start_offsets(partitions))
    ends = cluster.run(end_offsets(partitions, isolation=isolation))
    settings = FetchSettings(isolation=isolation, chunk_bytes=_CHUNK_BYTES)
    not_empty = [partition for partition in partitions if starts[partition] < ends[partition]]
    for partition in not_empty[:PARTITIONS_MAX]:
        end = ends[partition]
        start = Offset(max(starts[partition], end - OFFSETS_MAX))
        try:
            for chunk in cluster.stream(fetch_range(partition, start, end, settings=settings)):
                yield from _opened(chunk, start, end, side)
        except OffsetOutOfRange:
            continue  # deleted by retention in the meantime


def _opened(chunk: Chunk, start: Offset, end: Offset, side: Side) -> Iterator[_Sample]:
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
                pairs = [(header["key"], header["value"]) for header in headers[row] or ()]
                yield _Sample(int(page.timestamps[row]), int(page.offsets[row]), content, pairs)
