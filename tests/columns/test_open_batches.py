"""Opening against the pure-Python reader: the same records from every batch there can be."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.columns.arrow_records import HEADERS_TYPE, records_to_arrow
from penstock.columns.open_batches import PageLimits, RecordParts, open_batches, open_pages
from penstock.columns.record_columns import RecordColumns
from penstock.errors import Malformed
from penstock.model import LeaderEpoch, Millis, Offset, ProducerEpoch, ProducerId, SequenceNumber
from penstock.protocol.batch import HEADER_BYTES, BatchHeader, read_header, seal, write_header
from penstock.protocol.compression import Codec, compress
from penstock.protocol.control_records import build_marker
from penstock.protocol.records import Record, build_batch, read_records

AsRecords = Callable[[RecordColumns], list[Record]]

fields = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=300)
headers = st.lists(
    st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=200)), max_size=3
).map(tuple)


@st.composite
def batches(draw: st.DrawFn, base_offset: int = 0) -> bytearray:
    """A batch as a producer, a broker or a compaction may have left it."""
    gaps = draw(st.lists(st.integers(0, 200), max_size=12))
    offset = base_offset
    records = []
    for gap in gaps:
        offset += gap
        timestamp = draw(st.integers(0, 2**45))
        records.append(Record(offset, timestamp, draw(fields), draw(fields), draw(headers)))
        offset += 1
    return build_batch(
        records,
        base_offset=Offset(base_offset),
        timestamp=Millis(draw(st.integers(0, 2**45))),
        codec=draw(st.sampled_from(Codec)),
        log_append_time=draw(st.booleans()),
        leader_epoch=LeaderEpoch(draw(st.integers(0, 9))),
        last_offset=Offset(max(offset - 1, base_offset) + draw(st.integers(0, 3))),
    )


@st.composite
def logs(draw: st.DrawFn) -> list[bytearray]:
    log: list[bytearray] = []
    offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 4))):
        log.append(draw(batches(offset)))
        offset = read_header(log[-1]).end_offset + draw(st.integers(0, 2))
    return log


@given(log=logs())
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_the_same_records_come_out_as_from_the_plain_reader(
    log: list[bytearray], as_records: AsRecords
) -> None:
    expected = [record for batch in log for record in read_records(batch)]
    columns = open_batches(b"".join(log))
    assert as_records(columns) == expected
    assert columns.end_offset == (read_header(log[-1]).end_offset if log else 0)
    assert columns.end_position == sum(map(len, log))


@given(log=logs(), bounds=st.tuples(st.integers(0, 99), st.integers(0, 99)))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_only_offsets_within_the_bounds_come_out(
    log: list[bytearray], bounds: tuple[int, int], as_records: AsRecords
) -> None:
    everything = [record for batch in log for record in read_records(batch)]
    base = read_header(log[0]).base_offset if log else 0
    start, end = Offset(base + min(bounds)), Offset(base + max(bounds))
    columns = open_batches(b"".join(log), start_offset=start, end_offset=end)
    assert as_records(columns) == [r for r in everything if start <= r.offset < end]
    assert start <= columns.end_offset <= end


@given(log=logs(), page_bytes=st.integers(1, 400))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_pages_hold_together_what_one_opening_does(
    log: list[bytearray], page_bytes: int, as_records: AsRecords
) -> None:
    whole = b"".join(log)
    pages = list(open_pages(whole, limits=PageLimits(page_bytes=page_bytes)))
    assert [r for page in pages for r in as_records(page)] == as_records(open_batches(whole))
    assert pages[-1].end_offset == open_batches(whole).end_offset
    assert len(pages) == 1 or all(len(page) for page in pages)


def test_an_empty_buffer_is_an_empty_page_that_reads_on_where_it_started() -> None:
    columns = open_batches(b"", start_offset=Offset(7))
    assert (len(columns), columns.end_offset, columns.end_position) == (0, 7, 0)
    assert records_to_arrow(columns).num_rows == 0


def test_null_and_empty_are_not_the_same() -> None:
    arrow = records_to_arrow(open_batches(build_batch([(None, b""), (b"", None), (b"", b"")])))
    assert arrow.column("key").to_pylist() == [None, b"", b""]
    assert arrow.column("value").to_pylist() == [b"", None, b""]


def test_a_null_header_value_is_not_an_empty_one(as_records: AsRecords) -> None:
    batch = build_batch([Record(headers=(("a", None), ("a", b""), ("", b"x")))])
    assert as_records(open_batches(batch))[0].headers == (("a", None), ("a", b""), ("", b"x"))


def test_arrow_gets_kafkas_column_types() -> None:
    opened = open_batches(build_batch([(b"k", b"v")], timestamp=Millis(5)))
    schema = records_to_arrow(opened).schema
    assert schema.names == ["offset", "timestamp", "key", "value", "headers"]
    assert schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")
    assert schema.field("headers").type == HEADERS_TYPE
    assert schema.field("value").type == pa.binary()


def test_columns_that_are_not_requested_are_left_out() -> None:
    batch = build_batch([Record(key=b"k", value=b"v", headers=(("h", b"1"),))])
    columns = open_batches(batch, parts=RecordParts(keys=False, headers=False))
    assert columns.keys is None
    assert columns.headers is None
    assert records_to_arrow(columns).schema.names == ["offset", "timestamp", "value"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_values_can_be_left_where_they_are(codec: Codec) -> None:
    values = [b"one", None, b"", b"three"]
    batch = build_batch([(b"k", value) for value in values], codec=codec)
    columns = open_batches(batch, parts=RecordParts(values=False, value_spans=True))
    assert columns.values is None
    assert columns.value_spans is not None
    assert [columns.value_spans.row(row) for row in range(len(columns))] == values


def test_control_batches_are_passed_over_but_move_the_offset() -> None:
    marker = build_marker(
        commit=True,
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        coordinator_epoch=0,
        timestamp=Millis(1),
        base_offset=Offset(1),
    )
    columns = open_batches(build_batch([(b"k", b"v")]) + marker)
    assert columns.offsets.tolist() == [0]
    assert columns.end_offset == 2


def test_a_batch_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    whole = build_batch([(b"k", b"v")])
    cut = build_batch([(b"k", b"v")], base_offset=Offset(1))[:-1]
    columns = open_batches(whole + cut)
    assert (len(columns), columns.end_offset, columns.end_position) == (1, 1, len(whole))


def test_what_is_true_of_a_batch_can_be_had_per_row() -> None:
    first = build_batch([(b"a", None), (b"b", None)], leader_epoch=LeaderEpoch(3))
    second = build_batch(
        [(b"c", None)],
        base_offset=Offset(2),
        producer_id=ProducerId(9),
        producer_epoch=ProducerEpoch(1),
        base_sequence=SequenceNumber(5),
        transactional=True,
    )
    facts = open_batches(first + second).batches
    assert facts.per_row(facts.leader_epochs).tolist() == [3, 3, -1]
    assert facts.per_row(facts.producer_ids).tolist() == [-1, -1, 9]
    assert facts.base_sequences.tolist() == [-1, 5]


def test_a_header_name_that_is_not_utf8_is_replaced_as_in_java(as_records: AsRecords) -> None:
    batch = build_batch([Record(headers=(("name", b"1"),)), Record(headers=(("ok", b"2"),))])
    broken = batch.replace(b"name", b"n\xffm\xc3")
    seal(broken)
    names = [record.headers[0][0] for record in as_records(open_batches(broken))]
    assert names == ["n\ufffdm\ufffd", "ok"]


def test_any_buffer_will_do() -> None:
    batch = build_batch([(b"k", b"v")])
    for buffer in (bytes(batch), batch, memoryview(batch), memoryview(b"x" + batch)[1:]):
        assert open_batches(buffer).offsets.tolist() == [0]


def test_batches_out_of_order_are_malformed() -> None:
    later, earlier = (build_batch([(b"k", b"v")], base_offset=Offset(o)) for o in (5, 4))
    with pytest.raises(Malformed) as caught:
        open_batches(later + earlier)
    assert caught.value.position == len(later)


def test_a_wrong_checksum_is_malformed_where_the_batch_starts() -> None:
    first, second = build_batch([(b"k", b"v")]), build_batch([(b"k", b"v")], base_offset=Offset(1))
    second[-1] ^= 1
    with pytest.raises(Malformed, match="checksum") as caught:
        open_batches(first + second)
    assert caught.value.position == len(first)


def test_what_is_wrong_in_a_record_is_found_at_its_byte() -> None:
    first, second = build_batch([(b"k", b"v")]), build_batch([(b"k", b"v")], base_offset=Offset(1))
    second[HEADER_BYTES + 4] = 40  # the key's size, after length, attributes and two deltas
    seal(second)
    with pytest.raises(Malformed, match="a key is longer") as caught:
        open_batches(first + second)
    assert caught.value.position == len(first) + HEADER_BYTES + 4


def test_a_malformed_compressed_record_is_reported_with_its_batch() -> None:
    plain = build_batch([(b"k", b"v")])
    malformed = _with_records(plain, bytes(plain[HEADER_BYTES:-1]) + b"\x02", codec=Codec.ZSTD)
    with pytest.raises(Malformed, match="bytes into the opened records") as caught:
        open_batches(malformed)
    assert caught.value.position == HEADER_BYTES


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_opens_to_too_much_is_malformed(codec: Codec) -> None:
    batch = build_batch([(None, bytes(1 << 20))], codec=codec)
    with pytest.raises(Malformed):
        open_batches(batch, limits=PageLimits(batch_bytes_max=1 << 19))


def test_more_than_a_page_is_malformed_unless_read_page_by_page() -> None:
    log = b"".join(build_batch([(None, bytes(100))], base_offset=Offset(o)) for o in range(3))
    with pytest.raises(Malformed, match="more than 150 bytes"):
        open_batches(log, limits=PageLimits(page_bytes=150))


def test_a_claim_of_more_records_than_bytes_costs_no_memory() -> None:
    batch = build_batch([(b"k", b"v")])
    header = read_header(batch)._replace(record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    write_header(batch, 0, header)
    seal(batch)
    with pytest.raises(Malformed, match="cannot be in"):
        open_batches(batch)


def _with_records(batch: bytearray, section: bytes, codec: Codec = Codec.NONE) -> bytearray:
    """The same header over other records."""
    packed = bytes(compress(codec, section))
    header: BatchHeader = read_header(batch)
    built = bytearray(HEADER_BYTES)
    attributes = header.attributes | codec
    write_header(built, 0, header._replace(length=49 + len(packed), attributes=attributes))
    built += packed
    seal(built)
    return built
