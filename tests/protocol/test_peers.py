"""Batches exchanged with aiokafka's own codec, both ways, in every compression."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from penstock.protocol.batch import check_client_batch
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, build_batch, read_records


@pytest.mark.parametrize("codec", list(Codec))
def test_what_aiokafka_writes_is_read(codec: Codec, records: list[Record]) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=5,
        producer_epoch=1,
        base_sequence=10,
        batch_size=1 << 20,
    )
    for offset, record in enumerate(records):
        builder.append(
            offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    batch = bytes(builder.build())
    header = check_client_batch(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 10)
    assert header.is_transactional
    assert read_records(batch) == [
        record._replace(offset=offset) for offset, record in enumerate(records)
    ]


@pytest.mark.parametrize("codec", list(Codec))
def test_aiokafka_reads_what_is_written(codec: Codec, records: list[Record]) -> None:
    theirs = DefaultRecordBatch(bytes(build_batch(records, codec=codec)))
    assert theirs.validate_crc()
    read = [
        (record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in theirs
    ]
    assert read == [tuple(record._replace(offset=offset)) for offset, record in enumerate(records)]
