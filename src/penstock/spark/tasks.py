"""What a driver sends to its workers: small frozen things, without the kernels that use them."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.client.contract import Contract
from penstock.link.offsets import Isolation
from penstock.spark import row_columns as own
from penstock.spark.read_options import Coding, OnError


@dataclass(frozen=True)
class Decoding:
    """What to make of records; small, and fit to be sent to workers."""

    schema: pa.Schema  # of every batch, as Spark expects it
    value: Coding
    key: Coding
    fields: tuple[str, ...]  # of the value: those among the schema's columns
    registry: str | None
    registry_wait_ms: int
    value_readers: Mapping[str, Contract]
    key_readers: Mapping[str, Contract]
    on_error: OnError

    @property
    def own_columns(self) -> frozenset[str]:
        """Which of a record's own columns are asked for."""
        names = (own.own_column(name, self.value) for name in self.schema.names)
        return frozenset(name for name in names if name is not None)

    @property
    def decodes_value(self) -> bool:
        """Whether values must be looked into: for their fields, or for what is wrong with them."""
        if self.value is Coding.RAW:
            return False
        return bool(self.fields) or self._minds_errors

    @property
    def decodes_key(self) -> bool:
        """The same for keys."""
        if self.key is Coding.RAW:
            return False
        return own.KEY in self.own_columns or self._minds_errors

    @property
    def _minds_errors(self) -> bool:
        return self.on_error is OnError.FAIL or own.ERROR in self.own_columns


@dataclass(frozen=True)
class ReadTask:
    """What every task of a read has in common; small, and fit to be sent to workers."""

    kafka: Mapping[str, str]
    isolation: Isolation
    fail_on_data_loss: bool
    decoding: Decoding
