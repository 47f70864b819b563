"""Decoded columns in Spark's types: every type, nested too, with nothing changed on the way."""

from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType

from penstock.columns.arrow_records import HEADERS_TYPE
from penstock.errors import Refused
from penstock.spark import spark_columns as own
from penstock.spark.fit_arrow import fit, fit_rows, kept_where
from penstock.spark.spark_columns import arrow_schema, spark_type


def as_spark(kind: pa.DataType) -> pa.DataType:
    schema = arrow_schema(StructType([StructField("c", spark_type(kind))]))
    wanted: pa.DataType = schema.field("c").type
    return wanted


CASES: list[tuple[pa.DataType, list[Any], str, list[Any]]] = [
    (pa.null(), [None], "void", [None]),
    (pa.bool_(), [True, None], "boolean", [True, None]),
    (pa.int8(), [-1], "tinyint", [-1]),
    (pa.uint8(), [255], "smallint", [255]),
    (pa.uint16(), [2**16 - 1], "int", [2**16 - 1]),
    (pa.uint32(), [2**32 - 1], "bigint", [2**32 - 1]),
    (pa.uint64(), [2**64 - 1], "decimal(20,0)", [Decimal(2**64 - 1)]),
    (pa.float32(), [1.5], "float", [1.5]),
    (pa.large_string(), ["a", None], "string", ["a", None]),
    (pa.binary(2), [b"ab", None], "binary", [b"ab", None]),
    (pa.time32("ms"), [5], "int", [5]),
    (pa.time64("us"), [5, None], "bigint", [5, None]),
    (pa.timestamp("ns", tz="UTC"), [1234567891], "bigint", [1234567891]),
    (pa.decimal128(12, 2), [Decimal("1.25")], "decimal(12,2)", [Decimal("1.25")]),
    (pa.decimal256(50, 2), [Decimal("1.25"), None], "string", ["1.25", None]),
    (pa.list_(pa.uint8()), [[1, 2], None, []], "array<smallint>", [[1, 2], None, []]),
    (
        pa.struct([pa.field("a", pa.uint8(), nullable=False), pa.field("b", pa.string())]),
        [{"a": 1, "b": "x"}, None],
        "struct<a:smallint,b:string>",
        [{"a": 1, "b": "x"}, None],
    ),
    (
        pa.map_(pa.string(), pa.list_(pa.uint8())),
        [[("k", [1])], None],
        "map<string,array<smallint>>",
        [[("k", [1])], None],
    ),
]


@pytest.mark.parametrize(("kind", "values", "name", "told"), CASES, ids=lambda one: str(one)[:30])
def test_a_value_is_the_same_in_sparks_type(
    kind: pa.DataType, values: list[Any], name: str, told: list[Any]
) -> None:
    assert spark_type(kind).simpleString() == name
    fitted = fit(pa.array(values, kind), as_spark(kind))
    fitted.validate(full=True)
    assert fitted.to_pylist() == told
    assert fit(pa.array([*values, *values], kind).slice(len(values)), as_spark(kind)) == fitted


def test_fields_within_a_type_are_nullable_whatever_the_schema_says() -> None:
    required: Any = partial(pa.field, nullable=False)
    kind = pa.struct(
        [
            required("a", pa.list_(required("item", pa.int32()))),
            required("b", pa.map_(pa.string(), required("value", pa.int32()))),
        ]
    )
    optional: Any = spark_type(kind)
    assert [one.nullable for one in optional] == [True, True]
    assert optional["a"].dataType.containsNull
    assert optional["b"].dataType.valueContainsNull


@pytest.mark.parametrize("unit", ["ms", "us"])
@pytest.mark.parametrize("zone", ["UTC", None])
def test_times_become_microseconds(unit: str, zone: str | None) -> None:
    column = pa.array([1_700_000_000_000]).view(pa.timestamp(unit, tz=zone))
    fitted = fit(column, as_spark(column.type))
    assert fitted.to_pylist() == column.to_pylist()
    assert spark_type(column.type).simpleString() == ("timestamp" if zone else "timestamp_ntz")


def test_what_does_not_fit_is_null_and_told_by_row() -> None:
    column = pa.array([1, 2**62, None, 3]).view(pa.timestamp("ms", tz="UTC"))
    flat: Any = column
    items = pa.ListArray.from_arrays([0, 1, 2, 4], flat)
    fitted, unfit = fit_rows(items, as_spark(items.type))
    assert unfit.tolist() == [False, True, False]
    assert [one is None for one in fitted.to_pylist()] == [False, True, False]


def test_arrows_types_that_spark_has_not_are_refused() -> None:
    with pytest.raises(Refused, match="Spark has no type for"):
        spark_type(pa.month_day_nano_interval())


def test_rows_that_are_not_kept_are_null() -> None:
    column = kept_where(pa.array(["a", "b", "c"]), np.array([True, False, True]))
    assert column.to_pylist() == ["a", None, "c"]


def test_a_records_own_columns_have_sparks_types_already() -> None:
    assert own.HEADERS_TYPE == HEADERS_TYPE
    for kind in own.OWN_TYPES.values():
        assert as_spark(kind).equals(kind)
