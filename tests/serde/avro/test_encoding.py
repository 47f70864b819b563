"""Arrow batches and dicts become what fastavro would have written, or an error per row."""

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.columns.avro.read_program import AvroFault as Fault
from penstock.serde.avro.batch import AvroBatchDecoder, AvroBatchEncoder

SEEDS = st.integers(0, 2**32)
PREFIX = b"\x00\x00\x00\x00\x07"
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "count", "type": "int", "default": 1},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["NEW", "OLD"]}},
        {"name": "rate", "type": ["double", "null"], "default": 0.5},
    ],
}
GOOD = {"id": "a", "count": 2, "note": "n", "state": "OLD", "rate": 1.5}


def payloads(result: Any) -> list[bytes]:
    buffer, offsets, _ = result
    return [buffer[start:end].tobytes() for start, end in pairwise(offsets)]


def batch_of(rows: list[dict[str, Any]], **types: pa.DataType) -> pa.RecordBatch:
    names = list(rows[0])
    arrays = [pa.array([row[name] for row in rows], types.get(name)) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)


@given(seed=SEEDS)
@example(seed=2731)  # a slice whose cast, by Arrow, would have lost the length of a null child
@settings(max_examples=120, deadline=None)
def test_what_was_decoded_encodes_to_what_decodes_to_the_same(seed: int, oracle: Any) -> None:
    maker = oracle.maker(seed)
    schema = oracle.parse(maker.record() if seed % 4 else maker.schema())
    written = oracle.encoded(schema, [maker.value(schema.root) for _ in range(10)])
    decoder = AvroBatchDecoder(schema)
    batch, _ = decoder.decode(*oracle.joined(written))
    start = maker.random.randrange(10)
    batch = batch.slice(start, maker.random.randint(1, 10))
    buffer, offsets, errors = AvroBatchEncoder(schema).encode(batch, PREFIX)
    assert not errors.any()
    assert all(buffer[at : at + 5].tobytes() == PREFIX for at in offsets[:-1])
    again, errors = decoder.decode(buffer, offsets[:-1] + len(PREFIX), offsets[1:])
    assert not errors.any()
    assert oracle.rows_of(again) == oracle.rows_of(batch)


@given(seed=SEEDS)
@settings(max_examples=80, deadline=None)
def test_rows_become_the_bytes_that_fastavro_writes(seed: int, oracle: Any) -> None:
    maker = oracle.maker(seed)
    schema = oracle.parse(ORDER)
    rows = [maker.value(schema.root) for _ in range(5)]
    result = AvroBatchEncoder(schema).encode_rows(rows)
    assert not result[2].any()
    assert payloads(result) == oracle.encoded(schema, rows)


def test_a_null_in_a_required_field_is_wrong_with_its_row_only(oracle: Any) -> None:
    schema = oracle.parse(ORDER)
    rows = [GOOD, {**GOOD, "id": None}, {**GOOD, "count": None}, {**GOOD, "note": None}]
    encoder = AvroBatchEncoder(schema)
    good = oracle.encoded(schema, [rows[0], rows[3]])
    for result in (encoder.encode(batch_of(rows, count=pa.int32())), encoder.encode_rows(rows)):
        assert result[2].tolist() == [0, Fault.NULL, Fault.NULL, 0]
        assert payloads(result) == [good[0], b"", b"", good[1]]


def test_a_null_deep_inside_is_wrong_as_well(oracle: Any) -> None:
    items = {"type": "array", "items": "int"}
    schema = oracle.parse({"type": "record", "name": "R", "fields": [{"name": "a", "type": items}]})
    batch = batch_of(
        [{"a": [1, 2]}, {"a": [1, None]}, {"a": None}, {"a": []}], a=pa.list_(pa.int32())
    )
    result = AvroBatchEncoder(schema).encode(batch, PREFIX)
    assert result[2].tolist() == [0, Fault.NULL, Fault.NULL, 0]
    assert payloads(result) == [PREFIX + b"\x04\x02\x04\x00", b"", b"", PREFIX + b"\x00"]


def test_fields_left_out_of_a_dict_get_their_defaults(oracle: Any) -> None:
    schema = oracle.parse(ORDER)
    rows: list[dict[str, Any]] = [
        {"id": "a", "state": "NEW"},
        {"id": "b", "state": "NEW", "rate": None, "count": 5},
    ]
    result = AvroBatchEncoder(schema).encode_rows(rows)
    assert not result[2].any()
    full = [
        {"id": "a", "count": 1, "note": None, "state": "NEW", "rate": 0.5},
        {"id": "b", "count": 5, "note": None, "state": "NEW", "rate": None},
    ]
    assert payloads(result) == oracle.encoded(schema, full)


def test_columns_left_out_of_a_batch_get_their_defaults(oracle: Any) -> None:
    schema = oracle.parse(ORDER)
    result = AvroBatchEncoder(schema).encode(batch_of([{"state": "OLD", "id": "a"}]))
    wanted = {"id": "a", "count": 1, "note": None, "state": "OLD", "rate": 0.5}
    assert payloads(result) == oracle.encoded(schema, [wanted])


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ({**GOOD, "state": "LOST"}, Fault.SYMBOL),
        ({**GOOD, "count": 1 << 40}, Fault.UNFIT),
        ({**GOOD, "count": "many"}, Fault.UNFIT),
        ({**GOOD, "more": 1}, Fault.UNFIT),
        ({**GOOD, "count": 1.5}, Fault.UNFIT),
        ({**GOOD, "count": True}, Fault.UNFIT),
        ({**GOOD, "id": b"bytes"}, Fault.UNFIT),
        ({"count": 1}, Fault.NULL),
    ],
)
def test_a_dict_that_does_not_fit_is_wrong_and_the_others_are_written(
    row: dict[str, Any], wrong: Fault, oracle: Any
) -> None:
    schema = oracle.parse(ORDER)
    result = AvroBatchEncoder(schema).encode_rows([GOOD, row, GOOD])
    assert result[2].tolist() == [0, wrong, 0]
    assert payloads(result) == [
        *oracle.encoded(schema, [GOOD]),
        b"",
        *oracle.encoded(schema, [GOOD]),
    ]


def test_a_column_of_the_wrong_name_or_type_is_refused(oracle: Any) -> None:
    encoder = AvroBatchEncoder(oracle.parse(ORDER))
    with pytest.raises(ValueError, match="no field 'more'"):
        encoder.encode(batch_of([{**GOOD, "more": 1}]))
    with pytest.raises(ValueError, match="'count' does not fit"):
        encoder.encode(batch_of([{**GOOD, "count": 1 << 40}]))
    with pytest.raises(ValueError, match="no column 'id', and the field has no default"):
        encoder.encode(batch_of([{"state": "NEW"}]))


def test_a_union_is_written_by_the_one_member_that_is_set(oracle: Any) -> None:
    schema = oracle.parse(["string", "null", "int"])
    kind = pa.struct([("string", pa.string()), ("int", pa.int32())])
    values = [
        {"string": "a", "int": None},
        {"string": None, "int": 3},
        None,
        {"string": "a", "int": 3},
        {"string": None, "int": None},
    ]
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["value"])
    result = AvroBatchEncoder(schema).encode(batch)
    assert result[2].tolist() == [0, 0, 0, Fault.MEMBERS, Fault.MEMBERS]
    assert payloads(result) == [b"\x00\x02a", b"\x04\x06", b"\x02", b"", b""]


def test_dicts_with_a_wide_union_find_its_branch_one_by_one(oracle: Any) -> None:
    wide = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "u", "type": ["null", "string", "int"]}],
    }
    schema = oracle.parse(wide)
    rows: list[dict[str, Any]] = [{"u": "x"}, {"u": 3}, {"u": None}, {"u": 1.5}]
    result = AvroBatchEncoder(schema).encode_rows(rows, PREFIX)
    assert result[2].tolist() == [0, 0, 0, Fault.UNFIT]
    assert payloads(result)[:3] == [PREFIX + one for one in oracle.encoded(schema, rows[:3])]


def test_logical_types_are_written_from_pythons_own_values(oracle: Any) -> None:
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "on", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "sum",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
    ]
    schema = oracle.parse({"type": "record", "name": "R", "fields": fields})
    row = {
        "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "on": date(1970, 1, 3),
        "sum": Decimal("-1.28"),
    }
    result = AvroBatchEncoder(schema).encode_rows([row])
    assert payloads(result) == [b"\xd0\x0f" + b"\x04" + b"\x02\x80"]


def test_a_decimal_too_wide_for_its_fixed_is_wrong(oracle: Any) -> None:
    fixed = {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4}
    kind = pa.decimal128(9)
    values = pa.array([Decimal(9999), Decimal(-32768), Decimal(32768)], kind)
    encoder = AvroBatchEncoder(oracle.parse(fixed))
    with pytest.raises(ValueError, match="does not fit"):
        encoder.encode(pa.RecordBatch.from_arrays([values], names=["value"]))
    result = encoder.encode(pa.RecordBatch.from_arrays([values[:1]], names=["value"]))
    assert payloads(result) == [(9999).to_bytes(2, "big")]


def test_a_schema_that_contains_itself_is_written_one_by_one(oracle: Any) -> None:
    fields = [{"name": "size", "type": "int"}, {"name": "next", "type": ["null", "R"]}]
    schema = oracle.parse({"type": "record", "name": "R", "fields": fields})
    rows: list[dict[str, Any]] = [
        {"size": 1, "next": {"size": 2, "next": None}},
        {"size": 3, "next": None},
    ]
    written = oracle.encoded(schema, rows)
    encoder = AvroBatchEncoder(schema)
    assert payloads(encoder.encode_rows(rows)) == written
    batch, errors = AvroBatchDecoder(schema).decode(*oracle.joined(written))
    assert not errors.any()
    assert payloads(encoder.encode(batch)) == written


def test_large_rows_and_many_rows_make_the_output_grow(oracle: Any) -> None:
    schema = oracle.parse("string")
    values = ["x" * 300_000, *("y" * 10 for _ in range(500)), "z" * 900_000]
    batch = pa.RecordBatch.from_arrays([pa.array(values)], names=["value"])
    result = AvroBatchEncoder(schema).encode(batch)
    assert not result[2].any()
    assert payloads(result) == oracle.encoded(schema, values)


def test_values_that_arrow_would_change_are_wrong_wherever_they_are(oracle: Any) -> None:
    item = {
        "type": "record",
        "name": "I",
        "fields": [{"name": "n", "type": "int"}, {"name": "b", "type": ["null", "bytes"]}],
    }
    fields = [{"name": "items", "type": {"type": "array", "items": item}}]
    schema = oracle.parse({"type": "record", "name": "R", "fields": fields})
    good = {"n": 1, "b": b"x"}
    for bad in ({"n": 1.5, "b": None}, {"n": 1, "b": "text"}, {**good, "more": 1}, "word"):
        rows: list[dict[str, Any]] = [{"items": [good]}, {"items": [good, bad]}]
        result = AvroBatchEncoder(schema).encode_rows(rows)
        assert result[2].tolist() == [0, Fault.UNFIT]
        assert payloads(result) == [*oracle.encoded(schema, rows[:1]), b""]


def test_no_row_at_all_is_not_a_row_of_nulls(oracle: Any) -> None:
    fields = [{"name": "a", "type": ["null", "int"], "default": None}]
    schema = oracle.parse({"type": "record", "name": "R", "fields": fields})
    rows: list[Any] = [{"a": 1}, None, {}]
    result = AvroBatchEncoder(schema).encode_rows(rows)
    assert result[2].tolist() == [0, Fault.UNFIT, 0]
    assert payloads(result) == [b"\x02\x02", b"", b"\x00"]


def test_a_time_without_a_zone_is_never_taken_for_one_in_utc(oracle: Any) -> None:
    kind = {"type": "long", "logicalType": "timestamp-millis"}
    schema = oracle.parse({"type": "record", "name": "R", "fields": [{"name": "t", "type": kind}]})
    naive = datetime(2020, 1, 1)  # noqa: DTZ001 - the point of the test
    result = AvroBatchEncoder(schema).encode_rows([{"t": naive}])
    millis = round(naive.timestamp() * 1000)  # local time, as Python and fastavro have it
    assert payloads(result) == payloads(AvroBatchEncoder(schema).encode_rows([{"t": millis}]))
