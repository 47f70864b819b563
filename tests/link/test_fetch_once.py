"""Many partitions of one leader in one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.columns.open_batches import open_batches
from penstock.errors import ErrorCode
from penstock.link.fetch_once import fetch_once
from penstock.link.offsets import Isolation
from penstock.link.send_batches import send_batches
from penstock.model import Millis, Offset, TopicPartition
from penstock.protocol.records import Record, build_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.link.fetch_once import FetchedBatches


def batch(*values: bytes) -> bytes:
    return bytes(build_batch([Record(timestamp=Millis(1), key=None, value=one) for one in values]))


def fetch(
    shell: Any, offsets: dict[TopicPartition, Offset], bytes_max: int = 1 << 20
) -> dict[TopicPartition, FetchedBatches]:
    leaders = shell.run(lambda routes: routes.by_leader(offsets))
    (address,) = leaders
    operation = fetch_once(
        address, offsets, isolation=Isolation.READ_COMMITTED, bytes_max=bytes_max
    )
    fetched: dict[TopicPartition, FetchedBatches] = shell.run(operation)
    return fetched


def test_each_partition_has_what_is_after_its_offset(
    shell: Any, make_topic: Callable[..., str]
) -> None:
    first, second = make_topic(2), make_topic()
    places = [TopicPartition(first, 1), TopicPartition(second, 0), TopicPartition(first, 0)]
    shell.run(send_batches({place: [batch(b"a", b"b"), batch(b"c")] for place in places[:2]}))
    rows = fetch(shell, dict(zip(places, map(Offset, (0, 1, 0)), strict=True)))
    whole, rest, empty = (rows[place] for place in places)
    assert (whole.start_offset, whole.end_offset, whole.record_count) == (0, 3, 3)
    assert open_batches(rest.records, start_offset=Offset(1)).offsets.tolist() == [1, 2]
    assert (empty.end_offset, len(empty.records)) == (0, 0)


def test_an_offset_that_is_not_in_the_log_is_refused_in_its_row_only(
    shell: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(2)
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    shell.run(send_batches({places[1]: [batch(b"a")]}))
    rows = fetch(shell, {places[0]: Offset(7), places[1]: Offset(0)})
    assert rows[places[0]].code is ErrorCode.offset_out_of_range
    assert rows[places[1]].record_count == 1


def test_a_batch_larger_than_the_limit_comes_whole(
    shell: Any, make_topic: Callable[..., str]
) -> None:
    place = TopicPartition(make_topic(), 0)
    shell.run(send_batches({place: [batch(b"x" * 100_000), batch(b"y")]}))
    row = fetch(shell, {place: Offset(0)}, bytes_max=1_000)[place]
    assert row.end_offset == 1
