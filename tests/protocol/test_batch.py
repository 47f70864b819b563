"""The batch header: fields, checks, changes in place, and every broken byte."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Malformed
from penstock.model import LeaderEpoch, Millis, Offset, ProducerId, SequenceNumber
from penstock.protocol.batch import (
    CONTROL,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    CorruptBatch,
    check_client_batch,
    check_stored_batch,
    iterate_headers,
    read_header,
    seal,
    set_append_time,
    write_header,
    write_leader_fields,
)
from penstock.protocol.control_records import read_marker
from penstock.protocol.records import Record, build_batch, read_records

OUTSIDE_THE_CRC = [*range(8), *range(12, 16)]  # base offset and leader epoch


def changed(batch: bytes, **fields: int) -> bytearray:
    """The batch with other header fields and a valid checksum."""
    rewritten = bytearray(batch)
    write_header(rewritten, 0, read_header(batch)._replace(**fields))
    seal(rewritten)
    return rewritten


def test_a_header_reads_back_what_the_batch_was_built_from() -> None:
    batch = build_batch(
        [(b"k", b"v"), (b"k", None)],
        base_offset=Offset(100),
        timestamp=Millis(5),
        codec=4,
        producer_id=ProducerId(9),
        base_sequence=SequenceNumber(3),
        leader_epoch=LeaderEpoch(6),
    )
    header = check_stored_batch(batch)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.end_offset) == (100, 101, 102)
    assert (header.leader_epoch, header.codec, header.record_count) == (6, 4, 2)
    assert (header.producer_id, header.base_sequence, header.last_sequence) == (9, 3, 4)
    assert (header.base_timestamp, header.max_timestamp) == (5, 5)
    assert not header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time


def test_the_last_sequence_wraps_to_zero() -> None:
    batch = build_batch([(b"k", b"v")] * 3, base_sequence=SequenceNumber(2**31 - 1))
    assert read_header(batch).last_sequence == 1


def test_a_batch_without_a_sequence_has_no_last_sequence() -> None:
    assert read_header(build_batch([(b"k", b"v")] * 3)).last_sequence == -1


def test_every_kind_of_batch_passes_the_storage_check(batches: dict[str, bytes]) -> None:
    for batch in batches.values():
        assert check_stored_batch(batch).size_bytes == len(batch)


def test_a_batch_with_gaps_passes_in_storage_only(batches: dict[str, bytes]) -> None:
    check_stored_batch(batches["gaps"])
    with pytest.raises(Malformed, match="2 records for 10 offsets"):
        check_client_batch(batches["gaps"])


def test_an_emptied_batch_passes_in_storage_only() -> None:
    batch = build_batch([], last_offset=Offset(4), producer_id=ProducerId(1))
    assert check_stored_batch(batch).end_offset == 5
    assert read_records(batch) == []
    with pytest.raises(Malformed):
        check_client_batch(batch)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"record_count": -1}, "records"),
        ({"record_count": 99}, "records"),
        ({"record_count": 0, "last_offset_delta": -1}, "records"),
        ({"last_offset_delta": -5, "record_count": -4}, "records"),
        ({"attributes": 5}, "codec 5"),
        ({"attributes": 0x10}, "no producer id"),
        ({"attributes": 0x21}, "compressed"),
    ],
)
def test_fields_that_contradict_each_other_are_malformed(
    batches: dict[str, bytes], fields: dict[str, int], reason: str
) -> None:
    with pytest.raises(Malformed, match=reason):
        check_stored_batch(changed(batches["NONE"], **fields))


def test_an_invalid_checksum_has_its_own_error(batches: dict[str, bytes]) -> None:
    corrupt = bytearray(batches["NONE"])
    corrupt[-1] ^= 1
    with pytest.raises(CorruptBatch):
        check_client_batch(corrupt)


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_only_magic_two_is_a_batch(batches: dict[str, bytes], magic: int) -> None:
    old = bytearray(batches["NONE"])
    old[16] = magic & 0xFF
    with pytest.raises(Malformed, match=f"magic is {magic}"):
        read_header(old)


def test_a_produced_batch_must_fill_its_field_exactly(batches: dict[str, bytes]) -> None:
    batch = batches["ZSTD"]
    frame = memoryview(b"before" + batch + b"after")
    assert check_client_batch(frame[6 : 6 + len(batch)]) == read_header(batch)
    for end in (5 + len(batch), 7 + len(batch), 6 + 2 * len(batch), 6):
        with pytest.raises(Malformed):
            check_client_batch(frame[6:end])


def test_two_batches_are_not_one_produced_batch(batches: dict[str, bytes]) -> None:
    with pytest.raises(Malformed, match="one batch"):
        check_client_batch(batches["NONE"] * 2)


@pytest.mark.parametrize("bit", [CONTROL, LOG_APPEND_TIME, DELETE_HORIZON])
def test_attributes_that_only_brokers_set_are_refused(batches: dict[str, bytes], bit: int) -> None:
    batch = changed(batches["NONE"], attributes=bit)
    check_stored_batch(batch)
    with pytest.raises(Malformed, match="cannot be set by clients"):
        check_client_batch(batch)


def test_a_produced_batch_starts_at_offset_zero(batches: dict[str, bytes]) -> None:
    batch = bytearray(batches["NONE"])
    write_leader_fields(batch, 0, 5, read_header(batch).length, 0)
    with pytest.raises(Malformed, match="offset 5"):
        check_client_batch(batch)


def test_a_producer_id_needs_a_sequence(batches: dict[str, bytes]) -> None:
    batch = changed(batches["NONE"], producer_id=4)
    with pytest.raises(Malformed, match="no sequence"):
        check_client_batch(batch)


def test_no_producer_id_with_epoch_and_sequence_zero_is_accepted(batches: dict[str, bytes]) -> None:
    """kafkajs sends this for producers that are not idempotent."""
    batch = changed(batches["NONE"], producer_epoch=0, base_sequence=0)
    assert check_client_batch(batch).producer_id == -1


def test_the_leaders_fields_are_outside_the_checksum(batches: dict[str, bytes]) -> None:
    frame = bytearray(b"xx" + batches["LZ4"])
    write_leader_fields(frame, 2, 2**40, read_header(frame, 2).length, 17)
    header = check_stored_batch(frame, 2)
    assert (header.base_offset, header.leader_epoch) == (2**40, 17)
    assert frame[2 + CRC_FROM :] == batches["LZ4"][CRC_FROM:]


def test_append_time_becomes_the_time_of_every_record(batches: dict[str, bytes]) -> None:
    batch = bytearray(batches["GZIP"])
    header = set_append_time(batch, read_header(batch), Millis(123_456))
    assert check_stored_batch(batch) == header
    assert header.is_log_append_time
    assert header.max_timestamp == 123_456
    assert {record.timestamp for record in read_records(batch)} == {123_456}


def test_headers_are_iterated_up_to_a_torn_tail(batches: dict[str, bytes]) -> None:
    first, second = batches["NONE"], batches["ZSTD"]
    log = first + second + first
    whole = [(0, read_header(first)), (len(first), read_header(second))]
    for torn in (0, 1, HEADER_BYTES - 1, HEADER_BYTES, len(first) - 1):
        end = len(first) + len(second) + torn
        assert list(iterate_headers(log, end=end)) == whole
        assert list(iterate_headers(log[:end])) == whole
    assert len(list(iterate_headers(log, len(first)))) == 2


def test_iterating_over_random_bytes_is_malformed(batches: dict[str, bytes]) -> None:
    with pytest.raises(Malformed):
        list(iterate_headers(batches["NONE"] + bytes(100)))


OPENERS: list[Callable[[bytes], object]] = [
    check_client_batch,
    check_stored_batch,
    read_records,
    read_marker,
    lambda batch: seal(bytearray(batch)),
    lambda batch: list(iterate_headers(batch)),
]


def test_every_truncation_is_malformed(batches: dict[str, bytes]) -> None:
    for batch in batches.values():
        for size in range(len(batch)):
            for check in (check_client_batch, check_stored_batch, read_records, read_marker):
                with pytest.raises(Malformed):
                    check(batch[:size])


def test_every_flipped_bit_under_the_checksum_is_malformed(batches: dict[str, bytes]) -> None:
    for batch in batches.values():
        for position in range(len(batch)):
            if position in OUTSIDE_THE_CRC:
                continue
            for bit in (0x01, 0x80):
                flipped = bytearray(batch)
                flipped[position] ^= bit
                with pytest.raises(Malformed):
                    check_stored_batch(flipped)
                with pytest.raises(Malformed):
                    read_records(flipped)


def test_flips_outside_the_checksum_change_offset_and_epoch_only(
    batches: dict[str, bytes],
) -> None:
    batch = batches["NONE"]
    for position in OUTSIDE_THE_CRC:
        flipped = bytearray(batch)
        flipped[position] ^= 0x01
        header = check_stored_batch(flipped)
        assert header._replace(base_offset=0, leader_epoch=-1) == read_header(batch)
        assert [record[1:] for record in read_records(flipped)] == [
            record[1:] for record in read_records(batch)
        ]


def test_every_flipped_byte_with_a_true_checksum_opens_or_is_malformed(
    batches: dict[str, bytes],
) -> None:
    """What a hostile client can send: the checksum is valid, the rest is not."""
    for batch in batches.values():
        for position in range(8, len(batch)):
            for value in (0x00, 0x7F, 0x80, 0xFF, batch[position] ^ 0x01):
                hostile = bytearray(batch)
                hostile[position] = value
                try:
                    seal(hostile)
                    opened = read_records(hostile, max_bytes=1 << 16)
                except Malformed:
                    continue
                assert all(isinstance(record, Record) for record in opened)


@settings(deadline=None, max_examples=200)
@given(rubbish=st.binary(max_size=200))
def test_random_bytes_are_malformed(rubbish: bytes) -> None:
    for opener in OPENERS:
        with suppress(Malformed):
            opener(rubbish)


@settings(deadline=None, max_examples=100)
@given(header=st.tuples(*(st.integers(-(2**15), 2**15 - 1) for _ in range(13))))
def test_a_written_header_reads_back(header: tuple[int, ...]) -> None:
    written = BatchHeader._make(header)._replace(length=100, magic=2, crc=7)
    buffer = bytearray(100)
    write_header(buffer, 3, written)
    assert read_header(buffer, 3) == written
