"""All records of a topic, as far as a limit allows: for topics that are small by their purpose."""

from typing import Final, NamedTuple

from penstock.console.search.merged_scan import Direction, MergedScan, ScanRange
from penstock.console.search.read_ranges import RangeReader
from penstock.gateway.gateway_node import GatewayNode
from penstock.link.offsets import Isolation, end_offsets, start_offsets
from penstock.link.topic_admin import partition_count
from penstock.model import TopicPartition
from penstock.protocol.records import Record

RECORDS_MAX: Final = 50_000
BYTES_MAX: Final = 64 << 20
_CHUNK_BYTES: Final = 1 << 20


class TopicContents(NamedTuple):
    """Records with their partitions, oldest first, and whether these are all."""

    records: list[tuple[int, Record]]
    is_complete: bool


async def read_whole(node: GatewayNode, topic: str, *, keeps_values: bool = True) -> TopicContents:
    """The committed records of a topic; 404 if it does not exist."""
    count = await node.run(partition_count(topic))
    places = [TopicPartition(topic, number) for number in range(count)]
    starts = await node.run(start_offsets(places))
    ends = await node.run(end_offsets(places, isolation=Isolation.READ_COMMITTED))
    ranges = [ScanRange(place.partition, starts[place], ends[place]) for place in places]
    scan = MergedScan(Direction.FORWARD, ranges)
    reader = RangeReader(node, topic, _CHUNK_BYTES, RECORDS_MAX)
    records: list[tuple[int, Record]] = []
    size_bytes = 0
    while not scan.is_finished() and len(records) < RECORDS_MAX and size_bytes < BYTES_MAX:
        await reader.fill(scan)
        while (following := scan.next()) is not None:
            partition, record = following
            size_bytes += len(record.value or b"") if keeps_values else 0
            records.append((partition, record if keeps_values else record._replace(value=None)))
    return TopicContents(records, scan.is_finished())
