"""One search: what was asked for, the scan, and what stopped it."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from penstock.console.filter.expressions import Expression
from penstock.console.filter.filter_tokens import FilterError
from penstock.console.filter.matching import matches
from penstock.console.filter.parse_filter import parse_filter
from penstock.console.record_view import RecordDecoder, RecordView
from penstock.console.search.merged_scan import Direction, MergedScan, ScanRange
from penstock.console.search.read_ranges import RangeReader
from penstock.console.search.search_cursor import (
    CursorError,
    SearchCursor,
    read_cursor,
    write_cursor,
)
from penstock.gateway.errors import bad_request, unknown_partition
from penstock.gateway.gateway_node import GatewayNode
from penstock.link.offsets import Isolation, end_offsets, list_offsets, start_offsets
from penstock.link.topic_admin import partition_count
from penstock.model import NO_OFFSET, Millis, Offset, TopicPartition
from penstock.protocol.records import Record

LIMIT_MAX: Final = 500
SCAN_MAX: Final = 1_000_000  # offsets that one request looks at
SEARCH_S: Final = 3.0
PAGE_BYTES_MAX: Final = 4 << 20  # of the records that one request returns
_CHUNK_BYTES: Final = 1 << 20  # of one partition, where records are filtered
_PAGE_CHUNK_BYTES: Final = 128 << 10  # where all match
_OFFSET_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 19

Place = Literal["earliest", "latest"] | dict[str, str | int]


class SearchBody(msgspec.Struct, forbid_unknown_fields=True):
    """What to search for. Backward, `from` is where the records before it begin."""

    partitions: Annotated[list[int], msgspec.Meta(min_length=1, max_length=10_000)] | None = None
    from_: Place | None = msgspec.field(default=None, name="from")
    direction: Direction | None = None
    filter: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)] = 50
    scan_max: Annotated[int, msgspec.Meta(ge=1, le=SCAN_MAX)] = 200_000
    until: dict[str, str | int] | None = None


class _Found(NamedTuple):
    """What a turn of a scan found; `stopped` is None if it may go on."""

    records: list[dict[str, Any]]
    size_bytes: int
    stopped: str | None
    reached: tuple[int, Record] | None = None  # the last record that was looked at


async def search(
    node: GatewayNode, decoder: RecordDecoder, topic: str, body: SearchBody
) -> dict[str, Any]:
    """Search until there are enough records, or the time or the number of records is over."""
    deadline = asyncio.get_running_loop().time() + SEARCH_S
    expression = _filter(body.filter)
    start = await _start(node, topic, body)
    scan = MergedScan(start.direction, start.ranges)
    left = sum(row.left for row in start.ranges)
    chunk_bytes = _PAGE_CHUNK_BYTES if expression is None else _CHUNK_BYTES
    reader = RangeReader(node, topic, chunk_bytes, window=max(2 * body.limit, 64))
    turn = _Turn(decoder, topic, expression, body.limit, left - body.scan_max)
    found = _Found([], 0, None)
    while found.stopped is None:
        await reader.fill(scan)
        found = await node.in_thread(partial(turn.run, scan, found))
        if found.stopped is None and asyncio.get_running_loop().time() >= deadline:
            found = found._replace(stopped="time")
    ranges = scan.ranges()
    progress = SearchCursor(
        start.direction,
        ranges,
        start.scanned + left - sum(row.left for row in ranges),
        start.matched + len(found.records),
        start.total,
    )
    return {
        "records": found.records,
        "scanned": str(progress.scanned),
        "total": str(progress.total),
        "matched": str(progress.matched),
        "stopped": found.stopped,
        "reached": None if found.reached is None else _place(*found.reached),
        "cursor": None if scan.is_finished() else write_cursor(progress, body.filter),
    }


def _place(partition: int, record: Record) -> dict[str, Any]:
    offset, at = str(record.offset), str(record.timestamp)
    return {"partition": partition, "offset": offset, "timestamp": at}


def _filter(text: str) -> Expression | None:
    try:
        return parse_filter(text) if text.strip() else None
    except FilterError as error:
        raise bad_request(str(error), "invalid_filter") from None


class _Turn(NamedTuple):
    """How the records that were read are looked at."""

    decoder: RecordDecoder
    topic: str
    expression: Expression | None
    limit: int
    least_left: int  # offsets, when enough were scanned

    def run(self, scan: MergedScan, found: _Found) -> _Found:
        """Look at what was read. Runs in a thread."""
        records, size_bytes, reached = found.records, found.size_bytes, found.reached
        while (following := scan.next()) is not None:
            reached = partition, record = following
            view = RecordView(self.decoder, TopicPartition(self.topic, partition), record)
            if self.expression is None or matches(self.expression, view):
                records.append(view.document())
                size_bytes += view.size_bytes
                if len(records) >= self.limit or size_bytes >= PAGE_BYTES_MAX:
                    stopped = "end" if scan.is_finished() else "limit"
                    return _Found(records, size_bytes, stopped, reached)
        if scan.is_finished():
            return _Found(records, size_bytes, "end", reached)
        is_over = sum(row.left for row in scan.ranges()) <= self.least_left
        return _Found(records, size_bytes, "scan_max" if is_over else None, reached)


async def _start(node: GatewayNode, topic: str, body: SearchBody) -> SearchCursor:
    if isinstance(body.from_, dict) and "cursor" in body.from_:
        try:
            return read_cursor(str(body.from_["cursor"]), body.filter)
        except CursorError as error:
            raise bad_request(str(error), "invalid_cursor") from None
    places = await topic_places(node, topic, body.partitions)
    direction = body.direction
    if direction is None:
        direction = Direction.BACKWARD if body.from_ == "latest" else Direction.FORWARD
    earliest = await node.run(start_offsets(places))
    latest = await node.run(end_offsets(places, isolation=Isolation.READ_COMMITTED))
    is_forward = direction is Direction.FORWARD
    default: Place = "earliest" if is_forward else "latest"
    opposite: Place = "latest" if is_forward else "earliest"
    begins = await _offsets(node, default if body.from_ is None else body.from_, earliest, latest)
    ends = await _offsets(node, opposite if body.until is None else body.until, earliest, latest)
    ranges = []
    for place in places:
        begin, end = begins[place], ends[place]
        end = max(begin, end) if is_forward else min(begin, end)
        ranges.append(ScanRange(place.partition, begin, end))
    return SearchCursor(direction, ranges, 0, 0, sum(row.left for row in ranges))


async def topic_places(
    node: GatewayNode, topic: str, partitions: Sequence[int] | None
) -> list[TopicPartition]:
    """These partitions of a topic, or all; 404 if one does not exist."""
    count = await node.run(partition_count(topic))
    if partitions is None:
        partitions = range(count)
    places = [TopicPartition(topic, number) for number in dict.fromkeys(partitions)]
    for place in places:
        if not 0 <= place.partition < count:
            raise unknown_partition(place, count)
    return places


async def _offsets(
    node: GatewayNode,
    place: Place,
    earliest: Mapping[TopicPartition, Offset],
    latest: Mapping[TopicPartition, Offset],
) -> Mapping[TopicPartition, Offset]:
    """The offset of a place in each partition, within the partition."""
    if place == "earliest":
        return earliest
    if place == "latest":
        return latest
    assert isinstance(place, dict)
    if len(place) == 1 and "offset" in place:
        offset = _whole(place["offset"], "offset")
        return {each: Offset(min(max(offset, earliest[each]), latest[each])) for each in latest}
    if len(place) == 1 and "time" in place:
        times = dict.fromkeys(latest, Millis(_whole(place["time"], "time")))
        rows = await node.run(list_offsets(times, isolation=Isolation.READ_COMMITTED))
        return {
            each: latest[each] if row.offset == NO_OFFSET else min(row.offset, latest[each])
            for each, row in rows.items()
        }
    raise bad_request('from and until are {"offset": …} or {"time": …}', "invalid_body")


def _whole(value: str | int, name: str) -> int:
    text = str(value)
    is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    if not is_number or int(text) > _OFFSET_MAX:
        raise bad_request(f"{name} {value!r} is not a whole number", "invalid_body")
    return int(text)
