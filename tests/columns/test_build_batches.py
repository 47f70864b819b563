"""Building against the plain reader and builder: every row once, in order, as a broker takes it."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.columns.arrow_records import HEADERS_TYPE, records_to_arrow
from penstock.columns.build_batches import (
    UNSEALED,
    BuiltBatch,
    Framing,
    PartitionBatches,
    Stamp,
    build_batches,
)
from penstock.columns.open_batches import open_batches
from penstock.columns.partitioner import Unkeyed
from penstock.errors import ErrorCode, Refused
from penstock.model import NO_OFFSET, Millis, ProducerEpoch, ProducerId, SequenceNumber
from penstock.protocol.batch import CorruptBatch, check_client_batch, read_header, seal
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, build_batch, read_records

NOW = Millis(1_700_000_000_000)
ONE = Unkeyed.sticky(0)

fields = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=300)
headers = st.lists(
    st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=99)), max_size=3
).map(tuple)
records_of_one_batch = st.lists(
    st.builds(
        Record,
        offset=st.just(NO_OFFSET),
        timestamp=st.integers(0, 2**45),
        key=fields,
        value=fields,
        headers=headers,
    ),
    max_size=20,
)


def as_arrow(records: list[Record], **more: Any) -> pa.RecordBatch:
    lists = [[{"key": k, "value": v} for k, v in record.headers] for record in records]
    columns = {
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "timestamp": pa.array([record.timestamp for record in records], pa.int64()),
        "headers": pa.array(lists, HEADERS_TYPE),
        **more,
    }
    return pa.RecordBatch.from_pydict(columns)


def only(built: dict[int, PartitionBatches]) -> list[BuiltBatch]:
    assert list(built) == [0]
    return built[0].batches


def values_of(batches: list[BuiltBatch]) -> list[list[bytes | None]]:
    return [[record.value for record in read_records(batch.content)] for batch in batches]


@given(records=records_of_one_batch, count=st.integers(1, 4), codec=st.sampled_from(Codec))
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_every_row_is_written_once_and_in_order(
    records: list[Record], count: int, codec: Codec
) -> None:
    built = build_batches(
        as_arrow(records),
        partition_count=count,
        now=NOW,
        unkeyed=Unkeyed.round_robin(),
        framing=Framing(codec=codec, batch_bytes_max=1500, batch_records_max=5),
    )
    rows = []
    for partition, (batches, partition_rows, _) in built.items():
        assert 0 <= partition < count
        read = []
        for batch in batches:
            header = check_client_batch(batch.content)
            assert batch.record_count == header.record_count <= 5
            read += [record._replace(offset=-1) for record in read_records(batch.content)]
        assert read == [records[row] for row in partition_rows]
        assert partition_rows.tolist() == sorted(partition_rows.tolist())
        rows += partition_rows.tolist()
    assert sorted(rows) == list(range(len(records)))


@given(records=records_of_one_batch.filter(bool), codec=st.sampled_from(Codec))
@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
def test_a_batch_is_byte_for_byte_the_plain_builders(records: list[Record], codec: Codec) -> None:
    built = build_batches(
        as_arrow(records),
        partition_count=1,
        now=NOW,
        unkeyed=ONE,
        framing=Framing(codec=codec),
        stamp=Stamp(
            ProducerId(7), ProducerEpoch(2), transactional=True, sequences={0: SequenceNumber(11)}
        ),
    )
    expected = build_batch(
        records,
        codec=codec,
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(2),
        base_sequence=SequenceNumber(11),
        transactional=True,
    )
    assert bytes(only(built)[0].content) == bytes(expected)


def test_what_was_opened_can_be_built_again() -> None:
    source = build_batch(
        [Record(key=None, value=b"a", timestamp=5), Record(key=b"", value=None, timestamp=4)]
    )
    arrow = records_to_arrow(open_batches(source))
    built = build_batches(arrow, partition_count=1, now=NOW, unkeyed=ONE)
    assert bytes(only(built)[0].content) == bytes(source)


def test_a_partition_column_decides_and_null_leaves_it_to_the_key() -> None:
    arrow = as_arrow(
        [Record(key=b"a", value=b"1", timestamp=1), Record(key=None, value=b"2", timestamp=1)] * 2,
        partition=pa.array([2, 1, 2, None], pa.int32()),
    )
    built = build_batches(arrow, partition_count=3, now=NOW, unkeyed=Unkeyed.sticky(0))
    assert {p: b.rows.tolist() for p, b in built.items()} == {0: [3], 1: [1], 2: [0, 2]}


def test_batches_are_cut_by_records_and_by_bytes() -> None:
    arrow = pa.RecordBatch.from_pydict({"value": [bytes(100)] * 7})
    by_count = build_batches(
        arrow, partition_count=1, now=NOW, unkeyed=ONE, framing=Framing(batch_records_max=3)
    )
    assert [batch.record_count for batch in only(by_count)] == [3, 3, 1]
    by_size = build_batches(
        arrow, partition_count=1, now=NOW, unkeyed=ONE, framing=Framing(batch_bytes_max=300)
    )
    assert [batch.record_count for batch in only(by_size)] == [2, 2, 2, 1]
    assert max(len(batch.content) for batch in only(by_size)) <= 300


def test_a_row_too_large_for_any_batch_is_refused_by_its_number() -> None:
    arrow = pa.RecordBatch.from_pydict({"value": [b"", bytes(500)]})
    with pytest.raises(Refused, match="row 1 makes a batch of") as caught:
        build_batches(
            arrow, partition_count=1, now=NOW, unkeyed=ONE, framing=Framing(batch_bytes_max=400)
        )
    assert caught.value.code is ErrorCode.message_too_large


def test_a_row_that_just_fits_is_not_refused() -> None:
    arrow = pa.RecordBatch.from_pydict({"value": [bytes(500)]})
    size = len(only(build_batches(arrow, partition_count=1, now=NOW, unkeyed=ONE))[0].content)
    fits, short = Framing(batch_bytes_max=size), Framing(batch_bytes_max=size - 1)
    assert build_batches(arrow, partition_count=1, now=NOW, unkeyed=ONE, framing=fits)
    with pytest.raises(Refused, match=f"batch of {size} bytes"):
        build_batches(arrow, partition_count=1, now=NOW, unkeyed=ONE, framing=short)


def test_sequences_run_on_through_batches_and_start_over_after_the_last() -> None:
    arrow = pa.RecordBatch.from_pydict({"value": [b""] * 5})
    stamp = Stamp(ProducerId(1), ProducerEpoch(0), sequences={0: SequenceNumber(2**31 - 3)})
    built = build_batches(
        arrow,
        partition_count=1,
        now=NOW,
        unkeyed=ONE,
        framing=Framing(batch_records_max=2),
        stamp=stamp,
    )
    sequences = [read_header(batch.content).base_sequence for batch in only(built)]
    assert sequences == [2**31 - 3, 2**31 - 1, 1]
    assert built[0].end_sequence == 2


def test_without_a_producer_there_is_no_sequence() -> None:
    arrow = pa.RecordBatch.from_pydict({"value": [b"v"]})
    built = build_batches(arrow, partition_count=1, now=NOW, unkeyed=ONE)
    assert built[0].end_sequence == -1
    assert read_header(only(built)[0].content).base_sequence == -1


def test_the_header_has_the_first_and_the_latest_time_and_missing_times_are_now() -> None:
    arrow = pa.RecordBatch.from_pydict(
        {"value": [b""] * 3, "timestamp": pa.array([50, 90, 20], pa.timestamp("ms"))}
    )
    header = read_header(
        only(build_batches(arrow, partition_count=1, now=NOW, unkeyed=ONE))[0].content
    )
    assert (header.base_timestamp, header.max_timestamp) == (50, 90)
    arrow = pa.RecordBatch.from_pydict({"value": [b"", b""], "timestamp": pa.array([7, None])})
    batch = only(build_batches(arrow, partition_count=1, now=NOW, unkeyed=ONE))[0]
    assert [record.timestamp for record in read_records(batch.content)] == [7, NOW]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", None, "€"], pa.string()),
        pa.array(["a", None, "€"], pa.large_string()),
        pa.array(["a", None, "€"], pa.string_view()),
        pa.array(["a", None, "€"]).dictionary_encode(),
        pa.array([b"a", None, "€".encode()], pa.binary_view()),
        pa.array([b"x", b"a", None, "€".encode(), b"y"], pa.large_binary()).slice(1, 3),
        pa.array([None, "x", "a", None, "€", "y"]).slice(1).slice(1, 3),
    ],
    ids=lambda array: str(array.type),
)
def test_any_binary_or_text_type_is_taken_sliced_or_not(values: Any) -> None:
    arrow = pa.RecordBatch.from_arrays([values], names=["value"])
    built = build_batches(arrow, partition_count=1, now=NOW, unkeyed=ONE)
    assert values_of(only(built)) == [[b"a", None, "€".encode()]]


def test_headers_may_be_sliced_null_or_in_a_large_list() -> None:
    pairs: list[Any] = [[{"key": "lost", "value": b"0"}], None, [], [{"key": "a", "value": None}]]
    for kind in (HEADERS_TYPE, pa.large_list(HEADERS_TYPE.value_type)):
        column = pa.array(pairs, kind).slice(1)
        arrow = pa.RecordBatch.from_arrays(
            [pa.array([b"v"] * 3), column], names=["value", "headers"]
        )
        batch = only(build_batches(arrow, partition_count=1, now=NOW, unkeyed=ONE))[0]
        assert [r.headers for r in read_records(batch.content)] == [(), (), (("a", None),)]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"key": [b"k"]}, "expected value"),
        ({"value": [b"v"], "topic": ["t"]}, "expected value"),
        ({"value": [1]}, "column value is int64"),
        ({"value": [b"v"], "key": [1.5]}, "column key is double"),
        ({"value": [b"v"], "timestamp": ["soon"]}, "column timestamp is string"),
        ({"value": [b"v"], "timestamp": [-2]}, "before 1970"),
        ({"value": [b"v"], "partition": ["0"]}, "column partition is string"),
        ({"value": [b"v"], "partition": [-1]}, "below zero"),
        ({"value": [b"v"], "partition": [1]}, "among the topic's 1"),
        ({"value": [b"v"], "headers": [["a"]]}, "column headers is"),
        ({"value": [b"v"], "headers": [[{"key": None, "value": b""}]]}, "without a name"),
    ],
)
def test_columns_that_kafka_cannot_say_are_refused(columns: dict[str, Any], reason: str) -> None:
    arrow = pa.RecordBatch.from_pydict(columns)
    with pytest.raises(ValueError, match=reason):
        build_batches(arrow, partition_count=1, now=NOW, unkeyed=ONE)


def test_no_rows_make_no_batches() -> None:
    for arrow in (as_arrow([]), pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})):
        assert build_batches(arrow, partition_count=3, now=NOW, unkeyed=ONE) == {}


def test_a_column_of_nothing_but_nulls_needs_no_type() -> None:
    arrow = pa.RecordBatch.from_pydict({"key": [b"k"], "value": [None]})
    assert values_of(only(build_batches(arrow, partition_count=1, now=NOW, unkeyed=ONE))) == [
        [None]
    ]


def test_a_batch_that_is_stamped_later_lacks_its_checksum_alone() -> None:
    arrow = as_arrow([Record(key=b"a", value=b"1", timestamp=1)])
    sealed, unsealed = (
        only(build_batches(arrow, partition_count=1, now=NOW, unkeyed=ONE, stamp=stamp))[0].content
        for stamp in (Stamp(), UNSEALED)
    )
    with pytest.raises(CorruptBatch):
        check_client_batch(unsealed)
    seal(unsealed)
    assert unsealed == sealed
