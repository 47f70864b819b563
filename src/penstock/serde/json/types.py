"""Which Arrow type the values of a JSON Schema's type have."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from penstock.serde.json.value_types import ListOf, MapOf, ObjectOf, Scalar, ValueType

_SCALARS: Final[Mapping[Scalar, pa.DataType]] = {
    Scalar.STRING: pa.string(),
    Scalar.INTEGER: pa.int64(),
    Scalar.NUMBER: pa.float64(),
    Scalar.BOOLEAN: pa.bool_(),
}


def arrow_type(value: ValueType) -> pa.DataType:
    """The type of a column of such values."""
    match value:
        case Scalar():
            return _SCALARS[value]
        case ListOf(item):
            return pa.list_(arrow_type(item))
        case MapOf(entry):
            return pa.map_(pa.string(), arrow_type(entry))
        case ObjectOf(properties):
            return pa.struct(
                [pa.field(name, arrow_type(value_type)) for name, value_type in properties]
            )
