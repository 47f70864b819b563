"""Writes Avro values with fastavro, as strictly as they are read.

Nothing is written that the schema does not say: an int of 40 bits, a fraction for a whole number or
a field that is not declared is refused, and so is an event beyond the limits of what is read.
"""

import io
import json
from typing import Any, cast

from fastavro import parse_schema, schemaless_writer
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.validation import ValidationError, validate

from penstock.schemas.avro import AvroSchema
from penstock.schemas.model import InvalidSchemaError
from penstock.serde.avro.event_skipping import WriteLimits
from penstock.serde.avro.limits import NESTING_MAX
from penstock.serde.avro.raw_values import RawValues


class RefusedValueError(Exception):
    """A value that cannot be written; `code` is a name of `AvroFault`."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class FastavroWriter:
    """Writes values of one schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = _parsed(schema)
        self._raw_values = RawValues(schema.root)
        self.limits: WriteLimits = WriteLimits(schema.root)

    def write(self, value: Any) -> bytes:
        """The payload, or RefusedValueError."""
        buffer = io.BytesIO()
        try:
            validate(value, self._schema)
            invalid = self._raw_values.invalid(value)
            if invalid is not None:
                raise RefusedValueError("UNFIT", invalid)
            schemaless_writer(buffer, self._schema, value, strict_allow_default=True)
        except ValidationError as error:
            raise RefusedValueError("UNFIT", "; ".join(map(str, error.errors[:3]))) from None
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
            raise RefusedValueError("UNFIT", str(error)) from None
        except RecursionError:
            detail = f"values are nested more than {NESTING_MAX} deep"
            raise RefusedValueError("NESTING", detail) from None
        return self.check_limits(buffer.getvalue())

    def check_limits(self, payload: bytes) -> bytes:
        """The payload, if it is within the limits of what is read; or RefusedValueError."""
        exceeded = self.limits.exceeded_by(payload)
        if exceeded is not None:
            raise RefusedValueError(exceeded.code, exceeded.detail)
        return payload


def _parsed(schema: AvroSchema) -> Any:
    try:
        return parse_schema(cast("Any", json.loads(schema.formatted("resolved"))))
    except (SchemaParseException, UnknownType, ValueError, KeyError) as error:
        raise InvalidSchemaError(f"fastavro does not accept it: {error}") from None
