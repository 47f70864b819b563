"""Batches that clients and brokers write: every codec, and each kind with its own attributes."""

import pytest

from penstock.model import Millis, Offset, ProducerEpoch, ProducerId, SequenceNumber
from penstock.protocol.compression import Codec
from penstock.protocol.control_records import build_marker
from penstock.protocol.records import Record, build_batch

RECORDS = [
    Record(key=b"k1", value=b"v1" * 40, timestamp=1_700_000_000_000),
    Record(key=None, value=b"", timestamp=1_700_000_000_007),
    Record(key=b"", value=None, timestamp=1_699_999_999_990),
    Record(
        key=b"k2",
        value=b"v2" * 40,
        timestamp=1_700_000_000_100,
        headers=(("trace", b"\x00\x01"), ("empty", b""), ("null", None), ("\u00e9", b"x")),
    ),
]


@pytest.fixture(scope="session")
def records() -> list[Record]:
    return RECORDS


@pytest.fixture(scope="session")
def batches() -> dict[str, bytes]:
    built = {codec.name: build_batch(RECORDS, codec=codec) for codec in Codec}
    built["transactional"] = build_batch(
        RECORDS,
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(2),
        base_sequence=SequenceNumber(11),
        transactional=True,
    )
    built["marker"] = build_marker(
        commit=True,
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(2),
        coordinator_epoch=3,
        timestamp=Millis(1_700_000_000_000),
    )
    built["gaps"] = build_batch(
        [Record(offset=2, key=b"a", value=b"1"), Record(offset=5, key=b"b", value=b"2")],
        last_offset=Offset(9),
        timestamp=Millis(5),
    )
    built["append time"] = build_batch(RECORDS, log_append_time=True, timestamp=Millis(99))
    return {name: bytes(batch) for name, batch in built.items()}
