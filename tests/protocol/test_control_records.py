"""Transaction markers."""

import pytest

from penstock.errors import Malformed
from penstock.model import LeaderEpoch, Millis, Offset, ProducerEpoch, ProducerId
from penstock.protocol.batch import check_stored_batch
from penstock.protocol.control_records import Marker, build_marker, read_marker
from penstock.protocol.records import Record, build_batch, read_records


def marker(*, commit: bool) -> bytearray:
    return build_marker(
        commit=commit,
        producer_id=ProducerId(4_000),
        producer_epoch=ProducerEpoch(3),
        coordinator_epoch=12,
        timestamp=Millis(1_234),
        base_offset=Offset(77),
        leader_epoch=LeaderEpoch(5),
    )


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_reads_back(commit: bool) -> None:
    assert read_marker(b"." + marker(commit=commit), 1) == Marker(
        ProducerId(4_000), ProducerEpoch(3), commit, 12
    )


def test_a_marker_has_the_bytes_that_kafka_gives_it() -> None:
    batch = marker(commit=True)
    header = check_stored_batch(batch)
    assert header.attributes == 0x30
    assert (header.base_offset, header.leader_epoch, header.base_sequence) == (77, 5, -1)
    (record,) = read_records(batch)
    assert record.timestamp == 1_234
    assert record.key == bytes.fromhex("00000001")
    assert record.value == bytes.fromhex("00000000000c")
    assert read_records(marker(commit=False))[0].key == bytes.fromhex("00000000")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (Record(key=bytes.fromhex("00000002"), value=bytes(6)), "type 2"),
        (Record(key=bytes(3), value=bytes(6)), "truncated"),
        (Record(key=bytes(4), value=bytes(5)), "truncated"),
        (Record(key=None, value=bytes(6)), "truncated"),
        (Record(key=bytes(4), value=None), "truncated"),
    ],
)
def test_other_control_records_are_not_transaction_markers(record: Record, reason: str) -> None:
    batch = build_batch(
        [record], producer_id=ProducerId(1), transactional=True, control=True, timestamp=Millis(1)
    )
    with pytest.raises(Malformed, match=reason):
        read_marker(batch)


def test_two_records_are_not_a_marker() -> None:
    record = Record(key=bytes(4), value=bytes(6))
    batch = build_batch([record] * 2, producer_id=ProducerId(1), transactional=True, control=True)
    with pytest.raises(Malformed, match="2 records"):
        read_marker(batch)


def test_an_ordinary_batch_is_not_a_marker(batches: dict[str, bytes]) -> None:
    for name in ("NONE", "transactional"):
        with pytest.raises(Malformed, match="not a transaction marker"):
            read_marker(batches[name])
