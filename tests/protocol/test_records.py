"""Single records: round trips, deltas, and records that contradict their batch."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Malformed
from penstock.model import NO_OFFSET, Millis, Offset
from penstock.protocol.batch import (
    HEADER_BYTES,
    BatchHeader,
    check_stored_batch,
    read_header,
    seal,
    write_header,
)
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, build_batch, read_records, write_record
from penstock.protocol.varint import (
    read_unsigned_varint,
    read_varint,
    read_varlong,
    unsigned_varint,
    varint,
    varlong,
)

contents = st.none() | st.binary(max_size=200)
built_records = st.builds(
    Record,
    offset=st.just(NO_OFFSET),
    timestamp=st.integers(0, 2**45),
    key=contents,
    value=contents,
    headers=st.lists(st.tuples(st.text(max_size=10), contents), max_size=3).map(tuple),
)


@settings(deadline=None, max_examples=80)
@given(
    records=st.lists(built_records, min_size=1, max_size=12),
    codec=st.sampled_from(list(Codec)),
    base_offset=st.integers(0, 2**50),
)
def test_records_read_back_as_they_were_built(
    records: list[Record], codec: Codec, base_offset: int
) -> None:
    batch = build_batch(records, codec=codec, base_offset=Offset(base_offset))
    header = check_stored_batch(batch)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert read_records(b"xyz" + batch, 3) == [
        record._replace(offset=base_offset + index) for index, record in enumerate(records)
    ]


def test_pairs_take_the_batchs_time_and_the_next_offset() -> None:
    batch = build_batch([(b"a", b"1"), (b"b", None)], base_offset=Offset(5), timestamp=Millis(9))
    assert read_records(batch) == [Record(5, 9, b"a", b"1"), Record(6, 9, b"b", None)]


def test_records_keep_their_own_offsets(batches: dict[str, bytes]) -> None:
    assert [record.offset for record in read_records(batches["gaps"])] == [2, 5]
    assert read_header(batches["gaps"]).last_offset == 9


def test_offsets_that_do_not_rise_are_a_bug() -> None:
    with pytest.raises(AssertionError, match="does not rise"):
        build_batch([Record(offset=3), Record(offset=3)])


def test_a_delete_horizon_moves_the_base_timestamp_and_no_record() -> None:
    batch = build_batch(
        [Record(timestamp=1_000, key=b"k")], delete_horizon=Millis(99_000), timestamp=Millis(0)
    )
    header = read_header(batch)
    assert header.has_delete_horizon
    assert header.base_timestamp == 99_000
    assert read_records(batch)[0].timestamp == 1_000


def test_a_bound_on_opened_bytes_holds(batches: dict[str, bytes]) -> None:
    for codec in Codec:
        with pytest.raises(Malformed):
            read_records(batches[codec.name], max_bytes=20)


def with_body(body: bytes, *, count: int, last_offset_delta: int) -> bytearray:
    """A batch with a valid checksum around any record bytes."""
    header = BatchHeader(
        base_offset=0,
        length=49 + len(body),
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=last_offset_delta,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    batch = bytearray(HEADER_BYTES) + body
    write_header(batch, 0, header)
    seal(batch)
    return batch


GOOD = write_record(Record(offset=0, timestamp=0, key=b"k", value=b"v"), 0, 0)
SECOND = write_record(Record(offset=1, timestamp=0), 0, 0)


@pytest.mark.parametrize(
    ("body", "count", "reason"),
    [
        (GOOD, 2, "past the end"),
        (GOOD + GOOD, 2, "offset delta 0 after 0"),
        (SECOND + GOOD, 2, "offset delta 0 after 1"),
        (GOOD + SECOND + b"\0", 2, "left after the last record"),
        (b"\x00" + SECOND, 2, "a record is empty"),
        (b"\x01" + SECOND, 1, "a record of -1"),
        (varint(1_000) + GOOD, 1, "a record of 1000"),
        (b"\x7f\xff\xff\xff\xff\xff", 1, "a record of -64"),
        (b"\xff\xff\xff\xff\xff\xff", 1, "longer than 5 bytes"),
        (b"\xff\xff\xff\xff\x1f", 1, "does not fit 32 bits"),
        (varint(6) + bytes([0, 0, 0, 3, 1, 0]), 1, "a field of -2"),
        (varint(6) + bytes([0, 0, 0, 1, 80, 0]), 1, "a field of 40"),
        (varint(6) + bytes([0, 0, 0, 1, 1, 3]), 1, "-2 headers"),
        (varint(10) + bytes([0, 0, 0, 1, 1]) + varint(1 << 30), 1, "1073741824 headers"),
        (varint(8) + bytes([0, 0, 0, 1, 1, 2, 1, 1]), 1, "a header has no name"),
        (varint(9) + bytes([0, 0, 0, 1, 1, 2, 2, 0xFF, 1]), 1, "not UTF-8"),
        (varint(7) + bytes([0, 0, 0, 1, 1, 0, 0]), 1, "left in a record"),
    ],
)
def test_records_that_contradict_themselves_are_malformed(
    body: bytes, count: int, reason: str
) -> None:
    with pytest.raises(Malformed, match=reason):
        read_records(with_body(body, count=count, last_offset_delta=max(count - 1, 1)))


@settings(deadline=None, max_examples=300)
@given(body=st.binary(max_size=60), count=st.integers(0, 3))
def test_any_record_bytes_open_or_are_malformed(body: bytes, count: int) -> None:
    try:
        records = read_records(with_body(body, count=count, last_offset_delta=5))
    except Malformed:
        return
    assert len(records) == count


@settings(deadline=None)
@given(value=st.integers(-(2**31), 2**31 - 1))
def test_varints_read_back(value: int) -> None:
    written = varint(value)
    assert len(written) <= 5
    assert read_varint(written + b"x", 0, len(written)) == (value, len(written))


@settings(deadline=None)
@given(value=st.integers(-(2**63), 2**63 - 1))
def test_varlongs_read_back(value: int) -> None:
    written = varlong(value)
    assert len(written) <= 10
    assert read_varlong(written, 0, len(written)) == (value, len(written))


@settings(deadline=None)
@given(value=st.integers(0, 2**32 - 1))
def test_unsigned_varints_read_back(value: int) -> None:
    written = unsigned_varint(value)
    assert read_unsigned_varint(b"x" + written, 1, 1 + len(written)) == (value, 1 + len(written))


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (b"\x00", 0),
        (b"\x01", -1),
        (b"\x02", 1),
        (b"\x80\x01", 64),
        (b"\xff\xff\xff\xff\x0f", -(2**31)),
    ],
)
def test_varints_are_zigzag(encoded: bytes, value: int) -> None:
    assert read_varint(encoded, 0, len(encoded)) == (value, len(encoded))
