"""Spark's types for decoded columns, chosen so that no value is changed.

As in Spark's own `from_avro` where both have the type: times of day are numbers. Nanoseconds are
numbers too, because Spark's timestamps would truncate them; a decimal beyond 38 digits is text.
Nested fields are nullable, as in Spark's file sources: `toArrow()` fails on a required field within
a struct that is null.
"""

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.errors import ErrorCode, Refused

_DECIMAL_DIGITS_MAX: Final = 38
_UNSIGNED_LONG: Final = spark.DecimalType(20, 0)
_SCALARS: Final[dict[pa.DataType, spark.DataType]] = {
    pa.null(): spark.NullType(),
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.uint8(): spark.ShortType(),
    pa.uint16(): spark.IntegerType(),
    pa.uint32(): spark.LongType(),
    pa.uint64(): _UNSIGNED_LONG,
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.large_string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.large_binary(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
    pa.time32("ms"): spark.IntegerType(),
    pa.time64("us"): spark.LongType(),
    pa.time64("ns"): spark.LongType(),
}


def spark_type(arrow_type: pa.DataType) -> spark.DataType:
    """Spark's type for one of Arrow's; Refused if Spark has none."""
    scalar = _SCALARS.get(arrow_type)
    if scalar is not None:
        return scalar
    if pa.types.is_nested(arrow_type):
        return _nested(arrow_type)
    if pa.types.is_timestamp(arrow_type):
        return _timestamp(arrow_type)
    if pa.types.is_decimal(arrow_type):
        if arrow_type.precision > _DECIMAL_DIGITS_MAX:
            return spark.StringType()
        return spark.DecimalType(arrow_type.precision, arrow_type.scale)
    if pa.types.is_fixed_size_binary(arrow_type):
        return spark.BinaryType()
    raise Refused(ErrorCode.invalid_config, f"Spark has no type for {arrow_type}")


def _timestamp(arrow_type: Any) -> spark.DataType:
    if arrow_type.unit == "ns":
        return spark.LongType()
    return spark.TimestampNTZType() if arrow_type.tz is None else spark.TimestampType()


def _nested(arrow_type: Any) -> spark.DataType:
    if pa.types.is_struct(arrow_type):
        return spark.StructType(
            [
                spark.StructField(field.name, spark_type(field.type))
                for field in (arrow_type.field(index) for index in range(arrow_type.num_fields))
            ]
        )
    if pa.types.is_map(arrow_type):
        return spark.MapType(spark_type(arrow_type.key_type), spark_type(arrow_type.item_type))
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return spark.ArrayType(spark_type(arrow_type.value_type))
    raise Refused(ErrorCode.invalid_config, f"Spark has no type for {arrow_type}")


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of a source with these columns."""
    converted: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return converted
