"""Decoded columns in Spark's types: every type, nested too, with unchanged values."""

from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType

from penstock.columns.arrow_records import HEADERS_TYPE
from penstock.errors import Refused
from penstock.spark import source_columns
from penstock.spark.fit_arrow import fit, fit_rows, null_unless
from penstock.spark.spark_types import arrow_schema, spark_type


def as_spark(arrow_type: pa.DataType) -> pa.DataType:
    schema = arrow_schema(StructType([StructField("c", spark_type(arrow_type))]))
    converted: pa.DataType = schema.field("c").type
    return converted


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


@pytest.mark.parametrize(
    ("arrow_type", "values", "name", "expected"), CASES, ids=lambda case: str(case)[:30]
)
def test_a_value_is_the_same_in_sparks_type(
    arrow_type: pa.DataType, values: list[Any], name: str, expected: list[Any]
) -> None:
    assert spark_type(arrow_type).simpleString() == name
    target = as_spark(arrow_type)
    fitted = fit(pa.array(values, arrow_type), target)
    fitted.validate(full=True)
    assert fitted.to_pylist() == expected
    assert fit(pa.array([*values, *values], arrow_type).slice(len(values)), target) == fitted


def test_nested_fields_are_nullable_whatever_the_schema_says() -> None:
    required: Any = partial(pa.field, nullable=False)
    arrow_type = pa.struct(
        [
            required("a", pa.list_(required("item", pa.int32()))),
            required("b", pa.map_(pa.string(), required("value", pa.int32()))),
        ]
    )
    optional: Any = spark_type(arrow_type)
    assert [field.nullable for field in optional] == [True, True]
    assert optional["a"].dataType.containsNull
    assert optional["b"].dataType.valueContainsNull


@pytest.mark.parametrize("unit", ["ms", "us"])
@pytest.mark.parametrize("zone", ["UTC", None])
def test_times_become_microseconds(unit: str, zone: str | None) -> None:
    column = pa.array([1_700_000_000_000]).view(pa.timestamp(unit, tz=zone))
    fitted = fit(column, as_spark(column.type))
    assert fitted.to_pylist() == column.to_pylist()
    assert spark_type(column.type).simpleString() == ("timestamp" if zone else "timestamp_ntz")


def test_values_that_do_not_fit_are_null_and_reported_by_row() -> None:
    column = pa.array([1, 2**62, None, 3]).view(pa.timestamp("ms", tz="UTC"))
    flat: Any = column
    items = pa.ListArray.from_arrays([0, 1, 2, 4], flat)
    fitted, unfit = fit_rows(items, as_spark(items.type))
    assert unfit.tolist() == [False, True, False]
    assert [value is None for value in fitted.to_pylist()] == [False, True, False]


def test_arrow_types_that_spark_lacks_are_refused() -> None:
    with pytest.raises(Refused, match="Spark has no type for"):
        spark_type(pa.month_day_nano_interval())


def test_rows_that_are_not_valid_become_null() -> None:
    column = null_unless(pa.array(["a", "b", "c"]), np.array([True, False, True]))
    assert column.to_pylist() == ["a", None, "c"]


def test_record_columns_have_sparks_types_already() -> None:
    assert source_columns.HEADERS_TYPE == HEADERS_TYPE
    for arrow_type in source_columns.RECORD_COLUMNS.values():
        assert as_spark(arrow_type).equals(arrow_type)
