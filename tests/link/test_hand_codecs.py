"""What is read and written by hand equals what the generated codecs read and write."""

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorCode, Malformed
from penstock.model import TopicId, TopicPartition
from penstock.protocol.kio_codec import encode, fill, response_type
from penstock.protocol.messages.fetch_response import read_fetch_answer
from penstock.protocol.messages.transactions import read_states_answer

PRODUCE, FETCH, DESCRIBE_TRANSACTIONS = 0, 1, 65
TOPIC_ID = TopicId(uuid.UUID(int=7))
int64s = st.integers(-1, 2**63 - 1)

partitions = st.fixed_dictionaries(
    {
        "partition_index": st.integers(0, 2**31 - 1),
        "error_code": st.sampled_from([ErrorCode.none, ErrorCode.offset_out_of_range]),
        "high_watermark": int64s,
        "last_stable_offset": int64s,
        "log_start_offset": int64s,
        "aborted_transactions": st.none()
        | st.lists(
            st.fixed_dictionaries({"producer_id": int64s, "first_offset": int64s}), max_size=3
        ),
        "records": st.none() | st.binary(max_size=300),
        "current_leader": st.just({"leader_id": 3, "leader_epoch": 9}),
    }
)


def fetch_body(version: int, rows: list[dict[str, Any]]) -> bytes:
    return encode(
        fill(
            response_type(FETCH, version),
            throttle_time=12,
            error_code=ErrorCode.none,
            responses=[{"topic": "orders", "topic_id": TOPIC_ID, "partitions": rows}],
        )
    )


@given(st.integers(12, 18), st.lists(partitions, max_size=3))
def test_a_fetch_response_is_read_as_the_generated_writer_wrote_it(
    version: int, rows: list[dict[str, Any]]
) -> None:
    body = b"head" + fetch_body(version, rows)
    answer, end = read_fetch_answer(body, 4, version)
    assert (answer.throttle_ms, answer.error_code, end) == (12, 0, len(body))
    for read, row in zip(answer.partitions, rows, strict=True):
        aborted = row["aborted_transactions"] or ()
        assert [entry._asdict() for entry in read.aborted] == list(aborted)
        assert bytes(read.records) == (row["records"] or b"")
        assert (read.partition, read.error_code) == (row["partition_index"], row["error_code"])
        assert (read.high_watermark, read.last_stable_offset, read.log_start_offset) == (
            row["high_watermark"],
            row["last_stable_offset"],
            row["log_start_offset"],
        )


def test_the_records_are_not_copied() -> None:
    frame = bytearray(fetch_body(13, [{"records": b"before"}]))
    answer, _ = read_fetch_answer(frame, 0, 13)
    place = frame.index(b"before")
    memoryview(frame)[place : place + 6] = b"after!"
    assert bytes(answer.partitions[0].records) == b"after!"


def test_a_truncated_fetch_response_is_malformed() -> None:
    body = fetch_body(
        13,
        [
            {
                "aborted_transactions": [{"producer_id": 1, "first_offset": 2}],
                "records": b"r" * 20,
            }
        ],
    )
    for end in range(len(body)):
        with pytest.raises(Malformed):
            read_fetch_answer(body[:end], 0, 13)
    with pytest.raises(Malformed, match="bytes are left"):
        read_fetch_answer(body + b"\0", 0, 13)


@given(st.binary(max_size=120), st.sampled_from([12, 13, 17]))
def test_random_bytes_are_malformed(body: bytes, version: int) -> None:
    for read in (
        lambda: read_fetch_answer(body, 0, version),
        lambda: read_states_answer(body, 0),
    ):
        try:
            read()
        except Malformed:
            continue


def test_transaction_states_are_read() -> None:
    state = {
        "error_code": ErrorCode.none,
        "transactional_id": "sink",
        "transaction_state": "Ongoing",
        "transaction_timeout": 60_000,
        "transaction_start_time": 1_700_000_000_000,
        "producer_id": 4,
        "producer_epoch": 5,
        "topics": [{"topic": "orders", "partitions": [0, 3]}],
    }
    entity = fill(response_type(DESCRIBE_TRANSACTIONS, 0), transaction_states=[state])
    body = encode(entity)
    ((read,), _) = read_states_answer(body, 0)
    assert (read.transactional_id, read.state, read.timeout_ms) == ("sink", "Ongoing", 60_000)
    assert (read.started_at, read.producer_id, read.producer_epoch) == (1_700_000_000_000, 4, 5)
    assert read.partitions == (TopicPartition("orders", 0), TopicPartition("orders", 3))
    for end in range(len(body)):
        with pytest.raises(Malformed):
            read_states_answer(body[:end], 0)
