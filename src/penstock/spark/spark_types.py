"""The types that Spark has for decoded columns, chosen so that no value is changed.

As Spark's own `from_avro` where both have the type: times of day are numbers. Nanoseconds are
numbers too, because Spark's timestamps would cut them; a decimal beyond 38 digits is text. Nested
fields are nullable, as those of Spark's file sources are: `toArrow()` fails on a required field
within a struct that is null.
"""

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.errors import ErrorCode, Refused

_DECIMAL_DIGITS_MAX: Final = 38
_UNSIGNED_LONG: Final = spark.DecimalType(20, 0)
_PLAIN: Final[dict[pa.DataType, spark.DataType]] = {
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


def spark_type(kind: pa.DataType) -> spark.DataType:
    """Spark's type for one of Arrow's; Refused where there is none."""
    known = _PLAIN.get(kind)
    if known is not None:
        return known
    if pa.types.is_nested(kind):
        return _nested(kind)
    if pa.types.is_timestamp(kind):
        return _timestamp(kind)
    if pa.types.is_decimal(kind):
        if kind.precision > _DECIMAL_DIGITS_MAX:
            return spark.StringType()
        return spark.DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return spark.BinaryType()
    raise Refused(ErrorCode.invalid_config, f"Spark has no type for {kind}")


def _timestamp(kind: Any) -> spark.DataType:
    if kind.unit == "ns":
        return spark.LongType()
    return spark.TimestampNTZType() if kind.tz is None else spark.TimestampType()


def _nested(kind: Any) -> spark.DataType:
    if pa.types.is_struct(kind):
        return spark.StructType(
            [
                spark.StructField(one.name, spark_type(one.type))
                for one in (kind.field(index) for index in range(kind.num_fields))
            ]
        )
    if pa.types.is_map(kind):
        return spark.MapType(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return spark.ArrayType(spark_type(kind.value_type))
    raise Refused(ErrorCode.invalid_config, f"Spark has no type for {kind}")


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of a source with these columns."""
    wanted: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return wanted
