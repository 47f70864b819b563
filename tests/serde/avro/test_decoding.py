"""Batches are what fastavro reads, row for row: random schemas, random pairs, random values."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.avro.read_program import AvroFault as Fault
from penstock.columns.vm.payloads import OutputTooLargeError, PayloadLimits
from penstock.schemas.avro.tree import AvroType
from penstock.serde.avro.batch import AvroBatchDecoder

SEEDS = st.integers(0, 2**32)


def record(*fields: Any, name: str = "R") -> Any:
    rows = [
        {"name": each[0], "type": each[1], **({"default": each[2]} if len(each) > 2 else {})}
        for each in fields
    ]
    return {"type": "record", "name": name, "fields": rows}


def decoded(
    oracle: Any, writer: Any, payloads: list[bytes], reader: Any = None, **more: Any
) -> Any:
    schemas = [oracle.parse(writer), None if reader is None else oracle.parse(reader)]
    batch, errors = AvroBatchDecoder(*schemas, **more).decode(*oracle.joined(payloads))
    batch.validate(full=True)
    return batch, errors.tolist()


@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_a_batch_is_what_fastavro_reads(seed: int, oracle: Any) -> None:
    maker = oracle.maker(seed)
    schema = oracle.parse(maker.record() if seed % 4 else maker.schema())
    payloads = oracle.encoded(schema, [maker.value(schema.root) for _ in range(10)])
    batch, errors = AvroBatchDecoder(schema).decode(*oracle.joined(payloads))
    batch.validate(full=True)
    assert not errors.any()
    wanted = [oracle.expected(schema.root, oracle.read(payload, schema)) for payload in payloads]
    if schema.root.kind is not AvroType.RECORD:
        wanted = [{"value": row} for row in wanted]
    assert oracle.rows_of(batch) == wanted


@given(seed=SEEDS)
@settings(max_examples=250, deadline=None)
def test_a_reader_sees_what_fastavro_resolves_and_refuses_what_it_refuses(
    seed: int, oracle: Any
) -> None:
    maker = oracle.maker(seed)
    text = maker.record() if seed % 4 else maker.schema()
    writer, reader = oracle.parse(text), oracle.parse(oracle.evolver(seed).reader(text))
    payloads = oracle.encoded(writer, [maker.value(writer.root) for _ in range(10)])
    batch, errors = AvroBatchDecoder(writer, reader).decode(*oracle.joined(payloads))
    batch.validate(full=True)
    rows = oracle.rows_of(batch)
    for payload, row, wrong in zip(payloads, rows, errors, strict=True):
        try:
            value = oracle.read(payload, writer, reader)
        except Exception:  # noqa: BLE001 - fastavro has no one kind of its own
            assert wrong in (Fault.UNRESOLVABLE, Fault.SYMBOL, Fault.UTF8)
            assert not any(one is not None for one in row.values())
            continue
        assert wrong == Fault.OK
        wanted = oracle.expected(reader.root, value)
        assert row == (wanted if reader.root.kind is AvroType.RECORD else {"value": wanted})


@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_columns_asked_for_are_the_same_as_in_the_whole_batch(seed: int, oracle: Any) -> None:
    maker = oracle.maker(seed)
    schema = oracle.parse(maker.record())
    payloads = oracle.encoded(schema, [maker.value(schema.root) for _ in range(6)])
    names = [field.name for field in schema.root.fields]
    wanted = maker.random.sample(names, maker.random.randint(0, len(names)))
    whole, _ = AvroBatchDecoder(schema).decode(*oracle.joined(payloads))
    some, errors = AvroBatchDecoder(schema, columns=wanted).decode(*oracle.joined(payloads))
    assert not errors.any()
    assert some.num_rows == len(payloads)
    assert some.schema.names == wanted
    assert oracle.rows_of(some) == oracle.rows_of(whole.select(wanted))


def test_a_wrong_row_is_null_throughout_and_its_neighbours_never_know(oracle: Any) -> None:
    schema = record(
        ("id", "int"), ("tags", {"type": "array", "items": "string"}), ("ok", "boolean")
    )
    good = oracle.encoded(
        oracle.parse(schema), [{"id": n, "tags": [f"tag{n}"] * n, "ok": True} for n in range(3)]
    )
    payloads = [good[0], good[1][:-1] + b"\x02", good[2][:-1], good[2], good[2] + b"\0", good[1]]
    batch, errors = decoded(oracle, schema, payloads)
    assert errors == [0, Fault.BOOLEAN, Fault.TRUNCATED, 0, Fault.TRAILING, 0]
    assert batch.column("id").to_pylist() == [0, None, None, 2, None, 1]
    assert batch.column("tags").to_pylist() == [[], None, None, ["tag2"] * 2, None, ["tag1"]]
    assert batch.column("ok").null_count == 3


def test_blocks_with_negative_counts_and_several_blocks_are_one_array(oracle: Any) -> None:
    schema = record(("numbers", {"type": "array", "items": "int"}))
    payload = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00"  # -2 in 2 bytes: 1 2; 1: 3; end
    batch, errors = decoded(oracle, schema, [payload, b"\x00"])
    assert errors == [0, 0]
    assert batch.column("numbers").to_pylist() == [[1, 2, 3], []]


@pytest.mark.parametrize(
    ("written", "read", "value", "wanted"),
    [
        ("int", "long", 7, 7),
        ("int", "float", 7, 7.0),
        ("int", "double", 7, 7.0),
        ("long", "double", 2**53, float(2**53)),
        ("float", "double", 1.5, 1.5),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", "é".encode(), "é"),
        ("int", ["null", "int"], 7, 7),
        (["null", "int"], "int", 7, 7),
        ("int", ["double", "int"], 7, {"double": None, "int": 7}),
        ("int", ["string", "double"], 7, {"string": None, "double": 7.0}),
        (["int", "string"], ["string", "long"], 7, {"string": None, "long": 7}),
        (["string", "bytes"], ["string", "bytes"], b"x", {"string": None, "bytes": b"x"}),
    ],
)
def test_a_promotion_and_a_union_resolve_as_in_avro_for_java(
    written: Any, read: Any, value: Any, wanted: Any, oracle: Any
) -> None:
    writer, reader = record(("f", written)), record(("f", read))
    payloads = oracle.encoded(oracle.parse(writer), [{"f": value}])
    batch, errors = decoded(oracle, writer, payloads, reader)
    assert errors == [0]
    assert batch.column("f").to_pylist() == [wanted]


def test_a_branch_that_is_not_read_fails_its_rows_only(oracle: Any) -> None:
    writer, reader = record(("f", ["null", "int", "string"])), record(("f", "int"))
    payloads = oracle.encoded(oracle.parse(writer), [{"f": 1}, {"f": None}, {"f": "x"}, {"f": 2}])
    batch, errors = decoded(oracle, writer, payloads, reader)
    assert errors == [0, Fault.UNRESOLVABLE, Fault.UNRESOLVABLE, 0]
    assert batch.column("f").to_pylist() == [1, None, None, 2]


def test_timestamps_keep_their_meaning_when_the_unit_changes(oracle: Any) -> None:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    finer, errors = decoded(
        oracle, record(("t", millis)), [b"\x02", b"\xff" * 9 + b"\x01"], record(("t", micros))
    )
    assert errors == [0, Fault.UNRESOLVABLE]
    assert finer.column("t").cast(pa.int64()).to_pylist() == [1000, None]
    coarser, _ = decoded(oracle, record(("t", micros)), [b"\xcf\x0f"], record(("t", millis)))
    assert coarser.column("t").cast(pa.int64()).to_pylist() == [-1]  # -1 000 microseconds


def test_a_decimal_keeps_its_value_in_another_scale_or_is_refused(oracle: Any) -> None:
    def money(scale: int) -> Any:
        decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale}
        return record(("m", decimal))

    finer, errors = decoded(oracle, money(2), [b"\x02\x07", b"\x08\x3b\x9a\xc9\xff"], money(3))
    assert errors == [0, Fault.UNRESOLVABLE]  # 9 digits and one more
    assert finer.column("m").to_pylist() == [Decimal("0.070"), None]
    coarser, errors = decoded(oracle, money(2), [b"\x02\x07", b"\x02\xf6"], money(1))
    assert errors == [Fault.UNRESOLVABLE, 0]  # 0.07 would lose a digit
    assert coarser.column("m").to_pylist() == [None, Decimal("-0.1")]


@pytest.mark.parametrize("default", ["\u0000ÿ", "abc"])
def test_a_default_of_bytes_is_a_character_per_byte(default: str, oracle: Any) -> None:
    writer = record(("x", "null"))
    reader = record(("f", "bytes", default), ("m", DECIMAL, "\u0001"))
    batch, errors = decoded(oracle, writer, [b"", b""], reader)
    assert errors == [0, 0]
    assert batch.column("f").to_pylist() == [default.encode("latin-1")] * 2
    assert [str(one) for one in batch.column("m").to_pylist()] == ["0.01"] * 2


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}


def test_a_field_without_default_that_was_not_written_is_wrong(oracle: Any) -> None:
    _, errors = decoded(oracle, record(("a", "int")), [b"\x02"], record(("b", "int")))
    assert errors == [Fault.UNRESOLVABLE]


def test_a_column_that_contains_itself_is_json_and_the_others_are_not(oracle: Any) -> None:
    tree = record(("size", "long"), ("name", "bytes"), ("below", {"type": "array", "items": "R"}))
    leaf = {"size": 1, "name": b"\xff", "below": []}
    schema = oracle.parse(tree)
    payloads = oracle.encoded(schema, [leaf, {"size": 2, "name": b"", "below": [leaf]}])
    deep = b"\x02\x00\x02" * 100_000
    batch, errors = decoded(oracle, tree, [*payloads, payloads[1][:-1], deep])
    assert errors == [0, 0, Fault.TRUNCATED, Fault.NESTING]
    assert batch.column("size").to_pylist() == [1, 2, None, None]
    assert batch.column("below").to_pylist() == [
        "[]",
        '[{"size": 1, "name": "ÿ", "below": []}]',
        None,
        None,
    ]


def test_a_recursive_field_that_is_not_requested_is_skipped(oracle: Any) -> None:
    tree = record(("size", "long"), ("next", ["null", "R"]), ("last", "string"))
    schema = oracle.parse(tree)
    value: Any = {"size": 0, "next": None, "last": "z"}
    for size in range(1, 50):
        value = {"size": size, "next": value, "last": f"{size}"}
    batch, errors = decoded(oracle, tree, oracle.encoded(schema, [value]), columns=["last", "size"])
    assert errors == [0]
    assert batch.to_pylist() == [{"last": "49", "size": 49}]


def test_an_array_that_claims_a_billion_nulls_costs_nothing(oracle: Any) -> None:
    schema = record(("nothing", {"type": "array", "items": "null"}))
    claim = b"\x80\x80\x80\x80\x08\x00"  # 2^30 items of no bytes at all
    batch, errors = decoded(oracle, schema, [claim, b"\x06\x00"])
    assert errors == [Fault.ITEMS, 0]
    assert batch.column("nothing").to_pylist() == [None, [None] * 3]


def test_limits_are_kept_row_by_row_and_for_the_batch(oracle: Any) -> None:
    schema = oracle.parse(record(("text", "string")))
    payloads = oracle.encoded(schema, [{"text": "x" * 100}, {"text": "y" * 2000}])
    small = AvroBatchDecoder(schema, limits=PayloadLimits(value_bytes_max=1000))
    batch, errors = small.decode(*oracle.joined(payloads))
    assert errors.tolist() == [0, Fault.TOO_LARGE]
    assert batch.column("text").to_pylist() == ["x" * 100, None]
    with pytest.raises(OutputTooLargeError, match="fewer at a time"):
        AvroBatchDecoder(schema, limits=PayloadLimits(output_bytes_max=20_000)).decode(
            *oracle.joined(payloads * 100)
        )


def test_the_first_rows_may_be_larger_or_smaller_than_the_rest(oracle: Any) -> None:
    schema = oracle.parse(record(("texts", {"type": "array", "items": "string"})))
    for sizes in ([500] * 70 + [1] * 700, [1] * 70 + [500] * 300 + [3] * 100):
        rows = [{"texts": [f"text {row}"] * size} for row, size in enumerate(sizes)]
        batch, errors = AvroBatchDecoder(schema).decode(
            *oracle.joined(oracle.encoded(schema, rows))
        )
        assert not errors.any()
        assert batch.to_pylist() == rows


def test_no_payloads_make_an_empty_batch_of_the_right_types(oracle: Any) -> None:
    schema = record(("id", "int"), ("tags", {"type": "map", "values": ["null", "string"]}))
    none = np.zeros(0, dtype=np.int64)
    batch, errors = AvroBatchDecoder(oracle.parse(schema)).decode(b"", none, none)
    assert (batch.num_rows, len(errors)) == (0, 0)
    assert batch.schema.field("id").type == pa.int32()


def test_a_column_the_reader_does_not_have_is_refused(oracle: Any) -> None:
    with pytest.raises(ValueError, match="no column 'nope'"):
        AvroBatchDecoder(oracle.parse(record(("id", "int"))), columns=["nope"])
