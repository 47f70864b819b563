"""Partitions merged by time: every record once, in order, resumable anywhere."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.console.search.merged_scan import Direction, MergedScan, ScanRange
from penstock.console.search.search_cursor import SearchCursor, read_cursor, write_cursor
from penstock.model import Offset
from penstock.protocol.records import Record

LOGS = st.lists(
    st.lists(st.tuples(st.integers(1, 3), st.integers(-5, 50)), max_size=8), min_size=1, max_size=4
)


def make_log(steps: list[tuple[int, int]]) -> list[Record]:
    """Records with gaps between their offsets, and with times that may go back."""
    records, offset = [], 0
    for gap, time in steps:
        records.append(Record(offset, 1000 + time))
        offset += gap
    return records


def make_ranges(logs: list[list[Record]], direction: Direction) -> list[ScanRange]:
    rows = []
    for partition, log in enumerate(logs):
        end = Offset(log[-1].offset + 1 if log else 0)
        is_forward = direction is Direction.FORWARD
        position, stop = (Offset(0), end) if is_forward else (end, Offset(0))
        rows.append(ScanRange(partition, position, stop))
    return rows


def read(scan: MergedScan, logs: list[list[Record]], size: int) -> None:
    """What a reader of so many offsets at a time does."""
    while missing := scan.missing():
        for row in missing:
            if scan.direction is Direction.FORWARD:
                low, high = row.position, Offset(min(row.stop, row.position + size))
            else:
                low, high = Offset(max(row.stop, row.position - size)), row.position
            records = [each for each in logs[row.partition] if low <= each.offset < high]
            to = high if scan.direction is Direction.FORWARD else low
            scan.add(row.partition, records, to)


@given(LOGS, st.sampled_from(Direction), st.integers(1, 5), st.integers(1, 4))
def test_every_record_comes_once_and_in_order_however_often_the_scan_is_resumed(
    steps: list[list[tuple[int, int]]], direction: Direction, size: int, turn: int
) -> None:
    logs = [make_log(each) for each in steps]
    ranges = make_ranges(logs, direction)
    total = sum(row.left for row in ranges)
    seen: list[tuple[int, Record]] = []
    while any(row.left for row in ranges):
        scan = MergedScan(direction, ranges)
        for _ in range(turn):
            read(scan, logs, size)
            following = scan.next()
            if following is None:
                break
            seen.append(following)
        left = sum(row.left for row in scan.ranges())
        cursor = SearchCursor(direction, scan.ranges(), total - left, len(seen), total)
        text = write_cursor(cursor, "key == 1")
        ranges = [row for row in read_cursor(text, "key == 1").ranges if row.left]
    assert len(seen) == sum(map(len, logs))
    for partition, log in enumerate(logs):
        own = [record for of_partition, record in seen if of_partition == partition]
        assert own == (log if direction is Direction.FORWARD else log[::-1])


@given(st.lists(st.integers(0, 9), max_size=6), st.lists(st.integers(0, 9), max_size=6))
def test_partitions_in_the_order_of_time_are_merged_by_time(
    first: list[int], second: list[int]
) -> None:
    logs = [
        [Record(offset, time) for offset, time in enumerate(sorted(times))]
        for times in (first, second)
    ]
    scan = MergedScan(Direction.FORWARD, make_ranges(logs, Direction.FORWARD))
    times = []
    while True:
        read(scan, logs, 2)
        following = scan.next()
        if following is None:
            break
        times.append(following[1].timestamp)
    assert times == sorted(first + second)
    assert scan.is_finished()
