"""What a driver sends to the workers that read: small and frozen, without the kernels that use it.

Imports no pyspark.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.link.offsets import Isolation
from penstock.serde.contract import Contract
from penstock.spark import source_columns as columns
from penstock.spark.read_options import OnError, PayloadFormat


@dataclass(frozen=True)
class DecodePlan:
    """How records become rows; small, to be sent to workers."""

    schema: pa.Schema  # of every batch, as Spark expects it
    value: PayloadFormat
    key: PayloadFormat
    fields: tuple[str, ...]  # of the value: those among the schema's columns
    registry: str | None
    registry_wait_ms: int
    value_readers: Mapping[str, Contract]
    key_readers: Mapping[str, Contract]
    on_error: OnError

    @property
    def record_columns(self) -> frozenset[str]:
        """The requested record columns."""
        names = (columns.record_column(name, self.value) for name in self.schema.names)
        return frozenset(name for name in names if name is not None)

    @property
    def decodes_value(self) -> bool:
        """Whether values must be decoded: for their fields, or to report errors."""
        if self.value is PayloadFormat.RAW:
            return False
        return bool(self.fields) or self._reports_errors

    @property
    def decodes_key(self) -> bool:
        """The same for keys."""
        if self.key is PayloadFormat.RAW:
            return False
        return columns.KEY in self.record_columns or self._reports_errors

    @property
    def _reports_errors(self) -> bool:
        return self.on_error is OnError.FAIL or columns.ERROR in self.record_columns


@dataclass(frozen=True)
class ReadPlan:
    """What all tasks of a read have in common; small, to be sent to workers."""

    kafka: Mapping[str, str]
    isolation: Isolation
    fail_on_data_loss: bool
    decode: DecodePlan
